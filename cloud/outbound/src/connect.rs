//! New connections, to addresses that were judged.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tracing::warn;
use url::{Host, Url};

use crate::budget::{Bounded, Budget};
use crate::errors::{SendError, Stage, TlsError};

/// Addresses of a host that are tried.
const MAX_TRIED: usize = 4;
/// Longest head of an answer, in bytes and in fields.
const MAX_HEAD: usize = 16 * 1024;
const MAX_FIELDS: usize = 64;
/// How long a connection waits for its next request.
const IDLE_LIMIT: Duration = Duration::from_secs(30);
/// How long a connection is used, however busy it is: then the host is looked up, judged and proved again.
const MAX_AGE: Duration = Duration::from_mins(5);

/// One HTTP/1.1 connection; it is closed when this is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) sender: SendRequest<Full<Bytes>>,
    pub(crate) budget: Arc<Budget>,
    /// Whether it has carried a request.
    pub(crate) used: bool,
    since: Instant,
    task: AbortHandle,
}

impl Connection {
    pub(crate) fn is_ready(&self) -> bool {
        self.since.elapsed() < MAX_AGE && self.sender.is_ready() && !self.sender.is_closed()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Opens connections.
pub(crate) struct Connector {
    tls: Result<TlsConnector, TlsError>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

/// The certificate authorities of the machine, read once: reading them takes longer than many a request.
static MACHINE_ROOTS: LazyLock<RootCertStore> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
});

impl Connector {
    /// Trusts the authorities of the machine, and these.
    pub(crate) fn new(extra_roots: Vec<CertificateDer<'static>>) -> Self {
        let mut roots = MACHINE_ROOTS.clone();
        let given = extra_roots.len();
        let (added, _) = roots.add_parsable_certificates(extra_roots);
        if added < given {
            warn!(left_out = given - added, "certificates that are no authorities are left out");
        }
        if roots.is_empty() {
            warn!("this machine has no certificate authorities: no server can be trusted");
        }
        Self { tls: connector(roots) }
    }

    /// Connects to the first of the addresses that takes the connection.
    pub(crate) async fn connect(
        &self,
        url: &Url,
        addresses: &[IpAddr],
        deadline: Instant,
    ) -> Result<Connection, SendError> {
        let port = url.port_or_known_default().ok_or(SendError::Request)?;
        let tcp = connect_any(addresses, port, deadline).await?;
        if url.scheme() == "http" {
            return speak(tcp).await;
        }
        let tls = self.tls.as_ref().map_err(|error| *error)?;
        let stream = tls.connect(server_name(url)?, tcp);
        let stream = tokio::time::timeout_at(deadline, stream).await;
        let stream =
            stream.map_err(|_| SendError::Timeout(Stage::Handshake))?.map_err(|error| tls_failure(&error))?;
        speak(stream).await
    }
}

fn connector(roots: RootCertStore) -> Result<TlsConnector, TlsError> {
    if roots.is_empty() {
        return Err(TlsError::NoRoots);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|_| TlsError::Incompatible)?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// One after the other, those of IPv4 first; each has its share of what time is left.
async fn connect_any(addresses: &[IpAddr], port: u16, deadline: Instant) -> Result<TcpStream, SendError> {
    let mut addresses = addresses.to_vec();
    addresses.sort_by_key(IpAddr::is_ipv6);
    addresses.truncate(MAX_TRIED);
    let mut left = u32::try_from(addresses.len()).unwrap_or(1);
    let mut failed = SendError::Unreachable;
    for address in addresses {
        let share = deadline.saturating_duration_since(Instant::now()) / left.max(1);
        left = left.saturating_sub(1);
        match tokio::time::timeout(share, TcpStream::connect(SocketAddr::new(address, port))).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true).map_err(|_| SendError::Unreachable)?;
                return Ok(stream);
            }
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                failed = SendError::ConnectionRefused;
            }
            Ok(Err(_)) => failed = SendError::Unreachable,
            Err(_) => failed = SendError::Timeout(Stage::Connecting),
        }
    }
    Err(failed)
}

fn server_name(url: &Url) -> Result<ServerName<'static>, SendError> {
    Ok(match url.host().ok_or(SendError::Request)? {
        Host::Domain(name) => {
            let name = name.strip_suffix('.').unwrap_or(name).to_owned();
            ServerName::try_from(name).map_err(|_| TlsError::WrongName)?
        }
        Host::Ipv4(address) => ServerName::IpAddress(IpAddr::from(address).into()),
        Host::Ipv6(address) => ServerName::IpAddress(IpAddr::from(address).into()),
    })
}

/// HTTP/1.1 over a stream, which is closed when nobody asks for a while.
async fn speak<S>(stream: S) -> Result<Connection, SendError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let budget = Arc::<Budget>::default();
    let stream = TokioIo::new(Bounded { stream, budget: Arc::clone(&budget) });
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MAX_HEAD).max_header_size(MAX_HEAD).max_headers(MAX_FIELDS);
    let (sender, connection) = builder.handshake(stream).await.map_err(|_| SendError::Disconnected)?;
    let idle = Arc::clone(&budget);
    let task = tokio::spawn(async move {
        tokio::select! {
            _ = connection => {}
            () = unused(&idle) => {}
        }
    });
    Ok(Connection { sender, budget, used: false, since: Instant::now(), task: task.abort_handle() })
}

/// Until a connection has had no request for too long.
async fn unused(budget: &Budget) {
    loop {
        let changed = tokio::time::timeout(IDLE_LIMIT, budget.changed.notified()).await;
        if changed.is_err() && !budget.is_busy() {
            return;
        }
    }
}

fn tls_failure(error: &io::Error) -> SendError {
    let Some(error) = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()) else {
        return SendError::Tls(TlsError::Alert);
    };
    SendError::Tls(match error {
        rustls::Error::InvalidCertificate(error) => match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => TlsError::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                TlsError::NotYetValid
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                TlsError::WrongName
            }
            // Signed by somebody who calls himself like one who is known.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => TlsError::UnknownIssuer,
            CertificateError::Revoked => TlsError::Revoked,
            _ => TlsError::BadCertificate,
        },
        rustls::Error::PeerIncompatible(_) => TlsError::Incompatible,
        rustls::Error::InvalidMessage(_) => TlsError::NotTls,
        // An alert, or what ends a handshake as well.
        _ => TlsError::Alert,
    })
}
