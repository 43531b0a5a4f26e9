//! `GET /cvms/{cvm_id}/docker-compose.yml` and `PATCH /cvms/{cvm_id}/docker-compose`

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use cloister_management_api::{CvmUpdate, ErrorBody, PlainError};
use serde_json::json;

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::changes::{self, Edit, Manner, Precondition};
use crate::api::error::ApiResult;
use crate::api::responses::{FileForm, OnChange, OnCvm, OnPower};
use crate::api::target::Target;
use crate::api::view::Shown;
use crate::operations::OperationKind;

/// Get the compose file of a CVM
#[utoipa::path(
    get, path = "/cvms/{cvm_id}/docker-compose.yml", tag = "CVMs", operation_id = "get_cvm_docker_compose",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    responses(
        (status = 200, description = "The file as it is; empty where the CVM runs something else", body = String, content_type = "text/yaml"),
        OnCvm,
    ),
)]
pub(crate) async fn docker_compose(Target(cvm): Target) -> Response {
    let text = Shown::of(&cvm.app_compose).docker_compose_file.unwrap_or_default().into_owned();
    ([(CONTENT_TYPE, "text/yaml; charset=utf-8")], text).into_response()
}

/// Replace the compose file of a CVM
///
/// The rest of the compose document stays. A CVM that is up is restarted with it and gets its last good
/// configuration back when that fails, by its policy; one that is off gets it with its next start.
#[utoipa::path(
    patch, path = "/cvms/{cvm_id}/docker-compose", tag = "CVMs", operation_id = "update_cvm_docker_compose",
    params(
        ("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name"),
        ("X-Compose-Hash" = Option<String>, Header, description = "Refuse a change that does not give this hash"),
        ("X-Transaction-Hash" = Option<String>, Header, description = "Transaction that registered the hash, where a contract has to allow it"),
    ),
    request_body(content((FileForm = "multipart/form-data"), (String = "text/yaml"), (String = "text/plain"))),
    responses(
        (status = 202, description = "Accepted; the CVM is restarted with the file", body = CvmUpdate),
        (status = 400, description = "Not a text of a type that is taken, or an empty one", body = PlainError),
        (status = 422, description = "The compose file is invalid (ERR-01-003)", body = ErrorBody),
        OnCvm, OnChange, OnPower,
    ),
)]
pub(crate) async fn update(
    State(api): State<Arc<Api>>,
    Auth(caller): Auth,
    Target(cvm): Target,
    expected: Precondition,
    request: Request,
) -> ApiResult<(StatusCode, Json<CvmUpdate>)> {
    let text = changes::yaml().read(request).await?;
    let mut edit = Edit::of(&cvm);
    edit.check_runner()?;
    edit.members(vec![("docker_compose_file", json!(text))])?;
    expected.check(edit.compose_hash())?;
    let correlation_id =
        changes::accept(&api, &caller, edit, OperationKind::ComposeUpdate, Manner::default()).await?;
    Ok((
        StatusCode::ACCEPTED,
        Json(changes::in_progress(correlation_id, "The compose file is being replaced")),
    ))
}
