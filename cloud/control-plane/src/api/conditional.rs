//! Documents that clients keep: each answer has a strong entity tag, who has the document is told so (304), and a change
//! can be bound to the document that its client looked at (RFC 9110, sections 8.8.3 and 13).

use std::convert::Infallible;

use axum::body::{Body, to_bytes};
use axum::extract::{FromRequestParts, Request};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use headers::{ETag, HeaderMapExt as _, IfMatch, IfNoneMatch};
use sha2::{Digest, Sha256};

use super::error::{ApiError, ApiResult};

/// Largest document; none that is shown comes near.
const MAX_DOCUMENT_BYTES: usize = 16 * 1024 * 1024;
/// Whoever keeps it asks each time whether it still is the one.
const OWN: HeaderValue = HeaderValue::from_static("private, no-cache");
const OWN_VARY: HeaderValue = HeaderValue::from_static("X-API-Key, Authorization, X-Phala-Version");

/// Layer of operations that show a document. What a handler says itself of its tag and of keeping it, holds.
pub(super) async fn tagged(request: Request, next: Next) -> ApiResult<Response> {
    let known = request.headers().typed_get::<IfNoneMatch>();
    let response = next.run(request).await;
    if response.status() != StatusCode::OK {
        return Ok(response);
    }
    let (mut parts, body) = response.into_parts();
    let body = to_bytes(body, MAX_DOCUMENT_BYTES).await.map_err(|error| ApiError::internal(&error))?;
    let tag = parts.headers.typed_get::<ETag>().or_else(|| tag(&body));
    if let Some(tag) = tag.clone() {
        parts.headers.typed_insert(tag);
    }
    if !parts.headers.contains_key(CACHE_CONTROL) {
        parts.headers.insert(CACHE_CONTROL, OWN);
        parts.headers.insert(VARY, OWN_VARY);
    }
    match (known, tag) {
        (Some(known), Some(tag)) if !known.precondition_passes(&tag) => {
            parts.status = StatusCode::NOT_MODIFIED;
            // These describe a body that is not sent.
            for name in [CONTENT_TYPE, CONTENT_LENGTH, CONTENT_DISPOSITION, X_CONTENT_TYPE_OPTIONS] {
                parts.headers.remove(name);
            }
            Ok(Response::from_parts(parts, Body::empty()))
        }
        _ => Ok(Response::from_parts(parts, Body::from(body))),
    }
}

/// The strong tag of a document: its SHA-256.
pub(super) fn tag(document: &[u8]) -> Option<ETag> {
    format!("\"{}\"", hex::encode(Sha256::digest(document))).parse().ok()
}

/// Which documents a change is for: `If-Match`. A client that sends none changes whatever there is.
pub(crate) struct Expected(Option<IfMatch>);

impl<S: Send + Sync> FromRequestParts<S> for Expected {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(Self(parts.headers.typed_get()))
    }
}

impl Expected {
    /// Refuses a change of a document that is, in none of the forms in which it is shown, the expected one. That it stays
    /// the same until the change is accepted is up to who accepts it.
    pub(crate) fn check(&self, forms: &[&[u8]]) -> ApiResult<()> {
        let Some(expected) = &self.0 else { return Ok(()) };
        if forms.iter().filter_map(|form| tag(form)).any(|tag| expected.precondition_passes(&tag)) {
            return Ok(());
        }
        Err(ApiError::plain(
            StatusCode::PRECONDITION_FAILED,
            "The document is not the one that If-Match names: somebody changed it. Read it again, and repeat the \
             change with its ETag",
        ))
    }
}
