//! Applications that people can let in, from a file.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use cloister_control_plane::OauthClient;
use serde::Deserialize;

use crate::failure::Failure;

/// Largest file, in bytes.
const MAX_BYTES: u64 = 1 << 20;
const EXAMPLE: &str = r#"[{"id": "dashboard", "name": "Our dashboard", "redirect_uris": ["https://dashboard.example/callback"]}]"#;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    name: String,
    redirect_uris: Vec<String>,
}

/// Reads the list. Whether ids and addresses are good is the control plane's to say.
pub(super) fn read(path: &Path) -> Result<Vec<OauthClient>, Failure> {
    let unreadable = |error| Failure::usage(format!("{} cannot be read", path.display())).caused_by(error);
    let malformed = || {
        Failure::usage(format!("{} is not a list of OAuth clients", path.display()))
            .hint(format!("such as {EXAMPLE}"))
    };
    let mut text = Vec::new();
    File::open(path).map_err(unreadable)?.take(MAX_BYTES + 1).read_to_end(&mut text).map_err(unreadable)?;
    if u64::try_from(text.len()).is_ok_and(|length| length > MAX_BYTES) {
        return Err(malformed());
    }
    let entries: Vec<Entry> = serde_json::from_slice(&text).map_err(|error| malformed().caused_by(error))?;
    let client =
        |entry: Entry| OauthClient { id: entry.id, name: entry.name, redirect_uris: entry.redirect_uris };
    Ok(entries.into_iter().map(client).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("clients.json");
        std::fs::write(&path, EXAMPLE).unwrap();
        assert_eq!(read(&path).unwrap()[0].id, "dashboard");
        for text in [
            "",
            "{}",
            r#"[{"id": "a"}]"#,
            r#"[{"id": "a", "name": "A", "redirect_uris": [], "secret": "x"}]"#,
        ] {
            std::fs::write(&path, text).unwrap();
            assert!(read(&path).is_err(), "{text}");
        }
    }
}
