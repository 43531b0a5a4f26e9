//! What comes back from an upstream, piece by piece.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::Response;
use tokio::time::timeout;

use super::SendFailure;

/// Longest answer that is read as a whole, in bytes.
pub const MAX_BODY_BYTES: usize = 32 << 20;
/// Longest time, in seconds, for which an upstream may send clients away.
const MAX_RETRY_AFTER: u64 = 600;

/// The head of an answer; its body follows.
#[derive(Debug)]
pub struct Answer {
    /// Status.
    pub status: StatusCode,
    /// Whether the body is `text/event-stream`.
    pub is_event_stream: bool,
    /// `Retry-After`, in seconds up to 600, if it was sent and makes sense.
    pub retry_after: Option<u64>,
    response: Response,
}

/// Why an answer could not be read as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadFailure {
    /// It did not come.
    #[error(transparent)]
    Broken(#[from] SendFailure),
    /// It is longer than allowed.
    #[error("the upstream's answer is too long")]
    TooLong,
}

impl Answer {
    pub(super) fn new(response: Response) -> Self {
        let headers = response.headers();
        let text = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
        let media_type = text(CONTENT_TYPE).and_then(|value| value.split(';').next()).unwrap_or_default();
        Self {
            status: response.status(),
            is_event_stream: media_type.trim().eq_ignore_ascii_case("text/event-stream"),
            retry_after: text(RETRY_AFTER)
                .and_then(|value| value.trim().parse::<u64>().ok())
                .map(|seconds| seconds.min(MAX_RETRY_AFTER)),
            response,
        }
    }

    /// The next piece of the body; `None` at its clean end. Fails after `idle` without a piece.
    pub async fn piece(&mut self, idle: Duration) -> Result<Option<Bytes>, SendFailure> {
        match timeout(idle, self.response.chunk()).await {
            Err(_) => Err(SendFailure::TimedOut),
            Ok(Err(error)) if error.is_timeout() => Err(SendFailure::TimedOut),
            Ok(Err(_)) => Err(SendFailure::Transport),
            Ok(Ok(piece)) => Ok(piece),
        }
    }

    /// The whole body, of at most `limit` bytes. Fails after `idle` without a piece of it.
    pub async fn whole(&mut self, limit: usize, idle: Duration) -> Result<Bytes, ReadFailure> {
        let Some(first) = self.piece(idle).await? else { return Ok(Bytes::new()) };
        let mut whole = BytesMut::new();
        let mut piece = first;
        loop {
            if whole.len().saturating_add(piece.len()) > limit {
                return Err(ReadFailure::TooLong);
            }
            let Some(next) = self.piece(idle).await? else { break };
            whole.extend_from_slice(&piece);
            piece = next;
        }
        // Most answers come in one piece: it is not copied.
        if whole.is_empty() {
            return Ok(piece);
        }
        whole.extend_from_slice(&piece);
        Ok(whole.freeze())
    }
}
