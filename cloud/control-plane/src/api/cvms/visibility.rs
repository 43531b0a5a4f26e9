//! `PATCH /cvms/{cvm_id}/visibility`

use axum::Json;
use axum::extract::State;
use cloister_management_api::{VisibilityRequest, v20251028};
use serde_json::json;

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::changes::{self, Edit, Manner};
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::Body;
use crate::api::responses::{OnApproval, OnChange, OnCvm, OnPower};
use crate::api::scene::Scene;
use crate::api::target::Target;
use crate::api::view::View;
use cloister_management_api::ErrorCode;

/// Change what of a CVM anybody may see
///
/// The compose document says it, so the CVM gets another one, and with it another compose hash; one that is up
/// is restarted. The answer has the form of version 2025-10-28 in every version.
#[utoipa::path(
    patch, path = "/cvms/{cvm_id}/visibility", tag = "CVMs", operation_id = "update_cvm_visibility",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    request_body = VisibilityRequest,
    responses(
        (status = 200, description = "Accepted, or so already", body = v20251028::CvmDetail),
        OnCvm, OnChange, OnApproval, OnPower,
    ),
)]
pub(crate) async fn visibility(
    State(api): State<Api>,
    Auth(caller): Auth,
    Target(cvm): Target,
    Body(request): Body<VisibilityRequest>,
) -> ApiResult<Json<v20251028::CvmDetail>> {
    let mut members =
        vec![("public_sysinfo", json!(request.public_sysinfo)), ("public_logs", json!(request.public_logs))];
    members.extend(request.public_tcbinfo.map(|flag| ("public_tcbinfo", json!(flag))));
    let mut edit = Edit::of(&cvm);
    edit.members(members)?;
    if let Some(kind) = edit.kind() {
        changes::accept(&api, &caller, edit, kind, Manner::default()).await?;
    }
    let cvm = api.store.cvm(cvm.id).await?.ok_or_else(|| ApiError::coded(ErrorCode::CvmNotFound))?;
    let scene = Scene::of(&api, std::slice::from_ref(&cvm)).await?;
    Ok(Json(View::new(&api, &scene, &cvm).detail()))
}
