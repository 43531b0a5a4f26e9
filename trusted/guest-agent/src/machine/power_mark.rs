//! A mark on the data disk by which a boot knows that the one before it lost its power.

use std::fs::{self, File};
use std::io;
use std::path::Path;

const MARK: &str = "running";

/// Sets the mark for this boot; whether an earlier boot left it.
pub(crate) fn set(data: &Path) -> io::Result<bool> {
    match File::create_new(data.join(MARK)) {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(true),
        Err(error) => Err(error),
    }
}

/// Removes the mark: everything ended in order.
pub(crate) fn clear(data: &Path) -> io::Result<()> {
    fs::remove_file(data.join(MARK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_a_boot_that_did_not_end() {
        let data = tempfile::tempdir().unwrap();
        assert!(!set(data.path()).unwrap());
        assert!(set(data.path()).unwrap());
        clear(data.path()).unwrap();
        assert!(!set(data.path()).unwrap());
    }
}
