//! Failures as responses.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, StatusCode};

use crate::error::{GatewayError, Kind};
use crate::surface::Surface;

/// Whether OpenAI's and Anthropic's clients send a request again, whatever its status.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// The body of a failure as clients of a surface get it: what is hashed where a refusal has a receipt.
#[must_use]
pub fn refusal(error: &GatewayError, surface: Surface, request_id: &str) -> Bytes {
    match surface {
        Surface::Messages => error.messages_body(request_id).into(),
        Surface::Chat | Surface::Completions | Surface::Embeddings | Surface::Responses => {
            error.body().into()
        }
    }
}

/// The response of a failure with a body of [`refusal`], which goes out as it is.
#[must_use]
pub fn refused(error: &GatewayError, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = error.status();
    response.extensions_mut().insert(error.kind);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // Who is told to come back later is told when, at least that it is not at once.
    let is_limit = error.status() == StatusCode::TOO_MANY_REQUESTS;
    if let Some(seconds) = error.retry_after.or_else(|| is_limit.then_some(1)) {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    // Public clients would send it again by themselves for its status, and read this.
    if error.kind.is_about_proof() {
        response.headers_mut().insert(SHOULD_RETRY, HeaderValue::from_static("false"));
    }
    if let Some(left) = &error.left {
        response.headers_mut().extend(left.headers(crate::gateway::unix_now()));
    }
    response
}

/// In the gateway's own shape. On the Messages surface the door gives it the shape that is spoken there.
impl IntoResponse for GatewayError {
    fn into_response(self) -> Response {
        let mut response = refused(&self, self.body().into());
        response.extensions_mut().insert(self);
        response
    }
}

/// A failure that a library answered, in the gateway's words.
pub(super) fn of_status(status: StatusCode) -> GatewayError {
    let (kind, message) = match status {
        StatusCode::NOT_FOUND => (Kind::UnknownPath, "Nothing is at this path"),
        StatusCode::METHOD_NOT_ALLOWED => (Kind::Method, "This path does not take this method"),
        StatusCode::PAYLOAD_TOO_LARGE => (Kind::TooLarge, "The request is too large"),
        status if status.is_client_error() => (Kind::InvalidRequest, "The request cannot be understood"),
        _ => (Kind::Internal, "The gateway failed"),
    };
    GatewayError::new(kind, message)
}
