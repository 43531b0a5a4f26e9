//! Who asks. Everything but the public operations passes here before anything else is looked at.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use cloister_management_api::KeyScope;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::error::{ApiError, ApiResult};
use super::{Api, access};
use crate::store::Caller;

const API_KEY_HEADER: &str = "x-api-key";
const WORKSPACE_HEADER: &str = "x-workspace-id";
const KEY_PREFIX: &str = "phak_";
const MAX_KEY_BYTES: usize = 200;
/// A key's last use is known to this.
const USE_RESOLUTION_MS: i64 = 60_000;
const SHOWN_KEY_CHARS: usize = 12;
/// Most keys whose last use is remembered before those that were used longer ago are forgotten.
const MAX_REMEMBERED_KEYS: usize = 10_000;

/// The credential of a request: `X-API-Key`, else a bearer token. An empty header is none.
pub(crate) fn credential(headers: &HeaderMap) -> Option<&str> {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let bearer = || {
        let (scheme, token) = header(AUTHORIZATION.as_str())?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    };
    header(API_KEY_HEADER).filter(|key| !key.is_empty()).or_else(bearer).filter(|key| !key.is_empty())
}

/// How a key is stored. Keys are random, so a plain hash suffices, and looking the hash up tells an
/// attacker who measures time nothing about any key.
pub(crate) fn hash_key(key: &str) -> String {
    hex::encode(Sha256::digest(key))
}

/// A new key and the part of it that may be shown.
pub(crate) fn new_key(secret: [u8; 32]) -> (String, String) {
    let key = format!("{KEY_PREFIX}{}", hex::encode(secret));
    let shown = key.chars().take(SHOWN_KEY_CHARS).collect();
    (key, shown)
}

/// Layer of the operations that need a credential.
pub(crate) async fn authenticate(
    State(api): State<Api>,
    mut request: Request,
    next: Next,
) -> ApiResult<Response> {
    let caller = caller(&api, request.headers()).await?;
    let left = match api.key_rates.take(&caller.api_key_id) {
        Ok(left) => left,
        Err(left) => return Ok(left.refusal()),
    };
    let mut response = match access::check(&request, &caller) {
        Ok(()) => {
            request.extensions_mut().insert(Arc::clone(&caller));
            access::recorded(&api, request, &caller, next).await
        }
        Err(error) => error.into_response(),
    };
    if let Some(left) = left {
        left.tell(&mut response);
    }
    Ok(response)
}

/// Who asks a public operation that tells members more; nobody, when no credential was sent or it is that of a key that
/// may not look at anything.
pub(crate) async fn optional_caller(api: &Api, headers: &HeaderMap) -> ApiResult<Option<Arc<Caller>>> {
    match credential(headers) {
        Some(_) => {
            let caller = caller(api, headers).await?;
            Ok(Some(caller).filter(|caller| caller.scope.includes(KeyScope::Read)))
        }
        None => Ok(None),
    }
}

async fn caller(api: &Api, headers: &HeaderMap) -> ApiResult<Arc<Caller>> {
    let key = credential(headers)
        .ok_or_else(|| ApiError::unauthorised("Authentication required: send X-API-Key or a bearer token"))?;
    let invalid = || ApiError::unauthorised("Invalid, expired or revoked API key");
    if key.len() > MAX_KEY_BYTES || !key.starts_with(KEY_PREFIX) {
        return Err(invalid());
    }
    let now_ms = api.clock.now_ms();
    let caller = api.store.caller(&hash_key(key), now_ms).await?.ok_or_else(invalid)?;
    api.key_uses.note(api, caller.api_key_id, now_ms);
    match headers.get(WORKSPACE_HEADER).map(HeaderValue::as_bytes) {
        Some(slug) if !slug.is_empty() && slug != caller.workspace_slug.as_bytes() => {
            Err(ApiError::forbidden("This key is bound to another workspace"))
        }
        _ => Ok(Arc::new(caller)),
    }
}

/// The authenticated caller.
pub(crate) struct Auth(pub(crate) Arc<Caller>);

/// Proof that the caller is an administrator of the installation.
pub(crate) struct Admin;

impl<S: Send + Sync> FromRequestParts<S> for Auth {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> ApiResult<Self> {
        let caller = parts.extensions.get::<Arc<Caller>>().cloned();
        caller.map(Self).ok_or_else(|| ApiError::unauthorised("Authentication required"))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Admin {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> ApiResult<Self> {
        let Auth(caller) = Auth::from_request_parts(parts, state).await?;
        if caller.is_admin() {
            Ok(Self)
        } else {
            Err(ApiError::forbidden("Only administrators of this installation may do that"))
        }
    }
}

/// When keys were used last, so that a busy key does not write to the database with every request.
#[derive(Default)]
pub(crate) struct KeyUses(Mutex<HashMap<i64, i64>>);

impl KeyUses {
    pub(crate) fn note(&self, api: &Api, key: i64, now_ms: i64) {
        {
            let mut written = self.0.lock();
            if written.get(&key).is_some_and(|at_ms| now_ms - at_ms < USE_RESOLUTION_MS) {
                return;
            }
            if written.len() >= MAX_REMEMBERED_KEYS {
                written.retain(|_, at_ms| now_ms - *at_ms < USE_RESOLUTION_MS);
            }
            written.insert(key, now_ms);
        }
        let api = api.clone();
        tokio::spawn(async move {
            let written = async {
                let mut change = api.store.upkeep().await?;
                change.touch_api_keys(&[(key, now_ms)]).await?;
                change.commit().await
            };
            if let Err(error) = written.await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the last use of a key is not noted"
                );
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn both_ways_to_send_a_key() {
        for (pairs, key) in [
            (vec![("x-api-key", "phak_1")], Some("phak_1")),
            (vec![("authorization", "Bearer phak_1")], Some("phak_1")),
            (vec![("authorization", "bearer  phak_1 ")], Some("phak_1")),
            (vec![("x-api-key", "phak_1"), ("authorization", "Bearer phak_2")], Some("phak_1")),
            (vec![("x-api-key", ""), ("authorization", "Bearer phak_2")], Some("phak_2")),
            (vec![("authorization", "Basic phak_1")], None),
            (vec![("authorization", "Bearer ")], None),
            (vec![("authorization", "phak_1")], None),
            (vec![], None),
        ] {
            assert_eq!(credential(&headers(&pairs)), key, "{pairs:?}");
        }
    }

    #[test]
    fn a_key_is_shown_only_by_its_beginning() {
        let (key, shown) = new_key([0xab; 32]);
        assert!(key.starts_with(&shown) && shown.len() == SHOWN_KEY_CHARS && key.len() == 69);
        assert_eq!(hash_key("phak_1").len(), 64);
    }
}
