//! Files that survive a crash at any moment, readable by their owner only.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use backon::{BlockingRetryable as _, ConstantBuilder};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

const LOCK_PAUSE: Duration = Duration::from_millis(50);
const LOCK_ATTEMPTS: usize = 20;

/// A lock on a file, given back when dropped or when the process ends.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Lock {
    /// Takes the lock of a file that need not exist yet; `None` when somebody else has it. Blocks for up to
    /// a second: a program that a killed process was just starting keeps the lock until it really runs.
    pub(crate) fn take(path: &Path) -> io::Result<Option<Self>> {
        let file = File::create(path)?;
        let attempt = || flock(&file, FlockOperation::NonBlockingLockExclusive);
        let pauses = ConstantBuilder::default().with_delay(LOCK_PAUSE).with_max_times(LOCK_ATTEMPTS);
        match attempt.retry(pauses).when(|error| *error == Errno::WOULDBLOCK).call() {
            Ok(()) => Ok(Some(Self(file))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file would not do: a process that is just being started has it open, too, until it
        // runs its program.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Replaces a file atomically: after a crash there is the old one or the whole new one.
pub(crate) fn write(path: &Path, contents: &[u8]) -> io::Result<()> {
    put(path, contents, File::sync_all)?;
    sync_parent(path)
}

/// Replaces a file that can be made again, without waiting for the disk: after a crash of the host it may
/// be the old one, or damaged.
pub(crate) fn write_lightly(path: &Path, contents: &[u8]) -> io::Result<()> {
    put(path, contents, |_| Ok(()))
}

fn put(path: &Path, contents: &[u8], sync: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(contents)?;
    sync(&file)?;
    fs::rename(&temporary, path)
}

/// [`write()`] of a JSON document.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    write(path, &serde_json::to_vec_pretty(value)?)
}

/// Reads a JSON document; `None` when there is no such file.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes a directory and its parents; one that exists is fine.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes the entry of `path` in its directory durable.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}
