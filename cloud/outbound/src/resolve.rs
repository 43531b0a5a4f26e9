//! Looking up the addresses of a host.

use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::time::Duration;

use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::Name;
use hickory_resolver::{ResolverBuilder, TokioResolver};
use tracing::{debug, warn};

/// Wait for one answer of one server; there are two attempts.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(2);
/// Names that are remembered.
const CACHED_NAMES: u64 = 1024;
/// Longest that an answer is remembered.
const MAX_CACHED: Duration = Duration::from_mins(1);
/// Longest that a name is remembered to have no address: people publish it after they were told.
const MAX_CACHED_UNKNOWN: Duration = Duration::from_secs(5);

/// Why a host has no addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// There is no such name, or it has no address.
    #[error("the name has no address")]
    Unknown,
    /// No name server said so.
    #[error("no name server answered")]
    NoAnswer,
}

/// All addresses of a host, later.
pub type Lookup<'a> = Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, LookupError>> + Send + 'a>>;

/// Knows the addresses of hosts.
pub trait Resolve: Debug + Send + Sync {
    /// All addresses of a host, which is a complete name in lower case without the final dot.
    fn lookup<'a>(&'a self, host: &'a str) -> Lookup<'a>;
}

/// Asks the name servers that the operator's machine is configured with; reads no hosts file.
#[derive(Debug, Clone)]
pub struct SystemResolver(Option<TokioResolver>);

impl SystemResolver {
    /// With the machine's configuration as it is now.
    #[must_use]
    pub fn new() -> Self {
        Self::built(TokioResolver::builder_tokio())
    }

    /// Asks one server over UDP, and no other.
    #[must_use]
    pub fn at(server: SocketAddr) -> Self {
        let mut connection = ConnectionConfig::udp();
        connection.port = server.port();
        let server = NameServerConfig::new(server.ip(), true, vec![connection]);
        let config = ResolverConfig::from_parts(None, vec![], vec![server]);
        Self::built(Ok(TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())))
    }

    fn built(builder: Result<ResolverBuilder<TokioRuntimeProvider>, NetError>) -> Self {
        let built = builder.and_then(|mut builder| {
            bounded(builder.options_mut());
            builder.build()
        });
        let failed = |error| warn!(%error, "no name server is configured: no request reaches a host by name");
        Self(built.map_err(failed).ok())
    }

    async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, LookupError> {
        if host == "localhost" || host.ends_with(".localhost") {
            return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
        }
        let resolver = self.0.as_ref().ok_or(LookupError::NoAnswer)?;
        let mut name = Name::from_ascii(host).map_err(|_| LookupError::Unknown)?;
        // Complete: the machine's search domains are not tried.
        name.set_fqdn(true);
        match resolver.lookup_ip(name).await {
            Ok(found) => Ok(found.iter().collect()),
            Err(error) if error.is_no_records_found() || error.is_nx_domain() => Err(LookupError::Unknown),
            Err(error) => {
                debug!(%error, "a name cannot be looked up");
                Err(LookupError::NoAnswer)
            }
        }
    }
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self::new()
    }
}

impl Resolve for SystemResolver {
    fn lookup<'a>(&'a self, host: &'a str) -> Lookup<'a> {
        Box::pin(self.addresses(host))
    }
}

fn bounded(options: &mut ResolverOpts) {
    options.attempts = 1;
    options.timeout = ATTEMPT_LIMIT;
    options.use_hosts_file = ResolveHosts::Never;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.cache_size = CACHED_NAMES;
    options.positive_max_ttl = Some(MAX_CACHED);
    options.negative_max_ttl = Some(MAX_CACHED_UNKNOWN);
}
