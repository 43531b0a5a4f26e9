use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::debug;

use crate::{Identity, peer_identity};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const HANDSHAKES_AT_ONCE: usize = 64;
/// Pause after the operating system refused to accept, usually for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listener for `axum::serve` that hands out connections whose TLS handshake succeeded. Slow or hostile
/// handshakes run beside each other and never hold up a good one.
pub struct TlsListener {
    address: SocketAddr,
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    accepting: JoinHandle<()>,
}

impl TlsListener {
    /// Binds `address` and begins to accept.
    pub async fn bind(address: SocketAddr, config: Arc<ServerConfig>) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (handed_over, ready) = mpsc::channel(HANDSHAKES_AT_ONCE);
        let accepting = tokio::spawn(accept_all(listener, TlsAcceptor::from(config), handed_over));
        Ok(Self { address, ready, accepting })
    }

    /// The bound address, with the port that the system chose where 0 was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for TlsListener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept_all(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    handed_over: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>,
) {
    let slots = Arc::new(Semaphore::new(HANDSHAKES_AT_ONCE));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                debug!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (acceptor, handed_over) = (acceptor.clone(), handed_over.clone());
        tokio::spawn(async move {
            match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => {
                    let _ = handed_over.send((stream, peer)).await;
                }
                Ok(Err(error)) => debug!(%peer, %error, "a TLS handshake failed"),
                Err(_) => debug!(%peer, "a TLS handshake took too long"),
            }
            drop(slot);
        });
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(accepted) => accepted,
            // The accepting task ends only with this listener.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

/// What the peer of a connection is, for `axum::extract::ConnectInfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Identity from its certificate; `None` for an anonymous client.
    pub identity: Option<Identity>,
    /// Where it connects from.
    pub address: SocketAddr,
}

impl Connected<IncomingStream<'_, TlsListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, TlsListener>) -> Self {
        let (_, session) = stream.io().get_ref();
        Self { identity: peer_identity(session.peer_certificates()), address: *stream.remote_addr() }
    }
}
