//! What every response has: the headers of the protocol and of CORS, errors in the format of its surface.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt as _;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, CONTENT_TYPE, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::errors;
use crate::error::{GatewayError, Kind};
use crate::gateway::Gateway;
use crate::ids;
use crate::observe::{Line, RequestSpan};
use crate::proof::Identity;
use crate::surface::Surface;

const ACI_VERSION: HeaderName = HeaderName::from_static("x-aci-version");
const KEYSET_DIGEST: HeaderName = HeaderName::from_static("x-aci-keyset-digest");
const IDENTITY: HeaderName = HeaderName::from_static("x-aci-identity");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Headers with fixed values.
const FIXED: [(HeaderName, HeaderValue); 4] = [
    (ACI_VERSION, HeaderValue::from_static("aci/1")),
    (ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*")),
    (ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("*")),
    (VARY, HeaderValue::from_static("origin, access-control-request-method, access-control-request-headers")),
];

/// Those of an answer to a browser that asks what it may do. `*` does not stand for `Authorization`.
const PREFLIGHT: [(HeaderName, HeaderValue); 3] = [
    (ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, PUT, OPTIONS")),
    (ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("*, authorization")),
    (ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("3600")),
];

/// Answers preflights, and completes what everything else answers.
pub(super) async fn every_response(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
    next: Next,
) -> Response {
    let endpoint = request.extensions().get::<MatchedPath>().cloned();
    let endpoint = endpoint.as_ref().map(MatchedPath::as_str);
    completed(&gateway, endpoint, request, |request, _, _| next.run(request)).await
}

/// The same for one endpoint, if it is any, which `answer` knows; it is given the id of the request, and its span.
pub(super) async fn completed<F: Future<Output = Response>>(
    gateway: &Arc<Gateway>,
    endpoint: Option<&str>,
    request: Request,
    answer: impl FnOnce(Request, String, Option<RequestSpan>) -> F,
) -> Response {
    let id = request_id();
    let is_messages = speaks_messages(request.uri().path());
    let line = Line::begin(gateway, &request, endpoint, &id);
    let mut response = if request.method() == Method::OPTIONS {
        let mut response = Response::default();
        response.headers_mut().extend(PREFLIGHT.map(|(name, value)| (Some(name), value)));
        response
    } else {
        let answering = pin!(answer(request, id.clone(), line.span()));
        let answered = AssertUnwindSafe(answering).catch_unwind().await;
        let response = answered.unwrap_or_else(|_| {
            tracing::error!(request_id = id, "a request made the gateway panic");
            GatewayError::new(Kind::Internal, "The gateway failed").into_response()
        });
        in_format(response, is_messages, &id)
    };
    complete(response.headers_mut(), &gateway.notary.identity(), &id);
    line.follow(response)
}

/// Gives a failure the format of its surface.
fn in_format(mut response: Response, is_messages: bool, id: &str) -> Response {
    if let Some(error) = response.extensions_mut().remove::<GatewayError>() {
        if !is_messages {
            return response;
        }
        let mut shaped = errors::refused(&error, errors::refusal(&error, Surface::Messages, id));
        for (name, value) in response.headers() {
            if !shaped.headers().contains_key(name) && *name != http::header::CONTENT_LENGTH {
                shaped.headers_mut().append(name, value.clone());
            }
        }
        return shaped;
    }
    let status = response.status();
    let is_ours = response.headers().contains_key(CONTENT_TYPE)
        && response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|value| !value.as_bytes().starts_with(b"text/plain"));
    if (status.is_client_error() || status.is_server_error()) && !is_ours {
        // A library's own words, or none.
        return in_format(errors::of_status(status).into_response(), is_messages, id);
    }
    response
}

/// Adds the headers of every response.
fn complete(headers: &mut HeaderMap, identity: &Identity, id: &str) {
    for (name, value) in FIXED {
        headers.insert(name, value);
    }
    name_keyset(headers, identity);
    if let Ok(value) = HeaderValue::from_str(id) {
        headers.entry(REQUEST_ID).or_insert(value);
    }
}

/// Names the keyset that serves. One that is named already stays: its keys sign the receipt, whichever serves by now.
pub(crate) fn name_keyset(headers: &mut HeaderMap, identity: &Identity) {
    for name in [KEYSET_DIGEST, IDENTITY] {
        headers.entry(name).or_insert_with(|| identity.digest_header.clone());
    }
}

fn speaks_messages(path: &str) -> bool {
    path.strip_prefix(Surface::Messages.path()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// By a generator that the kernel seeds, again and again: a call of the kernel for each costs more than all else here. It panics
/// where the kernel has no randomness, which no Linux lacks that has started.
fn request_id() -> String {
    ["req_", &ids::of(rand::random::<[u8; 16]>())].concat()
}
