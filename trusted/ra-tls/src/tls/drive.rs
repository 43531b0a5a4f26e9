//! Handshakes whose computing runs on a thread of its own.
//!
//! rustls verifies certificates while it processes incoming bytes, on the thread that gave it the bytes.
//! With evidence in the certificates that may take milliseconds of computing and seconds of waiting for
//! collateral, during which a runtime's thread would serve nobody else. So bytes are read and written on
//! the runtime, and processed on one of its blocking threads; that works on every flavour of runtime. A
//! peer that sends slowly occupies no thread, and permits bound how many threads handshakes occupy.

use std::io;
use std::sync::Arc;

use rustls::Connection;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Semaphore;

use super::streams::HandshakeError;
use super::verifiers::reason;

/// Read at once, in bytes. Below rustls' limit of unread plaintext, so that what a peer sends right after
/// its handshake always fits.
const CHUNK: usize = 8 << 10;
/// Most bytes of a handshake.
const MAX_HANDSHAKE_BYTES: usize = 256 << 10;

/// Completes the handshake of `connection` over `stream`.
pub(super) async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
    mut connection: Connection,
    stream: &mut S,
    turns: &Arc<Semaphore>,
) -> Result<Connection, HandshakeError> {
    let mut received = 0_usize;
    loop {
        send(&mut connection, stream).await?;
        if !connection.is_handshaking() {
            return Ok(connection);
        }
        let mut chunk = vec![0; CHUNK];
        let length = stream.read(&mut chunk).await?;
        chunk.truncate(length);
        received = received.saturating_add(length);
        if length == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        if received > MAX_HANDSHAKE_BYTES {
            return Err(HandshakeError::TooLong);
        }
        let turn = Arc::clone(turns).acquire_owned().await.map_err(|_| HandshakeError::Interrupted)?;
        let (mut done, outcome) = tokio::task::spawn_blocking(move || {
            let outcome = process(&mut connection, &chunk);
            drop(turn);
            (connection, outcome)
        })
        .await
        .map_err(|_| HandshakeError::Interrupted)?;
        if let Err(error) = outcome {
            // The peer is told why, if it still listens; our own reason is the one that counts.
            send(&mut done, stream).await.ok();
            return Err(error);
        }
        connection = done;
    }
}

fn process(connection: &mut Connection, mut bytes: &[u8]) -> Result<(), HandshakeError> {
    // Nothing is read any more behind a peer's farewell: what comes there is left unread.
    while !bytes.is_empty() && connection.read_tls(&mut bytes)? > 0 {
        connection
            .process_new_packets()
            .map_err(|error| reason(&error).map_or(HandshakeError::Tls(error), HandshakeError::Peer))?;
    }
    Ok(())
}

async fn send<S: AsyncWrite + Unpin>(connection: &mut Connection, stream: &mut S) -> io::Result<()> {
    let mut bytes = Vec::new();
    while connection.wants_write() {
        connection.write_tls(&mut bytes)?;
    }
    if !bytes.is_empty() {
        stream.write_all(&bytes).await?;
        stream.flush().await?;
    }
    Ok(())
}
