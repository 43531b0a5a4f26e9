//! `GET /workspace/audit/head` and `/admin/audit/head`

use axum::Json;
use axum::extract::State;
use cloister_management_api::{AuditHead, WorkspaceId};

use crate::api::Api;
use crate::api::auth::{Admin, Auth};
use crate::api::error::{ApiError, ApiResult};
use crate::api::responses::{Authenticated, ForAdmins};
use crate::audit::{HeadKey, INSTALLATION};

/// Get the signed head of the audit log
///
/// Number and hash of the workspace's last record, signed by the installation. Keep it: with it, `cloister audit verify`
/// proves later whether anything up to that record was changed or removed.
#[utoipa::path(
    get, path = "/workspace/audit/head", tag = "Audit", operation_id = "get_audit_head",
    responses((status = 200, description = "The head", body = AuditHead), Authenticated),
)]
pub(crate) async fn own(State(api): State<Api>, Auth(caller): Auth) -> ApiResult<Json<AuditHead>> {
    head(&api, caller.workspace_id).await
}

/// Get the signed head of the installation's audit log
#[utoipa::path(
    get, path = "/admin/audit/head", tag = "Administration", operation_id = "admin_get_audit_head",
    responses((status = 200, description = "The head", body = AuditHead), ForAdmins),
)]
pub(crate) async fn of_installation(State(api): State<Api>, _: Admin) -> ApiResult<Json<AuditHead>> {
    head(&api, INSTALLATION).await
}

async fn head(api: &Api, chain: i64) -> ApiResult<Json<AuditHead>> {
    let key = HeadKey::new(&api.audit_head_key).map_err(|error| ApiError::internal(&error))?;
    let workspace = (chain != INSTALLATION).then_some(WorkspaceId(chain));
    let end = api.store.audit_head(chain).await?;
    Ok(Json(key.sign(workspace, end, api.clock.now())))
}
