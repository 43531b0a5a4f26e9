//! `PATCH /cvms/{cvm_id}/os-image`

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cloister_management_api::{CvmUpdate, OsImageRequest};

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::changes::{self, Edit, Manner};
use crate::api::error::ApiResult;
use crate::api::input::Body;
use crate::api::responses::{OnChange, OnCvm, OnPower};
use crate::api::target::Target;

/// Change a CVM's OS image
///
/// To one of those that `GET /cvms/{cvm_id}/available-os-images` lists: the CVM's node has it, and it is a
/// development image exactly when the present one is. A CVM that is up is restarted with it.
#[utoipa::path(
    patch, path = "/cvms/{cvm_id}/os-image", tag = "CVMs", operation_id = "update_cvm_os_image",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    request_body = OsImageRequest,
    responses(
        (status = 202, description = "Accepted; the CVM is restarted with the image", body = CvmUpdate),
        (status = 200, description = "It has this image already", body = CvmUpdate),
        OnCvm, OnChange, OnPower,
    ),
)]
pub(crate) async fn os_image(
    State(api): State<Api>,
    Auth(caller): Auth,
    Target(cvm): Target,
    Body(request): Body<OsImageRequest>,
) -> ApiResult<(StatusCode, Json<CvmUpdate>)> {
    let mut edit = Edit::of(&cvm);
    edit.image(&api, &request.os_image_name).await?;
    changes::answer(&api, &caller, edit, Manner::default()).await
}
