//! A guest image on disk: a directory of plain files, `sha256sum.txt` with the hash of each, and the SHA-256 of
//! that file, which is the image's hash.
//!
//! Whoever gets an image, from an operator or from another machine, brings it into a directory with [`unpack`]
//! and believes it after [`CheckedImage::check`]; whoever gives one uses [`pack`]. Everything blocks.

mod archive;
mod check;
#[cfg(test)]
mod tests;

pub use archive::{ArchiveError, Limits, pack, unpack};
pub use check::{CheckError, CheckedImage, Metadata, Others, read_text};

/// Names every file of the image with its SHA-256; its own SHA-256 names the image.
pub const CHECKSUMS: &str = "sha256sum.txt";
/// Repeats the image's hash, for people; no other file needs it, and archives do not carry it.
pub const DIGEST: &str = "digest.txt";
/// What the image says about itself: [`Metadata`].
pub const METADATA: &str = "metadata.json";
/// What a launch of the image measures: [`cloister_evidence::ImageMeasurement`].
pub const MEASUREMENT: &str = "measurement.json";

/// Longest name of a file, in bytes.
const MAX_NAME_BYTES: usize = 128;

/// Whether a name means the same everywhere: at most 128 letters, digits, dots, hyphens and underscores, no dot
/// at the beginning. So it names no other directory, nothing hidden, and nothing that a shell would have to quote.
#[must_use]
pub fn is_plain(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
}
