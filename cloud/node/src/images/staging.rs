//! Blobs on their way into the store: files in a directory that vanishes with its owner.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;
use sha2::{Digest as _, Sha256};

use super::{Digest, ImageError};

const CHUNK_BYTES: usize = 256 * 1024;

/// Blobs by digest in a directory of their own.
pub(super) struct Staging {
    dir: PathBuf,
    /// Free bytes that must remain on the disk.
    reserve: u64,
    sizes: HashMap<Digest, u64>,
}

impl Staging {
    pub(super) fn create(dir: PathBuf, reserve: u64) -> Result<Self, ImageError> {
        fs::create_dir(&dir).map_err(ImageError::disk)?;
        Ok(Self { dir, reserve, sizes: HashMap::new() })
    }

    pub(super) fn path(&self, digest: &Digest) -> PathBuf {
        self.dir.join(digest.hex())
    }

    pub(super) fn size(&self, digest: &Digest) -> Option<u64> {
        self.sizes.get(digest).copied()
    }

    /// Copies a stream into a blob and names it by what came.
    pub(super) fn add(&mut self, mut contents: impl Read) -> Result<Digest, ImageError> {
        let temporary = self.dir.join("incoming");
        let mut file = File::create(&temporary).map_err(ImageError::disk)?;
        let (mut hash, mut size, mut chunk) = (Sha256::new(), 0, vec![0; CHUNK_BYTES]);
        loop {
            let count = contents.read(&mut chunk).map_err(super::archive::read_error)?;
            let Some(news) = chunk.get(..count).filter(|news| !news.is_empty()) else { break };
            self.check_space()?;
            hash.update(news);
            file.write_all(news).map_err(ImageError::disk)?;
            size += news.len() as u64;
        }
        let digest = Digest::finish(hash);
        fs::rename(&temporary, self.path(&digest)).map_err(ImageError::disk)?;
        self.sizes.insert(digest, size);
        Ok(digest)
    }

    /// Reads a small blob whole; `None` when it is not here.
    pub(super) fn read(&self, digest: &Digest, limit: u64) -> Result<Option<Vec<u8>>, ImageError> {
        match self.size(digest) {
            None => Ok(None),
            Some(size) if size > limit => Err(ImageError::TooLarge { what: "bytes in a manifest", limit }),
            Some(_) => fs::read(self.path(digest)).map(Some).map_err(ImageError::disk),
        }
    }

    /// The first bytes of a blob, for telling formats apart.
    pub(super) fn magic(&self, digest: &Digest) -> Result<[u8; 4], ImageError> {
        let mut magic = [0; 4];
        let mut file = File::open(self.path(digest)).map_err(ImageError::disk)?;
        match file.read_exact(&mut magic) {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(ImageError::disk(error)),
            _ => Ok(magic),
        }
    }

    /// A tenant must not fill the disk to the last byte: running CVMs write to it too.
    fn check_space(&self) -> Result<(), ImageError> {
        let disk = statvfs(&self.dir).map_err(|error| ImageError::disk(error.into()))?;
        if disk.f_bavail.saturating_mul(disk.f_frsize) < self.reserve {
            Err(ImageError::DiskFull)
        } else {
            Ok(())
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What cannot be removed now is removed when the store is opened next.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Makes what was written to a file or directory durable.
pub(super) fn sync(path: &Path) -> Result<(), ImageError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(ImageError::disk)
}
