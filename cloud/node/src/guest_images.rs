//! The guest images that this node can boot: directories whose files match the hash that names them. Some
//! were put there by the operator, others the node fetches from the catalogue ([`fetch`]).
//!
//! A directory holds the files of one image, `sha256sum.txt` with a line per file, and `digest.txt` with
//! the SHA-256 of `sha256sum.txt`, which is the image's hash. An image is offered only after every file
//! was hashed ([`CheckedImage::check`]); the answer is kept for as long as no file's size, times or inode change.

mod fetch;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cloister_app_compose::OsImageHash;
use cloister_evidence::{ImageMeasurement, LaunchMeasurement, VmConfig};
use cloister_guest_image::{CheckError, CheckedImage, DIGEST, Others, read_text};
use cloister_node_api::NodeImage;

pub(crate) use fetch::Fetcher;

use crate::vmm::BootFiles;

/// Most images that a node offers, and most files of one.
const MAX_ENTRIES: usize = 64;
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

/// Checks that a directory holds the image that its `digest.txt` names.
fn verify(dir: &Path) -> Result<GuestImage, CheckError> {
    let malformed = || CheckError::Malformed { file: DIGEST, detail: "it is no SHA-256 in hex".to_owned() };
    let named = read_text(dir, DIGEST)?.trim().parse().map_err(|_| malformed())?;
    let CheckedImage { hash, metadata, measurement, checksum_file, measurement_file, .. } =
        CheckedImage::check(dir, Some(named), Others::Ignored)?;
    let boot = BootFiles {
        kernel: dir.join(metadata.kernel),
        initrd: dir.join(metadata.initrd),
        rootfs: dir.join(metadata.rootfs),
        firmware: Some(dir.join(metadata.bios)),
        cmdline: metadata.cmdline,
    };
    let description = NodeImage {
        name: metadata.name,
        version: metadata.version,
        is_dev: metadata.is_dev,
        os_image_hash: hash,
        supports_gpu: metadata.supports_gpu,
    };
    Ok(GuestImage { description, boot, measurement, checksum_file, measurement_file })
}

#[cfg(test)]
mod tests;
