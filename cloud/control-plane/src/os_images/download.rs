//! Images on their way to nodes.

use std::io::{self, Write};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use cloister_app_compose::OsImageHash;
use cloister_guest_image::pack;
use futures_util::Stream;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tracing::warn;

use super::Library;

/// Nodes that get an image at a time.
pub(super) const MAX_DOWNLOADS: usize = 8;
/// Pieces of an image that wait for a slow reader.
const QUEUE: usize = 4;
/// The end of an image, as opposed to one that broke off.
const END: Bytes = Bytes::new();

/// An image on its way to a node. Without an end that was announced it ends in an error, so that a part is never
/// taken for the whole.
pub(crate) struct Download {
    pieces: mpsc::Receiver<Bytes>,
    is_over: bool,
}

impl Stream for Download {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        self.pieces.poll_recv(context).map(|piece| {
            self.is_over = piece.as_ref().is_none_or(Bytes::is_empty);
            match piece {
                Some(piece) => (!piece.is_empty()).then_some(Ok(piece)),
                None => Some(Err(io::ErrorKind::UnexpectedEof.into())),
            }
        })
    }
}

impl Library {
    /// The files of an image as a tar stream; `None` when there is no such image, or nobody can be served now.
    pub(crate) fn download(&self, hash: OsImageHash) -> Option<Download> {
        let dir = self.dir.join(hash.to_string());
        let turn = Arc::clone(&self.downloads).try_acquire_owned().ok().filter(|_| dir.is_dir())?;
        let (sender, pieces) = mpsc::channel(QUEUE);
        let (runtime, patience) = (Handle::current(), self.patience);
        tokio::task::spawn_blocking(move || {
            // What was read but not fetched waits without a turn: nobody holds one by fetching nothing.
            let _turn: OwnedSemaphorePermit = turn;
            let send = |piece| {
                let sent = runtime.block_on(sender.send_timeout(piece, patience));
                sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
            };
            if let Err(error) = send_image(&dir, send) {
                warn!(directory = %dir.display(), %error, "an image was not sent to its end");
            }
        });
        Some(Download { pieces, is_over: false })
    }
}

/// Sends an image and its end; stops when a piece is not taken.
fn send_image(dir: &Path, send: impl Fn(Bytes) -> io::Result<()>) -> io::Result<()> {
    pack(dir, Pieces(&send))?;
    send(END)
}

/// Sends whatever is written.
struct Pieces<'a, S>(&'a S);

impl<S: Fn(Bytes) -> io::Result<()>> Write for Pieces<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.0)(Bytes::copy_from_slice(bytes)).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
