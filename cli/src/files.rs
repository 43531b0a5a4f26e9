//! Files that the user names, and small ones of Cloister's own: read as a whole, up to a limit.

use std::fs::{File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use zeroize::Zeroizing;

use crate::failure::{Exit, Failure};

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("is larger than {0} bytes")]
    TooLarge(u64),
    #[error("is not UTF-8 text")]
    NoText,
}

impl Unusable {
    /// As it is told of a file that the user named.
    fn named(self, path: &Path) -> Failure {
        match self {
            Self::Io(error) => Failure::usage(format!("cannot read {}", path.display())).caused_by(error),
            other => Failure::usage(format!("{} {other}", path.display())),
        }
    }
}

/// Reads a file of at most `limit` bytes.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let filled = File::open(path).map_err(Unusable::from).and_then(|file| fill(&mut bytes, file, limit));
    filled.map(|()| bytes).map_err(|why| why.named(path))
}

/// Reads a text file likewise.
pub(crate) fn read_text(path: &Path, limit: u64) -> Result<String, Failure> {
    String::from_utf8(read(path, limit)?).map_err(|_| Unusable::NoText.named(path))
}

/// Reads a secret likewise, and leaves no copy of it behind, whatever comes of it.
pub(crate) fn read_secret(path: &Path, limit: u64) -> Result<Zeroizing<String>, Failure> {
    secret(path, limit).map_err(|why| why.named(path))
}

/// Reads a file of Cloister's own likewise; `None` where there is none.
pub(crate) fn read_own(path: &Path, limit: u64) -> Result<Option<Zeroizing<String>>, Failure> {
    match secret(path, limit) {
        Err(Unusable::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(|why| {
            let mut failure = why.named(path);
            failure.exit = Exit::Failed;
            failure
        }),
    }
}

/// Mode of a file that other users may read.
pub(crate) const FOR_EVERYBODY: u32 = 0o666;
/// Mode of one that they may not.
pub(crate) const FOR_OWNER: u32 = 0o600;

/// Replaces a file that the user named in one step: an interrupted run leaves the earlier one.
pub(crate) fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Failure> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Less what the umask takes.
    let mode = Permissions::from_mode(mode);
    let written = tempfile::Builder::new().permissions(mode).tempfile_in(parent).and_then(|mut file| {
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path).map(drop).map_err(|error| error.error)
    });
    written.map_err(|error| Failure::local(format!("cannot write {}", path.display()), error))
}

fn secret(path: &Path, limit: u64) -> Result<Zeroizing<String>, Unusable> {
    let file = File::open(path)?;
    let about = file.metadata()?;
    // Allocated once: what grows is copied. What is no file, or is made when it is read, does not say how much will come.
    let room = Some(about.len().min(limit)).filter(|length| about.is_file() && *length > 0).unwrap_or(limit);
    let mut bytes = Zeroizing::new(Vec::with_capacity(usize::try_from(room).unwrap_or_default() + 64));
    fill(&mut bytes, file, limit)?;
    std::str::from_utf8(&bytes).map(|text| Zeroizing::new(text.to_owned())).map_err(|_| Unusable::NoText)
}

fn fill(bytes: &mut Vec<u8>, file: File, limit: u64) -> Result<(), Unusable> {
    file.take(limit + 1).read_to_end(bytes)?;
    if bytes.len() as u64 > limit { Err(Unusable::TooLarge(limit)) } else { Ok(()) }
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

    #[test]
    fn a_file_of_our_own_may_be_absent_but_not_cut_off() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "12345678").unwrap();
        assert_eq!(**read_own(file.path(), 8).unwrap().unwrap(), *"12345678");
        assert_eq!(read_own(Path::new("/nonexistent"), 8).unwrap(), None);
        let failure = read_own(file.path(), 7).unwrap_err();
        assert!(failure.message.ends_with(" is larger than 7 bytes"), "{}", failure.message);
        assert_eq!(failure.exit, Exit::Failed);
        assert!(read_own(file.path().parent().unwrap(), 8).is_err());
    }
}
