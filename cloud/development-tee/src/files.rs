//! Files that only their owner reads, whole or not there at all, also after a power cut.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use tempfile::NamedTempFile;

use crate::TeeError;

/// The contents of a file; `None` when there is none.
pub(crate) fn read_if_present(path: &Path) -> Result<Option<String>, TeeError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TeeError::File { path: path.to_owned(), source }),
    }
}

/// Creates a file or replaces one that holds something else.
pub(crate) fn write_private(path: &Path, contents: &str) -> Result<(), TeeError> {
    if read_if_present(path)?.as_deref() == Some(contents) {
        return Ok(());
    }
    in_place(path, contents, |file| file.persist(path).map(drop).map_err(|error| error.error))
}

/// Creates a file unless there is one; what it holds then. Of several processes that come at the same
/// moment, one decides for all.
pub(crate) fn create_private(path: &Path, contents: &str) -> Result<String, TeeError> {
    in_place(path, contents, |file| match file.persist_noclobber(path) {
        Ok(_) => Ok(contents.to_owned()),
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => fs::read_to_string(path),
        Err(error) => Err(error.error),
    })
}

/// What a file holds; it is made from `contents` when there is none.
pub(crate) fn read_or_create(
    path: &Path,
    contents: impl FnOnce() -> Result<String, TeeError>,
) -> Result<String, TeeError> {
    match read_if_present(path)? {
        Some(text) => Ok(text),
        None => create_private(path, &contents()?),
    }
}

fn in_place<T>(
    path: &Path,
    contents: &str,
    place: impl FnOnce(NamedTempFile) -> io::Result<T>,
) -> Result<T, TeeError> {
    let attempt = || {
        let dir = path.parent().unwrap_or(Path::new("."));
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        // Readable by its owner only.
        let mut file = NamedTempFile::new_in(dir)?;
        file.write_all(contents.as_bytes())?;
        file.as_file().sync_all()?;
        let placed = place(file)?;
        File::open(dir)?.sync_all()?;
        Ok(placed)
    };
    attempt().map_err(|source| TeeError::File { path: path.to_owned(), source })
}
