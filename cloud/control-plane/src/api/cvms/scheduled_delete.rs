//! `PATCH /cvms/{cvm_id}/scheduled-delete`

use axum::Json;
use axum::extract::State;
use cloister_management_api::{ErrorCode, ScheduledDeleteRequest, Vm};
use jiff::Timestamp;

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::OptionalBody;
use crate::api::negotiate::Version;
use crate::api::responses::OnCvm;
use crate::api::scene::Scene;
use crate::api::target::Target;
use crate::api::view::View;

/// Schedule the deletion of a CVM
///
/// When the time has come, the CVM is deleted with all its data as by `DELETE /cvms/{cvm_id}`. Null, or no
/// body, takes the schedule back.
#[utoipa::path(
    patch, path = "/cvms/{cvm_id}/scheduled-delete", tag = "CVMs",
    operation_id = "update_cvm_scheduled_delete",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    request_body = Option<ScheduledDeleteRequest>,
    responses((status = 200, description = "So it is now; ERR-02-008 for a time that has passed", body = Vm), OnCvm),
)]
pub(crate) async fn scheduled_delete(
    State(api): State<Api>,
    Auth(caller): Auth,
    Version(version): Version,
    Target(cvm): Target,
    OptionalBody(request): OptionalBody<ScheduledDeleteRequest>,
) -> ApiResult<Json<Vm>> {
    let at = request.unwrap_or_default().scheduled_delete_at.map(|at| at.0);
    let now_ms = api.clock.now_ms();
    if let Some(at) = at.filter(|at| at.as_millisecond() <= now_ms) {
        let message = "scheduled_delete_at must be in the future; to delete the CVM now, use DELETE";
        let error = ApiError::explained(ErrorCode::InvalidParameter, message);
        return Err(error.about("scheduled_delete_at", at.to_string()));
    }
    let at_ms = at.map(Timestamp::as_millisecond);
    let mut change = api.store.change().await?;
    change.schedule_deletion(cvm.id, at_ms, caller.user_id, now_ms).await?;
    let cvm = change.lock_living_cvm(cvm.id).await?;
    change.commit().await?;
    let cvm = cvm.ok_or_else(|| ApiError::coded(ErrorCode::CvmNotFound))?;
    let scene = Scene::of(&api, std::slice::from_ref(&cvm)).await?;
    Ok(Json(View::new(&api, &scene, &cvm).vm(version)))
}
