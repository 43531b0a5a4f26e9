//! New connections to upstreams.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower::Service;
use tower::util::MapResponse;

use super::names::Names;
use crate::gathering::Gathering;

/// Unused connections are closed after this long.
pub(super) const IDLE_CONNECTION: Duration = Duration::from_secs(90);
/// How often a TCP connection on which nothing is under way is asked whether it lives; it is given up after [`PROBES`].
const PROBE_INTERVAL: Duration = Duration::from_secs(15);
const PROBES: u32 = 3;
/// A TCP connection is given up when what was sent is not acknowledged for so long.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// How an upstream is spoken with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    /// Longest time until a connection stands, TLS included.
    pub(super) connect: Duration,
    pub(super) is_https_only: bool,
    /// Whether HTTP/2 is offered, all requests over one connection; else each has one of its own.
    pub(super) is_http2: bool,
}

pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// A connection without TLS, or below it.
pub(super) type Tcp = TokioIo<Gathering<TcpStream>>;
type TcpConnector<R> = MapResponse<HttpConnector<R>, fn(TokioIo<TcpStream>) -> Tcp>;

/// Opens connections, with a limit for all that takes.
#[derive(Clone)]
pub(super) struct Connector<R = Names> {
    https: HttpsConnector<TcpConnector<R>>,
    patience: Duration,
}

impl<R> Connector<R> {
    /// To the addresses that `names` finds.
    pub(super) fn new(names: R, tls: ClientConfig, manner: Manner) -> Self {
        let mut http = HttpConnector::new_with_resolver(names);
        http.enforce_http(false);
        http.set_nodelay(true);
        // It is shared among the addresses of a name, so that one that is silent leaves time for another.
        http.set_connect_timeout(Some(manner.connect));
        http.set_keepalive(Some(PROBE_INTERVAL));
        http.set_keepalive_interval(Some(PROBE_INTERVAL));
        http.set_keepalive_retries(Some(PROBES));
        http.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
        let http: TcpConnector<R> =
            MapResponse::new(http, |stream| TokioIo::new(Gathering(stream.into_inner())));
        let https = HttpsConnectorBuilder::new().with_tls_config(tls);
        let https = if manner.is_https_only { https.https_only() } else { https.https_or_http() };
        let https = https.enable_http1();
        let https = if manner.is_http2 {
            https.enable_http2().wrap_connector(http)
        } else {
            https.wrap_connector(http)
        };
        Self { https, patience: manner.connect }
    }
}

impl<R> fmt::Debug for Connector<R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Connector").field("patience", &self.patience).finish_non_exhaustive()
    }
}

impl<R> Service<Uri> for Connector<R>
where
    HttpsConnector<TcpConnector<R>>:
        Service<Uri, Response = MaybeHttpsStream<Tcp>, Error = BoxError, Future: Send + 'static>,
{
    type Response = MaybeHttpsStream<Tcp>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.https.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connected = timeout(self.patience, self.https.call(uri));
        Box::pin(async move { connected.await? })
    }
}
