//! `GET /cvms/{cvm_id}/operation-status`

use axum::Json;
use axum::extract::State;
use cloister_management_api::CvmStatus;

use crate::api::Api;
use crate::api::error::ApiResult;
use crate::api::responses::OnCvm;
use crate::api::scene::Scene;
use crate::api::target::Target;
use crate::api::view::View;

/// Get the operation in progress
///
/// The status is `idle` when no operation works on the CVM.
#[utoipa::path(
    get, path = "/cvms/{cvm_id}/operation-status", tag = "Operations", operation_id = "get_cvm_operation_status",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    responses((status = 200, description = "The operation, or `idle`", body = CvmStatus), OnCvm),
)]
pub(crate) async fn operation_status(
    State(api): State<Api>,
    Target(cvm): Target,
) -> ApiResult<Json<CvmStatus>> {
    let scene = Scene::of(&api, std::slice::from_ref(&cvm)).await?;
    let mut status = View::new(&api, &scene, &cvm).batch_status(cvm.vm_uuid.to_string());
    if !status.in_progress {
        "idle".clone_into(&mut status.status);
    }
    Ok(Json(status))
}
