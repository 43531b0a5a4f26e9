//! `PATCH /cvms/{cvm_id}`

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cloister_management_api::{CvmUpdate, ErrorBody, UpdateCvmRequest};

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::changes::{self, Precondition};
use crate::api::error::ApiResult;
use crate::api::input::OptionalBody;
use crate::api::responses::{OnChange, OnCvm, OnPower};
use crate::api::target::Target;

/// Change a CVM
///
/// Several changes at once, with one operation and one restart. Members that are left out, or null, stay. A
/// CVM that is up gets its last good configuration back when the change fails, by its policy; one that is off
/// gets the new one with its next start. Other members of the compose document stay.
#[utoipa::path(
    patch, path = "/cvms/{cvm_id}", tag = "CVMs", operation_id = "patch_cvm",
    params(
        ("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name"),
        ("X-Compose-Hash" = Option<String>, Header, description = "Refuse a change that does not give this hash"),
        ("X-Transaction-Hash" = Option<String>, Header, description = "Transaction that registered the hash, where a contract has to allow it"),
        ("X-Prepare-Only" = Option<String>, Header, description = "`true`: only prepare the change, where a contract has to allow it"),
    ),
    request_body = Option<UpdateCvmRequest>,
    responses(
        (status = 202, description = "Accepted; the CVM is restarted with the changes", body = CvmUpdate),
        (status = 200, description = "Nothing changes, or only the policy", body = CvmUpdate),
        (status = 422, description = "The compose file is invalid (ERR-01-003), or the request does not fit its schema", body = ErrorBody),
        OnCvm, OnChange, OnPower,
    ),
)]
pub(crate) async fn patch(
    State(api): State<Arc<Api>>,
    Auth(caller): Auth,
    Target(cvm): Target,
    expected: Precondition,
    OptionalBody(request): OptionalBody<UpdateCvmRequest>,
) -> ApiResult<(StatusCode, Json<CvmUpdate>)> {
    let request = request.unwrap_or_default();
    let manner = changes::manner_of(&request)?;
    let edit = changes::edit_of(&api, &cvm, &request).await?;
    expected.check(edit.compose_hash())?;
    changes::answer(&api, &caller, edit, manner).await
}
