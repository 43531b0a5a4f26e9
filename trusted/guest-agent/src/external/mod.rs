//! The agent's listener for the outside: `/health`, `/containers` and `/logs/<container>`.
//!
//! Anybody may ask; what is private is answered only to the node, which knows itself by its token.

mod ansi;
mod log_stream;
mod query;
mod respond;

use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use cloister_guest_channel::{AGENT_PORT, NodeToken};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::engine::Engine;

/// Connections that are served at a time; further ones wait.
const MAX_CONNECTIONS: usize = 128;
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest request head, in bytes.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// What the listener serves, and to whom.
#[derive(Debug)]
pub(crate) struct External {
    pub(crate) engine: Engine,
    /// Anybody may read logs.
    pub(crate) public_logs: bool,
    /// Anybody may list containers.
    pub(crate) public_containers: bool,
    pub(crate) node_token: NodeToken,
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

async fn serve(stream: TcpStream, external: &External) {
    let service = service_fn(|request| async move { Ok::<_, Infallible>(external.respond(&request).await) });
    // A connection that breaks is the peer's affair.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
