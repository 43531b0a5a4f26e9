//! `GET /cvms/{cvm_id}/docker-compose.yml` and `PATCH /cvms/{cvm_id}/docker-compose`

use axum::Json;
use axum::http::StatusCode;
use axum::response::Response;
use cloister_management_api::{CvmUpdate, PlainError};

use super::program_files::{COMPOSE_FILE, Replacement};
use crate::api::error::ApiResult;
use crate::api::responses::{FileForm, OnApproval, OnChange, OnCvm, OnMatch, OnPower};
use crate::api::target::Target;

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
    COMPOSE_FILE.of(&cvm)
}

/// Replace the compose file of a CVM
///
/// The rest of the compose document stays. A CVM that is up is restarted with it and gets its last good
/// configuration back when that fails, by its policy; one that is off gets it with its next start.
#[utoipa::path(
    patch, path = "/cvms/{cvm_id}/docker-compose", tag = "CVMs", operation_id = "update_cvm_docker_compose",
    params(
        ("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name"),
        ("If-Match" = Option<String>, Header, description = "Refuse a change of a file with another `ETag` than that of `docker-compose.yml`"),
        ("X-Compose-Hash" = Option<String>, Header, description = "Refuse a change that does not give this hash"),
        ("X-Transaction-Hash" = Option<String>, Header, description = "Transaction that allowed the hash; `already-registered` has only the contract asked"),
    ),
    request_body(content((FileForm = "multipart/form-data"), (String = "text/yaml"), (String = "text/plain"))),
    responses(
        (status = 202, description = "Accepted; the CVM is restarted with the file", body = CvmUpdate),
        (status = 400, description = "Not a text of a type that is taken, or an empty one", body = PlainError),
        OnCvm, OnChange, OnMatch, OnApproval, OnPower,
    ),
)]
pub(crate) async fn update(replacement: Replacement) -> ApiResult<(StatusCode, Json<CvmUpdate>)> {
    Ok((StatusCode::ACCEPTED, Json(replacement.of(&COMPOSE_FILE).await?)))
}
