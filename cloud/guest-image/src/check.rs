//! Whether a directory is the image that its hash names.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use cloister_app_compose::OsImageHash;
use cloister_evidence::{ImageMeasurement, Measurement};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256, Sha384};

use crate::{CHECKSUMS, DIGEST, MEASUREMENT, METADATA, is_plain};

/// Longest text file of an image, in bytes.
const MAX_TEXT_BYTES: u64 = 256 * 1024;
const CHUNK_BYTES: usize = 1024 * 1024;

/// Why a directory is no image.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The disk fails, or keeps a file to itself.
    #[error("cannot read {file}")]
    Io {
        /// Name of the file.
        file: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file is not there.
    #[error("{0} is missing")]
    Missing(String),
    /// A text file does not say what it has to.
    #[error("{file} is malformed: {detail}")]
    Malformed {
        /// Name of the file.
        file: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// A file is another one than the image's hash covers.
    #[error("{0} does not match its hash")]
    Mismatch(String),
    /// A file could be anything.
    #[error("{0} is not covered by the image's hash")]
    Uncovered(String),
    /// The image is a good or bad one with another hash.
    #[error("it is another image than the wanted one: its hash is {0}")]
    OtherImage(OsImageHash),
    /// Relying parties would expect another launch: CVMs of the image would start and never be believed.
    #[error("the {0} is not the one that measurement.json names")]
    Measurement(&'static str),
}

/// What an image says about itself: `metadata.json`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Metadata {
    /// Name.
    pub name: String,
    /// Numbers, dotted.
    pub version: String,
    /// Whether it is a development image.
    #[serde(default)]
    pub is_dev: bool,
    /// File of the kernel.
    pub kernel: String,
    /// File of the initial RAM disk.
    pub initrd: String,
    /// File of the root file system.
    pub rootfs: String,
    /// File of the firmware.
    pub bios: String,
    /// Kernel command line.
    pub cmdline: String,
    /// Whether it brings drivers for GPUs.
    #[serde(default)]
    pub supports_gpu: bool,
}

/// What becomes of files that the image's hash does not cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// Nobody reads them: an operator's directory.
    Ignored,
    /// They make the image a bad one: it came from somewhere, and goes on as it is.
    Refused,
}

/// An image whose files are those that its hash names, and whose launch measures what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedImage {
    /// Hash that names it.
    pub hash: OsImageHash,
    /// What it says about itself; every file in it is covered by the hash and has a plain name.
    pub metadata: Metadata,
    /// What its launch measures; equal to what the files give.
    pub measurement: ImageMeasurement,
    /// Text of `sha256sum.txt`, whose SHA-256 is the hash.
    pub checksum_file: String,
    /// Text of `measurement.json`, which that list covers.
    pub measurement_file: String,
    /// Bytes of that list and of all files in it.
    pub size_bytes: u64,
}

/// The files of an image and their hashes.
struct Checksums(BTreeMap<String, [u8; 32]>);

impl CheckedImage {
    /// Checks the files of a directory, which must be the `wanted` image if there is one. Blocks while they are
    /// read, each once or twice.
    pub fn check(dir: &Path, wanted: Option<OsImageHash>, others: Others) -> Result<Self, CheckError> {
        let checksum_file = read_text(dir, CHECKSUMS)?;
        let hash = OsImageHash::from_bytes(Sha256::digest(&checksum_file).into());
        if wanted.is_some_and(|wanted| wanted != hash) {
            return Err(CheckError::OtherImage(hash));
        }
        let sums = Checksums::parse(&checksum_file)?;
        if others == Others::Refused {
            sums.check_nothing_else(dir)?;
        }
        // What is parsed is the very text that was hashed.
        let metadata: Metadata = parsed(METADATA, &sums.text(dir, METADATA)?)?;
        let measurement_file = sums.text(dir, MEASUREMENT)?;
        let measurement: ImageMeasurement = parsed(MEASUREMENT, &measurement_file)?;
        if measurement.cmdline != metadata.cmdline {
            return Err(CheckError::Measurement("kernel command line"));
        }
        for part in [&metadata.kernel, &metadata.initrd, &metadata.rootfs, &metadata.bios] {
            sums.of(part)?;
        }
        let size_bytes = sums.check_files(dir, &metadata, &measurement)? + checksum_file.len() as u64;
        Ok(Self { hash, metadata, measurement, checksum_file, measurement_file, size_bytes })
    }
}

