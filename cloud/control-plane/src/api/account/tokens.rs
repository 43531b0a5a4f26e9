//! `GET` and `POST /tokens`, `DELETE /tokens/{token_id}` and `/tokens/self`

use std::num::NonZeroU32;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use cloister_management_api::{
    CreateTokenRequest, ErrorBody, ErrorCode, KeyScope, Parsed, PlainError, Token, TokenId,
};

use crate::api::Api;
use crate::api::auth::{Auth, hash_key, new_key};
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::Body;
use crate::api::negotiate::Version;
use crate::api::oauth::step_up;
use crate::api::rate::Left;
use crate::api::responses::Authenticated;
use crate::api::view::time;
use crate::store::{ApiKeyRow, Caller, NewApiKey};

/// Most keys of a workspace.
const MAX_KEYS: usize = 100;
/// Most keys that a workspace makes in a minute.
pub(crate) const MADE_PER_MINUTE: Option<NonZeroU32> = NonZeroU32::new(10);
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
const MAX_NAME: usize = 100;
const MAX_DAYS: u32 = 365;

/// List API keys
///
/// The keys of the workspace, without their secrets.
#[utoipa::path(
    get, path = "/tokens", tag = "API keys", operation_id = "list_tokens",
    responses((status = 200, description = "The keys", body = Vec<Token>), Authenticated),
)]
pub(crate) async fn list(State(api): State<Api>, Auth(caller): Auth) -> ApiResult<Json<Vec<Token>>> {
    let now_ms = api.clock.now_ms();
    let rows = api.store.api_keys(caller.workspace_id).await?;
    Ok(Json(rows.into_iter().map(|row| wire(row, now_ms)).collect()))
}

/// Create an API key
///
/// The secret is in this answer and never again. The key may do what the key of this request may, or less when `scope`
/// says so; one of scope `inference` asks the inference gateway and does nothing else.
#[utoipa::path(
    post, path = "/tokens", tag = "API keys", operation_id = "create_token",
    request_body(content = CreateTokenRequest, example = json!({"name": "ci", "expires_in_days": 90, "scope": "deploy"})),
    responses(
        (status = 201, description = "The key with its secret", body = Token),
        (status = 400, description = "The workspace has too many keys (ERR-05-001)", body = ErrorBody),
        (status = 403, description = "A scope beyond that of the key of this request", body = PlainError),
        (status = 428, description = "A person's token needs a step-up: `POST /auth/step-up`", body = PlainError),
        (status = 429, description = "Too many keys in a minute (ERR-05-002)", body = ErrorBody),
        Authenticated,
    ),
)]
pub(crate) async fn create(
    State(api): State<Api>,
    Auth(caller): Auth,
    Version(version): Version,
    Body(request): Body<CreateTokenRequest>,
) -> ApiResult<(StatusCode, Json<Token>)> {
    let now_ms = api.clock.now_ms();
    check(&request)?;
    let scope = request.scope.map_or(Ok(caller.scope), |Parsed(wanted)| allowed(&caller, wanted))?;
    step_up::unless_without_second_factor(&api, &caller).await?;
    may_make(&api, caller.workspace_id).await?;
    let (key, shown) = new_key(api.random.bytes()?);
    let new = NewApiKey {
        user_id: caller.user_id,
        workspace_id: caller.workspace_id,
        name: request.name.clone(),
        key_hash: hash_key(&key),
        key_prefix: shown.clone(),
        scope,
        default_version: version.as_str().to_owned(),
        expires_at_ms: request.expires_in_days.map(|days| ends_at_ms(days, now_ms)),
    };
    let mut change = api.store.change().await?;
    let id = change.insert_api_key(&new, now_ms).await?;
    change.commit().await?;
    let row = ApiKeyRow {
        id,
        name: new.name,
        key_prefix: new.key_prefix,
        scope: new.scope,
        default_version: new.default_version,
        created_at_ms: now_ms,
        expires_at_ms: new.expires_at_ms,
        last_used_at_ms: None,
    };
    Ok((StatusCode::CREATED, Json(Token { token: Some(key), ..wire(row, now_ms) })))
}

