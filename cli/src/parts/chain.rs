//! A chain that decides, as the command line names it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cloister_chain::{Address, ChainConfig, DEFAULT_MAX_HEAD_AGE, DEFAULT_REQUEST_TIMEOUT};
use url::Url;

use crate::failure::Failure;
use crate::files;

/// Largest file with endpoints, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 10;
/// Access of others than the owner.
const OTHERS: u32 = 0o077;
/// Names of chains for people, by their ids.
const NAMES: [(u64, &str); 5] = [
    (1, "ethereum"),
    (8453, "base"),
    (11_155_111, "sepolia"),
    (84_532, "base-sepolia"),
    (31_337, "development"),
];

/// A contract that decides, and how its chain is asked.
#[derive(Debug, clap::Args)]
pub(crate) struct ChainArgs {
    /// Contract that decides who gets keys instead of the built-in rules; asked before every release
    #[arg(long, value_name = "ADDRESS", requires_all = ["chain_id", "chain_rpc_file"])]
    kms_contract: Option<Address>,
    /// Chain of the contract, such as 1 (Ethereum) or 8453 (Base)
    #[arg(long, value_name = "ID", requires = "kms_contract")]
    chain_id: Option<u64>,
    /// File with JSON-RPC endpoints of the chain, one URL a line, that only its owner can read (mode 0600). A file,
    /// because providers put API keys into them
    #[arg(long, value_name = "FILE", requires = "kms_contract")]
    chain_rpc_file: Option<PathBuf>,
    /// Endpoints that must give the same answer. With --production at least 2, and no host may make up that many
    /// by itself
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    chain_quorum: usize,
    /// Blocks on top of a permission before it counts; what is taken back counts at once
    #[arg(long, value_name = "BLOCKS", default_value_t = 12)]
    chain_confirmations: u64,
    /// Oldest newest block that is believed, in seconds; 0 for any, on development chains that make blocks when
    /// there is something to put into them
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_MAX_HEAD_AGE.as_secs())]
    chain_max_head_age: u64,
}

impl ChainArgs {
    /// The contract and its chain, if one is named.
    pub(crate) fn contract(&self, production: bool) -> Result<Option<(ChainConfig, Address)>, Failure> {
        let (Some(contract), Some(chain_id), Some(file)) =
            (self.kms_contract, self.chain_id, &self.chain_rpc_file)
        else {
            return Ok(None);
        };
        if production && self.chain_max_head_age == 0 {
            return Err(Failure::usage(
                "--chain-max-head-age 0 believes a chain that stands still; in production name an age",
            ));
        }
        is_for_its_owner(file)?;
        let config = ChainConfig {
            chain_id,
            name: chain_name(chain_id),
            endpoints: endpoints(file)?,
            quorum: self.chain_quorum,
            confirmations: self.chain_confirmations,
            max_head_age: Some(Duration::from_secs(self.chain_max_head_age)).filter(|age| !age.is_zero()),
            request_timeout: DEFAULT_REQUEST_TIMEOUT,
        };
        config.check().map_err(|error| Failure::usage("the chain cannot be asked").caused_by(error))?;
        if production {
            config.check_independence().map_err(|error| {
                Failure::usage("in production the KMS believes no single provider").caused_by(error).hint(
                    format!(
                        "put endpoints of different providers into {}, and name --chain-quorum 2 or more",
                        file.display()
                    ),
                )
            })?;
        }
        Ok(Some((config, contract)))
    }
}

/// What people call a chain.
pub(crate) fn chain_name(chain_id: u64) -> String {
    let known = NAMES.iter().find(|(id, _)| *id == chain_id);
    known.map_or_else(|| format!("chain {chain_id}"), |(_, name)| (*name).to_owned())
}

/// Refuses a file with secrets that others can read.
pub(crate) fn is_for_its_owner(file: &Path) -> Result<(), Failure> {
    let metadata = std::fs::metadata(file)
        .map_err(|error| Failure::usage(format!("cannot read {}", file.display())).caused_by(error))?;
    if metadata.permissions().mode() & OTHERS == 0 {
        return Ok(());
    }
    Err(Failure::usage(format!("others can read or change {}", file.display()))
        .hint(format!("make it yours only: chmod 600 {}", file.display())))
}

