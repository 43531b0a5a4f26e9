//! Reading requests: bodies and queries through [`Decode`], with every fault at its place.

use axum::RequestExt;
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use cloister_app_compose::decode::{self, Decode, Source};
use serde_json::{Map, Value};
use url::form_urlencoded;

use super::error::ApiError;

/// Most parameters of a query.
const MAX_PARAMETERS: usize = 200;

/// A required JSON body. The content type is not looked at: clients send it without a body and the other
/// way round.
pub(crate) struct Body<T>(pub(crate) T);

/// A JSON body that may be left out, empty or null.
pub(crate) struct OptionalBody<T>(pub(crate) Option<T>);

/// A required body, as JSON or as a form, for interfaces of OAuth.
pub(crate) struct FormOrBody<T>(pub(crate) T);

/// The query string.
pub(crate) struct Query<T>(pub(crate) T);

async fn document(request: Request) -> Result<Value, ApiError> {
    let bytes: Bytes =
        request.extract().await.map_err(|_| ApiError::of_status(StatusCode::PAYLOAD_TOO_LARGE))?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&bytes).map_err(|error| {
        let column = error.column().to_string();
        ApiError::fault(&["body", &column], "json_invalid", format!("JSON decode error: {error}"))
    })
}

impl<T: Decode, S: Send + Sync> FromRequest<S> for OptionalBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _state: &S) -> Result<Self, ApiError> {
        match document(request).await? {
            Value::Null => Ok(Self(None)),
            value => {
                let body = decode::decode(&value, Source::Json, &["body"]).map_err(ApiError::faults)?;
                Ok(Self(Some(body)))
            }
        }
    }
}

impl<T: Decode, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        match OptionalBody::from_request(request, state).await? {
            OptionalBody(Some(body)) => Ok(Self(body)),
            OptionalBody(None) => Err(ApiError::fault(&["body"], "missing", "Field required")),
        }
    }
}

/// The media type of a form without files.
const FORM: &str = "application/x-www-form-urlencoded";

impl<T: Decode, S: Send + Sync> FromRequest<S> for FormOrBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type = content_type.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
        if !media_type.eq_ignore_ascii_case(FORM) {
            return Body::from_request(request, state).await.map(|Body(body)| Self(body));
        }
        let bytes: Bytes =
            request.extract().await.map_err(|_| ApiError::of_status(StatusCode::PAYLOAD_TOO_LARGE))?;
        let value = Value::Object(parameters(&bytes));
        decode::decode(&value, Source::Query, &["body"]).map(Self).map_err(ApiError::faults)
    }
}

impl<T: Decode, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let value = Value::Object(parameters(parts.uri.query().unwrap_or_default().as_bytes()));
        decode::decode(&value, Source::Query, &["query"]).map(Self).map_err(ApiError::faults)
    }
}

/// Repeated parameters become a list.
fn parameters(query: &[u8]) -> Map<String, Value> {
    let mut map = Map::new();
    for (name, value) in form_urlencoded::parse(query).take(MAX_PARAMETERS) {
        let value = Value::String(value.into_owned());
        match map.get_mut(name.as_ref()) {
            None => {
                map.insert(name.into_owned(), value);
            }
            Some(Value::Array(values)) => values.push(value),
            Some(first) => *first = Value::Array(vec![first.take(), value]),
        }
    }
    map
}

/// An integer of a query within bounds.
pub(crate) fn within(
    name: &str,
    value: Option<i64>,
    default: u32,
    bounds: std::ops::RangeInclusive<u32>,
) -> Result<u32, ApiError> {
    let Some(value) = value else { return Ok(default) };
    u32::try_from(value).ok().filter(|value| bounds.contains(value)).ok_or_else(|| {
        let (kind, bound) = if value < i64::from(*bounds.start()) {
            ("greater_than_equal", format!("greater than or equal to {}", bounds.start()))
        } else {
            ("less_than_equal", format!("less than or equal to {}", bounds.end()))
        };
        ApiError::fault(&["query", name], kind, format!("Input should be {bound}"))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn repeated_parameters_become_lists() {
        let map = parameters(b"a=1&b=x%20y&a=2&a=3&c");
        assert_eq!(Value::Object(map), json!({"a": ["1", "2", "3"], "b": "x y", "c": ""}));
    }

    #[test]
    fn bounds_are_inclusive() {
        assert_eq!(within("limit", None, 50, 1..=500).unwrap(), 50);
        assert_eq!(within("limit", Some(500), 50, 1..=500).unwrap(), 500);
        for outside in [0, 501, -1, i64::MAX] {
            assert!(within("limit", Some(outside), 50, 1..=500).is_err());
        }
    }

    proptest! {
        #[test]
        fn no_query_panics(query in "[ -~]{0,100}") {
            parameters(query.as_bytes());
        }
    }
}