/// Whether a workspace may make one more key now.
pub(in crate::api) async fn may_make(api: &Api, workspace_id: i64) -> ApiResult<()> {
    if api.store.api_keys(workspace_id).await?.len() >= MAX_KEYS {
        return Err(ApiError::coded(ErrorCode::TooManyKeys));
    }
    let too_soon = |left: Left| ApiError::coded(ErrorCode::KeyCreationRate).retry_after(left.retry_after_s());
    api.key_creations.take(&workspace_id).map(drop).map_err(too_soon)
}

/// What a new key may do: never more than the one that makes it.
pub(super) fn allowed(caller: &Caller, wanted: KeyScope) -> ApiResult<KeyScope> {
    if caller.scope.includes(wanted) {
        return Ok(wanted);
    }
    Err(ApiError::forbidden(&format!(
        "A key of scope '{}' makes no key of scope '{wanted}'; ask for '{}' or less",
        caller.scope, caller.scope
    )))
}

fn check(request: &CreateTokenRequest) -> ApiResult<()> {
    if !(1..=MAX_NAME).contains(&request.name.chars().count()) {
        let message = format!("String should have 1 to {MAX_NAME} characters");
        return Err(ApiError::fault(&["body", "name"], "string_length", message));
    }
    if request.name.contains(char::is_control) {
        return Err(ApiError::fault(
            &["body", "name"],
            "value_error",
            "Input should have no control characters",
        ));
    }
    check_days(request.expires_in_days)
}

pub(super) fn check_days(days: Option<u32>) -> ApiResult<()> {
    match days {
        Some(days) if !(1..=MAX_DAYS).contains(&days) => {
            let message = format!("Input should be from 1 to {MAX_DAYS}");
            Err(ApiError::fault(&["body", "expires_in_days"], "out_of_range", message))
        }
        _ => Ok(()),
    }
}

/// When a key ends that is made or refreshed now.
pub(super) fn ends_at_ms(days: u32, now_ms: i64) -> i64 {
    now_ms + i64::from(days) * DAY_MS
}

/// Delete an API key
///
/// It stops working at once.
#[utoipa::path(
    delete, path = "/tokens/{token_id}", tag = "API keys", operation_id = "delete_token",
    params(("token_id" = TokenId, Path, description = "Id of the key")),
    responses(
        (status = 204, description = "Deleted"),
        (status = 404, description = "The workspace has no such key", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn delete(
    State(api): State<Api>,
    Auth(caller): Auth,
    Path(id): Path<String>,
) -> ApiResult<StatusCode> {
    let missing = || ApiError::not_found("API key");
    let id = id.parse::<TokenId>().map_err(|_| missing())?;
    if revoke(&api, caller.workspace_id, id.0).await? { Ok(StatusCode::NO_CONTENT) } else { Err(missing()) }
}

/// Delete the API key of this request
#[utoipa::path(
    delete, path = "/tokens/self", tag = "API keys", operation_id = "delete_own_token",
    responses((status = 204, description = "Deleted"), Authenticated),
)]
pub(crate) async fn delete_self(State(api): State<Api>, Auth(caller): Auth) -> ApiResult<StatusCode> {
    revoke(&api, caller.workspace_id, caller.api_key_id).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn revoke(api: &Api, workspace_id: i64, id: i64) -> ApiResult<bool> {
    let now_ms = api.clock.now_ms();
    let mut change = api.store.change().await?;
    let revoked = change.revoke_api_key(workspace_id, id, now_ms).await?;
    change.commit().await?;
    Ok(revoked)
}

pub(super) fn wire(row: ApiKeyRow, now_ms: i64) -> Token {
    Token {
        id: TokenId(row.id),
        name: row.name,
        token: None,
        token_prefix: row.key_prefix,
        scope: row.scope,
        is_active: row.expires_at_ms.is_none_or(|at_ms| at_ms > now_ms),
        created_at: time(row.created_at_ms),
        last_used_at: row.last_used_at_ms.map(time),
        expires_at: row.expires_at_ms.map(time),
        default_version: row.default_version,
    }
}
