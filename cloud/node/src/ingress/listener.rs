//! Accepts connections and serves them: HTTP/1.1 in the clear, TLS that ends here, or TLS passed through.

use std::convert::Infallible;
use std::io::{self, Cursor};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Version};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::select;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::client_hello::{self, ClientHello};
use super::host::{Mode, Route};
use super::idle::IdleLimited;
use super::proxy::{Client, Proxy};
use super::{ALPN_HTTP2, Limits};

/// Longest request head, in bytes.
const MAX_HEAD_BYTES: u32 = 64 * 1024;
/// Most header fields of a request.
const MAX_HEADERS: usize = 128;
/// Most requests under way on one HTTP/2 connection.
const MAX_HTTP2_STREAMS: u32 = 128;
/// How often a quiet HTTP/2 client must show that it is there.
const HTTP2_PING: Duration = Duration::from_secs(30);
/// Pause after the operating system refused a connection, usually for want of file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// What every connection of one listener shares.
#[derive(Clone)]
pub(super) struct Listener {
    pub(super) proxy: Arc<Proxy>,
    pub(super) tls: Option<Arc<ServerConfig>>,
    pub(super) limits: Limits,
    pub(super) places: Arc<Semaphore>,
    pub(super) drain: CancellationToken,
}

impl Listener {
    /// Accepts for ever. While all places are taken new connections wait in the kernel's queue.
    pub(super) async fn run(self, socket: TcpListener) {
        loop {
            let Ok(place) = self.places.clone().acquire_owned().await else { return };
            match socket.accept().await {
                Ok((stream, peer)) => {
                    let (listener, abort) = (self.clone(), self.proxy.abort.clone());
                    let served = async move {
                        if let Err(error) = listener.serve(stream, peer).await {
                            tracing::debug!(%peer, %error, "connection ended");
                        }
                        drop(place);
                    };
                    self.proxy.tasks.spawn(abort.run_until_cancelled_owned(served));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection; check the limit of open files");
                    sleep(ACCEPT_BACKOFF).await;
                }
            }
        }
    }

    async fn serve(&self, stream: TcpStream, peer: SocketAddr) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let stream = IdleLimited::new(stream, self.limits.idle);
        match &self.tls {
            None => {
                self.serve_http(stream, Version::HTTP_11, Client { address: peer.ip(), scheme: "http" }).await
            }
            Some(config) => self.serve_tls(stream, peer, config).await,
        }
    }

    async fn serve_tls(
        &self,
        mut stream: IdleLimited<TcpStream>,
        peer: SocketAddr,
        config: &Arc<ServerConfig>,
    ) -> io::Result<()> {
        let hello =
            timeout(self.limits.head, client_hello::read(&mut stream)).await?.map_err(io::Error::other)?;
        match hello.server_name.as_deref().map(|name| self.proxy.route(name)) {
            Some(Ok(route)) if route.mode == Mode::Passthrough => {
                self.pass_through(stream, &hello, &route).await
            }
            _ => {
                let (version, stream) = self.terminate(stream, hello, config).await?;
                self.serve_http(stream, version, Client { address: peer.ip(), scheme: "https" }).await
            }
        }
    }

    async fn terminate(
        &self,
        stream: IdleLimited<TcpStream>,
        hello: ClientHello,
        config: &Arc<ServerConfig>,
    ) -> io::Result<(Version, impl AsyncRead + AsyncWrite + Unpin + Send + 'static)> {
        let (read, write) = tokio::io::split(stream);
        let replayed = tokio::io::join(Cursor::new(hello.bytes).chain(read), write);
        let stream = timeout(self.limits.head, TlsAcceptor::from(config.clone()).accept(replayed)).await??;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(ALPN_HTTP2);
        Ok((if is_http2 { Version::HTTP_2 } else { Version::HTTP_11 }, stream))
    }

    async fn pass_through(
        &self,
        mut stream: IdleLimited<TcpStream>,
        hello: &ClientHello,
        route: &Route,
    ) -> io::Result<()> {
        match self.proxy.upstreams.open(route).await {
            Ok((_admission, mut guest)) => {
                guest.write_all(&hello.bytes).await?;
                copy_bidirectional(&mut stream, &mut guest).await.map(drop)
            }
            Err(refusal) => {
                stream.write_all(&refusal.tls_alert()).await?;
                stream.shutdown().await
            }
        }
    }

    /// The one HTTP service, whatever carries it.
    async fn serve_http<S>(&self, stream: S, version: Version, client: Client) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let proxy = self.proxy.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let proxy = proxy.clone();
            async move { Ok::<_, Infallible>(proxy.answer(client, request).await) }
        });
        let io = TokioIo::new(stream);
        let ended = if version == Version::HTTP_2 {
            let connection = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .keep_alive_interval(HTTP2_PING)
                .max_concurrent_streams(MAX_HTTP2_STREAMS)
                .max_header_list_size(MAX_HEAD_BYTES)
                .serve_connection(io, service);
            self.until_drained(connection, http2::Connection::graceful_shutdown).await
        } else {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                // Also the longest pause between two requests of a connection.
                .header_read_timeout(self.limits.head)
                .max_header_size(MAX_HEAD_BYTES as usize)
                .max_headers(MAX_HEADERS)
                .serve_connection(io, service)
                .with_upgrades();
            self.until_drained(connection, http1::UpgradeableConnection::graceful_shutdown).await
        };
        ended.map_err(io::Error::other)
    }

    /// Serves a connection to its end, or to the end of its current requests once draining began.
    async fn until_drained<C>(&self, connection: C, finish: impl FnOnce(Pin<&mut C>)) -> hyper::Result<()>
    where
        C: Future<Output = hyper::Result<()>>,
    {
        let mut connection = pin!(connection);
        select! {
            ended = connection.as_mut() => return ended,
            () = self.drain.cancelled() => finish(connection.as_mut()),
        }
        connection.await
    }
}
