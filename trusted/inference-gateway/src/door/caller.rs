//! Who asks.

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName};

use crate::admission::KeyHash;
use crate::error::{GatewayError, Kind};

/// Longest key that is looked at, in bytes.
const MAX_KEY_BYTES: usize = 512;
/// Where clients of the Messages surface put their key.
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The key of `Authorization: Bearer`, if the header stands there once and has one.
#[must_use]
pub fn key_of(headers: &HeaderMap) -> Option<KeyHash> {
    let (scheme, key) = only(headers, &AUTHORIZATION)?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    hash(key.trim_matches(' '))
}

/// The same; without an `Authorization`, the key of `x-api-key`.
pub(super) fn key_of_messages(headers: &HeaderMap) -> Option<KeyHash> {
    if headers.contains_key(AUTHORIZATION) {
        return key_of(headers);
    }
    hash(only(headers, &X_API_KEY)?)
}

/// What is said to callers without a key that is known; the same to all of them.
#[must_use]
pub fn unauthenticated() -> GatewayError {
    GatewayError::new(
        Kind::Authentication,
        "Missing or invalid API key: it is sent as 'Authorization: Bearer <key>'",
    )
}

fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    value.to_str().ok()
}

fn hash(key: &str) -> Option<KeyHash> {
    let is_key = (1..=MAX_KEY_BYTES).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
    is_key.then(|| KeyHash::of(key))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        list.iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn a_key_is_what_follows_bearer() {
        let key = Some(KeyHash::of("sk-1"));
        for value in ["Bearer sk-1", "bearer sk-1", "BEARER  sk-1 "] {
            assert_eq!(key_of(&headers(&[("authorization", value)])), key, "{value}");
        }
        for value in ["", "Bearer", "Bearer ", "sk-1", "Basic sk-1", "Bearer sk 1", "Bearer sk-1\t"] {
            assert_eq!(key_of(&headers(&[("authorization", value)])), None, "{value:?}");
        }
        let mut twice = headers(&[("authorization", "Bearer sk-1")]);
        twice.append(AUTHORIZATION, HeaderValue::from_static("Bearer sk-2"));
        assert_eq!(key_of(&twice), None);
        let long = HeaderValue::from_str(&format!("Bearer {}", "k".repeat(513))).unwrap();
        assert_eq!(key_of(&HeaderMap::from_iter([(AUTHORIZATION, long)])), None);
    }

    #[test]
    fn only_the_messages_surface_reads_x_api_key() {
        let own = headers(&[("x-api-key", "sk-1")]);
        assert_eq!(key_of_messages(&own), Some(KeyHash::of("sk-1")));
        assert_eq!(key_of(&own), None);
        let both = headers(&[("x-api-key", "sk-1"), ("authorization", "Bearer sk-2")]);
        assert_eq!(key_of_messages(&both), Some(KeyHash::of("sk-2")));
        let broken = headers(&[("x-api-key", "sk-1"), ("authorization", "Basic x")]);
        assert_eq!(key_of_messages(&broken), None);
    }
}
