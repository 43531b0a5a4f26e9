//! `/internal/inference`: the hooks of an inference gateway. It asks before each request (`consult/pre`), tells after
//! each attempt (`consult/post`), and in between, of what takes long, that it is under way (`consult/keep`). Not part of
//! the described interface; gateways present the control token. Without one there is nothing here.

mod keep;
mod post;
mod pre;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use rust_decimal::Decimal;
use serde::de::DeserializeOwned;
use serde::{Deserialize as _, Deserializer};
use serde_json::Value;

use super::Api;
use super::error::{ApiError, ApiResult};

const BASE: &str = "/internal/inference";
/// Largest body: a gateway passes on what clients send as `provider`.
const MAX_BYTES: usize = 256 * 1024;
/// Longest name of a request, a model, a route or an endpoint, in bytes.
const MAX_NAME: usize = 512;
/// Highest cost of an attempt.
const MAX_COST: Decimal = Decimal::from_parts(1_000_000, 0, 0, false, 0);
/// Digits after the point that are kept of a cost.
const MAX_DECIMALS: u32 = 18;

/// The hooks, if gateways are served.
pub(super) fn router(api: &Api) -> Router<Api> {
    if api.inference.is_none() {
        return Router::new();
    }
    Router::new()
        .route(&format!("{BASE}/consult/pre"), axum::routing::post(pre::consult))
        .route(&format!("{BASE}/consult/post"), axum::routing::post(post::record))
        .route(&format!("{BASE}/consult/keep"), axum::routing::post(keep::keep))
        .layer(DefaultBodyLimit::max(MAX_BYTES))
        .route_layer(from_fn_with_state(api.clone(), authenticate))
}

/// Layer: lets nobody in but gateways.
async fn authenticate(State(api): State<Api>, request: Request, next: Next) -> ApiResult<Response> {
    let is_gateway = bearer(request.headers())
        .is_some_and(|token| api.inference.as_ref().is_some_and(|inference| inference.token.is(token)));
    if is_gateway {
        return Ok(next.run(request).await);
    }
    Err(ApiError::unauthorised("Authentication required: send the control token as a bearer token"))
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Reads a body. Members that are not known are those of a newer gateway.
fn read<T: DeserializeOwned>(body: &[u8]) -> ApiResult<T> {
    serde_json::from_slice(body)
        .map_err(|error| ApiError::fault(&["body"], "json_invalid", format!("JSON decode error: {error}")))
}

/// Whether a text names something: 1 to 512 bytes of printable characters.
fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && !name.contains(char::is_control)
}

fn fault<T>(member: &str, text: &str) -> ApiResult<T> {
    Err(ApiError::fault(&["body", member], "value_error", text))
}

/// A name that may be absent.
fn check_name(member: &str, name: Option<&str>) -> ApiResult<()> {
    if name.is_none_or(is_name) {
        return Ok(());
    }
    fault(member, "Input should be 1 to 512 bytes of printable characters")
}

/// A decimal text or a JSON number.
fn decimal<'de, D: Deserializer<'de>>(from: D) -> Result<Decimal, D::Error> {
    let text = match Value::deserialize(from)? {
        Value::Null => return Ok(Decimal::ZERO),
        Value::String(text) => text,
        // The shortest text that is this number is the one that was written.
        Value::Number(number) => number.to_string(),
        _ => return Err(serde::de::Error::custom("a cost is a decimal text or a number")),
    };
    Decimal::from_str_exact(&text)
        .or_else(|_| Decimal::from_scientific(&text))
        .map_err(|_| serde::de::Error::custom("a cost is a decimal text or a number"))
}
