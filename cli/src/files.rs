//! Files that the user names, read up to a limit.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::failure::Failure;

/// Reads a file of at most `limit` bytes.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(limit + 1).read_to_end(&mut bytes))
        .map_err(|error| Failure::usage(format!("cannot read {}", path.display())).caused_by(error))?;
    if bytes.len() as u64 > limit {
        return Err(Failure::usage(format!("{} is larger than {limit} bytes", path.display())));
    }
    Ok(bytes)
}

/// Reads a text file likewise.
pub(crate) fn read_text(path: &Path, limit: u64) -> Result<String, Failure> {
    String::from_utf8(read(path, limit)?)
        .map_err(|_| Failure::usage(format!("{} is not UTF-8 text", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_a_whole_or_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "12345678").unwrap();
        assert_eq!(read_text(file.path(), 8).unwrap(), "12345678");
        let message = read_text(file.path(), 7).unwrap_err().message;
        assert!(message.ends_with(" is larger than 7 bytes"), "{message}");
        std::fs::write(file.path(), b"\xff").unwrap();
        assert_eq!(read(file.path(), 1).unwrap(), b"\xff");
        let message = read_text(file.path(), 1).unwrap_err().message;
        assert!(message.ends_with(" is not UTF-8 text"), "{message}");
        let message = read(Path::new("/nonexistent"), 1).unwrap_err().message;
        assert_eq!(message, "cannot read /nonexistent");
    }
}
