//! `GET /workspace/webhooks`

use axum::Json;
use axum::extract::State;
use cloister_management_api::Webhook;

use super::wire::{Shown, webhook};
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::ApiResult;
use crate::api::responses::Authenticated;

/// List webhooks
///
/// The webhooks of the workspace, oldest first, with masked secrets.
#[utoipa::path(
    get, path = "/workspace/webhooks", tag = "Webhooks", operation_id = "list_webhooks",
    responses((status = 200, description = "The webhooks", body = Vec<Webhook>), Authenticated),
)]
pub(crate) async fn list(State(api): State<Api>, Auth(caller): Auth) -> ApiResult<Json<Vec<Webhook>>> {
    let rows = api.store.webhooks(caller.workspace_id).await?;
    Ok(Json(rows.into_iter().map(|row| webhook(&api, row, &Shown::Masked)).collect()))
}
