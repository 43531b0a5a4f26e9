//! HTTP requests to addresses that users name, kept away from private networks.
//!
//! An [`Outbound`] is the only thing that connects to a host which a user chose. What can be told from the URL alone is
//! told by [`Outbound::check`]; for every new connection the host is looked up once, *all* its addresses are judged, and
//! the connection goes to one of those, for some minutes at most. A name server that changes its mind in between changes
//! nothing. Redirects are answers like others; nothing follows them. What a server sends is bounded in bytes and in time.

mod address;
mod answer;
mod budget;
mod connect;
mod errors;
mod policy;
mod pool;
mod request;
mod resolve;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::Full;
use ipnet::IpNet;
use rustls::pki_types::CertificateDer;
use tokio::time::Instant;
use url::Url;

pub use crate::answer::{Answer, MAX_BODY};
pub use crate::errors::{Refused, SendError, Stage, TlsError};
pub use crate::resolve::{Lookup, LookupError, Resolve, SystemResolver};

use crate::answer::Kept;
use crate::connect::{Connection, Connector};
use crate::policy::Policy;
use crate::pool::{Key, Pool};

/// Longest wait for name servers where no request limits it.
const LOOKUP_LIMIT: Duration = Duration::from_secs(5);

/// What an operator decides about requests to addresses that users name.
#[derive(Debug, Clone, Default)]
pub struct OutboundConfig {
    /// Networks that requests may go to although they are not public.
    pub allowed: Vec<IpNet>,
    /// Whether requests to those networks may do without TLS.
    pub plain_http_to_allowed: bool,
    /// Certificate authorities that are trusted beside those of the machine.
    pub extra_roots: Vec<CertificateDer<'static>>,
}

/// Makes requests to addresses that users name; cheap to clone. Clones share their connections.
#[derive(Debug, Clone)]
pub struct Outbound(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    policy: Policy,
    resolver: Arc<dyn Resolve>,
    connector: Connector,
    pool: Pool,
}

impl Outbound {
    /// A client without connections.
    #[must_use]
    pub fn new(config: OutboundConfig, resolver: Arc<dyn Resolve>) -> Self {
        Self(Arc::new(Inner {
            policy: Policy::new(&config.allowed, config.plain_http_to_allowed),
            resolver,
            connector: Connector::new(config.extra_roots),
            pool: Pool::default(),
        }))
    }

    /// What can be told of a URL without a look at the network.
    pub fn check(&self, url: &str) -> Result<Url, Refused> {
        self.0.policy.check(url)
    }

    /// Whether a request to a URL would be made now. Its host is looked up.
    pub async fn vet(&self, url: &Url) -> Result<(), Refused> {
        let url = self.check(url.as_str())?;
        let looked_up = tokio::time::timeout(LOOKUP_LIMIT, self.addresses(&url)).await;
        looked_up.unwrap_or(Err(Refused::NoAnswer)).map(drop)
    }

    /// Posts a body and waits for the answer, `timeout` for everything together. Where a kept connection turns out to
    /// be dead before a byte of an answer came, the request is made once more on a new one.
    pub async fn post(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Answer, SendError> {
        let began = Instant::now();
        let deadline = began + timeout;
        let url = self.check(url.as_str())?;
        let key = Key::of(&url);
        let request = request::post(&url, headers, Full::new(body))?;
        if let Some(connection) = self.0.pool.take(&key) {
            match answer::exchange(connection, &request, began, deadline).await {
                Err((SendError::Disconnected, Kept::WasDead)) => {}
                result => return self.keep(key, result),
            }
        }
        let connection = self.connect(&url, deadline).await?;
        let result = answer::exchange(connection, &request, began, deadline).await;
        self.keep(key, result)
    }

    fn keep(&self, key: Key, result: answer::Exchanged) -> Result<Answer, SendError> {
        let (answer, connection) = result.map_err(|(error, _)| error)?;
        if let Some(connection) = connection {
            self.0.pool.put(key, connection);
        }
        Ok(answer)
    }

    async fn connect(&self, url: &Url, deadline: Instant) -> Result<Connection, SendError> {
        let addresses = tokio::time::timeout_at(deadline, self.addresses(url)).await;
        let addresses = addresses.map_err(|_| SendError::Timeout(Stage::Lookup))??;
        self.0.connector.connect(url, &addresses, deadline).await
    }

    /// The addresses of a URL's host, all of them judged.
    async fn addresses(&self, url: &Url) -> Result<Vec<IpAddr>, Refused> {
        let addresses = match url.host().ok_or(Refused::Unreadable)? {
            url::Host::Ipv4(address) => vec![address.into()],
            url::Host::Ipv6(address) => vec![address.into()],
            url::Host::Domain(name) => {
                let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
                self.0.resolver.lookup(&name).await?
            }
        };
        self.0.policy.check_addresses(url, &addresses)?;
        Ok(addresses.into_iter().map(address::canonical).collect())
    }
}
