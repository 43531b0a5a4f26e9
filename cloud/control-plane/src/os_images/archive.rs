//! Guest images from and to tar streams.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use bytes::Bytes;
use tar::{Archive, Builder, EntryType, Header};

use super::ImageError;
use super::check::{CHECKSUMS, DIGEST, is_plain};

const CHUNK_BYTES: usize = 256 * 1024;

/// What may follow the end of an archive; `tar` fills it up to its block size.
const MAX_TRAILER_BYTES: u64 = 1024 * 1024;

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
pub(super) fn unpack(mut input: impl Read, dir: &Path, limits: Limits) -> Result<(), ImageError> {
    let refused = |text: &str| ImageError::Refused(text.to_owned());
    let mut archive = Archive::new(&mut input);
    let mut left = limits.bytes;
    // Raw, because the reader would otherwise gather long names in memory without a limit.
    for (count, entry) in archive.entries().map_err(ImageError::Stream)?.raw(true).enumerate() {
        let mut entry = entry.map_err(ImageError::Stream)?;
        if count >= limits.files {
            return Err(ImageError::TooLarge);
        }
        // `tar` writes it for the directory that it was called in.
        if entry.header().entry_type() == EntryType::Directory && is_here(&entry.path_bytes()) {
            continue;
        }
        if entry.header().entry_type() != EntryType::Regular {
            return Err(refused("it holds something else than plain files"));
        }
        let name = entry.path_bytes();
        let name = name.strip_prefix(b"./").unwrap_or(&name);
        let name = std::str::from_utf8(name).ok().filter(|name| is_plain(name));
        let path = dir.join(name.ok_or_else(|| refused("a file in it has no plain name"))?);
        let size = entry.size();
        left = left.checked_sub(size).ok_or(ImageError::TooLarge)?;
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let mut file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => refused("a name occurs twice in it"),
            _ => ImageError::Disk(error),
        })?;
        // The reader takes the end of its input for the end of the file.
        if copy(&mut entry, &mut file)? != size {
            return Err(ImageError::Stream(io::ErrorKind::UnexpectedEof.into()));
        }
        file.sync_all().map_err(ImageError::Disk)?;
    }
    // What follows the end of the archive counts for nothing, but the sender must come to its end.
    let trailer = &mut input.take(MAX_TRAILER_BYTES + 1);
    let length = io::copy(trailer, &mut io::sink()).map_err(ImageError::Stream)?;
    if length > MAX_TRAILER_BYTES { Err(ImageError::TooLarge) } else { Ok(()) }
}

fn is_here(name: &[u8]) -> bool {
    matches!(name, b"." | b"./")
}

fn copy(from: &mut impl Read, to: &mut File) -> Result<u64, ImageError> {
    let (mut chunk, mut total) = (vec![0; CHUNK_BYTES], 0);
    loop {
        let count = from.read(&mut chunk).map_err(ImageError::Stream)?;
        let Some(news) = chunk.get(..count).filter(|news| !news.is_empty()) else { return Ok(total) };
        to.write_all(news).map_err(ImageError::Disk)?;
        total += news.len() as u64;
    }
}

/// Sends the files of an image, the list of their hashes first, and an empty piece at the end; stops when a piece
/// is not taken.
pub(super) fn pack<E>(dir: &Path, mut send: impl FnMut(Bytes) -> Result<(), E>) -> io::Result<()> {
    write(dir, &mut send)?;
    send(Bytes::new()).map_err(|_| io::ErrorKind::BrokenPipe.into())
}

fn write<E>(dir: &Path, send: &mut impl FnMut(Bytes) -> Result<(), E>) -> io::Result<()> {
    let mut names: Vec<String> = fs::read_dir(dir)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<_>>()?;
    // What it says follows from the list.
    names.retain(|name| name != DIGEST);
    names.sort_by_key(|name| (name != CHECKSUMS, name.clone()));
    let mut archive = Builder::new(io::BufWriter::with_capacity(CHUNK_BYTES, Sender(send)));
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

struct Sender<'a, S>(&'a mut S);

impl<E, S: FnMut(Bytes) -> Result<(), E>> Write for Sender<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = (self.0)(Bytes::copy_from_slice(bytes));
        sent.map(|()| bytes.len()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
