//! Which chain is asked, and how.

use std::time::Duration;

use url::{Host, Url};

/// Most endpoints of one chain.
pub const MAX_ENDPOINTS: usize = 8;
/// Most blocks on top of the confirmed one: nodes keep the state of their last 128 blocks only.
pub const MAX_CONFIRMATIONS: u64 = 64;
/// A head older than this is refused unless the configuration says otherwise.
pub const DEFAULT_MAX_HEAD_AGE: Duration = Duration::from_mins(2);
/// How long one endpoint may take for one answer unless the configuration says otherwise.
pub const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Shortest and longest time that one endpoint may be given.
const REQUEST_TIMEOUTS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_mins(1);
/// Longest name of a chain, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// One chain and the endpoints that it is read through.
#[derive(Clone)]
pub struct ChainConfig {
    /// EIP-155 chain id, for example 1 (Ethereum), 8453 (Base), 31337 (development). Every answer of every
    /// endpoint must be of this chain.
    pub chain_id: u64,
    /// Short name for people: `ethereum`, `base`, `development`.
    pub name: String,
    /// JSON-RPC endpoints, 1 to [`MAX_ENDPOINTS`], each `https`, or `http` on this machine. They are secret:
    /// providers put API keys into them.
    pub endpoints: Vec<Url>,
    /// How many endpoints must give the same answer, 1 to the number of endpoints. With 1, each endpoint is
    /// trusted and the others are spares.
    pub quorum: usize,
    /// Blocks that must lie on top of a grant before it counts, 0 to [`MAX_CONFIRMATIONS`]. 0 is for development.
    pub confirmations: u64,
    /// Oldest acceptable head, [`DEFAULT_MAX_HEAD_AGE`] if nothing speaks against it. `None` accepts every age: only
    /// for development chains, which make blocks on demand.
    pub max_head_age: Option<Duration>,
    /// How long one endpoint may take for one answer, waiting after a "too many requests" included; 100 ms to 60 s.
    pub request_timeout: Duration,
}

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidChainConfig {
    /// 0 is the id of no chain.
    #[error("the chain id must not be 0")]
    ChainId,
    /// Empty, too long, or not for a terminal.
    #[error("the chain's name must have 1 to 64 printable characters")]
    Name,
    /// None or too many.
    #[error("a chain needs 1 to 8 endpoints, and {0} are given")]
    EndpointCount(usize),
    /// The same one twice would count twice.
    #[error("endpoint {0} is given twice; a quorum counts different ones only")]
    Duplicate(String),
    /// Answers over plain HTTP can be forged on their way.
    #[error("endpoint {0} must be reached over https, or over http on this machine")]
    Plain(String),
    /// Not an address that can be asked.
    #[error("endpoint number {0} is not an https or http URL with a host")]
    Address(usize),
    /// Nobody could ever agree.
    #[error("the quorum must be between 1 and the number of endpoints ({0})")]
    Quorum(usize),
    /// The state of that block would be gone at most nodes.
    #[error("at most 64 confirmations can be waited for: nodes forget the state of older blocks")]
    Confirmations,
    /// Nothing could be asked, or nobody would wait.
    #[error("the time limit of a request must be between 100 ms and 60 s")]
    Timeout,
    /// The client does not start.
    #[error("no HTTP client can be made: {0}")]
    Client(String),
}

impl ChainConfig {
    /// A chain that makes blocks on demand at one endpoint: no confirmations, no limit on the head's age.
    #[must_use]
    pub fn development(chain_id: u64, endpoint: Url) -> Self {
        Self {
            chain_id,
            name: "development".to_owned(),
            endpoints: vec![endpoint],
            quorum: 1,
            confirmations: 0,
            max_head_age: None,
            request_timeout: DEFAULT_REQUEST_TIMEOUT,
        }
    }

    /// Checks every limit.
    pub fn check(&self) -> Result<(), InvalidChainConfig> {
        let count = self.endpoints.len();
        if self.chain_id == 0 {
            return Err(InvalidChainConfig::ChainId);
        }
        if self.name.is_empty()
            || self.name.len() > MAX_NAME_BYTES
            || !self.name.chars().all(|c| c.is_ascii_graphic() || c == ' ')
        {
            return Err(InvalidChainConfig::Name);
        }
        if !(1..=MAX_ENDPOINTS).contains(&count) {
            return Err(InvalidChainConfig::EndpointCount(count));
        }
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            check_endpoint(endpoint, index.saturating_add(1))?;
            if self.endpoints.iter().take(index).any(|earlier| earlier == endpoint) {
                return Err(InvalidChainConfig::Duplicate(shown(endpoint)));
            }
        }
        if !(1..=count).contains(&self.quorum) {
            return Err(InvalidChainConfig::Quorum(count));
        }
        if self.confirmations > MAX_CONFIRMATIONS {
            return Err(InvalidChainConfig::Confirmations);
        }
        if !REQUEST_TIMEOUTS.contains(&self.request_timeout) {
            return Err(InvalidChainConfig::Timeout);
        }
        Ok(())
    }
}

fn check_endpoint(endpoint: &Url, number: usize) -> Result<(), InvalidChainConfig> {
    if endpoint.host().is_none() {
        return Err(InvalidChainConfig::Address(number));
    }
    match endpoint.scheme() {
        "https" => Ok(()),
        "http" if is_loopback(endpoint) => Ok(()),
        "http" => Err(InvalidChainConfig::Plain(shown(endpoint))),
        _ => Err(InvalidChainConfig::Address(number)),
    }
}

/// Whether `url` leads to this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// What may be told about an endpoint: its host and port. The rest holds API keys.
pub(crate) fn shown(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

impl std::fmt::Debug for ChainConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChainConfig")
            .field("chain_id", &self.chain_id)
            .field("name", &self.name)
            .field("endpoints", &self.endpoints.iter().map(shown).collect::<Vec<_>>())
            .field("quorum", &self.quorum)
            .field("confirmations", &self.confirmations)
            .finish_non_exhaustive()
    }
}
