//! Guest images from and to tar streams.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use tar::{Archive, Builder, Entry, EntryType, Header};

use crate::{CHECKSUMS, DIGEST, is_plain};

const CHUNK_BYTES: usize = 1024 * 1024;
/// What is sent at once.
const PIECE_BYTES: usize = 256 * 1024;
/// What may follow the end of an archive; `tar` fills it up to its block size.
const MAX_TRAILER_BYTES: u64 = 1024 * 1024;

/// Why an archive was not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The sender stopped, or sent no archive.
    #[error("the archive broke off or is no tar archive")]
    Stream(#[source] io::Error),
    /// It holds what no image has.
    #[error("the archive is refused: {0}")]
    Refused(&'static str),
    /// More than an image has.
    #[error("the archive has more or larger files than a guest image")]
    TooLarge,
    /// The receiver needs what is left of the disk.
    #[error("the disk has no space left for the image")]
    NoRoom,
    /// The disk fails.
    #[error("the image cannot be stored")]
    Disk(#[source] io::Error),
}

/// How much an image may bring.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Files.
    pub files: usize,
    /// Bytes of all files together.
    pub bytes: u64,
}

impl Limits {
    /// Those of every real image: 32 files of 8 GiB together.
    pub const USUAL: Self = Self { files: 32, bytes: 8 << 30 };
}

/// Writes every member of the archive, which must be a plain file without a directory, into `dir`, for as long as
/// there `has_room`, and reads the stream to its end.
pub fn unpack(
    mut input: impl Read,
    dir: &Path,
    limits: Limits,
    has_room: impl Fn() -> io::Result<bool>,
) -> Result<(), ArchiveError> {
    let mut archive = Archive::new(&mut input);
    let mut left = limits.bytes;
    // Raw, because the reader would otherwise gather long names in memory without a limit.
    for (count, entry) in archive.entries().map_err(ArchiveError::Stream)?.raw(true).enumerate() {
        let mut entry = entry.map_err(ArchiveError::Stream)?;
        if count >= limits.files {
            return Err(ArchiveError::TooLarge);
        }
        let Some(name) = file_name(&entry)? else { continue };
        let size = entry.size();
        left = left.checked_sub(size).ok_or(ArchiveError::TooLarge)?;
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(dir.join(name));
        let mut file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => ArchiveError::Refused("a name occurs twice in it"),
            _ => ArchiveError::Disk(error),
        })?;
        // The reader takes the end of its input for the end of the file.
        if copy(&mut entry, &mut file, &has_room)? != size {
            return Err(ArchiveError::Stream(io::ErrorKind::UnexpectedEof.into()));
        }
        file.sync_all().map_err(ArchiveError::Disk)?;
    }
    // What follows the end of the archive counts for nothing, but the sender must come to its end.
    let trailer = &mut input.take(MAX_TRAILER_BYTES + 1);
    let length = io::copy(trailer, &mut io::sink()).map_err(ArchiveError::Stream)?;
    if length > MAX_TRAILER_BYTES { Err(ArchiveError::TooLarge) } else { Ok(()) }
}

/// The name of a member; `None` for the directory that `tar` was called in.
fn file_name(entry: &Entry<'_, impl Read>) -> Result<Option<String>, ArchiveError> {
    let path = entry.path_bytes();
    match entry.header().entry_type() {
        EntryType::Directory if matches!(path.as_ref(), b"." | b"./") => Ok(None),
        EntryType::Regular => {
            let name = path.strip_prefix(b"./").unwrap_or(&path);
            let name = std::str::from_utf8(name).ok().filter(|name| is_plain(name));
            let name = name.ok_or(ArchiveError::Refused("a file in it has no plain name"))?;
            Ok(Some(name.to_owned()))
        }
        _ => Err(ArchiveError::Refused("it holds something else than plain files")),
    }
}

fn copy(
    from: &mut impl Read,
    to: &mut File,
    has_room: impl Fn() -> io::Result<bool>,
) -> Result<u64, ArchiveError> {
    let (mut chunk, mut total) = (vec![0; CHUNK_BYTES], 0);
    loop {
        let count = from.read(&mut chunk).map_err(ArchiveError::Stream)?;
        let Some(news) = chunk.get(..count).filter(|news| !news.is_empty()) else { return Ok(total) };
        // Others write to the disk as well.
        if !has_room().map_err(ArchiveError::Disk)? {
            return Err(ArchiveError::NoRoom);
        }
        to.write_all(news).map_err(ArchiveError::Disk)?;
        total += news.len() as u64;
    }
}

/// Writes the files of the image in `dir` as an archive, the list of their hashes first, in pieces of 256 KiB.
pub fn pack(dir: &Path, to: impl Write) -> io::Result<()> {
    let mut names: Vec<String> = fs::read_dir(dir)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<_>>()?;
    // What it says follows from the list.
    names.retain(|name| name != DIGEST);
    names.sort_by_key(|name| (name != CHECKSUMS, name.clone()));
    let mut archive = Builder::new(BufWriter::with_capacity(PIECE_BYTES, to));
    for name in names {
        let file = File::open(dir.join(&name))?;
        let mut header = Header::new_ustar();
        header.set_size(file.metadata()?.len());
        header.set_mode(0o644);
        header.set_entry_type(EntryType::Regular);
        archive.append_data(&mut header, &name, file)?;
    }
    archive.into_inner()?.flush()
}
