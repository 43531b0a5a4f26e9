//! The OpenID provider that people can log in by, from a file.

use std::path::{Path, PathBuf};

use cloister_control_plane::openid::{OpenidConfig, RequiredClaim, UnknownPeople};
use serde::Deserialize;

use super::json_file;
use crate::failure::Failure;

/// Largest file, in bytes.
const MAX_BYTES: u64 = 64 << 10;

/// The provider; the path is relative to the file's directory.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    issuer: String,
    client_id: String,
    client_secret_file: PathBuf,
    name: String,
    #[serde(default = "usual_scopes")]
    scopes: Vec<String>,
    #[serde(default = "usual_claim")]
    username_claim: String,
    #[serde(default)]
    allowed_email_domains: Vec<String>,
    #[serde(default)]
    required_claims: Vec<Required>,
    #[serde(default)]
    unknown_people: Unknown,
    #[serde(default = "yes")]
    password_login: bool,
    #[serde(default)]
    trusted_amr: Vec<String>,
    #[serde(default)]
    trusted_acr: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Required {
    claim: String,
    any_of: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Unknown {
    #[default]
    Refuse,
    Create,
}

fn usual_scopes() -> Vec<String> {
    ["profile", "email"].map(str::to_owned).into()
}

fn usual_claim() -> String {
    "preferred_username".to_owned()
}

const fn yes() -> bool {
    true
}

/// Reads the description. Whether its members are good is the control plane's to say, which reads the secret as well.
pub(super) fn read(path: &Path) -> Result<OpenidConfig, Failure> {
    let malformed = || {
        Failure::usage(format!("{} describes no OpenID provider", path.display()))
            .hint("begin with examples/openid-provider.json of the source tree; docs/accounts.md explains it")
    };
    let entry: Entry = json_file::read(path, MAX_BYTES, malformed)?;
    let dir = path.parent().unwrap_or(Path::new(""));
    let required = |required: Required| RequiredClaim { claim: required.claim, any_of: required.any_of };
    Ok(OpenidConfig {
        issuer: entry.issuer,
        client_id: entry.client_id,
        client_secret_file: dir.join(entry.client_secret_file),
        name: entry.name,
        scopes: entry.scopes,
        username_claim: entry.username_claim,
        allowed_email_domains: entry.allowed_email_domains,
        required_claims: entry.required_claims.into_iter().map(required).collect(),
        unknown_people: match entry.unknown_people {
            Unknown::Refuse => UnknownPeople::Refuse,
            Unknown::Create => UnknownPeople::Create,
        },
        password_login: entry.password_login,
        trusted_amr: entry.trusted_amr,
        trusted_acr: entry.trusted_acr,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_describes_a_provider() {
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/openid-provider.json");
        let config = read(Path::new(example)).unwrap();
        assert_eq!((config.issuer.as_str(), config.name.as_str()), ("https://id.example.org", "Example ID"));
        assert!(config.client_secret_file.ends_with("examples/openid-client-secret"));
        assert_eq!(config.required_claims[0].any_of, ["cloud-users"]);
    }

    #[test]
    fn what_is_not_said_is_safe() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("provider.json");
        let least =
            r#"{"issuer": "https://a.example", "client_id": "a", "client_secret_file": "s", "name": "A"}"#;
        std::fs::write(&path, least).unwrap();
        let config = read(&path).unwrap();
        assert_eq!((config.unknown_people, config.password_login), (UnknownPeople::Refuse, true));
        assert!(config.trusted_amr.is_empty() && config.trusted_acr.is_empty());
        assert_eq!(config.scopes, ["profile", "email"]);
        assert_eq!(config.client_secret_file, dir.path().join("s"));
        for text in [
            String::new(),
            "{}".to_owned(),
            least.replace('}', r#", "client_secret": "x"}"#),
            least.replace('}', r#", "unknown_people": "perhaps"}"#),
            " ".repeat(1 << 17),
        ] {
            std::fs::write(&path, &text).unwrap();
            assert!(read(&path).unwrap_err().hints[0].contains("openid-provider.json"), "{text:.40}");
        }
        assert!(read(Path::new("/nonexistent")).is_err());
    }
}
