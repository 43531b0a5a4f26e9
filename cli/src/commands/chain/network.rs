//! Which chain a command asks, and through which endpoints.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cloister_chain::{Address, Chain, ChainConfig, Clock, DEFAULT_MAX_HEAD_AGE, DEFAULT_REQUEST_TIMEOUT};
use cloister_management_api::v20260121::CvmKms;
use serde::{Deserialize, Serialize};
use url::Url;

use super::OwnerOptions;
use crate::commands::deploy::RootKey;
use crate::failure::{Exit, Failure};
use crate::parts::{chain_name, endpoints, is_for_its_owner};
use crate::session::Session;

/// Where the development chain of `cloister up` says where it is, in the data directory.
pub(crate) const FILE: &str = "chain/network.json";
/// Chain id of development chains.
const DEVELOPMENT: u64 = 31_337;
/// Blocks on top of a transaction before it counts, on real chains.
const CONFIRMATIONS: u64 = 12;

/// Options of every command that asks a chain; beside a cloud of `cloister up --development-chain` none is needed.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Chain")]
pub(crate) struct ChainOptions {
    /// JSON-RPC endpoint of the chain. One with a key in it belongs into a file (--rpc-file)
    #[arg(long, value_name = "URL", conflicts_with = "rpc_file")]
    rpc_url: Option<Url>,
    /// File with JSON-RPC endpoints, one URL a line, readable by you only
    #[arg(long, value_name = "FILE")]
    rpc_file: Option<PathBuf>,
    /// Endpoints of the file that must give the same answer
    #[arg(long, value_name = "COUNT", requires = "rpc_file")]
    rpc_quorum: Option<usize>,
    /// Chain that the endpoints must serve, such as 1 (Ethereum) or 8453 (Base)
    #[arg(long, value_name = "ID")]
    chain_id: Option<u64>,
    /// Blocks on top of a transaction before it counts [default: 12; 0 on development chains]
    #[arg(long, value_name = "BLOCKS")]
    confirmations: Option<u64>,
    /// Contract of the KMS that applications belong to
    #[arg(long, value_name = "ADDRESS")]
    kms_contract: Option<Address>,
}

/// What the development chain of `cloister up` says about itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Published {
    /// EIP-155 chain id.
    pub(crate) chain_id: u64,
    /// Where it is asked.
    pub(crate) rpc_url: Url,
    /// The contract of the KMS beside it.
    pub(crate) kms_contract: String,
}

/// A chain that can be asked.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    /// Its reader.
    pub(crate) chain: Chain,
    kms_contract: Option<Address>,
}

impl ChainOptions {
    /// The chain: the named one, or the development chain of the cloud on this machine.
    pub(crate) fn network(&self, session: &Session) -> Result<Network, Failure> {
        let (config, published) = match (&self.rpc_url, &self.rpc_file) {
            (None, None) => {
                let published = published(&session.data_dir()?)?;
                if self.chain_id.is_some_and(|id| id != published.chain_id) {
                    return Err(Failure::usage(
                        "--chain-id names another chain than the one of `cloister up`",
                    )
                    .hint("name its endpoints: --rpc-file FILE"));
                }
                let config = ChainConfig::development(published.chain_id, published.rpc_url.clone());
                (config, published.kms_contract.parse().ok())
            }
            (Some(url), _) => (self.config(vec![plain(url)?])?, None),
            (None, Some(file)) => {
                is_for_its_owner(file)?;
                (self.config(endpoints(file)?)?, None)
            }
        };
        let chain = Chain::new(config, Clock::system());
        let chain = chain.map_err(|error| Failure::usage("the chain cannot be asked").caused_by(error))?;
        Ok(Network::new(chain, self.kms_contract.or(published)))
    }

    /// Whether any of them was given.
    pub(crate) const fn is_named(&self) -> bool {
        self.rpc_url.is_some()
            || self.rpc_file.is_some()
            || self.chain_id.is_some()
            || self.kms_contract.is_some()
    }

