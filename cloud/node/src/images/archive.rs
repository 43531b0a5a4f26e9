//! Reads a tar archive of an image, plain or gzip-compressed, into staged blobs.
//!
//! Nothing of an archive becomes a path on this machine: entries are kept by digest, and their names
//! only look them up again. Links, which archives use for layers that occur twice, are such names too.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use tar::{Archive, Entry, EntryType};

use super::staging::Staging;
use super::{Digest, ImageError, Limits};

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Longest extended header that is looked into, in bytes.
const MAX_EXTENSION_BYTES: u64 = 64 * 1024;
/// Padding after the end of an archive that is read away, in bytes.
const MAX_TRAILER_BYTES: u64 = 1024 * 1024;
/// Most links in a row.
const MAX_LINKS: usize = 4;

/// What an archive holds, by name.
pub(super) struct Contents {
    names: HashMap<String, Named>,
}

enum Named {
    File(Digest),
    Link(String),
}

impl Contents {
    /// The blob of this name, if the archive has one.
    pub(super) fn find(&self, name: &str) -> Option<Digest> {
        let mut name = name;
        for _ in 0..=MAX_LINKS {
            match self.names.get(name)? {
                Named::File(digest) => return Some(*digest),
                Named::Link(target) => name = target,
            }
        }
        None
    }
}

/// Reads an archive to its end.
pub(super) fn unpack(
    input: impl Read,
    staging: &mut Staging,
    limits: &Limits,
) -> Result<Contents, ImageError> {
    let mut input = BufReader::new(Capped::new(input, limits.archive_bytes));
    let is_gzip = input.fill_buf().map_err(read_error)?.starts_with(&GZIP_MAGIC);
    if is_gzip {
        // The cap holds for what comes out as well: that is what a small bomb makes large.
        unpack_tar(Capped::new(MultiGzDecoder::new(input), limits.archive_bytes), staging, limits)
    } else {
        unpack_tar(input, staging, limits)
    }
}

fn unpack_tar(input: impl Read, staging: &mut Staging, limits: &Limits) -> Result<Contents, ImageError> {
    let mut names = HashMap::new();
    let mut archive = Archive::new(input);
    // Raw, because the reader would otherwise gather long names in memory without a limit. No name that
    // an image archive needs is longer than a plain header holds.
    for (count, entry) in archive.entries().map_err(read_error)?.raw(true).enumerate() {
        if count as u64 >= limits.entries {
            return Err(ImageError::TooLarge { what: "entries", limit: limits.entries });
        }
        let mut entry = entry.map_err(read_error)?;
        let name = || normalise("", &entry.path_bytes());
        let link =
            |base: &str| entry.link_name_bytes().ok_or(PATH).and_then(|target| normalise(base, &target));
        let (name, found) = match entry.header().entry_type() {
            EntryType::Directory
            | EntryType::GNULongName
            | EntryType::GNULongLink
            | EntryType::XGlobalHeader => continue,
            EntryType::XHeader => {
                refuse_size_override(&mut entry)?;
                continue;
            }
            EntryType::Regular | EntryType::Continuous => {
                let name = name()?;
                let digest = staging.add(&mut entry)?;
                // The reader takes the end of its input for the end of the file.
                if staging.size(&digest) != Some(entry.size()) {
                    return Err(ImageError::Archive(io::ErrorKind::UnexpectedEof.into()));
                }
                check_blob_name(&name, digest)?;
                (name, Named::File(digest))
            }
            EntryType::Symlink => {
                let name = name()?;
                let target = link(name.rsplit_once('/').map_or("", |(dir, _)| dir))?;
                (name, Named::Link(target))
            }
            EntryType::Link => (name()?, Named::Link(link("")?)),
            _ => return Err(ImageError::Malformed("it holds devices or other special files")),
        };
        if names.insert(name, found).is_some() {
            return Err(ImageError::Malformed("a name occurs twice"));
        }
    }
    io::copy(&mut archive.into_inner().take(MAX_TRAILER_BYTES), &mut io::sink()).map_err(read_error)?;
    Ok(Contents { names })
}

const PATH: ImageError = ImageError::Malformed("a path in it is absolute, leads outside, or is no text");

/// Resolves a path of the archive against a directory of it.
fn normalise(base: &str, path: &[u8]) -> Result<String, ImageError> {
    let path = std::str::from_utf8(path).ok().filter(|path| !path.starts_with('/')).ok_or(PATH)?;
    let mut parts: Vec<&str> = base.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            // Only links have a base to climb from.
            ".." => parts.pop().map(drop).ok_or(PATH)?,
            part => parts.push(part),
        }
    }
    if parts.is_empty() { Err(PATH) } else { Ok(parts.join("/")) }
}

/// A blob that is named by a digest must have it.
fn check_blob_name(name: &str, digest: Digest) -> Result<(), ImageError> {
    match name.strip_prefix("blobs/sha256/") {
        Some(hex) if hex != digest.hex() => {
            Err(ImageError::Malformed("a blob does not have the digest it is named by"))
        }
        _ => Ok(()),
    }
}

/// Sizes beyond 8 GiB come in an extended header, which raw reading does not apply: taken literally,
/// the rest of the archive would be garbage.
fn refuse_size_override(entry: &mut Entry<'_, impl Read>) -> Result<(), ImageError> {
    let mut records = Vec::new();
    entry.take(MAX_EXTENSION_BYTES).read_to_end(&mut records).map_err(read_error)?;
    let overrides = tar::PaxExtensions::new(&records).flatten().any(|record| record.key_bytes() == b"size");
    if overrides { Err(ImageError::TooLarge { what: "bytes in one layer", limit: 8 << 30 }) } else { Ok(()) }
}

/// Fails instead of giving more than `limit` bytes.
struct Capped<R> {
    inner: R,
    left: u64,
    limit: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("more than {0} bytes")]
struct Overrun(u64);

impl<R: Read> Capped<R> {
    fn new(inner: R, limit: u64) -> Self {
        Self { inner, left: limit, limit }
    }
}

impl<R: Read> Read for Capped<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buf)?;
        self.left =
            self.left.checked_sub(count as u64).ok_or_else(|| io::Error::other(Overrun(self.limit)))?;
        Ok(count)
    }
}

/// Tells an archive that is too long from one that is broken. The tar reader wraps errors in text of its
/// own, so the whole chain is searched.
pub(super) fn read_error(error: io::Error) -> ImageError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(error) = cause {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(Overrun(limit)) = inner.and_then(|inner| inner.downcast_ref()) {
            return ImageError::TooLarge { what: "bytes", limit: *limit };
        }
        cause = error.source();
    }
    ImageError::Archive(error)
}
