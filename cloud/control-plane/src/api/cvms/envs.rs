//! `PATCH /cvms/{cvm_id}/envs`

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cloister_management_api::{EnvsUpdate, UpdateCvmEnvsRequest};

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::changes::{self, Approval, Edit, Manner};
use crate::api::error::ApiResult;
use crate::api::input::Body;
use crate::api::responses::{OnApproval, OnChange, OnCvm, OnPower};
use crate::api::target::Target;
use crate::operations::OperationKind;

/// Replace a CVM's sealed environment
///
/// A CVM that is up is shut down and booted again with it; one that is off gets it with its next start. Other
/// `env_keys` than those that the compose document allows give the CVM another document, and with it another
/// compose hash.
#[utoipa::path(
    patch, path = "/cvms/{cvm_id}/envs", tag = "CVMs", operation_id = "update_cvm_envs",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    request_body = UpdateCvmEnvsRequest,
    responses(
        (status = 202, description = "Accepted; the environment is replaced and the CVM restarted", body = EnvsUpdate),
        OnCvm, OnChange, OnApproval, OnPower,
    ),
)]
pub(crate) async fn envs(
    State(api): State<Api>,
    Auth(caller): Auth,
    Target(cvm): Target,
    approval: Approval,
    Body(request): Body<UpdateCvmEnvsRequest>,
) -> ApiResult<(StatusCode, Json<EnvsUpdate>)> {
    let mut edit = Edit::of(&cvm);
    edit.seal(&api, &request.encrypted_env.0).await?;
    let allowed_envs_changed = match &request.env_keys {
        Some(names) => edit.allow_names(names)?,
        None => false,
    };
    let said = Approval::of(request.compose_hash.as_deref(), request.transaction_hash.as_deref());
    let manner = Manner::of(said.or(approval));
    let kind = if allowed_envs_changed { OperationKind::ComposeUpdate } else { OperationKind::EnvUpdate };
    let answer = EnvsUpdate {
        status: "in_progress".to_owned(),
        message: "The environment is being replaced".to_owned(),
        correlation_id: changes::accept(&api, &caller, edit, kind, manner).await?,
        allowed_envs_changed,
    };
    Ok((StatusCode::ACCEPTED, Json(answer)))
}
