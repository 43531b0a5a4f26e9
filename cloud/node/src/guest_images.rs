//! The guest images that this node can boot: directories whose files match the hash that names them. Some
//! were put there by the operator, others the node fetches from the catalogue ([`fetch`]).
//!
//! A directory holds the files of one image, `sha256sum.txt` with a line per file, and `digest.txt` with
//! the SHA-256 of `sha256sum.txt`, which is the image's hash. An image is offered only after every file
//! was hashed; the answer is kept for as long as no file's size, times or inode change.
//!
//! `measurement.json` says what a launch of the image measures. Relying parties compute the registers of a
//! machine from it, so an image whose files are others than it says is not offered: its CVMs would start
//! and never be believed.

mod fetch;
mod unpack;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cloister_app_compose::OsImageHash;
use cloister_evidence::{ImageMeasurement, LaunchMeasurement, Measurement, VmConfig};
use cloister_node_api::NodeImage;
use serde::Deserialize;
use sha2::{Digest, Sha256, Sha384};

pub(crate) use fetch::Fetcher;

use crate::vmm::BootFiles;

/// Most images that a node offers, and most files of one.
const MAX_ENTRIES: usize = 64;
/// Longest `sha256sum.txt`, `digest.txt`, `metadata.json` or `measurement.json`, in bytes.
const MAX_TEXT_BYTES: u64 = 256 * 1024;
/// Names every file of the image with its SHA-256; its own SHA-256 names the image.
const CHECKSUMS: &str = "sha256sum.txt";
/// Holds the image's hash, for people.
const DIGEST: &str = "digest.txt";
const METADATA: &str = "metadata.json";
const MEASUREMENT: &str = "measurement.json";
const BYTES_PER_MIB: u64 = 1024 * 1024;
/// Version of the description of a machine.
const SPEC_VERSION: u32 = 1;

/// An image that was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GuestImage {
    /// What the control plane is told.
    pub(crate) description: NodeImage,
    /// What a VM boots.
    pub(crate) boot: BootFiles,
    /// What its launch measures; equal to what the files give.
    pub(crate) measurement: ImageMeasurement,
    /// Text of `sha256sum.txt`, whose SHA-256 is the image's hash.
    pub(crate) checksum_file: String,
    /// Text of `measurement.json`, which that list covers.
    pub(crate) measurement_file: String,
}

impl GuestImage {
    /// The description of a machine with this image: what leads a relying party from the image's hash to
    /// the registers.
    pub(crate) fn vm_config(&self, vcpu: u32, memory_mb: u32) -> VmConfig {
        VmConfig {
            spec_version: SPEC_VERSION,
            os_image_hash: self.description.os_image_hash,
            cpu_count: vcpu,
            memory_size: u64::from(memory_mb) * BYTES_PER_MIB,
            image: Some(self.description.name.clone()),
            launch_measurement: Some(LaunchMeasurement {
                checksum_file: BASE64_STANDARD.encode(&self.checksum_file),
                measurement: BASE64_STANDARD.encode(&self.measurement_file),
            }),
        }
    }
}

