//! The outermost layer: gives every request an id, every failure its body, every answer its line in the
//! access log and its place in the figures.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use tokio::time::Instant;
use tracing::Instrument;

use super::Api;
use super::error::ApiError;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const MAX_REQUEST_ID_BYTES: usize = 128;

/// The id of a request, for whoever writes it down.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) Arc<str>);

/// Lets a request through.
pub(crate) async fn guard(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let request_id = request_id(&api, &request);
    // The route, never the path and query: those may carry signatures and names.
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| "unmatched".to_owned(), |path| path.as_str().to_owned());
    let method = request.method().clone();
    request.extensions_mut().insert(RequestId(request_id.as_str().into()));
    let span = tracing::info_span!("request", %request_id);
    let response = next.run(request).instrument(span.clone()).await;

    let mut response = written(&api, response, &request_id);
    if let Ok(value) = HeaderValue::from_str(&request_id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    let (status, elapsed) = (response.status().as_u16(), started.elapsed());
    api.metrics.count(&method, &route, status, elapsed);
    let duration_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    span.in_scope(|| tracing::info!(%method, route, status, duration_ms, "answered"));
    response
}

/// Marks a failure whose body was written.
#[derive(Debug, Clone, Copy)]
struct Written;

/// Gives a failure its body, once.
pub(crate) fn written(api: &Api, response: Response, request_id: &str) -> Response {
    let extensions = response.extensions();
    let (error, headers) = match extensions.get::<ApiError>().cloned() {
        _ if extensions.get::<Written>().is_some() => return response,
        Some(error) => (error, response.headers().clone()),
        None if response.status().is_client_error() || response.status().is_server_error() => {
            (ApiError::of_status(response.status()), kept_headers(&response))
        }
        None => return response,
    };
    let mut response = error.render(headers, request_id, &api.public_url);
    response.extensions_mut().insert(Written);
    response
}

/// A failure of before, with its body.
pub(crate) fn keep_body(response: &mut Response) {
    response.extensions_mut().insert(Written);
}

/// A library's failure keeps what describes the resource, not what described its body.
fn kept_headers(response: &Response) -> axum::http::HeaderMap {
    let mut headers = response.headers().clone();
    headers.remove(axum::http::header::CONTENT_LENGTH);
    headers
}

/// The caller's own id if it is harmless in logs and headers, else a new one.
fn request_id(api: &Api, request: &Request) -> String {
    let harmless = |id: &&str| {
        (1..=MAX_REQUEST_ID_BYTES).contains(&id.len())
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    let sent = request.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(harmless);
    sent.map_or_else(|| api.random.uuid().unwrap_or_default().to_string(), str::to_owned)
}
