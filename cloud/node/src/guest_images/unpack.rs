//! The files of a guest image from a tar stream into a directory of its own.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use tar::{Archive, EntryType};

use super::fetch::FetchError;
use crate::host::has_free_disk;

const CHUNK_BYTES: usize = 1024 * 1024;
/// Longest name of a file, in bytes.
const MAX_NAME_BYTES: usize = 128;

/// How much an image may bring.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Files.
    pub(super) files: usize,
    /// Bytes of all files together.
    pub(super) bytes: u64,
}

impl Limits {
    pub(super) const USUAL: Self = Self { files: 32, bytes: 8 << 30 };
}

/// Writes every member of the archive, which must be a plain file without a directory, into `dir`.
pub(super) fn unpack(input: impl Read, dir: &Path, limits: Limits) -> Result<(), FetchError> {
    let mut archive = Archive::new(input);
    let mut left = limits.bytes;
    // Raw, because the reader would otherwise gather long names in memory without a limit.
    for (count, entry) in archive.entries().map_err(FetchError::Stream)?.raw(true).enumerate() {
        let entry = entry.map_err(FetchError::Stream)?;
        if count >= limits.files {
            return Err(FetchError::TooLarge);
        }
        if entry.header().entry_type() != EntryType::Regular {
            return Err(FetchError::Refused("it holds something else than plain files"));
        }
        let name = entry.path_bytes();
        let name = std::str::from_utf8(&name).ok().filter(|name| is_plain(name));
        let path = dir.join(name.ok_or(FetchError::Refused("a file in it has no plain name"))?);
        let size = entry.size();
        left = left.checked_sub(size).ok_or(FetchError::TooLarge)?;
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(|error| {
                match error.kind() {
                    io::ErrorKind::AlreadyExists => FetchError::Refused("a name occurs twice"),
                    _ => FetchError::Disk(error),
                }
            })?;
        // The reader takes the end of its input for the end of the file.
        if copy(entry, &mut file, dir)? != size {
            return Err(FetchError::Stream(io::ErrorKind::UnexpectedEof.into()));
        }
        file.sync_all().map_err(FetchError::Disk)?;
    }
    Ok(())
}

/// Names that mean the same everywhere: no directory, nothing hidden, nothing to quote.
fn is_plain(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
}

fn copy(mut from: impl Read, to: &mut File, dir: &Path) -> Result<u64, FetchError> {
    let (mut chunk, mut total) = (vec![0; CHUNK_BYTES], 0);
    loop {
        let count = from.read(&mut chunk).map_err(FetchError::Stream)?;
        let Some(news) = chunk.get(..count).filter(|news| !news.is_empty()) else { return Ok(total) };
        // Running CVMs write to the disk as well.
        if !has_free_disk(dir).map_err(FetchError::Disk)? {
            return Err(FetchError::DiskFull);
        }
        to.write_all(news).map_err(FetchError::Disk)?;
        total += news.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tar::{Builder, Header};

    use super::*;

    const LIMITS: Limits = Limits { files: 3, bytes: 1000 };

    /// A member as a hostile sender writes it: the name goes into the header as it is.
    fn member(archive: &mut Builder<Vec<u8>>, kind: EntryType, name: &[u8], contents: &[u8]) {
        let mut header = Header::new_ustar();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name);
        header.set_entry_type(kind);
        header.set_size(contents.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        archive.append(&header, contents).unwrap();
    }

    fn unpacked(members: &[(EntryType, &str, &[u8])]) -> (tempfile::TempDir, Result<(), FetchError>) {
        let mut archive = Builder::new(Vec::new());
        for (kind, name, contents) in members {
            member(&mut archive, *kind, name.as_bytes(), contents);
        }
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        std::fs::create_dir(&image).unwrap();
        let result = unpack(&*archive.into_inner().unwrap(), &image, LIMITS);
        (dir, result)
    }

    #[test]
    fn plain_files_are_written_and_nothing_else() {
        let (dir, result) =
            unpacked(&[(EntryType::Regular, "vmlinuz", b"kernel"), (EntryType::Regular, "a_b-1.txt", b"")]);
        result.unwrap();
        assert_eq!(std::fs::read(dir.path().join("image/vmlinuz")).unwrap(), b"kernel");
        for (kind, name) in [
            (EntryType::Regular, "../evil"),
            (EntryType::Regular, "/tmp/evil"),
            (EntryType::Regular, "sub/evil"),
            (EntryType::Regular, ".."),
            (EntryType::Regular, ".hidden"),
            (EntryType::Regular, "a b"),
            (EntryType::Regular, ""),
            (EntryType::Symlink, "link"),
            (EntryType::Link, "link"),
            (EntryType::Directory, "dir"),
            (EntryType::Char, "device"),
            (EntryType::Fifo, "pipe"),
            (EntryType::GNULongName, "long"),
            (EntryType::XHeader, "pax"),
        ] {
            let (dir, result) = unpacked(&[(kind, name, b"")]);
            assert!(matches!(result, Err(FetchError::Refused(_))), "{kind:?} {name}: {result:?}");
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "{name}");
            assert_eq!(std::fs::read_dir(dir.path().join("image")).unwrap().count(), 0, "{name}");
        }
    }

    #[test]
    fn there_is_an_end_to_everything() {
        let file = |name| (EntryType::Regular, name, b"".as_slice());
        let (_dir, result) = unpacked(&[file("a"), file("b"), file("c"), file("d")]);
        assert!(matches!(result, Err(FetchError::TooLarge)));
        let (_dir, result) =
            unpacked(&[(EntryType::Regular, "a", &[0; 600]), (EntryType::Regular, "b", &[0; 600])]);
        assert!(matches!(result, Err(FetchError::TooLarge)));
        let (_dir, result) = unpacked(&[file("a"), file("a")]);
        assert!(matches!(result, Err(FetchError::Refused("a name occurs twice"))));
    }

    #[test]
    fn a_stream_that_breaks_off_is_no_image() {
        let mut archive = Builder::new(Vec::new());
        member(&mut archive, EntryType::Regular, b"vmlinuz", &[7; 900]);
        let bytes = archive.into_inner().unwrap();
        for length in [100, 512, 600, 1411] {
            let dir = tempfile::tempdir().unwrap();
            let result = unpack(&bytes[..length], dir.path(), LIMITS);
            assert!(matches!(result, Err(FetchError::Stream(_))), "{length}: {result:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_leaves_the_directory(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
            let dir = tempfile::tempdir().unwrap();
            let image = dir.path().join("image");
            std::fs::create_dir(&image).unwrap();
            let _ = unpack(&*bytes, &image, LIMITS);
            prop_assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        }
    }
}