/// Why a directory is no image.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImageError {
    #[error("cannot read {file}")]
    Io {
        file: String,
        #[source]
        source: io::Error,
    },
    #[error("{0} is malformed")]
    Malformed(&'static str),
    #[error("{0} does not match its hash")]
    Mismatch(String),
    #[error("{0} is not covered by the image's hash")]
    Uncovered(String),
    #[error("the {0} is not the one that measurement.json names")]
    Measurement(&'static str),
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
    cmdline: String,
    bios: String,
    #[serde(default)]
    supports_gpu: bool,
}

/// Name, size, inode and times of every file.
type Fingerprint = Vec<(String, u64, u64, i128, i128)>;

/// The images below some directories.
#[derive(Debug)]
pub(crate) struct GuestImages {
    dirs: Vec<PathBuf>,
    known: Mutex<Known>,
    /// Held while files are hashed, which nobody does twice; `known` is free meanwhile.
    scanning: Mutex<()>,
}

type Known = HashMap<PathBuf, (Fingerprint, Option<GuestImage>)>;

impl GuestImages {
    /// The images below `dirs`, which need not exist yet.
    pub(crate) fn new(dirs: Vec<PathBuf>) -> Self {
        Self { dirs, known: Mutex::default(), scanning: Mutex::default() }
    }

    /// All good images, by name. Blocks while files that are new or changed are hashed.
    pub(crate) fn scan(&self) -> Vec<GuestImage> {
        let _turn = self.scanning.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = self.known().clone();
        let mut seen = HashMap::new();
        for dir in self.dirs.iter().flat_map(|dir| subdirectories(dir)) {
            let Ok(fingerprint) = fingerprint(&dir) else { continue };
            let entry = match known.remove(&dir) {
                Some(entry) if entry.0 == fingerprint => entry,
                _ => (fingerprint, verified(&dir)),
            };
            seen.insert(dir, entry);
        }
        let mut images: Vec<_> = seen.values().filter_map(|(_, image)| image.clone()).collect();
        *self.known() = seen;
        let key = |image: &GuestImage| {
            (image.description.name.clone(), *image.description.os_image_hash.as_bytes())
        };
        images.sort_by_key(key);
        // One that the operator has, too.
        images.dedup_by_key(|image| image.description.os_image_hash);
        images
    }

    /// The image of this hash. Blocks like [`GuestImages::scan`] when it is not known yet or has changed.
    pub(crate) fn find(&self, hash: OsImageHash) -> Option<GuestImage> {
        let wanted = |image: &GuestImage| image.description.os_image_hash == hash;
        let known = self.known().iter().find_map(|(dir, (fingerprint, image))| {
            let image = image.as_ref().filter(|image| wanted(image))?;
            Some((dir.clone(), fingerprint.clone(), image.clone()))
        });
        if let Some((dir, known, image)) = known
            && fingerprint(&dir).is_ok_and(|now| now == known)
        {
            return Some(image);
        }
        self.scan().into_iter().find(wanted)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn subdirectories(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let is_visible = |path: &PathBuf| {
        path.is_dir() && path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with('.'))
    };
    let mut found: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(is_visible).collect();
    found.sort();
    found.truncate(MAX_ENTRIES);
    found
}

fn fingerprint(dir: &Path) -> io::Result<Fingerprint> {
    let nanoseconds = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)?.take(MAX_ENTRIES) {
        let entry = entry?;
        let data = fs::metadata(entry.path())?;
        files.push((
            entry.file_name().to_string_lossy().into_owned(),
            data.len(),
            data.ino(),
            nanoseconds(data.mtime(), data.mtime_nsec()),
            nanoseconds(data.ctime(), data.ctime_nsec()),
        ));
    }
    files.sort();
    Ok(files)
}

fn verified(dir: &Path) -> Option<GuestImage> {
    match verify(dir) {
        Ok(image) => {
            tracing::info!(image = image.description.name, hash = %image.description.os_image_hash, "guest image verified");
            Some(image)
        }
        Err(error) => {
            tracing::warn!(
                directory = %dir.display(),
                error = &error as &dyn std::error::Error,
                "left a broken guest image out; build or copy it again"
            );
            None
        }
    }
}

fn verify(dir: &Path) -> Result<GuestImage, ImageError> {
    let checksum_file = read_text(dir, CHECKSUMS)?;
    let hash = OsImageHash::from_bytes(Sha256::digest(&checksum_file).into());
    if read_text(dir, DIGEST)?.trim() != hash.to_string() {
        return Err(ImageError::Mismatch(CHECKSUMS.to_owned()));
    }
    let sums = parse_sums(&checksum_file)?;
    // What is parsed is the very text that was hashed.
    let metadata = covered_text(dir, METADATA, &sums)?;
    let metadata: Metadata = serde_json::from_str(&metadata).map_err(|_| ImageError::Malformed(METADATA))?;
    let measurement_file = covered_text(dir, MEASUREMENT, &sums)?;
    let measurement: ImageMeasurement =
        serde_json::from_str(&measurement_file).map_err(|_| ImageError::Malformed(MEASUREMENT))?;
    if measurement.cmdline != metadata.cmdline {
        return Err(ImageError::Measurement("kernel command line"));
    }
    let covered = |name: &str| {
        if sums.contains_key(name) { Ok(dir.join(name)) } else { Err(ImageError::Uncovered(name.to_owned())) }
    };
    let boot = BootFiles {
        kernel: covered(&metadata.kernel)?,
        initrd: covered(&metadata.initrd)?,
        rootfs: covered(&metadata.rootfs)?,
        firmware: Some(covered(&metadata.bios)?),
        cmdline: metadata.cmdline,
    };
    let measured = [
        ("firmware", &metadata.bios, &measurement.firmware),
        ("kernel", &metadata.kernel, &measurement.kernel),
        ("initial RAM disk", &metadata.initrd, &measurement.initrd),
    ];
    for (name, expected) in &sums {
        let is_measured = measured.iter().any(|(_, file, _)| *file == name);
        let found = hashes_of(dir, name, is_measured)?;
        if found.sha256 != *expected {
            return Err(ImageError::Mismatch(name.clone()));
        }
        let differs = |(_, file, expected): &&(_, &String, &Measurement)| {
            *file == name && found.measurement.as_ref() != Some(*expected)
        };
        if let Some((what, ..)) = measured.iter().find(differs) {
            return Err(ImageError::Measurement(what));
        }
    }
    let description = NodeImage {
        name: metadata.name,
        version: metadata.version,
        is_dev: metadata.is_dev,
        os_image_hash: hash,
        supports_gpu: metadata.supports_gpu,
    };
    Ok(GuestImage { description, boot, measurement, checksum_file, measurement_file })
}

/// Lines of `sha256sum`: hash, two separators, name.
fn parse_sums(text: &str) -> Result<HashMap<String, [u8; 32]>, ImageError> {
    let line = |line: &str| {
        let (hash, name) = line.split_once(' ')?;
        let name = name.strip_prefix([' ', '*'])?;
        let mut bytes = [0; 32];
        hex::decode_to_slice(hash, &mut bytes).ok()?;
        is_file_name(name).then(|| (name.to_owned(), bytes))
    };
    text.lines().map(line).collect::<Option<_>>().ok_or(ImageError::Malformed(CHECKSUMS))
}

fn is_file_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
}

