//! Files that the user names, read up to a limit.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use zeroize::Zeroizing;

use crate::failure::Failure;

/// Reads a file of at most `limit` bytes.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    fill(&mut bytes, path, limit)?;
    Ok(bytes)
}

/// Reads a text file likewise.
pub(crate) fn read_text(path: &Path, limit: u64) -> Result<String, Failure> {
    String::from_utf8(read(path, limit)?).map_err(|_| no_text(path))
}

/// Reads a secret likewise, and leaves no copy of it behind, whatever comes of it.
pub(crate) fn read_secret(path: &Path, limit: u64) -> Result<Zeroizing<String>, Failure> {
    // Allocated once: what grows is copied.
    let mut bytes = Zeroizing::new(Vec::with_capacity(usize::try_from(limit).unwrap_or_default() + 64));
    fill(&mut bytes, path, limit)?;
    std::str::from_utf8(&bytes).map(|text| Zeroizing::new(text.to_owned())).map_err(|_| no_text(path))
}

fn fill(bytes: &mut Vec<u8>, path: &Path, limit: u64) -> Result<(), Failure> {
    File::open(path)
        .and_then(|file| file.take(limit + 1).read_to_end(bytes))
        .map_err(|error| Failure::usage(format!("cannot read {}", path.display())).caused_by(error))?;
    if bytes.len() as u64 > limit {
        return Err(Failure::usage(format!("{} is larger than {limit} bytes", path.display())));
    }
    Ok(())
}

fn no_text(path: &Path) -> Failure {
    Failure::usage(format!("{} is not UTF-8 text", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_a_whole_or_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "12345678").unwrap();
        assert_eq!(read_text(file.path(), 8).unwrap(), "12345678");
        assert_eq!(*read_secret(file.path(), 8).unwrap(), "12345678");
        for failure in [read_text(file.path(), 7).unwrap_err(), read_secret(file.path(), 7).unwrap_err()] {
            assert!(failure.message.ends_with(" is larger than 7 bytes"), "{}", failure.message);
        }
        std::fs::write(file.path(), b"\xff").unwrap();
        assert_eq!(read(file.path(), 1).unwrap(), b"\xff");
        for failure in [read_text(file.path(), 1).unwrap_err(), read_secret(file.path(), 1).unwrap_err()] {
            assert!(failure.message.ends_with(" is not UTF-8 text"), "{}", failure.message);
        }
        let message = read(Path::new("/nonexistent"), 1).unwrap_err().message;
        assert_eq!(message, "cannot read /nonexistent");
    }
}
