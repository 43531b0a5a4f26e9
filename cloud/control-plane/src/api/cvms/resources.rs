//! `PATCH /cvms/{cvm_id}/resources`

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cloister_management_api::{CvmUpdate, ResizeRequest};

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::changes::{self, Edit, Manner};
use crate::api::error::ApiResult;
use crate::api::input::Body;
use crate::api::responses::{OnChange, OnCvm, OnPower};
use crate::api::target::Target;

/// Resize a CVM
///
/// Another instance type, or single sizes; what is left out stays. A CVM that is up is restarted with them;
/// one that is off gets them with its next start. Disks only grow.
#[utoipa::path(
    patch, path = "/cvms/{cvm_id}/resources", tag = "CVMs", operation_id = "update_cvm_resources",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    request_body = ResizeRequest,
    responses(
        (status = 202, description = "Accepted; the CVM is restarted with its new size", body = CvmUpdate),
        (status = 200, description = "It has this size already", body = CvmUpdate),
        OnCvm, OnChange, OnPower,
    ),
)]
pub(crate) async fn resources(
    State(api): State<Api>,
    Auth(caller): Auth,
    Target(cvm): Target,
    Body(request): Body<ResizeRequest>,
) -> ApiResult<(StatusCode, Json<CvmUpdate>)> {
    let mut edit = Edit::of(&cvm);
    edit.resize(api.store.prices(), &request)?;
    edit.check_restart(request.allow_restart)?;
    changes::answer(&api, &caller, edit, Manner::default()).await
}
