//! The directory that keeps an installation, and the lock that lets one control plane use it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::credentials::FILE_NAME;
use crate::failure::{Exit, Failure};

/// The directory of an installation; no other control plane can use it while this lives.
#[derive(Debug)]
pub(crate) struct Home {
    path: PathBuf,
    _lock: File,
}

impl Home {
    /// Makes the directory if it is not there, private to its owner, and locks it.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let failed =
            |error| Failure::local(format!("cannot use the data directory {}", path.display()), error);
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let path = path.canonicalize().map_err(failed)?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).map_err(failed)?;
        let lock = lock(&path.join("lock")).map_err(failed)??;
        Ok(Self { path, _lock: lock })
    }

    /// A file or directory of the cloud.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The directory itself.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the installation's own API key is kept.
    pub(crate) fn credentials(&self) -> PathBuf {
        self.join(FILE_NAME)
    }
}

/// Takes the lock and writes this process's number into it, for the message of the next one.
fn lock(path: &Path) -> io::Result<Result<File, Failure>> {
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(Err(busy(&file, path))),
        Err(error) => return Err(error.into()),
    }
    file.set_len(0)?;
    writeln!(file, "{}", std::process::id())?;
    Ok(Ok(file))
}

fn busy(file: &File, path: &Path) -> Failure {
    let mut holder = String::new();
    let _ = file.take(32).read_to_string(&mut holder);
    let directory = path.parent().unwrap_or(path).display();
    Failure::new(Exit::Conflict, format!("a cloud already runs on {directory} (process {})", holder.trim()))
        .hint("use it: cloister cvms list")
        .hint("or run another one: --data-dir DIR, with other addresses")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_at_a_time_in_a_private_directory() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/cloud");
        let first = Home::open(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);

        let second = Home::open(&path).unwrap_err();
        assert_eq!(second.exit, Exit::Conflict);
        assert!(second.message.contains(&std::process::id().to_string()), "{second}");

        drop(first);
        assert!(Home::open(&path).is_ok());
    }
}
