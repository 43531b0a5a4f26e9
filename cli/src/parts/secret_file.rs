//! Files with secrets, for their owner only.

use std::io::{self, Write as _};
use std::path::Path;

use tempfile::NamedTempFile;
use zeroize::Zeroizing;

/// Makes a file with a random token, 64 hex digits, unless there is one.
pub(crate) fn make_token(path: &Path) -> io::Result<()> {
    if path.try_exists()? {
        return Ok(());
    }
    let mut token = Zeroizing::new([0; 32]);
    getrandom::fill(token.as_mut_slice()).map_err(io::Error::other)?;
    match written(path, &Zeroizing::new(hex::encode(token.as_slice())))?.persist_noclobber(path) {
        Err(error) if error.error.kind() != io::ErrorKind::AlreadyExists => Err(error.error),
        _ => Ok(()),
    }
}

/// Replaces the file as a whole.
pub(crate) fn replace(path: &Path, secret: &str) -> io::Result<()> {
    written(path, secret)?.persist(path)?;
    Ok(())
}

/// The line on disk, under a name that nobody knows yet.
fn written(path: &Path, line: &str) -> io::Result<NamedTempFile> {
    // Readable by its owner only.
    let mut file = NamedTempFile::new_in(path.parent().unwrap_or(path))?;
    writeln!(file, "{line}")?;
    file.as_file().sync_all()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_is_made_once_and_every_secret_is_for_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let is_private = || path.metadata().unwrap().permissions().mode() & 0o777 == 0o600;
        make_token(&path).unwrap();
        let token = std::fs::read_to_string(&path).unwrap();
        assert_eq!(token.trim().len(), 64);
        assert!(is_private());
        make_token(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), token);
        replace(&path, "another").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "another\n");
        assert!(is_private());
    }
}
