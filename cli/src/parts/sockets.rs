//! A directory for sockets whose path is short enough for the system.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use sha2::{Digest, Sha256};

use crate::failure::Failure;

/// Longest data directory of a node that can hold its sockets itself, in bytes.
const MAX_DATA_DIR_BYTES: usize = 63;

/// `None` where the node's data directory is short enough; otherwise a private directory elsewhere, the
/// same one at every start, because running CVMs keep their sockets there.
pub(super) fn directory(data_dir: &Path) -> Result<Option<PathBuf>, Failure> {
    if data_dir.as_os_str().len() <= MAX_DATA_DIR_BYTES {
        return Ok(None);
    }
    let digest = hex::encode(Sha256::digest(data_dir.as_os_str().as_bytes()));
    let short = digest.get(..16).unwrap_or(&digest);
    let base = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    let path = base.join(format!("cloister-{}-{short}", geteuid().as_raw()));
    make_private(&path).map_err(|error| {
        Failure::local(format!("cannot keep sockets in {}", path.display()), error)
            .hint("use a data directory with a shorter path: --data-dir DIR")
    })?;
    Ok(Some(path))
}

/// Makes the directory, or takes the existing one if nobody else can have prepared it.
fn make_private(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => return other,
    }
    let found = path.symlink_metadata()?;
    let private = found.is_dir() && found.uid() == geteuid().as_raw() && found.mode().trailing_zeros() >= 6;
    private.then_some(()).ok_or_else(|| io::Error::other("it belongs to somebody else or is open to others"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn only_a_private_directory_of_ours_will_do() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run");
        make_private(&path).unwrap();
        make_private(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o750)).unwrap();
        assert!(make_private(&path).is_err());

        let link = parent.path().join("link");
        symlink("/root", &link).unwrap();
        assert!(make_private(&link).is_err());
    }
}
