//! The agent's listener for the outside: `/health`, `/containers`, `/logs/<container>`, the machine (`/stats`
//! for the node, `/metrics`), and the evidence: `/attestation` and `/prpc/Worker.Info`.
//!
//! Anybody may ask; what is private is answered only to the node, which knows itself by its token. The
//! port speaks plain HTTP, and TLS with the attested certificate of this boot to whoever begins with it.

mod ansi;
mod evidence;
mod log_stream;
mod query;
mod respond;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use cloister_guest_channel::{AGENT_PORT, NodeToken};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::attestation::Attestation;
use crate::engine::Engine;

/// Connections that are served at a time; further ones wait.
const MAX_CONNECTIONS: usize = 128;
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a TLS handshake, and before it for the first byte.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest request head, in bytes.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// First byte of every TLS connection: a handshake record.
const TLS_HANDSHAKE: u8 = 0x16;
/// Quotes that the outside may wait for at a time. Few, as the application's own requests come behind
/// them.
const MAX_QUOTES: usize = 2;

/// What the listener serves, and to whom.
#[derive(Debug)]
pub(crate) struct External {
    pub(crate) engine: Engine,
    /// Anybody may read logs.
    pub(crate) public_logs: bool,
    /// Anybody may list containers and see the machine.
    pub(crate) public_sysinfo: bool,
    /// Anybody may see measurements.
    pub(crate) public_tcbinfo: bool,
    pub(crate) node_token: NodeToken,
    /// The evidence, once the boot is measured.
    pub(crate) attestation: watch::Receiver<Option<Arc<Attestation>>>,
    pub(crate) quotes: Semaphore,
}

/// What [`External::quotes`] begins with.
pub(crate) fn quote_slots() -> Semaphore {
    Semaphore::new(MAX_QUOTES)
}

/// Opens the listener and serves it for as long as the agent runs.
pub(crate) async fn listen(external: Arc<External>) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, AGENT_PORT)).await?;
    tokio::spawn(accept(listener, external));
    Ok(())
}

async fn accept(listener: TcpListener, external: Arc<External>) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors or the like: let others end first.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let external = Arc::clone(&external);
        tokio::spawn(async move {
            serve(stream, &external).await;
            drop(slot);
        });
    }
}

/// Tells by the first byte whether the peer speaks TLS.
async fn serve(stream: TcpStream, external: &External) {
    let mut first = [0];
    match timeout(HANDSHAKE_TIMEOUT, stream.peek(&mut first)).await {
        Ok(Ok(1)) if first == [TLS_HANDSHAKE] => {
            let shaken = timeout(HANDSHAKE_TIMEOUT, external.shake_hands(stream)).await;
            if let Ok(Some(stream)) = shaken {
                serve_http(stream, external).await;
            }
        }
        Ok(Ok(1)) => serve_http(stream, external).await,
        // Gone or silent.
        _ => {}
    }
}

async fn serve_http(stream: impl AsyncRead + AsyncWrite + Unpin, external: &External) {
    let service = service_fn(|request| async move { Ok::<_, Infallible>(external.serve(request).await) });
    // A connection that breaks is the peer's affair.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

impl External {
    /// TLS with the certificate of this boot, which is waited for. A handshake that fails is the peer's
    /// affair.
    async fn shake_hands(&self, stream: TcpStream) -> Option<tokio_rustls::server::TlsStream<TcpStream>> {
        let mut attestation = self.attestation.clone();
        let attestation = attestation.wait_for(Option::is_some).await.ok()?.clone()?;
        let certificates = attestation.certificates(HANDSHAKE_TIMEOUT).await?;
        TlsAcceptor::from(certificates.server()).accept(stream).await.ok()
    }
}