    /// The root that the contract of a CVM's KMS publishes, where that contract was named here, by option or by the
    /// cloud on this machine.
    pub(crate) async fn published_root(
        &self,
        kms: Option<&CvmKms>,
        session: &Session,
    ) -> Result<Option<RootKey>, Failure> {
        let Some(kms) = kms.filter(|kms| kms.chain_id.is_some()) else {
            return match self.kms_contract {
                None => Ok(None),
                Some(_) => Err(Failure::new(
                    Exit::Unverified,
                    "the server says that no contract decides for this application, and one was named",
                )
                .hint("nothing was sealed and nothing was sent")),
            };
        };
        let network = self.network(session);
        let same = network.and_then(|network| {
            let contract = network.same_contract(kms.chain_id, kms.dstack_kms_address.as_deref())?;
            Ok((network, contract))
        });
        match same {
            Ok((network, contract)) => OwnerOptions::root(&network, contract).await,
            // What is remembered decides then.
            Err(_) if !self.is_named() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    fn config(&self, endpoints: Vec<Url>) -> Result<ChainConfig, Failure> {
        let chain_id = self.chain_id.ok_or_else(|| {
            Failure::usage("which chain do the endpoints serve?").hint("name it: --chain-id 8453")
        })?;
        let is_development = chain_id == DEVELOPMENT;
        let usual = if is_development { 0 } else { CONFIRMATIONS };
        let max_head_age: Option<Duration> = (!is_development).then_some(DEFAULT_MAX_HEAD_AGE);
        Ok(ChainConfig {
            chain_id,
            name: chain_name(chain_id),
            endpoints,
            quorum: self.rpc_quorum.unwrap_or(1),
            confirmations: self.confirmations.unwrap_or(usual),
            max_head_age,
            request_timeout: DEFAULT_REQUEST_TIMEOUT,
        })
    }
}

impl Network {
    /// A chain that is known already.
    pub(crate) const fn new(chain: Chain, kms_contract: Option<Address>) -> Self {
        Self { chain, kms_contract }
    }

    /// Its number.
    pub(crate) fn id(&self) -> u64 {
        self.chain.config().chain_id
    }

    /// Its name and number.
    pub(crate) fn words(&self) -> String {
        let config = self.chain.config();
        format!("chain {} ({})", config.chain_id, config.name)
    }

    /// The contract of the KMS, which must be known.
    pub(crate) fn kms_contract(&self) -> Result<Address, Failure> {
        self.kms_contract
            .ok_or_else(|| Failure::usage("which KMS contract?").hint("name it: --kms-contract ADDRESS"))
    }

    /// The contract that a server names, if it is on this chain and nobody named another one here.
    pub(crate) fn same_contract(
        &self,
        chain_id: Option<i64>,
        address: Option<&str>,
    ) -> Result<Address, Failure> {
        let theirs: Option<Address> = address.and_then(|text| text.parse().ok());
        let (Some(theirs), Some(chain_id)) = (theirs, chain_id.and_then(|id| u64::try_from(id).ok())) else {
            return Err(Failure::new(Exit::Failed, "the server does not name the contract of the KMS"));
        };
        if chain_id != self.id() {
            let message =
                format!("the KMS's contract is on chain {chain_id}, and {} was named", self.words());
            return Err(
                Failure::usage(message).hint("name endpoints of its chain: --rpc-file FILE --chain-id ID")
            );
        }
        match self.kms_contract {
            Some(ours) if ours != theirs => {
                let message = format!("the server names KMS contract {theirs}, and here it is {ours}");
                Err(Failure::new(Exit::Unverified, message).hint("nothing was sent"))
            }
            _ => Ok(theirs),
        }
    }
}

/// What the cloud on this machine publishes about its development chain.
fn published(data_dir: &Path) -> Result<Published, Failure> {
    let path = data_dir.join(FILE);
    let none = || {
        Failure::usage("which chain?")
            .hint("name it: --rpc-file FILE --chain-id ID")
            .hint("or start a cloud with one: cloister up --development-chain")
    };
    let text = std::fs::read(&path).map_err(|error| none().caused_by(error))?;
    serde_json::from_slice(&text)
        .map_err(|error| Failure::local(format!("{} cannot be read", path.display()), error))
}

/// Refuses URLs that may hold a key: arguments can be read by other users of the machine.
fn plain(url: &Url) -> Result<Url, Failure> {
    let is_bare = url.username().is_empty() && url.password().is_none() && url.query().is_none();
    if is_bare && url.path() == "/" {
        return Ok(url.clone());
    }
    Err(Failure::usage("this URL may hold a key, and other users of this machine can read arguments")
        .hint("put it into a file: --rpc-file FILE (chmod 600 FILE)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_with_keys_are_no_arguments() {
        plain(&"https://mainnet.base.org".parse().unwrap()).unwrap();
        for secret in
            ["https://u:p@a.example", "https://a.example/v2/secret", "https://a.example/?key=secret"]
        {
            let failure = plain(&secret.parse().unwrap()).unwrap_err();
            assert!(!failure.chain().contains("secret"), "{failure}");
        }
    }

    #[test]
    fn endpoints_need_the_number_of_their_chain() {
        let options = ChainOptions::default();
        let url: Url = "https://a.example".parse().unwrap();
        assert_eq!(options.config(vec![url.clone()]).unwrap_err().exit, Exit::Usage);
        let config = ChainOptions { chain_id: Some(8453), ..options }.config(vec![url]).unwrap();
        assert_eq!((config.confirmations, config.name.as_str()), (12, "base"));
        assert_eq!(config.max_head_age, Some(DEFAULT_MAX_HEAD_AGE));
    }
}
