//! `POST /tokens/{token_id}/refresh`

use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use cloister_management_api::{ApiVersion, PlainError, RefreshTokenRequest, Token, TokenId};

use super::tokens::{check_days, ends_at_ms, wire};
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::OptionalBody;
use crate::api::oauth::step_up;
use crate::api::responses::Authenticated;

/// Refresh an API key
///
/// Gives a key more or less time; one that has expired works again. Its secret and what it may do stay. Without
/// `upgrade_version: false` requests with it that name no version are answered in the newest one from then on. Keys that
/// applications have from people are renewed by those applications only.
#[utoipa::path(
    post, path = "/tokens/{token_id}/refresh", tag = "API keys", operation_id = "refresh_token",
    params(("token_id" = TokenId, Path, description = "Id of the key")),
    request_body(content = Option<RefreshTokenRequest>, example = json!({"expires_in_days": 90, "upgrade_version": false})),
    responses(
        (status = 200, description = "The key as it is now, without its secret", body = Token),
        (status = 404, description = "The workspace has no such key, or an application has it", body = PlainError),
        (status = 428, description = "A person's token needs a step-up: `POST /auth/step-up`", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn refresh(
    State(api): State<Api>,
    Auth(caller): Auth,
    OwnKey(id): OwnKey,
    OptionalBody(request): OptionalBody<RefreshTokenRequest>,
) -> ApiResult<Json<Token>> {
    let request = request.unwrap_or(RefreshTokenRequest { expires_in_days: None, upgrade_version: true });
    check_days(request.expires_in_days)?;
    step_up::unless_without_second_factor(&api, &caller).await?;
    let now_ms = api.clock.now_ms();
    let ends = request.expires_in_days.map(|days| ends_at_ms(days, now_ms));
    let version = request.upgrade_version.then_some(ApiVersion::NEWEST.as_str());
    let mut change = api.store.change().await?;
    let row = change.refresh_api_key(caller.workspace_id, id, ends, version).await?;
    let row = row.ok_or_else(missing)?;
    change.commit().await?;
    Ok(Json(wire(row, now_ms)))
}

/// The key of the caller's workspace that the path names, expired or not. It is looked for before the rest of a request
/// is read.
pub(crate) struct OwnKey(i64);

impl FromRequestParts<Api> for OwnKey {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> ApiResult<Self> {
        let Auth(caller) = Auth::from_request_parts(parts, api).await?;
        let Path(id) = Path::<String>::from_request_parts(parts, api).await.map_err(|_| missing())?;
        let id = id.parse::<TokenId>().map_err(|_| missing())?;
        let is_own = api.store.api_keys(caller.workspace_id).await?.iter().any(|row| row.id == id.0);
        if is_own { Ok(Self(id.0)) } else { Err(missing()) }
    }
}

fn missing() -> ApiError {
    ApiError::not_found("API key")
}
