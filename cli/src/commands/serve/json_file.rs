//! What an operator describes in a file of JSON.

use std::path::Path;

use serde::de::DeserializeOwned;

use crate::failure::Failure;
use crate::files;

/// Reads a file. `malformed` says what it should be; the parser's words follow.
pub(super) fn read<T: DeserializeOwned>(
    path: &Path,
    max_bytes: u64,
    malformed: impl Fn() -> Failure,
) -> Result<T, Failure> {
    let text = files::read(path, max_bytes).map_err(|failure| with_hints(failure, malformed()))?;
    serde_json::from_slice(&text).map_err(|error| malformed().caused_by(error))
}

/// The same where nothing of the file may be repeated, as the parser's words could.
pub(super) fn read_secret<T: DeserializeOwned>(
    path: &Path,
    max_bytes: u64,
    malformed: impl Fn() -> Failure,
) -> Result<T, Failure> {
    let text = files::read_secret(path, max_bytes).map_err(|failure| with_hints(failure, malformed()))?;
    serde_json::from_str(&text).map_err(|_| malformed())
}

/// What cannot be read is to be made as what is malformed.
fn with_hints(mut failure: Failure, malformed: Failure) -> Failure {
    failure.hints = malformed.hints;
    failure
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn what_is_too_large_or_no_json_is_refused_and_of_a_secret_nothing_is_repeated() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let malformed = || Failure::usage("no such list").hint("see the example");
        std::fs::write(file.path(), "[1, 2]").unwrap();
        assert_eq!(read::<Value>(file.path(), 6, malformed).unwrap(), serde_json::json!([1, 2]));
        assert_eq!(read_secret::<Value>(file.path(), 6, malformed).unwrap(), serde_json::json!([1, 2]));
        for failure in [
            read::<Value>(file.path(), 5, malformed).unwrap_err(),
            read_secret::<Value>(file.path(), 5, malformed).unwrap_err(),
        ] {
            assert!(failure.message.ends_with(" is larger than 5 bytes"), "{}", failure.message);
            assert_eq!(failure.hints, ["see the example"]);
        }
        std::fs::write(file.path(), "\"planted\"").unwrap();
        assert!(read::<u8>(file.path(), 99, malformed).unwrap_err().chain().contains("planted"));
        assert_eq!(read_secret::<u8>(file.path(), 99, malformed).unwrap_err().chain(), "no such list");
    }
}
