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
    /// One party alone would be believed.
    #[error(
        "with a quorum of {quorum} the host {host} alone could say what it likes; name endpoints of different \
         providers, each on a host of its own, and a quorum of 2 or more"
    )]
    OneHost {
        /// How many must agree.
        quorum: usize,
        /// The host with that many endpoints; all of this machine are one.
        host: String,
    },
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

    /// Whether no single host makes up a quorum by itself, as whoever relies on the chain needs: two addresses of
    /// one provider say the same lie. That two hosts are of two providers nobody can see here.
    pub fn check_independence(&self) -> Result<(), InvalidChainConfig> {
        let parties: Vec<String> = self.endpoints.iter().map(party).collect();
        let has = |host: &String| parties.iter().filter(|other| *other == host).count();
        let alone = parties.iter().find(|host| has(host) >= self.quorum);
        alone.map_or(Ok(()), |host| {
            Err(InvalidChainConfig::OneHost { quorum: self.quorum, host: host.clone() })
        })
    }
}

/// Whom an endpoint belongs to, as far as its address tells: every port of a host, and every way to this machine,
/// is the same.
fn party(endpoint: &Url) -> String {
    if is_loopback(endpoint) {
        return "localhost".to_owned();
    }
    let host = endpoint.host_str().unwrap_or_default();
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn config(endpoints: &[&str], quorum: usize) -> ChainConfig {
        let endpoints: Vec<Url> = endpoints.iter().map(|text| text.parse().unwrap()).collect();
        let first = endpoints[0].clone();
        ChainConfig { endpoints, quorum, ..ChainConfig::development(1, first) }
    }

    #[test]
    fn no_host_agrees_with_itself() {
        let one = ["https://one.example/v2/secret-key"];
        let two = ["https://one.example/v2/secret-key", "https://two.example/"];
        let three = [two[0], two[1], "https://one.example:8443/other"];
        for (endpoints, quorum) in [(&two[..], 2), (&three[..], 3)] {
            config(endpoints, quorum).check().unwrap();
            config(endpoints, quorum).check_independence().unwrap();
        }
        let here = ["http://127.0.0.1:1", "http://[::1]:2"];
        let dotted = ["https://one.example/a", "https://ONE.example./b"];
        for (endpoints, quorum, host) in [
            (&one[..], 1, "one.example"),
            (&two[..], 1, "one.example"),
            (&three[..], 2, "one.example"),
            (&here[..], 2, "localhost"),
            (&dotted[..], 2, "one.example"),
        ] {
            let config = config(endpoints, quorum);
            config.check().unwrap();
            let refused = config.check_independence().unwrap_err();
            assert_eq!(refused, InvalidChainConfig::OneHost { quorum, host: host.to_owned() });
            let words = refused.to_string();
            assert!(words.contains("different providers") && !words.contains("secret-key"), "{words}");
        }
    }
}
