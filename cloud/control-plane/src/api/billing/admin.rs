//! `/admin/workspaces/{workspace}/billing` and `…/credits`: what the operator decides about payment

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use cloister_management_api::{
    Billing, BillingModeRequest, Credit, CreditKind, CreditRequest, PlainError, WorkspaceId,
};
use rust_decimal::Decimal;

use super::{billing, shown};
use crate::api::Api;
use crate::api::auth::{Admin, Auth};
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::Body;
use crate::api::responses::ForAdmins;
use crate::store::{Credited, NewCredit};

/// Longest reason of a credit, in characters.
const MAX_REASON: usize = 500;
/// Longest key of a credit, in characters.
const MAX_KEY: usize = 100;

/// Get what a workspace has and pays
#[utoipa::path(
    get, path = "/admin/workspaces/{workspace}/billing", tag = "Administration", operation_id = "admin_get_billing",
    params(("workspace" = String, Path, description = "Id, number or name in URLs")),
    responses(
        (status = 200, description = "Credit and costs", body = Billing),
        (status = 404, description = "No such workspace", body = PlainError),
        ForAdmins,
    ),
)]
pub(crate) async fn get(
    State(api): State<Api>,
    _: Admin,
    Path(workspace): Path<String>,
) -> ApiResult<Json<Billing>> {
    let id = find(&api, &workspace).await?;
    Ok(Json(billing(&api, id).await?))
}

/// Set how a workspace pays
///
/// A prepaid workspace creates and starts nothing without credit. What runs goes on.
#[utoipa::path(
    put, path = "/admin/workspaces/{workspace}/billing", tag = "Administration", operation_id = "admin_set_billing",
    params(("workspace" = String, Path, description = "Id, number or name in URLs")),
    request_body(content = BillingModeRequest, example = json!({"prepaid": true})),
    responses(
        (status = 200, description = "Credit and costs", body = Billing),
        (status = 404, description = "No such workspace", body = PlainError),
        ForAdmins,
    ),
)]
pub(crate) async fn set(
    State(api): State<Api>,
    _: Admin,
    Path(workspace): Path<String>,
    Body(request): Body<BillingModeRequest>,
) -> ApiResult<Json<Billing>> {
    let id = find(&api, &workspace).await?;
    let mut change = api.store.change().await?;
    change.set_prepaid(id, request.prepaid).await?;
    change.commit().await?;
    Ok(Json(billing(&api, id).await?))
}

/// Credit a workspace
///
/// Writes an entry of its ledger. The same `idempotency_key` credits once: whoever got no answer sends the request
/// again.
#[utoipa::path(
    post, path = "/admin/workspaces/{workspace}/credits", tag = "Administration", operation_id = "admin_credit",
    params(("workspace" = String, Path, description = "Id, number or name in URLs")),
    request_body = CreditRequest,
    responses(
        (status = 201, description = "Credited", body = Credit),
        (status = 200, description = "It was credited before", body = Credit),
        (status = 400, description = "The key stands for another credit", body = PlainError),
        (status = 404, description = "No such workspace", body = PlainError),
        ForAdmins,
    ),
)]
pub(crate) async fn credit(
    State(api): State<Api>,
    _: Admin,
    Auth(caller): Auth,
    Path(workspace): Path<String>,
    Body(request): Body<CreditRequest>,
) -> ApiResult<(StatusCode, Json<Credit>)> {
    let kind = request.kind.unwrap_or(CreditKind::Payment);
    check(&request, kind)?;
    let workspace_id = find(&api, &workspace).await?;
    let new = NewCredit {
        workspace_id,
        idempotency_key: &request.idempotency_key,
        kind,
        amount: request.amount.0,
        reason: &request.reason,
        created_by: caller.user_id,
    };
    let mut change = api.store.change().await?;
    let credited = change.credit(&new, api.clock.now_ms()).await?;
    change.commit().await?;
    match credited {
        Credited::New(row) => Ok((StatusCode::CREATED, Json(shown(row)))),
        Credited::Before(row) => Ok((StatusCode::OK, Json(shown(row)))),
        Credited::KeyTaken => Err(ApiError::plain(
            StatusCode::BAD_REQUEST,
            "idempotency_key was used for another credit; nothing was credited now",
        )),
    }
}

fn check(request: &CreditRequest, kind: CreditKind) -> ApiResult<()> {
    let fault = |member: &str, text: &str| Err(ApiError::fault(&["body", member], "value_error", text));
    if request.amount.0 == Decimal::ZERO {
        return fault("amount", "Input should not be zero");
    }
    if request.amount.0 < Decimal::ZERO && kind != CreditKind::Correction {
        return fault("amount", "Input should be above zero; only a correction takes credit away");
    }
    let is_text = |text: &str, most: usize| {
        !text.trim().is_empty() && text.chars().count() <= most && !text.contains(char::is_control)
    };
    if !is_text(&request.reason, MAX_REASON) {
        return fault("reason", "Input should be 1 to 500 printable characters");
    }
    if !is_text(&request.idempotency_key, MAX_KEY) {
        return fault("idempotency_key", "Input should be 1 to 100 printable characters");
    }
    Ok(())
}

/// The number of the workspace with an id, a number or a name in URLs.
async fn find(api: &Api, text: &str) -> ApiResult<i64> {
    let id = text.parse::<WorkspaceId>().map(|id| id.0).or_else(|_| text.parse());
    let found = match id {
        Ok(id) => api.store.workspace(id).await?.map(|workspace| workspace.id),
        Err(_) => api.store.workspace_id_of(text).await?,
    };
    found.ok_or_else(|| ApiError::not_found("Workspace"))
}
