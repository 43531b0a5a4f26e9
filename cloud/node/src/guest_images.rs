//! The guest images that this node can boot: directories whose files match the hash that names them.
//!
//! A directory holds the files of one image, `sha256sum.txt` with a line per file, and `digest.txt` with
//! the SHA-256 of `sha256sum.txt`, which is the image's hash. An image is offered only after every file
//! was hashed; the answer is kept for as long as no file's size, times or inode change.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use cloister_app_compose::OsImageHash;
use cloister_node_api::NodeImage;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::vmm::BootFiles;

/// Most images that a node offers, and most files of one.
const MAX_ENTRIES: usize = 64;
/// Longest `sha256sum.txt`, `digest.txt` or `metadata.json`, in bytes.
const MAX_TEXT_BYTES: u64 = 256 * 1024;

/// An image that was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GuestImage {
    /// What the control plane is told.
    pub(crate) description: NodeImage,
    /// What a VM boots.
    pub(crate) boot: BootFiles,
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
    #[serde(default)]
    bios: Option<String>,
}

/// Name, size, inode and times of every file.
type Fingerprint = Vec<(String, u64, u64, i128, i128)>;

/// The images below one directory.
#[derive(Debug)]
pub(crate) struct GuestImages {
    dir: PathBuf,
    known: Mutex<HashMap<PathBuf, (Fingerprint, Option<GuestImage>)>>,
}

