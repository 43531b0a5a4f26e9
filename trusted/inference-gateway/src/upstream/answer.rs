//! What comes back from an upstream, piece by piece.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, DATE, RETRY_AFTER};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use tokio::time::timeout;

use super::SendFailure;
use super::client::{Body, is_timeout};
use crate::door::{NoRoom, SMALL, Share};
use crate::gateway::unix_now;

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
    /// Whether the body is JSON, as far as its type says.
    pub is_json: bool,
    /// `Retry-After`, in seconds up to 600, if it was sent as seconds or as a date.
    pub retry_after: Option<u64>,
    body: Body,
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
    /// The gateway has no memory for it, and had none for as long as it waited.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
}

impl Answer {
    pub(super) fn new(response: Response<Body>) -> Self {
        let media_type = text(response.headers(), &CONTENT_TYPE).and_then(|value| value.split(';').next());
        let media_type = media_type.unwrap_or_default().trim().to_ascii_lowercase();
        Self {
            status: response.status(),
            is_event_stream: media_type == "text/event-stream",
            is_json: media_type == "application/json" || media_type.ends_with("+json"),
            retry_after: retry_after(response.headers()).map(|seconds| seconds.min(MAX_RETRY_AFTER)),
            body: response.into_body(),
        }
    }

    /// The next piece of the body; `None` at its clean end. Fails after `idle` without a piece.
    pub async fn piece(&mut self, idle: Duration) -> Result<Option<Bytes>, SendFailure> {
        let piece = async {
            loop {
                // Trailers say nothing to us.
                match self.body.frame().await.transpose()?.map(Frame::into_data) {
                    Some(Ok(piece)) => break Ok(Some(piece)),
                    Some(Err(_)) => {}
                    None => break Ok(None),
                }
            }
        };
        match timeout(idle, piece).await {
            Err(_) => Err(SendFailure::TimedOut),
            Ok(piece) => {
                piece.map_err(
                    |error: hyper::Error| {
                        if is_timeout(&error) { SendFailure::TimedOut } else { SendFailure::Transport }
                    },
                )
            }
        }
    }

    /// The whole body, of at most `limit` bytes, each of which has its place in the share, unless they are few. Fails after
    /// `idle` without a piece of it, or without room for one.
    pub async fn whole(
        &mut self,
        limit: usize,
        idle: Duration,
        share: &mut Share,
    ) -> Result<Bytes, ReadFailure> {
        let (mut whole, mut last) = (BytesMut::new(), Bytes::new());
        while let Some(piece) = self.piece(idle).await? {
            let length = whole.len().saturating_add(last.len()).saturating_add(piece.len());
            if length > limit {
                return Err(ReadFailure::TooLong);
            }
            if length > SMALL {
                timeout(idle, share.cover(length)).await.map_err(|_| NoRoom)??;
            }
            whole.extend_from_slice(&last);
            last = piece;
        }
        // Most answers come in one piece: it is not copied.
        if whole.is_empty() {
            return Ok(last);
        }
        whole.extend_from_slice(&last);
        Ok(whole.freeze())
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &http::HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Seconds, or a date; a date counts from what the upstream says the time is, or else from the gateway's own.
fn retry_after(headers: &HeaderMap) -> Option<u64> {
    let asked = text(headers, &RETRY_AFTER)?.trim();
    if let Ok(seconds) = asked.parse() {
        return Some(seconds);
    }
    let asked = httpdate::parse_http_date(asked).ok()?;
    let told = text(headers, &DATE).and_then(|date| httpdate::parse_http_date(date.trim()).ok());
    let now: SystemTime = told.unwrap_or_else(|| UNIX_EPOCH + Duration::from_secs(unix_now()));
    Some(asked.duration_since(now).unwrap_or_default().as_secs())
}
