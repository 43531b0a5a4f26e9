//! Responses: statuses, headers and bodies as the interface has them.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::exchange::Exchange;
use crate::door::{name_keyset, refusal, refused};
use crate::error::GatewayError;
use crate::observe::About;
use crate::surface::Surface;

const RECEIPT_ID: HeaderName = HeaderName::from_static("x-receipt-id");
const E2EE_APPLIED: HeaderName = HeaderName::from_static("x-e2ee-applied");
/// Room for those of an answer to a key without limits.
const USUAL_HEADERS: usize = 12;
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");

/// A whole answer.
pub(super) fn whole(exchange: &Exchange, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.headers_mut() = HeaderMap::with_capacity(USUAL_HEADERS);
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    with_headers(response, exchange)
}

/// A stream.
pub(super) fn stream(exchange: &Exchange, body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, EVENT_STREAM);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    with_headers(response, exchange)
}

/// An error that has a receipt.
pub(super) fn recorded_error(exchange: &Exchange, error: &GatewayError, body: Bytes) -> Response {
    let limits = exchange.asked.admission.left.headers(0);
    let mut response = with_headers(refused(error, body), exchange);
    // What the key's own limits say is of no use beside another limit's word.
    if response.status() == StatusCode::TOO_MANY_REQUESTS {
        for (name, _) in limits {
            response.headers_mut().remove(name);
        }
    }
    response
}

/// An error of a request that was not admitted.
#[must_use]
pub fn denial(
    surface: Surface,
    request_id: &str,
    error: &GatewayError,
    e2ee_headers: &[(&'static str, String)],
) -> Response {
    let mut response = refused(error, refusal(error, surface, request_id));
    add_e2ee(response.headers_mut(), e2ee_headers);
    response
}

fn with_headers(mut response: Response, exchange: &Exchange) -> Response {
    let headers = response.headers_mut();
    add(headers, RECEIPT_ID, &exchange.receipt_id);
    name_keyset(headers, &exchange.identity);
    add_e2ee(headers, &exchange.e2ee_headers);
    headers.extend(exchange.asked.admission.left.headers(crate::gateway::unix_now()));
    let (key, model) = (exchange.asked.admission.virtual_key_id.clone(), exchange.asked.shaped.model.clone());
    response.extensions_mut().insert(About { key, model: Some(model) });
    response
}

fn add_e2ee(headers: &mut HeaderMap, e2ee_headers: &[(&'static str, String)]) {
    headers.insert(
        E2EE_APPLIED,
        HeaderValue::from_static(if e2ee_headers.is_empty() { "false" } else { "true" }),
    );
    for (name, value) in e2ee_headers {
        add(headers, HeaderName::from_static(name), value);
    }
}

fn add(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}
