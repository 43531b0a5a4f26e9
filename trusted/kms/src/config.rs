use std::net::SocketAddr;
use std::path::PathBuf;

use cloister_chain::{Address, ChainConfig};
use cloister_verifier::Clock;
use url::Url;

use crate::state::Boundaries;

/// Who decides which application gets keys.
#[derive(Debug, Clone, Default)]
pub enum Authorization {
    /// The rules of the KMS's own state, which its administrator changes.
    #[default]
    BuiltIn,
    /// The service at this address, by the public webhook: https, or http on this machine.
    Webhook(Url),
    /// A contract, asked before every release.
    Chain {
        /// Its chain, and how it is asked.
        chain: ChainConfig,
        /// The contract of this KMS.
        kms_contract: Address,
    },
}

/// Configuration of a KMS.
#[derive(Debug, Clone)]
pub struct Config {
    /// Directory of its state and its log; made if it does not exist.
    pub data_dir: PathBuf,
    /// Where it is onboarded and then releases keys; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where the directory and the administration are; port 0 takes a free one.
    pub directory_listen: SocketAddr,
    /// Unix socket of the guest agent, which gives evidence and the sealing key.
    pub agent_socket: PathBuf,
    /// 32 raw bytes that seal the state, on machines whose agent has no sealing key.
    pub sealing_key_file: Option<PathBuf>,
    /// Token of the administrator; without one there is no administration.
    pub admin_token_file: Option<PathBuf>,
    /// Collateral service: of the development vendor where `development_root` is given, otherwise of Intel.
    pub pccs_url: Option<Url>,
    /// Certificate of the development root, PEM; refused in production.
    pub development_root: Option<PathBuf>,
    /// Accepts evidence of hardware only.
    pub production: bool,
    /// Who decides.
    pub authorization: Authorization,
    /// Rules with which a new KMS begins: a [`PolicyDocument`](cloister_kms_api::admin::PolicyDocument) as
    /// JSON. Read at bootstrap and when roots are taken over, never again.
    pub initial_rules: Option<PathBuf>,
    /// What time it is.
    pub clock: Clock,
    /// Told before and after each step that matters to a crash; does nothing outside of tests.
    pub boundaries: Boundaries,
}

impl Config {
    /// A configuration for `data_dir` and the agent at its usual place, with everything else as if it had
    /// not been said.
    #[must_use]
    pub fn new(data_dir: impl Into<PathBuf>, listen: SocketAddr, directory_listen: SocketAddr) -> Self {
        Self {
            data_dir: data_dir.into(),
            listen,
            directory_listen,
            agent_socket: PathBuf::from("/var/run/cloister.sock"),
            sealing_key_file: None,
            admin_token_file: None,
            pccs_url: None,
            development_root: None,
            production: false,
            authorization: Authorization::BuiltIn,
            initial_rules: None,
            clock: Clock::system(),
            boundaries: Boundaries::default(),
        }
    }
}
