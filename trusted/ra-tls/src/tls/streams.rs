use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use super::configs::Clients;
use super::drive::handshake;
use crate::peer::{PeerError, PeerIdentity, PeerVerifier, Role};

/// Longest handshake; collateral that is not there yet is fetched within it.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(20);
/// Most handshakes of one anonymous server that compute at the same time.
const MAX_ANONYMOUS: usize = 64;

/// Why a connection did not come about.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// We refuse the peer.
    #[error("the peer is refused")]
    Peer(#[source] Arc<PeerError>),
    /// TLS failed, or the peer refuses us.
    #[error("the TLS handshake failed: {0}")]
    Tls(rustls::Error),
    /// The connection broke.
    #[error("the connection broke during the TLS handshake")]
    Io(#[from] io::Error),
    /// It took too long.
    #[error("the TLS handshake was not done within {} seconds", HANDSHAKE_LIMIT.as_secs())]
    TimedOut,
    /// The peer sent more than a handshake needs.
    #[error("the peer sent more than a TLS handshake needs")]
    TooLong,
    /// The runtime ends.
    #[error("the TLS handshake was interrupted")]
    Interrupted,
}

/// A connection that was accepted. Put `peer` into the extensions of its requests, and hand `stream` to
/// the HTTP server.
#[derive(Debug)]
pub struct Accepted<S> {
    /// The stream of plaintext.
    pub stream: server::TlsStream<S>,
    /// Who the client is; `None` if it is anonymous.
    pub peer: Option<Arc<PeerIdentity>>,
}

/// A connection that was opened.
#[derive(Debug)]
pub struct Connected<S> {
    /// The stream of plaintext.
    pub stream: client::TlsStream<S>,
    /// Who the server is.
    pub peer: Arc<PeerIdentity>,
}

/// Accepts connections without making others wait for their verification; cheap to clone.
#[derive(Clone)]
pub struct Acceptor {
    config: Arc<ServerConfig>,
    peers: Option<PeerVerifier>,
    turns: Arc<Semaphore>,
}

impl Acceptor {
    /// For a configuration by [`server_config`](super::server_config) for the same `clients`.
    #[must_use]
    pub fn new(config: impl Into<Arc<ServerConfig>>, clients: &Clients) -> Self {
        let peers = clients.verifier().cloned();
        let turns =
            peers.as_ref().map_or_else(|| Arc::new(Semaphore::new(MAX_ANONYMOUS)), PeerVerifier::turns);
        Self { config: config.into(), peers, turns }
    }

    /// Shakes hands, within 20 seconds.
    pub async fn accept<S>(&self, stream: S) -> Result<Accepted<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        limited(Box::pin(self.shake(stream))).await
    }

    async fn shake<S>(&self, mut stream: S) -> Result<Accepted<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let connection = ServerConnection::new(Arc::clone(&self.config)).map_err(HandshakeError::Tls)?;
        let Connection::Server(done) = handshake(connection.into(), &mut stream, &self.turns).await? else {
            return Err(HandshakeError::Interrupted);
        };
        let peer = match &self.peers {
            Some(peers) if done.peer_certificates().is_some() => {
                Some(identity(peers, &done, Role::Client).await?)
            }
            _ => None,
        };
        // The library that carries plaintext begins with a connection of its own; it gets ours instead.
        let stream = TlsAcceptor::from(Arc::clone(&self.config))
            .accept_with(stream, |connection| *connection = done)
            .await?;
        Ok(Accepted { stream, peer })
    }
}

/// Opens connections without making others wait for their verification; cheap to clone.
#[derive(Clone)]
pub struct Connector {
    config: Arc<ClientConfig>,
    peers: PeerVerifier,
}

impl Connector {
    /// For a configuration by [`client_config`](super::client_config) for the same `servers`.
    #[must_use]
    pub fn new(config: impl Into<Arc<ClientConfig>>, servers: &PeerVerifier) -> Self {
        Self { config: config.into(), peers: servers.clone() }
    }

    /// Shakes hands, within 20 seconds. `name` is what the server is asked for; who it is, its evidence
    /// says.
    pub async fn connect<S>(
        &self,
        name: ServerName<'static>,
        stream: S,
    ) -> Result<Connected<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        limited(Box::pin(self.shake(name, stream))).await
    }

    async fn shake<S>(&self, name: ServerName<'static>, mut stream: S) -> Result<Connected<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let connection =
            ClientConnection::new(Arc::clone(&self.config), name.clone()).map_err(HandshakeError::Tls)?;
        let Connection::Client(done) = handshake(connection.into(), &mut stream, &self.peers.turns()).await?
        else {
            return Err(HandshakeError::Interrupted);
        };
        let peer = identity(&self.peers, &done, Role::Server).await?;
        let stream = TlsConnector::from(Arc::clone(&self.config))
            .connect_with(name, stream, |connection| *connection = done)
            .await?;
        Ok(Connected { stream, peer })
    }
}

/// What the handshake found out, or in the rare case that it is forgotten already, the same once more.
async fn identity(
    peers: &PeerVerifier,
    connection: &rustls::CommonState,
    role: Role,
) -> Result<Arc<PeerIdentity>, HandshakeError> {
    let chain: Vec<_> = connection
        .peer_certificates()
        .ok_or_else(|| HandshakeError::Peer(Arc::new(PeerError::NoCertificate)))?
        .iter()
        .map(|certificate| certificate.clone().into_owned())
        .collect();
    let peers = peers.clone();
    tokio::task::spawn_blocking(move || peers.chain(&chain, role))
        .await
        .map_err(|_| HandshakeError::Interrupted)?
        .map_err(|error| HandshakeError::Peer(Arc::new(error)))
}

/// The handshake holds a whole connection: it lives on the heap, not in the caller's future.
pub(super) async fn limited<T>(
    handshake: impl Future<Output = Result<T, HandshakeError>>,
) -> Result<T, HandshakeError> {
    tokio::time::timeout(HANDSHAKE_LIMIT, handshake).await.map_err(|_| HandshakeError::TimedOut)?
}
