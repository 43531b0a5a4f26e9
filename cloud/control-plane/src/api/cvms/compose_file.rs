//! `GET /cvms/{cvm_id}/compose_file`

use axum::Json;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use cloister_app_compose::members;
use cloister_management_api::{AppComposeV2, PlainError};
use serde_json::{Map, Value};
use utoipa::IntoParams;

use crate::api::error::{ApiError, ApiResult};
use crate::api::input::Query;
use crate::api::responses::OnCvm;
use crate::api::target::Target;

members! {
    /// Query of `GET /cvms/{cvm_id}/compose_file`.
    #[derive(Debug, IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct RawQuery {
        /// `true`, `1` or empty: the exact text whose SHA-256 is the compose hash.
        #[param(required = false)]
        pub raw: Option<String>,
    }
}

/// Get the compose document of a CVM
#[utoipa::path(
    get, path = "/cvms/{cvm_id}/compose_file", tag = "CVMs", operation_id = "get_cvm_compose_file",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name"), RawQuery),
    responses(
        (status = 200, description = "The document, or with `raw` its exact text", content(
            (AppComposeV2 = "application/json"), (String = "text/plain"),
        )),
        (status = 500, description = "The document cannot be read", body = PlainError),
        OnCvm,
    ),
)]
pub(crate) async fn compose_file(Target(cvm): Target, Query(query): Query<RawQuery>) -> ApiResult<Response> {
    let is_raw =
        matches!(query.raw.as_deref().map(str::to_ascii_lowercase).as_deref(), Some("" | "1" | "true"));
    if is_raw {
        return Ok(([(CONTENT_TYPE, "text/plain; charset=utf-8")], cvm.app_compose).into_response());
    }
    let mut document: Map<String, Value> =
        serde_json::from_str(&cvm.app_compose).map_err(|error| ApiError::internal(&error))?;
    // A public client wants a text here, whatever the runner is.
    document.entry("docker_compose_file").or_insert_with(|| "".into());
    Ok(Json(document).into_response())
}
