//! Connections from the ingress to guests: opened with a deadline, reused for HTTP, counted per VM.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::Uri;
use http_body_util::{Either, Empty};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tower::Service;
use uuid::Uuid;

use super::host::{Domain, Mode, Route};
use super::refusal::Refusal;
use crate::Backends;

/// How long a guest may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection to a guest is kept for the next request.
const KEEP_IDLE: Duration = Duration::from_secs(30);
/// Connections kept per guest and port.
const MAX_IDLE: usize = 32;
/// Longest response head that is read from a guest, in bytes.
const MAX_HEAD_BYTES: usize = 128 * 1024;
/// VMs that are remembered before those without traffic are forgotten.
const MAX_QUIET_LANES: usize = 256;

/// What a guest is sent: a client's body, or none.
pub(super) type RequestBody = Either<Incoming, Empty<Bytes>>;

/// Every way into the VMs of this node.
pub(super) struct Upstreams {
    backends: Arc<dyn Backends>,
    domain: Domain,
    streams_per_vm: usize,
    lanes: Mutex<HashMap<Uuid, Arc<Lane>>>,
}

/// The way into one VM.
struct Lane {
    connector: Connector,
    permits: Arc<Semaphore>,
    http1: Client<Connector, RequestBody>,
    http2: Client<Connector, RequestBody>,
}

/// The right to one request or connection of a VM; given back when dropped.
pub(super) struct Admission {
    lane: Arc<Lane>,
    _permit: OwnedSemaphorePermit,
}

impl Upstreams {
    pub(super) fn new(backends: Arc<dyn Backends>, domain: Domain, streams_per_vm: usize) -> Self {
        Self { backends, domain, streams_per_vm, lanes: Mutex::default() }
    }

    /// Finds the VM behind a route and takes one of its places.
    pub(super) fn admit(&self, route: &Route) -> Result<Admission, Refusal> {
        let vm = self.backends.resolve(&route.id).ok_or(Refusal::UnknownApp)?;
        let lane = self.lane(vm);
        let permit = lane.permits.clone().try_acquire_owned().map_err(|_| Refusal::Busy)?;
        Ok(Admission { lane, _permit: permit })
    }

    fn lane(&self, vm: Uuid) -> Arc<Lane> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if lanes.len() >= MAX_QUIET_LANES && !lanes.contains_key(&vm) {
            lanes.retain(|_, lane| Arc::strong_count(lane) > 1);
        }
        let new = || {
            let connector = Connector { backends: self.backends.clone(), domain: self.domain.clone(), vm };
            Arc::new(Lane::new(connector, self.streams_per_vm))
        };
        lanes.entry(vm).or_insert_with(new).clone()
    }
}

impl Lane {
    fn new(connector: Connector, streams: usize) -> Self {
        let client = |http2_only| {
            Client::builder(TokioExecutor::new())
                .http2_only(http2_only)
                .http1_max_buf_size(MAX_HEAD_BYTES)
                // The caller sets `Host`: the app sees the name that its client used.
                .set_host(false)
                .timer(TokioTimer::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(KEEP_IDLE)
                .pool_max_idle_per_host(MAX_IDLE)
                .build(connector.clone())
        };
        let (http1, http2) = (client(false), client(true));
        Self { connector, permits: Arc::new(Semaphore::new(streams)), http1, http2 }
    }
}

impl Admission {
    /// Sends a request whose URI holds the canonical name of the route.
    pub(super) async fn request(
        &self,
        mode: Mode,
        request: http::Request<RequestBody>,
    ) -> Result<http::Response<Incoming>, Error> {
        let client = if mode == Mode::Http2 { &self.lane.http2 } else { &self.lane.http1 };
        client.request(request).await
    }

    /// Opens a connection of its own.
    pub(super) async fn connect(&self, port: u16) -> io::Result<TcpStream> {
        self.lane.connector.connect(port).await
    }
}

/// Opens connections to one VM, for the HTTP client: the port is read from the name in the URI, so that
/// connections are reused for the same port only.
#[derive(Clone)]
struct Connector {
    backends: Arc<dyn Backends>,
    domain: Domain,
    vm: Uuid,
}

impl Connector {
    async fn connect(&self, port: u16) -> io::Result<TcpStream> {
        let stream = timeout(CONNECT_TIMEOUT, self.backends.connect(self.vm, port)).await??;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let route = connector.domain.route(uri.host().unwrap_or_default()).map_err(io::Error::other)?;
            connector.connect(route.port).await.map(TokioIo::new)
        })
    }
}