impl Checksums {
    /// Lines of `sha256sum`: hash, two separators, name; each name once.
    fn parse(text: &str) -> Result<Self, CheckError> {
        let malformed = |detail: String| CheckError::Malformed { file: CHECKSUMS, detail };
        let read = |line: &str| {
            let (hash, name) = line.split_once(' ')?;
            let name = name.strip_prefix([' ', '*'])?;
            let mut bytes = [0; 32];
            hex::decode_to_slice(hash, &mut bytes).ok()?;
            is_plain(name).then(|| (name.to_owned(), bytes))
        };
        let mut sums = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let (name, hash) = read(line)
                .ok_or_else(|| malformed(format!("line {number} is no SHA-256 with a plain name")))?;
            if sums.insert(name, hash).is_some() {
                return Err(malformed(format!("line {number} names a file again")));
            }
        }
        Ok(Self(sums))
    }

    /// The hash of a file.
    fn of(&self, name: &str) -> Result<&[u8; 32], CheckError> {
        self.0.get(name).ok_or_else(|| CheckError::Uncovered(name.to_owned()))
    }

    /// Refuses a directory with anything but the plain files of the image.
    fn check_nothing_else(&self, dir: &Path) -> Result<(), CheckError> {
        let broken = |source| CheckError::Io { file: dir.display().to_string(), source };
        for entry in fs::read_dir(dir).map_err(broken)? {
            let entry = entry.map_err(broken)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_known = self.0.contains_key(&name) || name == CHECKSUMS || name == DIGEST;
            if !is_known || !entry.file_type().map_err(broken)?.is_file() {
                return Err(CheckError::Uncovered(name));
            }
        }
        Ok(())
    }

    /// A text file, if it is the one in the list.
    fn text(&self, dir: &Path, name: &'static str) -> Result<String, CheckError> {
        let expected = self.of(name)?;
        let text = read_text(dir, name)?;
        if Sha256::digest(&text).as_slice() == expected {
            Ok(text)
        } else {
            Err(CheckError::Mismatch(name.to_owned()))
        }
    }

    /// Hashes every file, and those that a launch measures as it does; bytes of all.
    fn check_files(
        &self,
        dir: &Path,
        metadata: &Metadata,
        measurement: &ImageMeasurement,
    ) -> Result<u64, CheckError> {
        let measured = [
            ("firmware", &metadata.bios, &measurement.firmware),
            ("kernel", &metadata.kernel, &measurement.kernel),
            ("initial RAM disk", &metadata.initrd, &measurement.initrd),
        ];
        let mut size_bytes = 0;
        for (name, expected) in &self.0 {
            let is_measured = measured.iter().any(|(_, file, _)| *file == name);
            let found = hashes_of(dir, name, is_measured)?;
            if found.sha256 != *expected {
                return Err(CheckError::Mismatch(name.clone()));
            }
            let differs = |(_, file, expected): &&(_, &String, &Measurement)| {
                *file == name && found.measurement.as_ref() != Some(*expected)
            };
            if let Some((what, ..)) = measured.iter().find(differs) {
                return Err(CheckError::Measurement(what));
            }
            size_bytes += found.size_bytes;
        }
        Ok(size_bytes)
    }
}

fn open(dir: &Path, name: &str) -> Result<File, CheckError> {
    File::open(dir.join(name)).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => CheckError::Missing(name.to_owned()),
        _ => CheckError::Io { file: name.to_owned(), source },
    })
}

/// A text file of an image, at most 256 KiB.
pub fn read_text(dir: &Path, name: &'static str) -> Result<String, CheckError> {
    let mut bytes = Vec::new();
    open(dir, name)?
        .take(MAX_TEXT_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|source| CheckError::Io { file: name.to_owned(), source })?;
    let malformed = |detail: &str| CheckError::Malformed { file: name, detail: detail.to_owned() };
    if bytes.len() as u64 > MAX_TEXT_BYTES {
        return Err(malformed("it is longer than 256 KiB"));
    }
    String::from_utf8(bytes).map_err(|_| malformed("it is no UTF-8 text"))
}

fn parsed<T: DeserializeOwned>(file: &'static str, text: &str) -> Result<T, CheckError> {
    serde_json::from_str(text).map_err(|error| CheckError::Malformed { file, detail: error.to_string() })
}

struct Hashes {
    sha256: [u8; 32],
    /// SHA-384, if it was asked for.
    measurement: Option<Measurement>,
    size_bytes: u64,
}

/// Reads a file once.
fn hashes_of(dir: &Path, name: &str, measure: bool) -> Result<Hashes, CheckError> {
    let mut file = open(dir, name)?;
    let (mut sha256, mut sha384) = (Sha256::new(), measure.then(Sha384::new));
    let (mut chunk, mut size_bytes) = (vec![0; CHUNK_BYTES], 0);
    loop {
        let length =
            file.read(&mut chunk).map_err(|source| CheckError::Io { file: name.to_owned(), source })?;
        let Some(read) = chunk.get(..length).filter(|read| !read.is_empty()) else {
            let measurement = sha384.map(|hasher| Measurement::from_bytes(hasher.finalize().into()));
            return Ok(Hashes { sha256: sha256.finalize().into(), measurement, size_bytes });
        };
        sha256.update(read);
        if let Some(hasher) = &mut sha384 {
            hasher.update(read);
        }
        size_bytes += read.len() as u64;
    }
}
