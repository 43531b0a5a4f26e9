//! Whether a directory is a guest image: what a node checks before it offers one, but for the measurement of a
//! launch, which the node computes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use cloister_app_compose::OsImageHash;
use cloister_evidence::ImageMeasurement;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::ImageError;

/// Lists the other files with their hashes; its own hash names the image.
pub(super) const CHECKSUMS: &str = "sha256sum.txt";
/// Repeats the image's hash; comes with images as they are built and is not needed.
pub(super) const DIGEST: &str = "digest.txt";
const METADATA: &str = "metadata.json";
const MEASUREMENT: &str = "measurement.json";
/// Longest text file of an image, in bytes.
const MAX_TEXT_BYTES: u64 = 256 * 1024;
/// Longest name of a file, in bytes.
const MAX_NAME_BYTES: usize = 128;
const CHUNK_BYTES: usize = 1024 * 1024;

/// An image whose files are those that its hash names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedImage {
    /// Hash that names it.
    pub hash: OsImageHash,
    /// Name.
    pub name: String,
    /// Three or four numbers, dotted.
    pub version: String,
    /// Whether it is a development image.
    pub is_dev: bool,
    /// Whether it brings drivers for GPUs.
    pub supports_gpu: bool,
    /// Bytes of all its files.
    pub size_bytes: u64,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    version: String,
    #[serde(default)]
    is_dev: bool,
    kernel: String,
    initrd: String,
    rootfs: String,
    bios: String,
    cmdline: String,
    #[serde(default)]
    supports_gpu: bool,
}

/// Names that mean the same everywhere: no directory, nothing hidden, nothing to quote.
pub(super) fn is_plain(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
}

/// Checks every file below `dir`. Blocks while they are hashed.
pub(super) fn check(dir: &Path) -> Result<CheckedImage, ImageError> {
    let refused = |text: String| ImageError::Refused(text);
    let checksums = text(dir, CHECKSUMS)?;
    let hash = OsImageHash::from_bytes(Sha256::digest(&checksums).into());
    let sums = sums(&checksums).ok_or_else(|| refused(format!("{CHECKSUMS} is malformed")))?;
    let mut size_bytes = 0;
    for entry in fs::read_dir(dir).map_err(ImageError::Disk)? {
        let entry = entry.map_err(ImageError::Disk)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let data = entry.metadata().map_err(ImageError::Disk)?;
        let is_known = sums.contains_key(&name) || name == CHECKSUMS || name == DIGEST;
        if !data.is_file() || !is_known {
            return Err(refused(format!("{name} is not covered by the image's hash")));
        }
        size_bytes += data.len();
    }
    for (name, expected) in &sums {
        if sha256(dir, name)? != *expected {
            return Err(refused(format!("{name} does not match its hash")));
        }
    }
    let covered = |name: &str| {
        let uncovered = || refused(format!("{name} is not covered by the image's hash"));
        sums.contains_key(name).then_some(()).ok_or_else(uncovered)
    };
    covered(METADATA)?;
    covered(MEASUREMENT)?;
    let metadata: Metadata = serde_json::from_str(&text(dir, METADATA)?)
        .map_err(|error| refused(format!("{METADATA} is malformed: {error}")))?;
    let measurement: ImageMeasurement = serde_json::from_str(&text(dir, MEASUREMENT)?)
        .map_err(|error| refused(format!("{MEASUREMENT} is malformed: {error}")))?;
    if measurement.cmdline != metadata.cmdline {
        return Err(refused(format!("the kernel command line is not the one that {MEASUREMENT} names")));
    }
    for part in [&metadata.kernel, &metadata.initrd, &metadata.rootfs, &metadata.bios] {
        covered(part)?;
    }
    if !is_plain(&metadata.name) || !is_version(&metadata.version) {
        return Err(refused(format!("{METADATA} has no plain name, or no version of three or four numbers")));
    }
    Ok(CheckedImage {
        hash,
        name: metadata.name,
        version: metadata.version,
        is_dev: metadata.is_dev,
        supports_gpu: metadata.supports_gpu,
        size_bytes,
    })
}

fn is_version(text: &str) -> bool {
    let numbers: Vec<_> = text.split('.').map(str::parse::<u32>).collect();
    (3..=4).contains(&numbers.len()) && numbers.iter().all(Result::is_ok)
}

/// Lines of `sha256sum`: hash, two separators, name.
fn sums(text: &str) -> Option<BTreeMap<String, [u8; 32]>> {
    let line = |line: &str| {
        let (hash, name) = line.split_once(' ')?;
        let name = name.strip_prefix([' ', '*'])?;
        let mut bytes = [0; 32];
        hex::decode_to_slice(hash, &mut bytes).ok()?;
        is_plain(name).then(|| (name.to_owned(), bytes))
    };
    text.lines().map(line).collect()
}

fn open(dir: &Path, name: &str) -> Result<File, ImageError> {
    File::open(dir.join(name)).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ImageError::Refused(format!("{name} is missing")),
        _ => ImageError::Disk(error),
    })
}

fn text(dir: &Path, name: &str) -> Result<String, ImageError> {
    let mut text = String::new();
    match open(dir, name)?.take(MAX_TEXT_BYTES).read_to_string(&mut text) {
        Ok(_) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(ImageError::Refused(format!("{name} is no text")))
        }
        Err(error) => Err(ImageError::Disk(error)),
    }
}

fn sha256(dir: &Path, name: &str) -> Result<[u8; 32], ImageError> {
    let (mut file, mut hasher, mut chunk) = (open(dir, name)?, Sha256::new(), vec![0; CHUNK_BYTES]);
    loop {
        let length = file.read(&mut chunk).map_err(ImageError::Disk)?;
        match chunk.get(..length).filter(|read| !read.is_empty()) {
            Some(read) => hasher.update(read),
            None => return Ok(hasher.finalize().into()),
        }
    }
}