fn read_text(dir: &Path, name: &str) -> Result<String, ImageError> {
    let read = || {
        let mut text = String::new();
        File::open(dir.join(name))?.take(MAX_TEXT_BYTES).read_to_string(&mut text)?;
        Ok(text)
    };
    read().map_err(|source| ImageError::Io { file: name.to_owned(), source })
}

/// A text file that the list of files covers.
fn covered_text(dir: &Path, name: &str, sums: &HashMap<String, [u8; 32]>) -> Result<String, ImageError> {
    let expected = sums.get(name).ok_or_else(|| ImageError::Uncovered(name.to_owned()))?;
    let text = read_text(dir, name)?;
    if Sha256::digest(&text).as_slice() == expected {
        Ok(text)
    } else {
        Err(ImageError::Mismatch(name.to_owned()))
    }
}

struct Hashes {
    sha256: [u8; 32],
    /// SHA-384, if it was asked for.
    measurement: Option<Measurement>,
}

/// Reads a file once.
fn hashes_of(dir: &Path, name: &str, measure: bool) -> Result<Hashes, ImageError> {
    let hash = || {
        let mut sha256 = Sha256::new();
        let mut sha384 = measure.then(Sha384::new);
        let mut file = File::open(dir.join(name))?;
        let mut chunk = vec![0; 1024 * 1024];
        loop {
            let length = file.read(&mut chunk)?;
            if length == 0 {
                let measurement = sha384.map(|hasher| Measurement::from_bytes(hasher.finalize().into()));
                return Ok(Hashes { sha256: sha256.finalize().into(), measurement });
            }
            let read = chunk.get(..length).unwrap_or_default();
            sha256.update(read);
            if let Some(hasher) = &mut sha384 {
                hasher.update(read);
            }
        }
    };
    hash().map_err(|source| ImageError::Io { file: name.to_owned(), source })
}

#[cfg(test)]
mod tests;
