//! `PATCH /cvms/{cvm_id}/listed`

use axum::Json;
use axum::extract::State;
use cloister_management_api::{ErrorCode, ListedRequest, Vm};

use crate::api::Api;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::Body;
use crate::api::negotiate::Version;
use crate::api::responses::OnCvm;
use crate::api::scene::Scene;
use crate::api::target::Target;
use crate::api::view::View;

/// Show or hide a CVM
///
/// Whether people outside of the workspace see it. Nothing is restarted and no hash changes.
#[utoipa::path(
    patch, path = "/cvms/{cvm_id}/listed", tag = "CVMs", operation_id = "update_cvm_listed",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    request_body = ListedRequest,
    responses((status = 200, description = "So it is now", body = Vm), OnCvm),
)]
pub(crate) async fn listed(
    State(api): State<Api>,
    Version(version): Version,
    Target(cvm): Target,
    Body(request): Body<ListedRequest>,
) -> ApiResult<Json<Vm>> {
    let mut change = api.store.change().await?;
    change.set_listed(cvm.id, request.listed, api.clock.now_ms()).await?;
    let cvm = change.lock_living_cvm(cvm.id).await?;
    change.commit().await?;
    let cvm = cvm.ok_or_else(|| ApiError::coded(ErrorCode::CvmNotFound))?;
    let scene = Scene::of(&api, std::slice::from_ref(&cvm)).await?;
    Ok(Json(View::new(&api, &scene, &cvm).vm(version)))
}
