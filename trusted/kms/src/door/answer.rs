//! Requests in, answers out.

use std::time::Duration;

use bytes::Bytes;
use cloister_kms_api::{KmsError, KmsErrorCode, MAX_BODY_BYTES};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Body;
use serde::Serialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use crate::secret_json::to_secret_json;

/// What is answered.
pub(crate) type Answer = Response<Full<Bytes>>;

fn with(status: StatusCode, media_type: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// 200 with JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<Answer, KmsError> {
    let text = serde_json::to_vec(value).map_err(|_| unanswerable())?;
    Ok(with(StatusCode::OK, "application/json", text.into()))
}

/// 200 with JSON that is wiped after it was sent.
pub(crate) fn secret_json(value: &impl Serialize) -> Result<Answer, KmsError> {
    let text = to_secret_json(value).map_err(|_| unanswerable())?;
    Ok(with(StatusCode::OK, "application/json", Bytes::from_owner(text)))
}

/// 200 with a key as it is, wiped after it was sent.
pub(crate) fn key(key: Zeroizing<[u8; 32]>) -> Answer {
    with(StatusCode::OK, "application/octet-stream", Bytes::from_owner(key))
}

/// 200 with text.
pub(crate) fn text(text: impl Into<Bytes>) -> Answer {
    with(StatusCode::OK, "text/plain; charset=utf-8", text.into())
}

/// A refusal or failure.
pub(crate) fn error(error: &KmsError) -> Answer {
    let status = StatusCode::from_u16(error.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let text = serde_json::to_vec(error).unwrap_or_default();
    with(status, "application/json", text.into())
}

fn unanswerable() -> KmsError {
    KmsError::new(KmsErrorCode::InternalError, "the answer cannot be written as JSON")
}

/// A request that cannot be understood.
pub(crate) fn bad(reason: impl Into<String>) -> KmsError {
    KmsError::new(KmsErrorCode::BadRequest, reason)
}

/// The body of a request as JSON, whatever it says to be; an empty one is an object without members.
pub(crate) async fn read<T: DeserializeOwned, B>(body: B, limit: Duration) -> Result<T, KmsError>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let whole = tokio::time::timeout(limit, Limited::new(body, MAX_BODY_BYTES).collect())
        .await
        .map_err(|_| bad("the body of the request took too long"))?
        .map_err(|_| {
            bad(format!("the body of the request broke off, or has more than {MAX_BODY_BYTES} bytes"))
        })?
        .to_bytes();
    let text: &[u8] = if whole.is_empty() { b"{}" } else { &whole };
    // The reason does not repeat what was sent.
    serde_json::from_slice(text).map_err(|error| {
        bad(format!(
            "the body of the request is not understood: {} at column {}",
            class(&error),
            error.column()
        ))
    })
}

fn class(error: &serde_json::Error) -> &'static str {
    if error.is_data() { "a member is missing or of the wrong form" } else { "not JSON" }
}
