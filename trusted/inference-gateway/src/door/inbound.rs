//! Bodies of requests: limited in size, in time, and all together in memory.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, EXPECT};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout_at};

use super::budget::Share;
use crate::error::{GatewayError, Kind};

/// Largest body, in bytes: parts of several megabytes stand in it as base64.
pub const MAX_BODY_BYTES: usize = 32 << 20;
/// How much of a body that is refused is read and thrown away, in bytes, so that its sender can read why.
const MAX_DRAINED_BYTES: usize = 2 * MAX_BODY_BYTES;
/// How long that may take.
const DRAIN_TIME: Duration = Duration::from_secs(10);
/// Longest pause between two pieces of a body.
const IDLE: Duration = Duration::from_secs(30);
/// Longest time of a whole body: the largest one at a megabit in a second.
const WHOLE: Duration = Duration::from_mins(5);
/// Slowest that a body may come once it had [`IDLE`] to begin, in bytes per second.
const SLOWEST: u64 = 16 << 10;

/// Reads a whole body, which keeps its share of the memory. One that is too large is drained, within limits, before that is
/// said.
pub(crate) async fn read(
    headers: &HeaderMap,
    mut body: Body,
    mut share: Share,
) -> Result<Bytes, GatewayError> {
    let announced = announced(headers);
    if announced.is_some_and(|length| length > MAX_BODY_BYTES) {
        refuse(headers, body).await;
        return Err(too_large());
    }
    let began = Instant::now();
    let whole = began + WHOLE;
    let mut pieces = Pieces::new(announced);
    loop {
        let until = whole.min(Instant::now() + IDLE).min(began + patience(pieces.length()));
        let frame = timeout_at(until, body.frame()).await.map_err(|_| slow())?;
        let Some(frame) = frame else { break };
        let Ok(piece) = frame.map_err(|_| cut())?.into_data() else { continue };
        let length = pieces.length() + piece.len();
        if length > MAX_BODY_BYTES {
            drop((pieces, share));
            drain(body).await;
            return Err(too_large());
        }
        if share.try_cover(length).is_err() {
            drop((pieces, share));
            drain(body).await;
            return Err(no_room());
        }
        pieces.add(piece);
    }
    Ok(share.hold(pieces.whole()))
}

/// How long a body may take of which so many bytes are there: whoever holds memory has to go on filling it.
const fn patience(bytes: usize) -> Duration {
    IDLE.saturating_add(Duration::from_millis((bytes as u64).saturating_mul(1000) / SLOWEST))
}

/// Leaves a body unread: at once where its sender waits for leave to send it, otherwise when it was drained.
pub(super) async fn refuse(headers: &HeaderMap, body: Body) {
    if !headers.contains_key(EXPECT) {
        drain(body).await;
    }
}

/// Reads and forgets, up to a limit.
async fn drain(mut body: Body) {
    let end = Instant::now() + DRAIN_TIME;
    let mut left = MAX_DRAINED_BYTES;
    while let Ok(Some(Ok(frame))) = timeout_at(end, body.frame()).await {
        let length = frame.data_ref().map_or(0, Bytes::len);
        match left.checked_sub(length) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

/// The pieces of a body. A single one, the usual case, is not copied.
enum Pieces {
    None { announced: usize },
    One { piece: Bytes, announced: usize },
    Many(BytesMut),
}

impl Pieces {
    const fn new(announced: Option<usize>) -> Self {
        let announced = match announced {
            Some(announced) => announced,
            None => 0,
        };
        Self::None { announced }
    }

    fn length(&self) -> usize {
        match self {
            Self::None { .. } => 0,
            Self::One { piece, .. } => piece.len(),
            Self::Many(bytes) => bytes.len(),
        }
    }

    fn add(&mut self, piece: Bytes) {
        *self = match std::mem::replace(self, Self::None { announced: 0 }) {
            Self::None { announced } => Self::One { piece, announced },
            Self::One { piece: first, announced } => {
                // Memory of this size is not there before something is written to it.
                let mut bytes = BytesMut::with_capacity(announced.max(first.len() + piece.len()));
                bytes.extend_from_slice(&first);
                bytes.extend_from_slice(&piece);
                Self::Many(bytes)
            }
            Self::Many(mut bytes) => {
                bytes.extend_from_slice(&piece);
                Self::Many(bytes)
            }
        };
    }

    fn whole(self) -> Bytes {
        match self {
            Self::None { .. } => Bytes::new(),
            Self::One { piece, .. } => piece,
            Self::Many(bytes) => bytes.freeze(),
        }
    }
}

fn announced(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large() -> GatewayError {
    GatewayError::new(Kind::TooLarge, "The request is too large: its body may have 32 MiB")
}

fn slow() -> GatewayError {
    GatewayError::new(Kind::InvalidRequest, "The body did not arrive in time")
}

fn cut() -> GatewayError {
    GatewayError::new(Kind::InvalidRequest, "The body ended too early")
}

/// What is told where the memory for bodies is lacking.
pub(crate) fn no_room() -> GatewayError {
    let error = GatewayError::new(Kind::Unavailable, "The gateway is busy. Please retry after some time.");
    GatewayError { retry_after: Some(1), ..error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_memory_has_to_go_on_filling_it() {
        for (bytes, seconds) in [(0, 30), (1, 30), (1 << 20, 94), (MAX_BODY_BYTES, 2078)] {
            assert_eq!(patience(bytes).as_secs(), seconds, "{bytes}");
        }
    }
}
