//! `GET /workspace/billing`

use axum::Json;
use axum::extract::State;
use cloister_management_api::Billing;

use super::billing;
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::ApiResult;
use crate::api::responses::Authenticated;

/// Get what the workspace has and pays
///
/// Of the workspace that the key is bound to: its credit, what was used, what everything costs in an hour, and until
/// when the credit lasts.
#[utoipa::path(
    get, path = "/workspace/billing", tag = "Billing", operation_id = "get_workspace_billing",
    responses((status = 200, description = "Credit and costs", body = Billing), Authenticated),
)]
pub(crate) async fn get(State(api): State<Api>, Auth(caller): Auth) -> ApiResult<Json<Billing>> {
    Ok(Json(billing(&api, caller.workspace_id).await?))
}
