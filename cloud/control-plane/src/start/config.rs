//! How a control plane runs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use cloister_chain::ChainConfig;
use cloister_management_api::ApiVersion;
use cloister_metering::PriceList;
use cloister_outbound::OutboundConfig;
use jiff::civil::Date;
use url::Url;

use crate::api::OauthClient;
use crate::clock::Clock;
use crate::inference::InferenceConfig;
use crate::kms::KmsConfig;
use crate::openid::OpenidConfig;
use crate::operations::EngineOptions;
use crate::proof_of_cloud::ProofOfCloudConfig;
use crate::{rollouts, webhooks};

/// Requests that an API key may make in a minute, unless the operator says otherwise.
pub const DEFAULT_REQUESTS_PER_MINUTE: u32 = 1200;

/// How a control plane runs.
#[derive(Clone)]
pub struct Config {
    /// Directory for the embedded database and the fleet's credentials; made when absent.
    pub data_dir: PathBuf,
    /// `postgres:` URL for many replicas; `None` uses the embedded database.
    pub database_url: Option<String>,
    /// Where the management API listens; port 0 lets the system choose.
    pub api_listen: SocketAddr,
    /// Where nodes report and enrol.
    pub node_listen: SocketAddr,
    /// Host names and addresses under which nodes reach `node_listen`.
    pub node_names: Vec<String>,
    /// Base URL of the API as clients see it; `None` derives it from the bound address.
    pub public_url: Option<Url>,
    /// Source of time.
    pub clock: Clock,
    /// How operations are worked on.
    pub engine: EngineOptions,
    /// Watches rounds of rollouts and drains.
    pub rollout_observer: Option<rollouts::Observer>,
    /// The list of registered platforms, if the installation has one.
    pub proof_of_cloud: Option<ProofOfCloudConfig>,
    /// Only hardware is trusted: no development root is minted, no development platform is certified, and
    /// nodes without TEE hardware are turned away.
    pub production: bool,
    /// Base address of a caching service (PCCS, `…/sgx/certification/v4` appended or not) for the collateral
    /// of Intel's platforms: https, or http on this machine. `None` asks Intel's own service.
    pub pccs_url: Option<Url>,
    /// Key management services; the first one is used unless a request names another. Without any,
    /// applications get no keys and no environment.
    pub kms: Vec<KmsConfig>,
    /// Chains with the contracts that decide for them; each contract's chain has to be one of these.
    pub chains: Vec<ChainConfig>,
    /// Sizes that CVMs can have, and what things cost.
    pub prices: PriceList,
    /// Where webhooks may lead beside public addresses.
    pub webhooks: OutboundConfig,
    /// Watches attempts of webhooks.
    pub webhook_observer: Option<webhooks::Observer>,
    /// Applications that people can let in, beside the command line.
    pub oauth_clients: Vec<OauthClient>,
    /// The OpenID provider that people can log in by, if there is one.
    pub openid: Option<OpenidConfig>,
    /// Requests that each API key may make in a minute; `None` is no limit.
    pub requests_per_minute: Option<NonZeroU32>,
    /// When the operator means to stop answering in a version, for those where this is decided.
    pub sunsets: BTreeMap<ApiVersion, Date>,
    /// How inference gateways are served; `None` serves none.
    pub inference: Option<InferenceConfig>,
}

impl Config {
    /// Everything embedded, on loopback.
    #[must_use]
    pub fn embedded(data_dir: PathBuf, api_listen: SocketAddr, node_listen: SocketAddr) -> Self {
        Self {
            data_dir,
            database_url: None,
            api_listen,
            node_listen,
            node_names: vec!["localhost".to_owned(), "127.0.0.1".to_owned()],
            public_url: None,
            clock: Clock::system(),
            engine: EngineOptions::default(),
            rollout_observer: None,
            proof_of_cloud: None,
            production: false,
            pccs_url: None,
            kms: Vec::new(),
            chains: Vec::new(),
            prices: PriceList::default(),
            webhooks: OutboundConfig::default(),
            webhook_observer: None,
            oauth_clients: Vec::new(),
            openid: None,
            requests_per_minute: None,
            sunsets: BTreeMap::new(),
            inference: None,
        }
    }
}
