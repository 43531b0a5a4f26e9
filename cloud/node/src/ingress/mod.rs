//! The way from the network to the ports of guests.
//!
//! Requests are routed by host name ([`Domain::route`]), one at a time. A TLS client whose server name
//! ends in `s` is connected to the guest byte by byte; any other TLS ends here and feeds the same HTTP
//! service as the plain listener. The identity of an app is not secret and the operator sees what
//! passes a connection whose TLS ends here: an app that needs more uses the `s` form with a certificate
//! of its own.
//!
//! An app that does not answer `/attestation` by itself has its guest agent's answer there.
//!
//! A request goes to a replica that is ready, on this node or through a tunnel on another, and on to the next
//! one when the first takes no connections. What an app may have seen is never repeated, unless HTTP says
//! that this makes no difference.
//!
//! Everything is bounded: connections, requests per VM, the size of heads, the time for a head and the
//! time without a byte.

mod attempt;
mod attestation;
mod balance;
mod certificate;
mod client_hello;
mod connector;
mod headers;
mod host;
pub(crate) mod idle;
mod listener;
mod proxy;
mod refusal;
mod routes;
#[cfg(test)]
mod tests;
mod upstream;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

pub use certificate::{server_config, wildcard_names};
pub use host::{Domain, HostError, InvalidDomain, Mode, Route};

use self::connector::Ways;
use self::listener::Listener;
use self::proxy::Proxy;
use self::routes::RouteCache;
use self::upstream::Upstreams;
use crate::{Backends, Peers};

/// Domain of a laptop's ingress: every name below `localhost` is the machine itself without any DNS.
pub const DEFAULT_DOMAIN: &str = "apps.localhost";

const ALPN_HTTP2: &[u8] = b"h2";
const ALPN_HTTP1: &[u8] = b"http/1.1";

type Body = BoxBody<Bytes, hyper::Error>;

/// How an ingress listens.
#[derive(Debug, Clone)]
pub struct IngressConfig {
    /// Where plain HTTP is served.
    pub http_listen: SocketAddr,
    /// Where TLS is served, and with which certificates. The protocols offered in the handshake are set
    /// by the ingress.
    pub https: Option<(SocketAddr, Arc<ServerConfig>)>,
    /// Domain below which the apps are.
    pub domain: Domain,
    /// How much it takes on.
    pub limits: Limits,
}

/// How much an ingress takes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections of all clients together; further ones wait to be accepted.
    pub connections: usize,
    /// Requests, upgraded connections and passed-through connections of one VM at a time; further ones
    /// go to another replica, or are refused with 503.
    pub streams_per_vm: usize,
    /// Longest time for a TLS handshake, for a request head, and between two requests of a connection.
    pub head: Duration,
    /// Longest time without a byte in either direction.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            streams_per_vm: 2_000,
            head: Duration::from_secs(30),
            idle: Duration::from_mins(15),
        }
    }
}

/// A running ingress. Dropping it ends every connection at once.
#[derive(Debug)]
pub struct Ingress {
    http_address: SocketAddr,
    https_address: Option<SocketAddr>,
    drain: DropGuard,
    abort: DropGuard,
    tasks: TaskTracker,
}

impl Ingress {
    /// Binds the listeners and serves until stopped. Fails when an address cannot be bound.
    pub async fn start(
        config: IngressConfig,
        backends: Arc<dyn Backends>,
        peers: Arc<dyn Peers>,
    ) -> io::Result<Self> {
        let IngressConfig { http_listen, https, domain, limits } = config;
        let (tasks, abort, drain) = (TaskTracker::new(), CancellationToken::new(), CancellationToken::new());
        let routes = RouteCache::new(Arc::clone(&peers), tasks.clone(), abort.clone());
        let ways = Ways { backends, peers, domain: domain.clone() };
        let upstreams = Upstreams::new(ways, routes, limits.streams_per_vm);
        let plain = Listener {
            proxy: Arc::new(Proxy { domain, upstreams, tasks: tasks.clone(), abort: abort.clone() }),
            tls: None,
            limits,
            places: Arc::new(Semaphore::new(limits.connections)),
            drain: drain.clone(),
        };
        let mut sockets = vec![(TcpListener::bind(http_listen).await?, plain.clone())];
        if let Some((address, tls)) = https {
            let mut tls = ServerConfig::clone(&tls);
            tls.alpn_protocols = vec![ALPN_HTTP2.to_vec(), ALPN_HTTP1.to_vec()];
            sockets.push((TcpListener::bind(address).await?, Listener { tls: Some(Arc::new(tls)), ..plain }));
        }
        let addresses =
            sockets.iter().map(|(socket, _)| socket.local_addr()).collect::<io::Result<Vec<_>>>()?;
        for (socket, listener) in sockets {
            tasks.spawn(drain.clone().run_until_cancelled_owned(listener.run(socket)));
        }
        tasks.close();
        Ok(Self {
            http_address: addresses.first().copied().unwrap_or(http_listen),
            https_address: addresses.get(1).copied(),
            drain: drain.drop_guard(),
            abort: abort.drop_guard(),
            tasks,
        })
    }

    /// Where plain HTTP is served; tells the port when the configured one was 0.
    #[must_use]
    pub fn http_address(&self) -> SocketAddr {
        self.http_address
    }

    /// Where TLS is served, if it is.
    #[must_use]
    pub fn https_address(&self) -> Option<SocketAddr> {
        self.https_address
    }

    /// Accepts nothing more, lets what is under way finish for up to `grace`, then ends every connection.
    pub async fn stop(self, grace: Duration) {
        drop(self.drain);
        if timeout(grace, self.tasks.wait()).await.is_err() {
            tracing::info!(grace_s = grace.as_secs(), "ending requests that are still under way");
        }
        drop(self.abort);
        self.tasks.wait().await;
    }
}
