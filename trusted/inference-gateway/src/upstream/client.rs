//! HTTP to one upstream, which does nothing that it was not told to: no redirects, proxies, cookies or decompression.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri};
use http_body_util::Full;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use tokio::time::error::Elapsed;
use url::Url;

pub(super) use super::connector::Manner;
use super::connector::{Connector, IDLE_CONNECTION};
pub(super) use super::http1::Body;
use super::http1::{Broken, Http1};
use super::names::Names;
use super::tls::is_mismatch;
use super::{SendFailure, Unanswered};
use crate::error::chain;

/// How often a silent HTTP/2 connection is asked whether it lives.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// What may come of one HTTP/2 answer before it is read, in bytes.
const STREAM_WINDOW: u32 = 64 << 10;
/// The same of all answers over one connection: as much as there can be, so that one that is not read holds up no other.
const CONNECTION_WINDOW: u32 = i32::MAX.cast_unsigned();

/// Connections to one upstream; cheap to clone.
#[derive(Debug, Clone)]
pub(super) enum Client {
    /// One for each request at a time.
    Http1(Arc<Http1>),
    /// One for all requests, in hyper's own pool; or one for each, if the upstream speaks no HTTP/2.
    Http2(Arc<Http2>),
}

/// A pool of hyper's.
#[derive(Debug)]
pub(super) struct Http2 {
    client: legacy::Client<Connector, Full<Bytes>>,
    origin: Uri,
}

impl Http2 {
    /// A path of the origin.
    pub(super) fn uri(&self, path: Option<&PathAndQuery>) -> Result<Uri, Broken> {
        let mut parts = self.origin.clone().into_parts();
        parts.path_and_query = path.cloned();
        Uri::from_parts(parts).map_err(|error| Broken::Connect(error.into()))
    }

    async fn send(&self, mut request: Request<Full<Bytes>>) -> Result<Response<Body>, Broken> {
        *request.uri_mut() = self.uri(request.uri().path_and_query())?;
        Ok(self.client.request(request).await?.map(Body::driven))
    }
}

/// What is sent, as often as it is tried.
#[derive(Debug)]
pub(super) struct Outgoing<'a> {
    pub(super) method: Method,
    pub(super) path: PathAndQuery,
    /// What all requests have.
    pub(super) fixed: &'a HeaderMap,
    /// More of them.
    pub(super) headers: &'a [(HeaderName, HeaderValue)],
    pub(super) body: Bytes,
}

impl Outgoing<'_> {
    /// Its URI is the path.
    fn request(&self) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.path.clone().into();
        *request.headers_mut() = self.fixed.clone();
        request.headers_mut().extend(self.headers.iter().cloned());
        request
    }
}

/// The origin of a URL. What is no URI cannot be connected to.
pub(super) fn origin(url: &Url) -> Uri {
    url.origin().ascii_serialization().parse().unwrap_or_default()
}

impl Client {
    /// To the upstream at this URL: requests to other origins must not be sent over it.
    pub(super) fn new(tls: ClientConfig, manner: Manner, url: &Url) -> Self {
        let connector = Connector::new(Names::new(), tls, manner);
        let origin = origin(url);
        if !manner.is_http2 {
            return Self::Http1(Arc::new(Http1::new(connector, origin)));
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
        Self::Http2(Arc::new(Http2 { client, origin }))
    }

    async fn try_send(&self, request: Request<Full<Bytes>>) -> Result<Response<Body>, Broken> {
        match self {
            Self::Http1(client) => client.send(request).await,
            // Its future is much larger.
            Self::Http2(client) => Box::pin(client.send(request)).await,
        }
    }

    /// Sends a request, and waits for the head of its answer. What was not begun to be answered is tried once more.
    pub(super) async fn send(&self, outgoing: &Outgoing<'_>) -> Result<Response<Body>, Unanswered> {
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

impl From<legacy::Error> for Broken {
    fn from(error: legacy::Error) -> Self {
        let kind = if error.is_connect() { Self::Connect } else { Self::Exchange };
        kind(error.into())
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

/// Nothing goes out before a connection stands, and takes it.
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
    Unanswered { why, cause: chain(error), may_be_out: !is_unsent }
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
