//! The chains of an installation, from a file.

use std::path::Path;
use std::time::Duration;

use cloister_chain::{ChainConfig, DEFAULT_MAX_HEAD_AGE, DEFAULT_REQUEST_TIMEOUT};
use serde::Deserialize;
use url::Url;

use super::json_file;
use crate::failure::Failure;
use crate::parts::is_for_its_owner;

/// Largest file, in bytes.
const MAX_BYTES: u64 = 64 << 10;
const EXAMPLE: &str = r#"[{"chain_id": 8453, "name": "base", "endpoints": ["https://base.example/KEY"]}]"#;

/// One chain.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    chain_id: u64,
    name: String,
    endpoints: Vec<Url>,
    #[serde(default = "one")]
    quorum: usize,
    #[serde(default = "usual_confirmations")]
    confirmations: u64,
    /// Seconds; 0 for any age.
    #[serde(default = "usual_age")]
    max_head_age_s: u64,
}

const fn one() -> usize {
    1
}

const fn usual_confirmations() -> u64 {
    12
}

const fn usual_age() -> u64 {
    DEFAULT_MAX_HEAD_AGE.as_secs()
}

/// Reads the list. The file is for its owner only, and nothing of it is repeated in words: providers put keys into
/// the addresses of endpoints.
pub(super) fn read(path: &Path) -> Result<Vec<ChainConfig>, Failure> {
    is_for_its_owner(path)?;
    let malformed = || {
        Failure::usage(format!("{} is not a list of chains", path.display()))
            .hint(format!("such as {EXAMPLE}; quorum, confirmations and max_head_age_s may be added"))
    };
    let entries: Vec<Entry> = json_file::read_secret(path, MAX_BYTES, malformed)?;
    Ok(entries.into_iter().map(Entry::config).collect())
}

impl Entry {
    fn config(self) -> ChainConfig {
        ChainConfig {
            chain_id: self.chain_id,
            name: self.name,
            endpoints: self.endpoints,
            quorum: self.quorum,
            confirmations: self.confirmations,
            max_head_age: Some(Duration::from_secs(self.max_head_age_s)).filter(|age| !age.is_zero()),
            request_timeout: DEFAULT_REQUEST_TIMEOUT,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn file(text: &str, mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        fs::set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn the_example_is_a_list_with_safe_values_for_the_rest() {
        let chains = read(file(EXAMPLE, 0o600).path()).unwrap();
        let [chain] = chains.as_slice() else { panic!("{chains:?}") };
        assert_eq!((chain.chain_id, chain.name.as_str(), chain.quorum), (8453, "base", 1));
        assert_eq!((chain.confirmations, chain.max_head_age), (12, Some(DEFAULT_MAX_HEAD_AGE)));
        chain.check().unwrap();
        let text = r#"[{"chain_id": 31337, "name": "development", "endpoints": ["http://127.0.0.1:8545"],
                        "confirmations": 0, "max_head_age_s": 0}]"#;
        assert_eq!(read(file(text, 0o400).path()).unwrap()[0].max_head_age, None);
    }

    #[test]
    fn what_others_can_read_is_refused() {
        for mode in [0o640, 0o604, 0o620] {
            let failure = read(file(EXAMPLE, mode).path()).unwrap_err();
            assert!(failure.hints[0].contains("chmod 600"), "{mode:o}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused_without_repeating_it() {
        assert!(read(Path::new("/nonexistent")).unwrap_err().message.contains("cannot read"));
        let long = " ".repeat(1 << 17);
        let planted = EXAMPLE.replace("KEY", "planted-secret");
        for wrong in [
            "{}",
            r#"[{"chain_id": "planted-secret"}]"#,
            &planted.replace("https://", ""),
            &planted.replace("name", "planted-secret"),
            &long,
        ] {
            let failure = read(file(wrong, 0o600).path()).unwrap_err();
            assert!(failure.hints[0].contains("endpoints"), "{wrong:.40}");
            assert!(!failure.chain().contains("planted-secret"), "{}", failure.chain());
        }
    }
}
