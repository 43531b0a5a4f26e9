//! `POST /tokens/{token_id}/refresh`

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use cloister_management_api::{ApiVersion, PlainError, RefreshTokenRequest, Token, TokenId};

use super::tokens::{check_days, ends_at_ms, wire};
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::OptionalBody;
use crate::api::responses::Authenticated;

/// Refresh an API key
///
/// Gives a key more or less time; one that has expired works again. Its secret and what it may do stay. Without
/// `upgrade_version: false` requests with it that name no version are answered in the newest one from then on.
#[utoipa::path(
    post, path = "/tokens/{token_id}/refresh", tag = "API keys", operation_id = "refresh_token",
    params(("token_id" = TokenId, Path, description = "Id of the key")),
    request_body(content = Option<RefreshTokenRequest>, example = json!({"expires_in_days": 90, "upgrade_version": false})),
    responses(
        (status = 200, description = "The key as it is now, without its secret", body = Token),
        (status = 404, description = "The workspace has no such key", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn refresh(
    State(api): State<Arc<Api>>,
    Auth(caller): Auth,
    Path(id): Path<String>,
    OptionalBody(request): OptionalBody<RefreshTokenRequest>,
) -> ApiResult<Json<Token>> {
    let request = request.unwrap_or(RefreshTokenRequest { expires_in_days: None, upgrade_version: true });
    check_days(request.expires_in_days)?;
    let missing = || ApiError::not_found("API key");
    let id = id.parse::<TokenId>().map_err(|_| missing())?;
    let now_ms = api.clock.now_ms();
    let ends = request.expires_in_days.map(|days| ends_at_ms(days, now_ms));
    let version = request.upgrade_version.then_some(ApiVersion::NEWEST.as_str());
    let mut change = api.store.change().await?;
    let row = change.refresh_api_key(caller.workspace_id, id.0, ends, version).await?;
    let row = row.ok_or_else(missing)?;
    change.commit().await?;
    Ok(Json(wire(row, now_ms)))
}
