//! Which dated version a request is answered in.

use std::sync::Arc;

use axum::RequestExt;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequestParts, RawPathParams, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use cloister_management_api::{ApiVersion, VERSION_HEADER};

use super::error::{ApiError, ApiResult};
use super::{Api, access, deprecation};
use crate::store::Caller;

/// The version that a request is answered in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Version(pub(crate) ApiVersion);

/// Chooses the version and names it in the answer.
pub(crate) async fn negotiate(
    State(api): State<Api>,
    mut request: Request,
    next: Next,
) -> ApiResult<Response> {
    // What is no text names nothing.
    let parameters = request.extract_parts::<RawPathParams>().await;
    if matches!(parameters, Err(RawPathParamsRejection::InvalidUtf8InPathParam(_))) {
        return Err(ApiError::of_status(StatusCode::NOT_FOUND));
    }
    let header = request.headers().get(VERSION_HEADER).map(|value| value.to_str().unwrap_or_default());
    let caller = request.extensions().get::<Arc<Caller>>();
    let of_key = caller.map(|caller| caller.default_version.as_str());
    let is_chosen = header.is_some() || of_key.is_some();
    let version = ApiVersion::of_request(header, of_key)
        .map_err(|error| ApiError::plain(StatusCode::BAD_REQUEST, error.to_string()))?;
    request.extensions_mut().insert(Version(version));
    let operation = access::operation(&request);
    let mut response = next.run(request).await;
    let name = HeaderName::from_static(VERSION_HEADER);
    response.headers_mut().insert(name, HeaderValue::from_static(version.as_str()));
    deprecation::tell(&api, &mut response, operation, is_chosen.then_some(version));
    Ok(response)
}

impl<S: Send + Sync> FromRequestParts<S> for Version {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> ApiResult<Self> {
        Ok(parts.extensions.get().copied().unwrap_or(Self(ApiVersion::OLDEST)))
    }
}
