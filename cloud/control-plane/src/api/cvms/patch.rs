//! `PATCH /cvms/{cvm_id}`

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cloister_management_api::{CvmUpdate, UpdateCvmRequest};

use crate::api::Api;
use crate::api::approvals;
use crate::api::auth::Auth;
use crate::api::changes::{self, Approval};
use crate::api::error::ApiResult;
use crate::api::input::OptionalBody;
use crate::api::responses::{OnApproval, OnChange, OnCvm, OnPower};
use crate::api::target::Target;

/// Change a CVM
///
/// Several changes at once, with one operation and one restart. Members that are left out, or null, stay. A
/// CVM that is up gets its last good configuration back when the change fails, by its policy; one that is off
/// gets the new one with its next start. Other members of the compose document stay.
///
/// Where those who decide for the application have to allow its documents, a change of the compose hash that they
/// did not allow is kept and answered with 465. Once they allowed it, the same path with an empty body and
/// `X-Compose-Hash` carries out what was kept.
#[utoipa::path(
    patch, path = "/cvms/{cvm_id}", tag = "CVMs", operation_id = "patch_cvm",
    params(
        ("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name"),
        ("X-Compose-Hash" = Option<String>, Header, description = "Refuse a change that does not give this hash; with an empty body, commit the prepared change with this hash"),
        ("X-Transaction-Hash" = Option<String>, Header, description = "Transaction that allowed the hash; `already-registered` has only the contract asked"),
        ("X-Prepare-Only" = Option<String>, Header, description = "`true`: only prepare the change, where somebody has to allow it"),
    ),
    request_body = Option<UpdateCvmRequest>,
    responses(
        (status = 202, description = "Accepted; the CVM is restarted with the changes", body = CvmUpdate),
        (status = 200, description = "Nothing changes, or only the policy", body = CvmUpdate),
        OnCvm, OnChange, OnApproval, OnPower,
    ),
)]
pub(crate) async fn patch(
    State(api): State<Api>,
    Auth(caller): Auth,
    Target(cvm): Target,
    approval: Approval,
    OptionalBody(request): OptionalBody<UpdateCvmRequest>,
) -> ApiResult<(StatusCode, Json<CvmUpdate>)> {
    let request = request.unwrap_or_default();
    if request == UpdateCvmRequest::default()
        && let Some(correlation_id) = approvals::commit_waiting(&api, &cvm, &approval).await?
    {
        let answer = changes::in_progress(correlation_id, "The prepared change is being carried out");
        return Ok((StatusCode::ACCEPTED, Json(answer)));
    }
    let manner = changes::manner_of(&request, approval)?;
    let edit = changes::edit_of(&api, &cvm, &request).await?;
    changes::answer(&api, &caller, edit, manner).await
}
