//! HTTP to one upstream, which does nothing that it was not told to: no redirects, proxies, cookies or decompression.

use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tower::Service;
use tower::util::MapResponse;
use url::Url;

use super::http1::{Body, Http1};
use super::names::Names;
use super::tls::is_mismatch;
use super::{SendFailure, Unanswered};
use crate::gathering::Gathering;

/// Unused connections are closed after this long.
pub(super) const IDLE_CONNECTION: Duration = Duration::from_secs(90);
/// How often a silent HTTP/2 connection is asked whether it lives.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// What may come of one HTTP/2 answer before it is read, in bytes.
const STREAM_WINDOW: u32 = 64 << 10;
/// The same of all answers over one connection: as much as there can be, so that one that is not read holds up no other.
const CONNECTION_WINDOW: u32 = i32::MAX.cast_unsigned();
/// How often a TCP connection on which nothing is under way is asked whether it lives; it is given up after [`PROBES`].
const PROBE_INTERVAL: Duration = Duration::from_secs(15);
const PROBES: u32 = 3;
/// A TCP connection is given up when what was sent is not acknowledged for so long.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// Connections to one upstream; cheap to clone.
#[derive(Debug, Clone)]
pub(super) enum Client {
    /// One for each request at a time.
    Http1(Http1),
    /// One for all requests, in hyper's own pool; or one for each, if the upstream speaks no HTTP/2.
    Http2(legacy::Client<Connector, Full<Bytes>>),
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// There was no connection that it could have gone out over.
    #[error("no connection stands")]
    Connect(#[source] BoxError),
    /// It may have gone out.
    #[error("the connection broke")]
    Exchange(#[source] BoxError),
}

impl From<legacy::Error> for Broken {
    fn from(error: legacy::Error) -> Self {
        let kind = if error.is_connect() { Self::Connect } else { Self::Exchange };
        kind(error.into())
    }
}

/// How an upstream is spoken with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    /// Longest time until a connection stands, TLS included.
    pub(super) connect: Duration,
    pub(super) is_https_only: bool,
    /// Whether HTTP/2 is offered, all requests over one connection; else each has one of its own.
    pub(super) is_http2: bool,
}

/// What is sent, as often as it is tried.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Outgoing {
    fn request(&self) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }
}

impl Client {
    /// To the origin of a URL.
    pub(super) fn new(tls: ClientConfig, manner: Manner, url: &Url) -> Self {
        let connector = Connector::new(Names::new(), tls, manner);
        if !manner.is_http2 {
            return Self::Http1(Http1::new(connector, url));
        }
        let client = legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_CONNECTION)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_INTERVAL)
            .build(connector);
        Self::Http2(client)
    }

    async fn try_send(&self, request: Request<Full<Bytes>>) -> Result<Response<Body>, Broken> {
        match self {
            Self::Http1(client) => client.send(request).await,
            // Its future is much larger.
            Self::Http2(client) => Ok(Box::pin(client.request(request)).await?.map(Body::driven)),
        }
    }

    /// Sends a request, and waits for the head of its answer. What was not begun to be answered is tried once more.
    pub(super) async fn send(&self, outgoing: &Outgoing) -> Result<Response<Body>, Unanswered> {
        let broken = match self.try_send(outgoing.request()).await {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        let first = unanswered(&broken);
        if !broke_before_the_head(&broken) {
            return Err(first);
        }
        self.try_send(outgoing.request()).await.map_err(|error| {
            let second = unanswered(&error);
            Unanswered { may_be_out: first.may_be_out || second.may_be_out, ..second }
        })
    }
}

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

pub(super) type BoxError = Box<dyn Error + Send + Sync>;

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

/// Whether a connection that stood was closed before anything of an answer came, or the upstream says that it has not
/// begun.
fn broke_before_the_head(error: &Broken) -> bool {
    let Some(error) = causes(error).find_map(|error| error.downcast_ref::<hyper::Error>()) else {
        return false;
    };
    let http2 = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
    let broken = match http2 {
        Some(http2) => http2.get_io(),
        None => error.source().and_then(|cause| cause.downcast_ref::<io::Error>()),
    };
    let is_reset = broken.is_some_and(|broken| {
        matches!(
            broken.kind(),
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof
        )
    });
    // RFC 9113, 6.8 and 8.7: a connection that ends in an orderly way, and a stream that was refused.
    let is_not_begun = http2.is_some_and(|http2| {
        http2.is_remote()
            && (http2.is_go_away() && http2.reason() == Some(h2::Reason::NO_ERROR)
                || http2.is_reset() && http2.reason() == Some(h2::Reason::REFUSED_STREAM))
    });
    is_reset || is_not_begun || error.is_incomplete_message() || error.is_closed() || error.is_canceled()
}

/// Nothing goes out before a connection stands.
fn unanswered(error: &Broken) -> Unanswered {
    let is_unsent = matches!(error, Broken::Connect(_));
    let why = if is_mismatch(error) {
        SendFailure::Mismatch
    } else if is_timeout(error) {
        SendFailure::TimedOut
    } else if is_unsent {
        SendFailure::Unreachable
    } else {
        SendFailure::Transport
    };
    Unanswered { why, may_be_out: !is_unsent }
}

/// Whether a limit in time passed: ours, or one below it.
pub(super) fn is_timeout(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(|cause| {
        cause.is::<Elapsed>()
            || cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_timeout)
            || cause.downcast_ref::<io::Error>().is_some_and(|cause| cause.kind() == io::ErrorKind::TimedOut)
    })
}

/// An error, and what it came from.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next.take()?;
        next = error.source();
        Some(error)
    })
}
