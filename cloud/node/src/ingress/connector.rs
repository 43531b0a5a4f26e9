//! Connections to guests: of this node directly, of other nodes through a tunnel.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use cloister_node_api::VmRoute;
use futures_util::future::BoxFuture;
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::either::Either;
use tower::Service;
use uuid::Uuid;

use super::host::Domain;
use crate::Backends;
use crate::peers::{Peers, Tunnel};

/// How long a guest of this node may take to accept a connection.
const CONNECT_HERE: Duration = Duration::from_secs(10);
/// How long another node may take to open a tunnel. Where it is gone, another replica is waiting.
const CONNECT_THERE: Duration = Duration::from_secs(4);
/// How long a connection to a guest of this node is kept for the next request.
const KEEP_HERE: Duration = Duration::from_secs(30);
/// How long a tunnel is kept: while it is, its VM cannot be drained.
const KEEP_THERE: Duration = Duration::from_secs(2);

/// A VM and where it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Target {
    /// On this node.
    Here(Uuid),
    /// On another.
    There { vm: Uuid, node: String, endpoint: String },
}

impl Target {
    pub(super) fn there(route: &VmRoute) -> Self {
        Self::There { vm: route.vm_uuid, node: route.node.clone(), endpoint: route.endpoint.clone() }
    }

    /// How long a connection to it is kept for the next request.
    pub(super) const fn keep_idle(&self) -> Duration {
        match self {
            Self::Here(_) => KEEP_HERE,
            Self::There { .. } => KEEP_THERE,
        }
    }
}

/// Whatever leads to guests.
pub(super) struct Ways {
    pub(super) backends: Arc<dyn Backends>,
    pub(super) peers: Arc<dyn Peers>,
    pub(super) domain: Domain,
}

/// Opens connections to one VM, for the HTTP client: the port is read from the name in the URI, so that
/// connections are reused for the same port only.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) ways: Arc<Ways>,
    pub(super) target: Arc<Target>,
}

impl Connector {
    /// Opens a connection to a port of the guest.
    pub(super) async fn connect(&self, port: u16) -> io::Result<GuestStream> {
        let either = match &*self.target {
            Target::Here(vm) => {
                let stream = timeout(CONNECT_HERE, self.ways.backends.connect(*vm, port)).await??;
                stream.set_nodelay(true)?;
                Either::Left(stream)
            }
            Target::There { vm, node, endpoint } => {
                let route =
                    VmRoute { vm_uuid: *vm, node: node.clone(), endpoint: endpoint.clone(), ready: true };
                Either::Right(timeout(CONNECT_THERE, self.ways.peers.connect(&route, port)).await??)
            }
        };
        Ok(GuestStream(either))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<GuestStream>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let route =
                connector.ways.domain.route(uri.host().unwrap_or_default()).map_err(io::Error::other)?;
            connector.connect(route.port).await.map(TokioIo::new)
        })
    }
}

/// Bytes to and from a guest.
pub(super) struct GuestStream(Either<TcpStream, Tunnel>);

impl Connection for GuestStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for GuestStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for GuestStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
