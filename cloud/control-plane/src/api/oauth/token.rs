//! `POST /token`: codes and refresh tokens become keys (RFC 6749 sections 4.1.3, 5 and 6).

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CACHE_CONTROL;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use cloister_management_api::{ApiVersion, KeyScope, OauthError, OauthToken, OauthTokenRequest};
use sha2::{Digest, Sha256};

use crate::api::Api;
use crate::api::auth::{hash_key, new_key};
use crate::api::error::{ApiError, ApiResult};
use crate::api::guard::{RequestId, keep_body};
use crate::api::input::FormOrBody;
use crate::audit::{self, Named, Scope};
use crate::store::{Change, NewApiKey, OauthCodeRow, OauthKeyRow};

/// Seconds that a key works before it has to be renewed.
const ACCESS_S: u32 = 60 * 60;
/// How long it can be renewed.
const REFRESH_MS: i64 = 30 * 24 * 60 * 60 * 1000;
const REFRESH_PREFIX: &str = "phrt_";
/// Longest code, verifier or token that is looked at.
const MAX_SECRET: usize = 200;
/// A verifier has so many characters (RFC 7636 section 4.1).
const VERIFIER_CHARS: std::ops::RangeInclusive<usize> = 43..=128;

/// Why there is no token (RFC 6749 section 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused(&'static str, &'static str);

/// It says as little as possible: whoever presents something stolen learns nothing from it.
const INVALID_GRANT: Refused = Refused(
    "invalid_grant",
    "The code or refresh token is unknown, was used, has expired, or belongs to another application; log in again",
);

impl Refused {
    /// The body is not what it should be.
    pub(super) const fn request(words: &'static str) -> Self {
        Self("invalid_request", words)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let Self(error, words) = self;
        let body = Json(OauthError { error: error.to_owned(), error_description: words.to_owned() });
        let mut response = (StatusCode::BAD_REQUEST, [(CACHE_CONTROL, "no-store")], body).into_response();
        keep_body(&mut response);
        response
    }
}

/// Get an access token
///
/// For a code of `/oauth/authorize` with `grant_type=authorization_code`, or a refresh token with
/// `grant_type=refresh_token`. The access token is an API key that works for an hour. A refresh token works once: the
/// answer has the next one, and what is used twice ends the key.
#[utoipa::path(
    post, path = "/token", tag = "Account", operation_id = "get_oauth_token",
    request_body(content((OauthTokenRequest = "application/x-www-form-urlencoded"), (OauthTokenRequest = "application/json"))),
    security(()),
    responses(
        (status = 200, description = "The tokens", body = OauthToken),
        (status = 400, description = "Why there are none", body = OauthError),
    ),
)]
pub(crate) async fn token(
    State(api): State<Api>,
    Extension(RequestId(request_id)): Extension<RequestId>,
    request: Result<FormOrBody<OauthTokenRequest>, ApiError>,
) -> ApiResult<Response> {
    let request = match request {
        Ok(FormOrBody(request)) => request,
        Err(error) if error.status() == StatusCode::UNPROCESSABLE_ENTITY => {
            return Ok(Refused::request("grant_type and client_id are needed, each once").into_response());
        }
        Err(error) => return Err(error),
    };
    let issued = match request.grant_type.as_str() {
        "authorization_code" => exchange(&api, &request, &request_id).await?,
        "refresh_token" => refresh(&api, &request, &request_id).await?,
        _ => {
            Err(Refused("unsupported_grant_type", "grant_type has to be authorization_code or refresh_token"))
        }
    };
    Ok(match issued {
        Ok(token) => ([(CACHE_CONTROL, "no-store")], Json(token)).into_response(),
        Err(refused) => refused.into_response(),
    })
}

/// Whether a verifier is the one of a challenge (RFC 7636 section 4.6).
fn is_verifier(verifier: &str, challenge: &str) -> bool {
    VERIFIER_CHARS.contains(&verifier.len())
        && BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(verifier)) == challenge
}

fn short(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| text.len() <= MAX_SECRET)
}

/// What is recorded as done by whose application it is, in the workspace where it acts.
fn scope(api: &Api, key: (&str, i64, i64), operation: &'static str, request_id: &Arc<str>) -> Scope {
    let (username, user_id, workspace_id) = key;
    let named = Named { kind: "api_key", id: String::new() };
    Scope::new(audit::person(username, user_id), operation, named, api.clock.clone())
        .of_request(Some(request_id.to_string()))
        .in_chain(workspace_id)
}

fn scope_of(api: &Api, key: &OauthKeyRow, operation: &'static str, id: &Arc<str>) -> Scope {
    scope(api, (&key.username, key.user_id, key.workspace_id), operation, id)
}

async fn exchange(
    api: &Api,
    request: &OauthTokenRequest,
    request_id: &Arc<str>,
) -> ApiResult<Result<OauthToken, Refused>> {
    let (Some(code), Some(verifier)) = (short(request.code.as_ref()), short(request.code_verifier.as_ref()))
    else {
        return Ok(Err(Refused::request("code and code_verifier are needed")));
    };
    let code_hash = hash_key(code);
    // Without taking the write lock: anybody may ask.
    if !api.store.has_oauth_code(&code_hash).await? {
        return Ok(Err(INVALID_GRANT));
    }
    let now_ms = api.clock.now_ms();
    let mut change = api.store.upkeep().await?;
    let row = change.present_oauth_code(&code_hash).await?;
    change.commit().await?;
    let Some(row) = row else { return Ok(Err(INVALID_GRANT)) };
    if row.uses > 1 {
        if let Some(id) = row.api_key_id {
            end(api, id, request_id).await?;
        }
        return Ok(Err(INVALID_GRANT));
    }
    let is_right = row.expires_at_ms > now_ms
        && row.client_id == request.client_id
        && request.redirect_uri.as_deref() == Some(row.redirect_uri.as_str())
        && is_verifier(verifier, &row.challenge);
    let client = api.oauth_clients.iter().find(|client| client.id == row.client_id);
    let user = api.store.user(row.user_id).await?;
    let (true, Some(client), Some(user)) = (is_right, client, user) else { return Ok(Err(INVALID_GRANT)) };
    let work = issue(api, &row, &code_hash, &client.name, now_ms);
    let whose = (user.username.as_str(), row.user_id, row.workspace_id);
    let issued = audit::within(scope(api, whose, "get_oauth_token", request_id), work).await?;
    Ok(issued.ok_or(INVALID_GRANT))
}

