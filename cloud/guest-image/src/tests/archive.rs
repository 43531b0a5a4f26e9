//! Unpacking and packing.

use std::io;

use proptest::prelude::*;
use tar::{Builder, EntryType, Header};

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

#[expect(clippy::unnecessary_wraps, reason = "as the callers of the crate answer")]
fn always() -> io::Result<bool> {
    Ok(true)
}

fn unpacked(members: &[(EntryType, &str, &[u8])]) -> (tempfile::TempDir, Result<(), ArchiveError>) {
    let mut archive = Builder::new(Vec::new());
    for (kind, name, contents) in members {
        member(&mut archive, *kind, name.as_bytes(), contents);
    }
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    fs::create_dir(&image).unwrap();
    let result = unpack(&*archive.into_inner().unwrap(), &image, LIMITS, always);
    (dir, result)
}

#[test]
fn plain_files_are_written_and_nothing_else() {
    let (dir, result) = unpacked(&[
        (EntryType::Directory, "./", b""),
        (EntryType::Regular, "./vmlinuz", b"kernel"),
        (EntryType::Regular, "a_b-1.txt", b""),
    ]);
    result.unwrap();
    assert_eq!(fs::read(dir.path().join("image/vmlinuz")).unwrap(), b"kernel");
    assert_eq!(fs::read_dir(dir.path().join("image")).unwrap().count(), 2);
    for (kind, name) in [
        (EntryType::Regular, "../evil"),
        (EntryType::Regular, "./../evil"),
        (EntryType::Regular, "/tmp/evil"),
        (EntryType::Regular, "sub/evil"),
        (EntryType::Regular, ".."),
        (EntryType::Regular, ".hidden"),
        (EntryType::Regular, "a b"),
        (EntryType::Regular, ""),
        (EntryType::Symlink, "link"),
        (EntryType::Link, "link"),
        (EntryType::Directory, "dir"),
        (EntryType::Directory, ".."),
        (EntryType::Char, "device"),
        (EntryType::Fifo, "pipe"),
        (EntryType::GNULongName, "long"),
        (EntryType::XHeader, "pax"),
    ] {
        let (dir, result) = unpacked(&[(kind, name, b"")]);
        assert!(matches!(result, Err(ArchiveError::Refused(_))), "{kind:?} {name}: {result:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "{name}");
        assert_eq!(fs::read_dir(dir.path().join("image")).unwrap().count(), 0, "{name}");
    }
}

#[test]
fn there_is_an_end_to_everything() {
    let file = |name| (EntryType::Regular, name, b"".as_slice());
    let (_dir, result) = unpacked(&[file("a"), file("b"), file("c"), file("d")]);
    assert!(matches!(result, Err(ArchiveError::TooLarge)));
    let (_dir, result) =
        unpacked(&[(EntryType::Regular, "a", &[0; 600]), (EntryType::Regular, "b", &[0; 600])]);
    assert!(matches!(result, Err(ArchiveError::TooLarge)));
    let (_dir, result) = unpacked(&[file("a"), file("a")]);
    assert!(matches!(result, Err(ArchiveError::Refused("a name occurs twice in it"))));
    let dir = tempfile::tempdir().unwrap();
    let endless = Builder::new(Vec::new()).into_inner().unwrap();
    let result = unpack(io::Read::chain(&*endless, io::repeat(0)), dir.path(), LIMITS, always);
    assert!(matches!(result, Err(ArchiveError::TooLarge)), "{result:?}");
}

#[test]
fn a_full_disk_takes_no_byte() {
    let mut archive = Builder::new(Vec::new());
    member(&mut archive, EntryType::Regular, b"vmlinuz", b"kernel");
    let dir = tempfile::tempdir().unwrap();
    let result = unpack(&*archive.into_inner().unwrap(), dir.path(), LIMITS, || Ok(false));
    assert!(matches!(result, Err(ArchiveError::NoRoom)), "{result:?}");
    assert_eq!(fs::metadata(dir.path().join("vmlinuz")).unwrap().len(), 0);
}

#[test]
fn a_stream_that_breaks_off_is_no_image() {
    let mut archive = Builder::new(Vec::new());
    member(&mut archive, EntryType::Regular, b"vmlinuz", &[7; 900]);
    let bytes = archive.into_inner().unwrap();
    for length in [100, 512, 600, 1411] {
        let dir = tempfile::tempdir().unwrap();
        let result = unpack(&bytes[..length], dir.path(), LIMITS, always);
        assert!(matches!(result, Err(ArchiveError::Stream(_))), "{length}: {result:?}");
    }
}

#[test]
fn what_is_packed_is_the_same_image_elsewhere() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let hash = write(here.path(), &files());
    fs::write(here.path().join(DIGEST), hash.to_string()).unwrap();
    let mut archive = Vec::new();
    pack(here.path(), &mut archive).unwrap();
    assert!(archive.starts_with(CHECKSUMS.as_bytes()), "a receiver can refuse early");
    unpack(&*archive, there.path(), Limits::USUAL, always).unwrap();
    assert_eq!(CheckedImage::check(there.path(), Some(hash), Others::Refused).unwrap().hash, hash);
    assert!(!there.path().join(DIGEST).exists());
}

proptest! {
    #[test]
    fn nothing_leaves_the_directory(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        fs::create_dir(&image).unwrap();
        let _ = unpack(&*bytes, &image, Limits::USUAL, always);
        prop_assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
