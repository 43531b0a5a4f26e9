//! How much a server may send for one request, and how long a connection may wait for the next one.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

/// Bytes of one answer: interim ones, head and body together. TLS is not counted.
pub(crate) const MAX_ANSWER: u64 = 64 * 1024;

/// The account of a connection, shared by those who read and those who ask.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    left: AtomicU64,
    exceeded: AtomicBool,
    /// Told when a request begins or ends.
    pub(crate) changed: Notify,
    busy: AtomicBool,
}

impl Budget {
    /// A request begins: its answer may be of full size.
    pub(crate) fn begin(&self) {
        self.left.store(MAX_ANSWER, Ordering::Release);
        self.busy.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    /// The answer was read.
    pub(crate) fn end(&self) {
        self.busy.store(false, Ordering::Release);
        self.changed.notify_one();
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    /// Whether the server has sent nothing since the request began.
    pub(crate) fn is_untouched(&self) -> bool {
        self.left.load(Ordering::Acquire) == MAX_ANSWER
    }

    /// Whether the server tried to send more.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.exceeded.load(Ordering::Acquire)
    }
}

/// A stream that ends with an error where the budget does.
#[derive(Debug)]
pub(crate) struct Bounded<S> {
    pub(crate) stream: S,
    pub(crate) budget: Arc<Budget>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, into))?;
        let read = u64::try_from(into.filled().len() - before).unwrap_or(u64::MAX);
        let spent =
            self.budget.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(read));
        if spent.is_err() {
            self.budget.exceeded.store(true, Ordering::Release);
            return Poll::Ready(Err(io::Error::other("the answer is too large")));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
