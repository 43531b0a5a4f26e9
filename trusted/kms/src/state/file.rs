//! The state file: replaced as a whole, so that a crash leaves the old one or the new one.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::Boundaries;

/// The sealed state.
pub(crate) const STATE_FILE: &str = "state.sealed";
/// Certificates of all roots, PEM, the current one first: for relying parties.
pub(crate) const ROOT_CA_FILE: &str = "root-ca.pem";
/// Verification key of the release log: for relying parties.
pub(crate) const LOG_VERIFIER_KEY_FILE: &str = "log-verifier-key";
/// The release log.
pub(crate) const LOG_DIR: &str = "log";
const LOCK_FILE: &str = "lock";
/// Largest state, in bytes: a million CVMs and as many applications.
pub(super) const MAX_STATE_BYTES: u64 = 512 << 20;

/// The data directory, held by one process at a time.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    _lock: File,
}

/// How far a replacement came before it failed.
#[derive(Debug)]
pub(crate) enum Replacement {
    /// The old file is there.
    NotBegun(io::Error),
    /// The new file is there, or the old one will be after a loss of power: nobody knows.
    Uncertain(io::Error),
}

impl DataDir {
    /// Takes the directory, and makes it if it does not exist. `None` when another process has it.
    pub(crate) fn take(path: &Path) -> io::Result<Option<Self>> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path.join(LOCK_FILE))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { path: path.to_owned(), _lock: lock })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A file or folder in it.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Reads a file; `None` if there is none.
    pub(crate) fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(self.join(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        if file.take(MAX_STATE_BYTES + 1).read_to_end(&mut bytes)? as u64 > MAX_STATE_BYTES {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the file is too large"));
        }
        Ok(Some(bytes))
    }

    /// Replaces a file, durably: what this returns `Ok` for outlives a loss of power.
    pub(crate) fn replace(
        &self,
        name: &str,
        bytes: &[u8],
        mode: u32,
        change: &str,
        boundaries: &Boundaries,
    ) -> Result<(), Replacement> {
        if bytes.len() as u64 > MAX_STATE_BYTES {
            let error = io::Error::new(io::ErrorKind::FileTooLarge, "the next start could not read it");
            return Err(Replacement::NotBegun(error));
        }
        let temporary = self.join(&format!("{name}.new"));
        let write = || {
            let mut file =
                OpenOptions::new().create(true).truncate(true).write(true).mode(mode).open(&temporary)?;
            boundaries.at(change, "file begun");
            let (half, other) = bytes.split_at(bytes.len() / 2);
            file.write_all(half)?;
            boundaries.at(change, "file half written");
            file.write_all(other)?;
            file.sync_all()
        };
        write().map_err(Replacement::NotBegun)?;
        boundaries.at(change, "file written");
        std::fs::rename(&temporary, self.join(name)).map_err(Replacement::NotBegun)?;
        boundaries.at(change, "file renamed");
        let synced = File::open(&self.path).and_then(|directory| directory.sync_all());
        synced.map_err(Replacement::Uncertain)?;
        boundaries.at(change, "file durable");
        Ok(())
    }
}
