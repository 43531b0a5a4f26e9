//! The key management services of an installation, from a file.

use std::path::{Path, PathBuf};

use cloister_chain::Address;
use cloister_control_plane::kms::{KmsConfig, KmsContract};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use url::Url;

use super::json_file;
use crate::failure::Failure;

/// Largest file, in bytes.
const MAX_BYTES: u64 = 1 << 20;
const EXAMPLE: &str = r#"[{"slug": "main", "guest_url": "https://kms.example:12001", "directory_url": "https://kms.example:12002", "ca_file": "root-ca.pem", "admin_token_file": "admin-token"}]"#;

/// One service; paths are relative to the file's directory.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    slug: String,
    guest_url: Url,
    directory_url: Url,
    ca_file: PathBuf,
    admin_token_file: PathBuf,
    contract: Option<Contract>,
}

/// The contract that decides for a service.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contract {
    chain_id: u64,
    #[serde(deserialize_with = "address")]
    address: Address,
}

fn address<'de, D: Deserializer<'de>>(from: D) -> Result<Address, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

/// Reads the list. Whether names and addresses are good is the control plane's to say.
pub(super) fn read(path: &Path) -> Result<Vec<KmsConfig>, Failure> {
    let malformed = || {
        Failure::usage(format!("{} is not a list of key management services", path.display()))
            .hint(format!("such as {EXAMPLE}"))
    };
    let entries: Vec<Entry> = json_file::read(path, MAX_BYTES, malformed)?;
    let dir = path.parent().unwrap_or(Path::new(""));
    let config = |entry: Entry| KmsConfig {
        slug: entry.slug,
        guest_url: entry.guest_url,
        directory_url: entry.directory_url,
        ca_file: dir.join(entry.ca_file),
        admin_token_file: dir.join(entry.admin_token_file),
        contract: entry
            .contract
            .map(|contract| KmsContract { chain_id: contract.chain_id, address: contract.address.into() }),
    };
    Ok(entries.into_iter().map(config).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_a_list_with_files_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kms.json");
        std::fs::write(&path, EXAMPLE).unwrap();
        let list = read(&path).unwrap();
        assert_eq!((list.len(), list[0].slug.as_str()), (1, "main"));
        assert_eq!(list[0].ca_file, dir.path().join("root-ca.pem"));
    }

    #[test]
    fn a_contract_may_decide() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kms.json");
        let contract = |chain_id: &str, address: &str| {
            let contract = format!(r#""contract": {{"chain_id": {chain_id}, "address": "{address}"}}}}]"#);
            std::fs::write(&path, EXAMPLE.replace("}]", &format!(", {contract}"))).unwrap();
            read(&path)
        };
        let list = contract("8453", "0xd343a3f5593b93D8056aB5D60c433622d7D65a80").unwrap();
        let decides = list[0].contract.unwrap();
        assert_eq!((decides.chain_id, decides.address[0]), (8453, 0xd3));
        for (chain_id, address) in
            [("8453", "0xd3"), ("\"base\"", "0xd343a3f5593b93D8056aB5D60c433622d7D65a80")]
        {
            assert!(contract(chain_id, address).is_err());
        }
    }

    #[test]
    fn what_is_no_list_is_refused_with_an_example() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kms.json");
        assert!(read(&path).unwrap_err().message.contains("cannot read"));
        for wrong in ["{}", r#"[{"slug":"main"}]"#, &EXAMPLE.replace("slug", "name"), &" ".repeat(1 << 21)] {
            std::fs::write(&path, wrong).unwrap();
            assert!(read(&path).unwrap_err().hints[0].contains("guest_url"), "{wrong:.40}");
        }
    }
}
