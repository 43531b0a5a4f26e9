//! One request on one connection, and what comes back.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderMap};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::time::Instant;

use crate::connect::Connection;
use crate::errors::{SendError, Stage};

/// How much of an answer's body is kept, in bytes.
pub const MAX_BODY: usize = 4096;
/// How long the rest of an answer is waited for once its head is there: the status has decided.
const BODY_LIMIT: Duration = Duration::from_secs(2);

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its status. A redirect is one like others.
    pub status: u16,
    /// How long the server asks to be left alone.
    pub retry_after: Option<Duration>,
    /// The beginning of the body, as far as it came in time.
    pub body: Bytes,
    /// From the beginning of the request to the end of the answer, or to where reading it ended.
    pub elapsed: Duration,
}

/// An answer, and the connection if it can be used again; or why there is none.
pub(crate) type Exchanged = Result<(Answer, Option<Connection>), (SendError, Kept)>;

/// Whether a failure may be that of the connection alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The connection was kept from an earlier request, and not a byte came back: servers close idle connections.
    WasDead,
    /// The connection was new, or the server has answered something.
    WasAlive,
}

/// Sends a request and reads the answer.
pub(crate) async fn exchange(
    mut connection: Connection,
    request: &Request<Full<Bytes>>,
    began: Instant,
    deadline: Instant,
) -> Exchanged {
    connection.budget.begin();
    let sent = connection.sender.send_request(request.clone());
    let response = match tokio::time::timeout_at(deadline, sent).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => return Err(failure(&error, &connection)),
        Err(_) => return Err((SendError::Timeout(Stage::Answering), Kept::WasAlive)),
    };
    let status = response.status().as_u16();
    let retry_after = retry_after(response.headers());
    let (body, complete) = read_body(response, deadline.min(Instant::now() + BODY_LIMIT)).await;
    connection.budget.end();
    connection.used = true;
    let answer = Answer { status, retry_after, body, elapsed: began.elapsed() };
    Ok((answer, complete.then_some(connection)))
}

fn failure(error: &hyper::Error, connection: &Connection) -> (SendError, Kept) {
    if connection.budget.is_exceeded() || error.is_parse_too_large() {
        return (SendError::TooLarge, Kept::WasAlive);
    }
    if error.is_parse() {
        return (SendError::Malformed, Kept::WasAlive);
    }
    let dead = connection.used && connection.budget.is_untouched();
    (SendError::Disconnected, if dead { Kept::WasDead } else { Kept::WasAlive })
}

/// The beginning of a body, and whether it came to its end.
async fn read_body(response: Response<Incoming>, until: Instant) -> (Bytes, bool) {
    let mut body = response.into_body();
    let mut kept = BytesMut::new();
    loop {
        match tokio::time::timeout_at(until, body.frame()).await {
            Ok(Some(Ok(frame))) => {
                let data = frame.into_data().unwrap_or_default();
                let room = MAX_BODY.saturating_sub(kept.len()).min(data.len());
                kept.extend_from_slice(&data.slice(..room));
            }
            Ok(None) => return (kept.freeze(), true),
            Ok(Some(Err(_))) | Err(_) => return (kept.freeze(), false),
        }
    }
}

/// Seconds, or a date; a date counts from what the server says the time is.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
    let asked = text(header::RETRY_AFTER)?.trim();
    if let Ok(seconds) = asked.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let asked = httpdate::parse_http_date(asked).ok()?;
    let now = httpdate::parse_http_date(text(header::DATE)?.trim()).ok()?;
    Some(asked.duration_since(now).unwrap_or_default())
}