/// Makes the key that a code is for; nothing, if the code was presented again, or taken back, meanwhile.
async fn issue(
    api: &Api,
    row: &OauthCodeRow,
    code_hash: &str,
    name: &str,
    now_ms: i64,
) -> ApiResult<Option<OauthToken>> {
    let (key, shown) = new_key(api.random.bytes()?);
    let new = NewApiKey {
        user_id: row.user_id,
        workspace_id: row.workspace_id,
        name: name.to_owned(),
        key_hash: hash_key(&key),
        key_prefix: shown,
        scope: row.scope,
        default_version: ApiVersion::V20260121.as_str().to_owned(),
        expires_at_ms: Some(now_ms + i64::from(ACCESS_S) * 1000),
    };
    let mut change = api.store.change().await?;
    let id = change.insert_oauth_key(&new, &row.client_id, now_ms).await?;
    if !change.exchanged_oauth_code(code_hash, id).await? {
        return Ok(None);
    }
    let refresh_token = insert_refresh_token(api, &mut change, id, now_ms).await?;
    change.commit().await?;
    Ok(Some(answer(key, refresh_token, row.scope)))
}

async fn insert_refresh_token(api: &Api, change: &mut Change, key_id: i64, now_ms: i64) -> ApiResult<String> {
    let token = format!("{REFRESH_PREFIX}{}", hex::encode(api.random.bytes::<32>()?));
    change.insert_refresh_token(&hash_key(&token), key_id, now_ms + REFRESH_MS).await?;
    Ok(token)
}

fn answer(access_token: String, refresh_token: String, scope: KeyScope) -> OauthToken {
    OauthToken { access_token, token_type: "Bearer".to_owned(), expires_in: ACCESS_S, refresh_token, scope }
}

async fn refresh(
    api: &Api,
    request: &OauthTokenRequest,
    request_id: &Arc<str>,
) -> ApiResult<Result<OauthToken, Refused>> {
    let Some(token) = short(request.refresh_token.as_ref()) else {
        return Ok(Err(Refused::request("refresh_token is needed")));
    };
    let (hash, now_ms) = (hash_key(token), api.clock.now_ms());
    let Some(key) = api.store.oauth_key_of_token(&hash).await? else { return Ok(Err(INVALID_GRANT)) };
    if key.oauth_client != request.client_id {
        return Ok(Err(INVALID_GRANT));
    }
    // What was allowed stays allowed to the next refresh token (RFC 6749 section 6).
    let scope = match request.scope.as_deref().map(str::parse::<KeyScope>) {
        None => key.oauth_scope,
        Some(Ok(wanted)) if key.oauth_scope.includes(wanted) => wanted,
        Some(_) => return Ok(Err(Refused("invalid_scope", "scope is unknown, or more than was allowed"))),
    };
    let mut change = api.store.upkeep().await?;
    let row = change.present_refresh_token(&hash).await?;
    change.commit().await?;
    // It may have been the access token.
    let Some(row) = row else { return Ok(Err(INVALID_GRANT)) };
    if row.uses > 1 {
        // Somebody has what was used already: whoever it is, both lose it.
        end(api, key.id, request_id).await?;
        return Ok(Err(INVALID_GRANT));
    }
    if row.expires_at_ms <= now_ms {
        return Ok(Err(INVALID_GRANT));
    }
    let work = renew(api, &key, scope, now_ms);
    let renewed = audit::within(scope_of(api, &key, "get_oauth_token", request_id), work).await?;
    Ok(renewed.ok_or(INVALID_GRANT))
}

/// Gives the key of an application another secret; nothing, if it was ended meanwhile.
async fn renew(api: &Api, key: &OauthKeyRow, scope: KeyScope, now_ms: i64) -> ApiResult<Option<OauthToken>> {
    let (new, shown) = new_key(api.random.bytes()?);
    let until_ms = now_ms + i64::from(ACCESS_S) * 1000;
    let mut change = api.store.change().await?;
    if !change.renew_oauth_key(key.id, (&hash_key(&new), &shown), scope, until_ms).await? {
        return Ok(None);
    }
    let next = insert_refresh_token(api, &mut change, key.id, now_ms).await?;
    change.commit().await?;
    Ok(Some(answer(new, next, scope)))
}

/// Ends the key of an application.
pub(super) async fn end(api: &Api, key_id: i64, request_id: &Arc<str>) -> ApiResult<()> {
    let Some(key) = api.store.oauth_key(key_id).await? else { return Ok(()) };
    let work = async {
        let mut change = api.store.change().await?;
        change.revoke_api_key(key.workspace_id, key.id, api.clock.now_ms()).await?;
        change.commit().await
    };
    audit::within(scope_of(api, &key, "revoke_oauth_token", request_id), work).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::is_verifier;

    /// RFC 7636 appendix B.
    #[test]
    fn a_verifier_is_known_by_its_hash() {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        let challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
        assert!(is_verifier(verifier, challenge));
        assert!(!is_verifier(challenge, challenge));
        assert!(!is_verifier(&verifier[..42], challenge));
    }
}
