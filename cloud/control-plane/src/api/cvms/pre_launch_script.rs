//! `GET` and `PATCH /cvms/{cvm_id}/pre-launch-script`

use axum::Json;
use axum::response::Response;
use cloister_management_api::{CvmUpdate, PlainError};

use super::program_files::{PRE_LAUNCH_SCRIPT, Replacement};
use crate::api::error::ApiResult;
use crate::api::responses::{FileForm, OnApproval, OnChange, OnCvm, OnMatch, OnPower};
use crate::api::target::Target;

/// Get the pre-launch script of a CVM
#[utoipa::path(
    get, path = "/cvms/{cvm_id}/pre-launch-script", tag = "CVMs", operation_id = "get_cvm_pre_launch_script",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    responses(
        (status = 200, description = "The script as it is; empty where there is none", body = String, content_type = "text/plain"),
        OnCvm,
    ),
)]
pub(crate) async fn pre_launch_script(Target(cvm): Target) -> Response {
    PRE_LAUNCH_SCRIPT.of(&cvm)
}

/// Replace the pre-launch script of a CVM
///
/// The rest of the compose document stays. A CVM that is up is restarted with it and gets its last good
/// configuration back when that fails, by its policy; one that is off gets it with its next start. To remove
/// the script, send an empty `pre_launch_script` to `PATCH /cvms/{cvm_id}`.
#[utoipa::path(
    patch, path = "/cvms/{cvm_id}/pre-launch-script", tag = "CVMs",
    operation_id = "update_cvm_pre_launch_script",
    params(
        ("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name"),
        ("If-Match" = Option<String>, Header, description = "Refuse a change of a file with another `ETag` than that of `pre-launch-script`"),
        ("X-Compose-Hash" = Option<String>, Header, description = "Refuse a change that does not give this hash"),
        ("X-Transaction-Hash" = Option<String>, Header, description = "Transaction that allowed the hash; `already-registered` has only the contract asked"),
    ),
    request_body(content((FileForm = "multipart/form-data"), (String = "text/plain"), (String = "application/x-sh"))),
    responses(
        (status = 200, description = "Accepted; the CVM is restarted with the script", body = CvmUpdate),
        (status = 400, description = "Not a text of a type that is taken, or an empty one", body = PlainError),
        OnCvm, OnChange, OnMatch, OnApproval, OnPower,
    ),
)]
pub(crate) async fn update(replacement: Replacement) -> ApiResult<Json<CvmUpdate>> {
    replacement.of(&PRE_LAUNCH_SCRIPT).await.map(Json)
}
