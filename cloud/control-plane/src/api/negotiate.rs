//! Which dated version a request is answered in.

use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use cloister_management_api::{ApiVersion, VERSION_HEADER};

use super::error::{ApiError, ApiResult};
use crate::store::Caller;
use std::sync::Arc;

/// The version that a request is answered in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Version(pub(crate) ApiVersion);

/// Chooses the version and names it in the answer.
pub(crate) async fn negotiate(mut request: Request, next: Next) -> ApiResult<Response> {
    let header = request.headers().get(VERSION_HEADER).map(|value| value.to_str().unwrap_or_default());
    let caller = request.extensions().get::<Arc<Caller>>();
    let version = ApiVersion::of_request(header, caller.map(|caller| caller.default_version.as_str()))
        .map_err(|error| ApiError::plain(StatusCode::BAD_REQUEST, error.to_string()))?;
    request.extensions_mut().insert(Version(version));
    let mut response = next.run(request).await;
    let name = HeaderName::from_static(VERSION_HEADER);
    response.headers_mut().insert(name, HeaderValue::from_static(version.as_str()));
    Ok(response)
}

impl<S: Send + Sync> FromRequestParts<S> for Version {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> ApiResult<Self> {
        Ok(parts.extensions.get().copied().unwrap_or(Self(ApiVersion::OLDEST)))
    }
}
