//! A real EVM node (anvil) on this machine with the contracts on it, for development and tests.
//!
//! **Its keys are public.** They are those of the well-known test mnemonic that every such node has, printed in its
//! manual. Whoever reaches the node owns its contracts: it listens on loopback only, and nothing of value may ever
//! depend on it.

mod accounts;
mod deployment;
mod node;

use std::path::PathBuf;

use cloister_chain::{Address, Chain, ChainConfig, Clock, InvalidKey, Sender, Signer};
use tempfile::TempDir;
use url::Url;

pub use accounts::{ACCOUNTS, Account};
pub use deployment::Deployment;

use self::node::Node;

/// EIP-155 chain id of development chains.
pub const CHAIN_ID: u64 = 31337;

/// How a development chain is started.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Directory that remembers the chain; made if it is missing. `None`: the chain is forgotten when it ends.
    pub state: Option<PathBuf>,
    /// Port on loopback; `None` takes any that is free.
    pub port: Option<u16>,
    /// The program; `None` looks for it ([`find_program`]).
    pub program: Option<PathBuf>,
}

/// Why there is no development chain.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The program is missing.
    #[error("anvil, the node of the development chain, is missing; install it with scripts/install-anvil.sh")]
    NotInstalled,
    /// The operating system refused something.
    #[error("the development chain cannot {what}")]
    Io {
        /// What could not be done.
        what: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It ended at once.
    #[error(
        "the development chain's node ended while it started; is its port free, and its state readable? {0}"
    )]
    Ended(String),
    /// It is silent.
    #[error("the development chain's node does not say in time where it listens")]
    Silent,
    /// Another one has the directory.
    #[error("another development chain uses the directory {0}")]
    InUse(PathBuf),
    /// The node's address or chain.
    #[error("the development chain cannot be asked")]
    Chain(#[from] cloister_chain::InvalidChainConfig),
    /// A question was not answered.
    #[error("the development chain does not answer")]
    Unanswered(#[from] cloister_chain::ChainError),
    /// A contract was not made.
    #[error("the contracts could not be put onto the development chain")]
    Deploy(#[from] cloister_chain::SendError),
    /// An account has no key.
    #[error(transparent)]
    Key(#[from] InvalidKey),
    /// It says that it made a contract, but not where.
    #[error("the development chain made a contract and does not say where")]
    NoAddress,
    /// What the state directory remembers.
    #[error("{0} is not what a development chain wrote; remove the directory to begin anew")]
    Remembered(PathBuf),
}

/// A node that runs as long as this value, or at most as long as this process.
#[derive(Debug)]
pub struct DevelopmentChain {
    node: Node,
    chain: Chain,
    deployment: Deployment,
    _temporary: Option<TempDir>,
}

impl DevelopmentChain {
    /// Starts the node and puts the contracts onto it unless they are there.
    pub async fn start(config: Config, clock: Clock) -> Result<Self, StartError> {
        let program = config.program.or_else(find_program).ok_or(StartError::NotInstalled)?;
        let temporary = match config.state {
            Some(_) => None,
            None => Some(tempfile::tempdir().map_err(io("make a temporary directory"))?),
        };
        let directory = match (&config.state, &temporary) {
            (Some(state), _) => state.clone(),
            (None, Some(temporary)) => temporary.path().to_owned(),
            (None, None) => return Err(StartError::NotInstalled),
        };
        let node = Node::start(&program, &directory, config.port).await?;
        let chain = Chain::new(ChainConfig::development(CHAIN_ID, node.url().clone()), clock)?;
        let deployment = deployment::ensure(&chain, &directory).await?;
        Ok(Self { node, chain, deployment, _temporary: temporary })
    }

    /// Where its JSON-RPC is.
    #[must_use]
    pub const fn rpc_url(&self) -> &Url {
        self.node.url()
    }

    /// The KMS contract; [`ACCOUNTS`]`[0]` owns it.
    #[must_use]
    pub const fn kms_contract(&self) -> Address {
        self.deployment.kms_contract
    }

    /// Everything that was put onto the chain.
    #[must_use]
    pub const fn deployment(&self) -> &Deployment {
        &self.deployment
    }

    /// A reader without confirmations.
    #[must_use]
    pub const fn chain(&self) -> &Chain {
        &self.chain
    }

    /// How to read it: no confirmations, and its head may be old, because it makes blocks on demand.
    #[must_use]
    pub fn config(&self) -> ChainConfig {
        self.chain.config().clone()
    }

    /// Sends as one of its accounts, which have all the money they need.
    pub fn sender(&self, account: &Account) -> Result<Sender, InvalidKey> {
        Ok(Sender::new(self.chain.clone(), Signer::Local(account.key()?)))
    }

    /// Ends the node; it writes what it remembers first.
    pub async fn stop(self) {
        self.node.stop().await;
    }
}

/// The program that `scripts/install-anvil.sh` installed: `CLOISTER_ANVIL`, or below `target/` of the directory that
/// this program is in, or in `PATH`.
#[must_use]
pub fn find_program() -> Option<PathBuf> {
    const BELOW: &str = "anvil/node_modules/@foundry-rs/anvil-linux-amd64/bin/anvil";
    if let Some(chosen) = std::env::var_os("CLOISTER_ANVIL") {
        return Some(PathBuf::from(chosen));
    }
    let this = std::env::current_exe().ok()?;
    let beside = this.ancestors().skip(1).map(|directory| directory.join(BELOW));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path: Vec<PathBuf> =
        std::env::split_paths(&path).map(|directory| directory.join("anvil")).collect();
    beside.chain(in_path).find(|program| program.is_file())
}

fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> StartError {
    move |source| StartError::Io { what, source }
}
