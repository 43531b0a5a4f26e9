//! `PATCH /cvms/{cvm_id}/envs`

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cloister_management_api::{EnvsUpdate, ErrorBody, ErrorCode, PlainError, UpdateCvmEnvsRequest};
use serde::Deserialize;

use super::power::request_error;
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::Body;
use crate::api::provisioning::nothing_opens_it;
use crate::api::responses::{OnCvm, OnPower};
use crate::api::target::Target;
use crate::operations::{OperationKind, UpdateRequest};
use crate::store::{Configuration, CvmRow};

/// Replace a CVM's sealed environment
///
/// A CVM that is up is shut down and booted again with it; one that is off gets it with its next start. The
/// names in it stay those that the compose document allows: others change the compose hash, and with it what
/// the CVM is.
#[utoipa::path(
    patch, path = "/cvms/{cvm_id}/envs", tag = "CVMs", operation_id = "update_cvm_envs",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    request_body = UpdateCvmEnvsRequest,
    responses(
        (status = 202, description = "Accepted; the environment is replaced and the CVM restarted", body = EnvsUpdate),
        (status = 466, description = "The compose hash is not the CVM's (ERR-01-006)", body = ErrorBody),
        (status = 413, description = "The body has more than 1 MiB", body = PlainError),
        OnCvm, OnPower,
    ),
)]
pub(crate) async fn envs(
    State(api): State<Arc<Api>>,
    Auth(caller): Auth,
    Target(cvm): Target,
    Body(request): Body<UpdateCvmEnvsRequest>,
) -> ApiResult<(StatusCode, Json<EnvsUpdate>)> {
    let kms = cvm.kms_id.ok_or_else(nothing_opens_it)?;
    check_hash(&cvm, request.compose_hash.as_deref())?;
    check_names(&cvm, request.env_keys.as_deref())?;
    // Whoever seals asks for the key anyway; here it is only noted.
    let known = match api.kmses.get(kms) {
        Some(kms) => kms.env_public_key(cvm.app_id).await.ok(),
        None => None,
    };
    let update = UpdateRequest {
        kind: OperationKind::EnvUpdate,
        configuration: Configuration {
            encrypted_env: Some(request.encrypted_env.0.as_hex().to_owned()),
            env_pubkey: known.map(|key| hex::encode(&key.public_key)),
            ..cvm.configuration()
        },
        base_revision: cvm.revision_id,
        shutdown_timeout_s: None,
        allow_force_stop: true,
    };
    let accepted = api.lifecycle.update(cvm.id, &update, caller.user_id).await;
    let correlation_id = accepted.map_err(request_error)?.correlation_id;
    let answer = EnvsUpdate {
        status: "in_progress".to_owned(),
        message: "The environment is being replaced".to_owned(),
        correlation_id,
        allowed_envs_changed: false,
    };
    Ok((StatusCode::ACCEPTED, Json(answer)))
}

/// A hash marks the second half of a change that a contract had to allow; here none has to.
fn check_hash(cvm: &CvmRow, hash: Option<&str>) -> ApiResult<()> {
    let Some(hash) = hash.filter(|hash| !hash.is_empty()) else { return Ok(()) };
    let digits = hash.strip_prefix("0x").unwrap_or(hash);
    if digits.eq_ignore_ascii_case(&cvm.compose_hash.to_string()) {
        return Ok(());
    }
    Err(ApiError::coded(ErrorCode::CommitTokenInvalid).about("compose_hash", hash))
}

fn check_names(cvm: &CvmRow, names: Option<&[String]>) -> ApiResult<()> {
    #[derive(Default, Deserialize)]
    struct Names {
        #[serde(default)]
        allowed_envs: Vec<String>,
    }
    let Some(names) = names else { return Ok(()) };
    let document: Names = serde_json::from_str(&cvm.app_compose).unwrap_or_default();
    let allowed: BTreeSet<&str> = document.allowed_envs.iter().map(String::as_str).collect();
    let wanted: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    if allowed == wanted {
        return Ok(());
    }
    let message = "env_keys differ from the names that the CVM's compose document allows; a CVM in place \
                   cannot get another document yet: create a new one, or keep the names";
    let mut error = ApiError::explained(ErrorCode::IncompatibleParameters, message);
    for name in allowed.symmetric_difference(&wanted) {
        error = error.about("env_keys", *name);
    }
    Err(error)
}
