//! `GET` and `PATCH /cvms/{cvm_id}/pre-launch-script`

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use cloister_management_api::{CvmUpdate, PlainError};
use serde_json::json;

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::changes::{self, Edit, Manner, Precondition};
use crate::api::error::ApiResult;
use crate::api::responses::{FileForm, OnChange, OnCvm, OnPower};
use crate::api::target::Target;
use crate::api::view::Shown;
use crate::operations::OperationKind;

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
    let text = Shown::of(&cvm.app_compose).pre_launch_script.unwrap_or_default().into_owned();
    ([(CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
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
        ("X-Compose-Hash" = Option<String>, Header, description = "Refuse a change that does not give this hash"),
        ("X-Transaction-Hash" = Option<String>, Header, description = "Transaction that registered the hash, where a contract has to allow it"),
    ),
    request_body(content((FileForm = "multipart/form-data"), (String = "text/plain"), (String = "application/x-sh"))),
    responses(
        (status = 200, description = "Accepted; the CVM is restarted with the script", body = CvmUpdate),
        (status = 400, description = "Not a text of a type that is taken, or an empty one", body = PlainError),
        OnCvm, OnChange, OnPower,
    ),
)]
pub(crate) async fn update(
    State(api): State<Arc<Api>>,
    Auth(caller): Auth,
    Target(cvm): Target,
    expected: Precondition,
    request: Request,
) -> ApiResult<Json<CvmUpdate>> {
    let text = changes::script().read(request).await?;
    let mut edit = Edit::of(&cvm);
    edit.members(vec![("pre_launch_script", json!(text))])?;
    expected.check(edit.compose_hash())?;
    let correlation_id =
        changes::accept(&api, &caller, edit, OperationKind::ComposeUpdate, Manner::default()).await?;
    Ok(Json(changes::in_progress(correlation_id, "The pre-launch script is being replaced")))
}
