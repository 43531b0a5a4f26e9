//! `DELETE /cvms/{cvm_id}`

use axum::extract::State;
use axum::http::StatusCode;

use super::power;
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::ApiResult;
use crate::api::responses::OnCvm;
use crate::api::target::Target;
use crate::operations::OperationKind;

/// Delete a CVM
///
/// Removes the CVM with all its data, ending any operation in progress. The work goes on after the
/// answer; when it is done, the CVM is not found any more.
#[utoipa::path(
    delete, path = "/cvms/{cvm_id}", tag = "CVMs", operation_id = "delete_cvm",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    responses((status = 204, description = "Accepted"), OnCvm),
)]
pub(crate) async fn delete(
    State(api): State<Api>,
    Auth(caller): Auth,
    Target(cvm): Target,
) -> ApiResult<StatusCode> {
    power::accept(&api, &caller, &cvm, OperationKind::Delete, false).await?;
    Ok(StatusCode::NO_CONTENT)
}
