//! `GET`, `PATCH` and `POST /cvms/{cvm_id}/compose_file`

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use cloister_app_compose::{Additions, AppCompose, members};
use cloister_management_api::{
    AppComposeV2, ApplyComposeRequest, CvmUpdate, PlainError, ReplaceComposeRequest,
};
use serde_json::{Map, Value};
use utoipa::IntoParams;

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::changes::{self, Approval, Edit, Manner};
use crate::api::conditional::Expected;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::{Body, Query};
use crate::api::responses::{OnApproval, OnChange, OnCvm, OnMatch, OnPower};
use crate::api::target::Target;
use crate::operations::OperationKind;
use crate::store::CvmRow;

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
    Ok(([(CONTENT_TYPE, "application/json")], shown(&cvm)?).into_response())
}

/// The document of a CVM as it is shown.
fn shown(cvm: &CvmRow) -> ApiResult<Vec<u8>> {
    let internal = |error: serde_json::Error| ApiError::internal(&error);
    let mut document: Map<String, Value> = serde_json::from_str(&cvm.app_compose).map_err(internal)?;
    // A public client wants a text here, whatever the runner is.
    document.entry("docker_compose_file").or_insert_with(|| "".into());
    serde_json::to_vec(&document).map_err(internal)
}

/// Refuses the change of another document than its client looked at.
fn check(expected: &Expected, cvm: &CvmRow) -> ApiResult<()> {
    expected.check(&[&shown(cvm)?, cvm.app_compose.as_bytes()])
}

/// Apply a provisioned compose document
///
/// Takes a document that `POST /cvms/{cvm_id}/compose_file/provision` checked for this CVM, by its hash. A CVM
/// that is up is restarted with it and gets its last good document back when that fails, by its policy; one
/// that is off gets it with its next start.
#[utoipa::path(
    patch, path = "/cvms/{cvm_id}/compose_file", tag = "CVMs", operation_id = "apply_cvm_compose_file",
    params(
        ("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name"),
        ("If-Match" = Option<String>, Header, description = "Refuse a change of a document with another `ETag`, in either of its forms"),
        ("X-Transaction-Hash" = Option<String>, Header, description = "Transaction that allowed the hash; `already-registered` has only the contract asked"),
        ("X-Prepare-Only" = Option<String>, Header, description = "`true`: only prepare the change, where somebody has to allow it"),
    ),
    request_body = ApplyComposeRequest,
    responses(
        (status = 202, description = "Accepted; the CVM is restarted with the document", body = CvmUpdate),
        (status = 400, description = "No document with this hash was provisioned for the CVM, or it expired; or a parameter is invalid (ERR-02-…)", body = PlainError),
        OnCvm, OnChange, OnMatch, OnApproval, OnPower,
    ),
)]
pub(crate) async fn apply(
    State(api): State<Api>,
    Auth(caller): Auth,
    Target(cvm): Target,
    approval: Approval,
    expected: Expected,
    Body(request): Body<ApplyComposeRequest>,
) -> ApiResult<(StatusCode, Json<CvmUpdate>)> {
    check(&expected, &cvm)?;
    let (hash, now_ms) = (request.compose_hash.0, api.clock.now_ms());
    let provision = api.store.update_provision(cvm.id, hash, now_ms).await?.ok_or_else(|| {
        let text =
            "No document with this compose_hash is provisioned for the CVM, or it expired; provision again";
        ApiError::plain(StatusCode::BAD_REQUEST, text)
    })?;
    let compose = AppCompose::parse(provision.app_compose.as_bytes());
    let compose = compose.map_err(|error| ApiError::internal(&error))?;
    let mut edit = Edit::of(&cvm);
    edit.replace_document(&compose)?;
    match &request.env_keys {
        Some(names) if request.update_env_vars => {
            edit.allow_names(names)?;
        }
        names => changes::check_names(&compose, names.as_deref())?,
    }
    if let Some(env) = request.encrypted_env.and_then(|env| env.0) {
        edit.seal(&api, &env).await?;
    }
    let correlation_id =
        changes::accept(&api, &caller, edit, OperationKind::ComposeUpdate, Manner::of(approval)).await?;
    Ok((
        StatusCode::ACCEPTED,
        Json(changes::in_progress(correlation_id, "The compose document is being applied")),
    ))
}

/// Replace the compose document of a CVM
///
/// Takes a complete document with its hash, without provisioning it first. The hash is the SHA-256 of the
/// canonical document: members sorted, either compact or indented by four spaces with `": ` written as `":`
/// everywhere. The text whose hash it is is what the CVM gets. A CVM that is up is restarted with it.
#[utoipa::path(
    post, path = "/cvms/{cvm_id}/compose_file", tag = "CVMs", operation_id = "replace_cvm_compose_file",
    params(
        ("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name"),
        ("If-Match" = Option<String>, Header, description = "Refuse a change of a document with another `ETag`, in either of its forms"),
        ("X-Transaction-Hash" = Option<String>, Header, description = "Transaction that allowed the hash; `already-registered` has only the contract asked"),
        ("X-Prepare-Only" = Option<String>, Header, description = "`true`: only prepare the change, where somebody has to allow it"),
    ),
    request_body = ReplaceComposeRequest,
    responses(
        (status = 202, description = "Accepted; the CVM is restarted with the document", body = CvmUpdate),
        (status = 400, description = "The hash is not that of the document, the document is empty (ERR-01-002) or changes what cannot change (ERR-02-009)", body = PlainError),
        OnCvm, OnChange, OnMatch, OnApproval, OnPower,
    ),
)]
pub(crate) async fn replace(
    State(api): State<Api>,
    Auth(caller): Auth,
    Target(cvm): Target,
    approval: Approval,
    expected: Expected,
    Body(request): Body<ReplaceComposeRequest>,
) -> ApiResult<(StatusCode, Json<CvmUpdate>)> {
    check(&expected, &cvm)?;
    let refused = |error| changes::compose_error(error, &["body", "compose_file"]);
    let additions = Additions { name: &cvm.name, ..Additions::default() };
    // What is wrong with the document says more than that its hash does not fit.
    request.compose_file.prepare(&additions).map_err(refused)?;
    let found = request.compose_file.with_hash(request.compose_hash.0, &additions).map_err(refused)?;
    let compose = found.ok_or_else(|| {
        let text =
            "compose_hash is not the SHA-256 of the canonical compose_file, neither compact nor indented";
        ApiError::plain(StatusCode::BAD_REQUEST, text)
    })?;
    changes::check_names(&compose, request.env_keys.as_deref())?;
    let mut edit = Edit::of(&cvm);
    edit.replace_document(&compose)?;
    if let Some(env) = request.encrypted_env.and_then(|env| env.0) {
        edit.seal(&api, &env).await?;
    }
    let correlation_id =
        changes::accept(&api, &caller, edit, OperationKind::ComposeUpdate, Manner::of(approval)).await?;
    Ok((
        StatusCode::ACCEPTED,
        Json(changes::in_progress(correlation_id, "The compose document is being replaced")),
    ))
}
