//! Applications that people can let in, from a file.

use std::path::Path;

use cloister_control_plane::OauthClient;
use serde::Deserialize;

use super::json_file;
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
    let malformed = || {
        Failure::usage(format!("{} is not a list of OAuth clients", path.display()))
            .hint(format!("such as {EXAMPLE}"))
    };
    let entries: Vec<Entry> = json_file::read(path, MAX_BYTES, malformed)?;
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
