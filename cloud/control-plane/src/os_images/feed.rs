//! A stream of pieces for code that reads and blocks.

use std::io::{self, Read};
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::{Stream, StreamExt};
use tokio::sync::mpsc;

/// Pieces that wait for the reader.
const QUEUE: usize = 16;

/// The sending side.
pub(super) struct Pump(mpsc::Sender<io::Result<Bytes>>);

/// The reading side. Without an end that was announced, the stream broke off.
pub(super) struct Reader {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    piece: Bytes,
    is_complete: bool,
}

pub(super) fn pair() -> (Pump, Reader) {
    let (sender, pieces) = mpsc::channel(QUEUE);
    (Pump(sender), Reader { pieces, piece: Bytes::new(), is_complete: false })
}

impl Pump {
    /// Hands everything over, or the reason why there is no more.
    pub(super) async fn run<S, E>(self, mut stream: S, patience: Duration)
    where
        S: Stream<Item = Result<Bytes, E>> + Unpin,
    {
        loop {
            let piece = match tokio::time::timeout(patience, stream.next()).await {
                Ok(Some(Ok(piece))) => piece,
                // An empty piece is the end.
                Ok(None) => {
                    let _ = self.0.send(Ok(Bytes::new())).await;
                    return;
                }
                Ok(Some(Err(_))) | Err(_) => return,
            };
            if !piece.is_empty() && self.0.send(Ok(piece)).await.is_err() {
                return;
            }
        }
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.piece.is_empty() && !self.is_complete {
            match self.pieces.blocking_recv() {
                Some(piece) => self.piece = piece?,
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
            self.is_complete = self.piece.is_empty();
        }
        let length = self.piece.len().min(buffer.len());
        self.piece.copy_to_slice(buffer.get_mut(..length).unwrap_or_default());
        Ok(length)
    }
}
