//! What an operator describes in a file of JSON.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// Reads a file. `malformed` says what it should be; the parser's words follow.
pub(super) fn read<T: DeserializeOwned>(
    path: &Path,
    max_bytes: u64,
    malformed: impl Fn() -> Failure,
) -> Result<T, Failure> {
    let text = bytes(path, max_bytes, &malformed)?;
    serde_json::from_slice(&text).map_err(|error| malformed().caused_by(error))
}

/// The same where nothing of the file may be repeated, as the parser's words could.
pub(super) fn read_secret<T: DeserializeOwned>(
    path: &Path,
    max_bytes: u64,
    malformed: impl Fn() -> Failure,
) -> Result<T, Failure> {
    let text = bytes(path, max_bytes, &malformed)?;
    serde_json::from_slice(&text).map_err(|_| malformed())
}

/// What is in a file; one that is larger is no such file.
fn bytes(path: &Path, max_bytes: u64, malformed: &impl Fn() -> Failure) -> Result<Vec<u8>, Failure> {
    let unreadable = |error| Failure::usage(format!("{} cannot be read", path.display())).caused_by(error);
    let mut text = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(max_bytes.saturating_add(1)).read_to_end(&mut text).map_err(unreadable)?;
    if u64::try_from(text.len()).is_ok_and(|length| length > max_bytes) {
        return Err(malformed());
    }
    Ok(text)
}