/// The URLs of a file; no word of it is repeated, because of the keys in them.
pub(crate) fn endpoints(file: &Path) -> Result<Vec<Url>, Failure> {
    let text = files::read_text(file, MAX_FILE_BYTES)?;
    let lines = text.lines().map(str::trim).enumerate();
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(index, line)| {
            line.parse()
                .map_err(|_| Failure::usage(format!("line {} of {} is not a URL", index + 1, file.display())))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        chain: ChainArgs,
    }

    const CONTRACT: &str = "0xd343a3f5593b93D8056aB5D60c433622d7D65a80";

    fn read(endpoints: &str, further: &[&str], production: bool) -> Result<(ChainConfig, Address), Failure> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), endpoints).unwrap();
        let path = file.path().to_str().unwrap();
        let named = ["cloister", "--kms-contract", CONTRACT, "--chain-id", "8453", "--chain-rpc-file", path];
        let program = Program::try_parse_from(named.iter().chain(further)).unwrap();
        program.chain.contract(production).map(Option::unwrap)
    }

    #[test]
    fn endpoints_come_from_a_file_and_stay_out_of_words() {
        let endpoints = "# ours\nhttps://one.example/v2/secret-key\n\nhttps://two.example/\n";
        let (config, contract) = read(endpoints, &["--chain-quorum", "2"], true).unwrap();
        assert_eq!(contract, CONTRACT.parse::<Address>().unwrap());
        assert_eq!((config.name.as_str(), config.endpoints.len(), config.quorum), ("base", 2, 2));
        assert_eq!(config.max_head_age, Some(DEFAULT_MAX_HEAD_AGE));
        assert!(!format!("{config:?}").contains("secret-key"));

        for (bad, further) in [
            ("https://one.example/secret-key\nsecret-key", vec![]),
            ("http://one.example/secret-key", vec![]),
            ("", vec![]),
            ("https://one.example/secret-key", vec!["--chain-quorum", "2"]),
            ("https://one.example/secret-key", vec!["--chain-confirmations", "1000"]),
            ("https://one.example/secret-key", vec!["--chain-max-head-age", "0"]),
            ("https://one.example/secret-key", vec![]),
            ("https://one.example/secret-key\nhttps://two.example/", vec![]),
            ("https://one.example/secret-key\nhttps://one.example/2", vec!["--chain-quorum", "2"]),
        ] {
            let failure = read(bad, &further, true).unwrap_err();
            assert!(!failure.chain().contains("secret-key"), "{}", failure.chain());
        }
        let alone = read("https://one.example/secret-key", &[], true).unwrap_err();
        assert!(alone.hints.iter().any(|hint| hint.contains("--chain-quorum 2")), "{alone:?}");
        assert_eq!(read("https://one.example/secret-key", &[], false).unwrap().0.quorum, 1);
        let any_age = read("http://127.0.0.1:8545", &["--chain-max-head-age", "0"], false).unwrap();
        assert_eq!(any_age.0.max_head_age, None);
    }

    #[test]
    fn endpoints_that_others_can_read_are_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "http://127.0.0.1:8545").unwrap();
        let path = file.path().to_str().unwrap();
        let named = ["cloister", "--kms-contract", CONTRACT, "--chain-id", "8453", "--chain-rpc-file", path];
        for (mode, is_fine) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o620, false)]
        {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
            let read = Program::try_parse_from(named).unwrap().chain.contract(false);
            assert_eq!(read.is_ok(), is_fine, "{mode:o}");
            if let Err(failure) = read {
                assert!(failure.hints[0].contains("chmod 600"), "{mode:o}");
            }
        }
    }

    #[test]
    fn a_contract_needs_its_chain() {
        for incomplete in [
            vec!["--kms-contract", CONTRACT],
            vec!["--kms-contract", CONTRACT, "--chain-id", "1"],
            vec!["--chain-id", "1"],
            vec!["--chain-rpc-file", "file"],
            vec!["--kms-contract", "0x12", "--chain-id", "1", "--chain-rpc-file", "file"],
        ] {
            Program::try_parse_from(["cloister"].iter().chain(&incomplete)).unwrap_err();
        }
        let none = Program::try_parse_from(["cloister"]).unwrap();
        assert!(none.chain.contract(true).unwrap().is_none());
    }
}
