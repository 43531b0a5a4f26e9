//! Carries an upload from the network to the thread that unpacks it.

use std::io::{self, Read};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::select;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;

const CHUNK_BYTES: usize = 256 * 1024;
const CHUNKS_AHEAD: usize = 4;

/// The end of a stream, as opposed to a sender that went away.
const END: Bytes = Bytes::new();

/// The blocking end of a stream.
pub(crate) struct Feed {
    chunks: Receiver<io::Result<Bytes>>,
    current: Option<Bytes>,
}

/// The asynchronous end of a stream.
pub(crate) struct Pump(Sender<io::Result<Bytes>>);

/// A stream's two ends.
pub(crate) fn pair() -> (Pump, Feed) {
    let (sender, chunks) = channel(CHUNKS_AHEAD);
    (Pump(sender), Feed { chunks, current: None })
}

impl Pump {
    /// Sends a stream until it ends, breaks, pauses for longer than `patience`, or nobody reads any more.
    pub(crate) async fn run(self, mut stream: impl AsyncRead + Unpin, patience: Duration) {
        loop {
            let mut chunk = BytesMut::with_capacity(CHUNK_BYTES);
            let read = select! {
                read = timeout(patience, stream.read_buf(&mut chunk)) => read,
                () = self.0.closed() => return,
            };
            let chunk = read.map_err(io::Error::from).flatten().map(|_| chunk.freeze());
            let is_last = chunk.as_ref().map_or(true, Bytes::is_empty);
            if self.0.send(chunk).await.is_err() || is_last {
                return;
            }
        }
    }
}

impl Read for Feed {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut chunk = match self.current.take() {
            Some(chunk) => chunk,
            None => self.chunks.blocking_recv().ok_or(io::ErrorKind::UnexpectedEof)??,
        };
        let count = chunk.len().min(buf.len());
        chunk.split_to(count).copy_to_slice(buf.get_mut(..count).unwrap_or_default());
        if chunk.has_remaining() {
            self.current = Some(chunk);
        } else if count == 0 {
            self.current = Some(END);
        }
        Ok(count)
    }
}