impl GuestImages {
    /// The images below `dir`, which need not exist yet.
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir, known: Mutex::default() }
    }

    /// All good images, by name. Blocks while files that are new or changed are hashed.
    pub(crate) fn scan(&self) -> Vec<GuestImage> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seen = HashMap::new();
        for dir in subdirectories(&self.dir) {
            let Ok(fingerprint) = fingerprint(&dir) else { continue };
            let entry = match known.remove(&dir) {
                Some(entry) if entry.0 == fingerprint => entry,
                _ => (fingerprint, verified(&dir)),
            };
            seen.insert(dir, entry);
        }
        *known = seen;
        let mut images: Vec<_> = known.values().filter_map(|(_, image)| image.clone()).collect();
        images.sort_by(|a, b| a.description.name.cmp(&b.description.name));
        images
    }

    /// The image of this hash. Blocks like [`GuestImages::scan`].
    pub(crate) fn find(&self, hash: OsImageHash) -> Option<GuestImage> {
        self.scan().into_iter().find(|image| image.description.os_image_hash == hash)
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
    let sums = read_text(dir, "sha256sum.txt")?;
    let hash = OsImageHash::from_bytes(Sha256::digest(&sums).into());
    if read_text(dir, "digest.txt")?.trim() != hash.to_string() {
        return Err(ImageError::Mismatch("sha256sum.txt".to_owned()));
    }
    let sums = parse_sums(&sums)?;
    for (name, expected) in &sums {
        if sha256_of(dir, name)? != *expected {
            return Err(ImageError::Mismatch(name.clone()));
        }
    }
    let metadata: Metadata = serde_json::from_str(&read_text(dir, "metadata.json")?)
        .map_err(|_| ImageError::Malformed("metadata.json"))?;
    let covered = |name: &str| {
        if sums.contains_key(name) { Ok(dir.join(name)) } else { Err(ImageError::Uncovered(name.to_owned())) }
    };
    covered("metadata.json")?;
    // The root file system may be covered by its hash in the kernel's command line instead.
    let rootfs = covered(&metadata.rootfs).or_else(|error| {
        let is_plain = is_file_name(&metadata.rootfs);
        if is_plain && metadata.cmdline.contains(&hex::encode(sha256_of(dir, &metadata.rootfs)?)) {
            Ok(dir.join(&metadata.rootfs))
        } else {
            Err(error)
        }
    })?;
    let boot = BootFiles {
        kernel: covered(&metadata.kernel)?,
        initrd: covered(&metadata.initrd)?,
        rootfs,
        firmware: metadata.bios.as_deref().map(covered).transpose()?,
        cmdline: metadata.cmdline,
    };
    let description = NodeImage {
        name: metadata.name,
        version: metadata.version,
        is_dev: metadata.is_dev,
        os_image_hash: hash,
    };
    Ok(GuestImage { description, boot })
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
    text.lines().map(line).collect::<Option<_>>().ok_or(ImageError::Malformed("sha256sum.txt"))
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

fn sha256_of(dir: &Path, name: &str) -> Result<[u8; 32], ImageError> {
    let hash = || {
        let mut hasher = Sha256::new();
        let mut file = File::open(dir.join(name))?;
        let mut chunk = vec![0; 1024 * 1024];
        loop {
            match file.read(&mut chunk)? {
                0 => return Ok(hasher.finalize().into()),
                length => hasher.update(chunk.get(..length).unwrap_or_default()),
            }
        }
    };
    hash().map_err(|source| ImageError::Io { file: name.to_owned(), source })
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Writes an image with tiny files and returns its hash.
    pub(crate) fn write_image(dir: &Path, name: &str) -> OsImageHash {
        let dir = dir.join(name);
        fs::create_dir_all(&dir).unwrap();
        let metadata = serde_json::json!({
            "name": name, "version": "0.1.0", "is_dev": true, "kernel": "vmlinuz", "initrd": "initrd.img",
            "rootfs": "rootfs.erofs", "cmdline": "quiet",
        });
        let files = [
            ("vmlinuz", "kernel".to_owned()),
            ("initrd.img", "initrd".to_owned()),
            ("rootfs.erofs", "root".to_owned()),
            ("metadata.json", metadata.to_string()),
        ];
        let mut sums = String::new();
        for (file, contents) in &files {
            fs::write(dir.join(file), contents).unwrap();
            sums += &format!("{}  {file}\n", hex::encode(Sha256::digest(contents)));
        }
        let hash = OsImageHash::from_bytes(Sha256::digest(&sums).into());
        fs::write(dir.join("sha256sum.txt"), sums).unwrap();
        fs::write(dir.join("digest.txt"), format!("{hash}\n")).unwrap();
        hash
    }

    #[test]
    fn offers_good_images_and_drops_one_when_a_file_changes() {
        let dir = tempfile::tempdir().unwrap();
        let images = GuestImages::new(dir.path().to_owned());
        assert_eq!(images.scan(), []);
        let first = write_image(dir.path(), "a-0.1.0");
        let second = write_image(dir.path(), "b-0.1.0");
        assert_eq!(images.scan().len(), 2);
        assert_eq!(images.find(second).unwrap().description.name, "b-0.1.0");
        fs::write(dir.path().join("b-0.1.0/rootfs.erofs"), "tampered").unwrap();
        assert_eq!(images.find(second), None);
        assert!(images.find(first).is_some());
        write_image(dir.path(), "b-0.1.0");
        assert!(images.find(second).is_some());
    }

    #[test]
    fn refuses_files_that_the_hash_does_not_cover() {
        let dir = tempfile::tempdir().unwrap();
        write_image(dir.path(), "a");
        let sums = dir.path().join("a/sha256sum.txt");
        let text: String = fs::read_to_string(&sums)
            .unwrap()
            .lines()
            .filter(|l| !l.contains("rootfs"))
            .fold(String::new(), |t, l| t + l + "\n");
        fs::write(dir.path().join("a/digest.txt"), hex::encode(Sha256::digest(&text))).unwrap();
        fs::write(&sums, text).unwrap();
        assert!(
            matches!(verify(&dir.path().join("a")), Err(ImageError::Uncovered(name)) if name == "rootfs.erofs")
        );
    }

    proptest! {
        #[test]
        fn sums_never_name_files_elsewhere(text in "([0-9a-f]{64}  [./a-z]{1,8}\n){0,3}") {
            if let Ok(sums) = parse_sums(&text) {
                prop_assert!(sums.keys().all(|name| !name.contains('/') && name != ".."));
            }
        }
    }
}
