//! `PUT /cvms/{cvm_id}/compose`

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cloister_management_api::{LegacyComposeRequest, LegacyComposeUpdate};
use serde_json::Value;

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::changes::{self, Edit, Manner};
use crate::api::error::ApiResult;
use crate::api::input::Body;
use crate::api::responses::{OnApproval, OnChange, OnCvm, OnPower};
use crate::api::target::Target;

/// Members of the manifest that go into the document. Its versions are those of an older format.
const TAKEN: [&str; 6] =
    ["docker_compose_file", "pre_launch_script", "features", "allowed_envs", "public_logs", "public_sysinfo"];

/// Replace the compose file of a CVM, older form
///
/// For clients that do not know `PATCH /cvms/{cvm_id}`, which is to be preferred.
#[utoipa::path(
    put, path = "/cvms/{cvm_id}/compose", tag = "CVMs", operation_id = "put_cvm_compose",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    request_body = LegacyComposeRequest,
    responses(
        (status = 202, description = "Accepted; the CVM is restarted with the file", body = LegacyComposeUpdate),
        (status = 200, description = "Nothing changes", body = LegacyComposeUpdate),
        OnCvm, OnChange, OnApproval, OnPower,
    ),
)]
pub(crate) async fn compose(
    State(api): State<Api>,
    Auth(caller): Auth,
    Target(cvm): Target,
    Body(request): Body<LegacyComposeRequest>,
) -> ApiResult<(StatusCode, Json<LegacyComposeUpdate>)> {
    let mut edit = Edit::of(&cvm);
    let given = |member: &'static str| {
        let value = request.compose_manifest.get(member).filter(|value| !value.is_null())?;
        Some((member, Value::clone(value)))
    };
    edit.check_runner()?;
    edit.members(TAKEN.into_iter().filter_map(given).collect())?;
    if let Some(names) = &request.env_keys {
        edit.allow_names(names)?;
    }
    if let Some(env) = request.encrypted_env.and_then(|env| env.0) {
        edit.seal(&api, &env).await?;
    }
    edit.check_restart(request.allow_restart)?;
    let (status, Json(update)) = changes::answer(&api, &caller, edit, Manner::default()).await?;
    let answer = LegacyComposeUpdate { detail: update.message, correlation_id: update.correlation_id };
    Ok((status, Json(answer)))
}
