//! `GET` and `PUT /cvms/{cvm_id}/ssh-keys`

use std::collections::HashSet;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cloister_management_api::{
    CvmSshKey, CvmSshKeys, ErrorBody, ErrorCode, PlainError, SshKeyId, UpdateCvmSshKeysRequest, UserId,
};

use super::power::request_error;
use super::user_config;
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::Body;
use crate::api::responses::{OnCvm, OnPower};
use crate::api::ssh_key::{InvalidSshKey, SshPublicKey};
use crate::api::target::Target;
use crate::operations::{CvmStatus, OperationKind, UpdateRequest};
use crate::store::{Configuration, CvmRow, SshKeyRow};

/// Most keys of a CVM.
const MAX_KEYS: usize = 100;

/// List the SSH keys of a CVM
///
/// The keys in the CVM's `user_config`, with whose they are. Only images with shell access let anybody in.
#[utoipa::path(
    get, path = "/cvms/{cvm_id}/ssh-keys", tag = "SSH keys", operation_id = "get_cvm_ssh_keys",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    responses((status = 200, description = "The keys", body = CvmSshKeys), OnCvm),
)]
pub(crate) async fn get(State(api): State<Api>, Target(cvm): Target) -> ApiResult<Json<CvmSshKeys>> {
    let members = api.store.ssh_keys_of_members(cvm.workspace_id).await?;
    let restart_required = awaits_start(&api, &cvm).await?;
    Ok(Json(CvmSshKeys { keys: shown(&lines(&cvm), &members), restart_required }))
}

/// Replace the SSH keys of a CVM
///
/// Takes effect with the next start, or with `apply_now` by an update that restarts a CVM which is up.
#[utoipa::path(
    put, path = "/cvms/{cvm_id}/ssh-keys", tag = "SSH keys", operation_id = "set_cvm_ssh_keys",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    request_body = UpdateCvmSshKeysRequest,
    responses(
        (status = 200, description = "The keys", body = CvmSshKeys),
        (status = 400, description = "The CVM's user_config is no JSON object (ERR-02-009), or several match", body = ErrorBody),
        (status = 404, description = "No member of the workspace has such a key, or there is no such CVM", body = PlainError),
        OnCvm, OnPower,
    ),
)]
pub(crate) async fn set(
    State(api): State<Api>,
    Auth(caller): Auth,
    Target(cvm): Target,
    Body(request): Body<UpdateCvmSshKeysRequest>,
) -> ApiResult<Json<CvmSshKeys>> {
    let members = api.store.ssh_keys_of_members(cvm.workspace_id).await?;
    let keys = chosen(&request, &members)?;
    let config = user_config::with_ssh_keys(cvm.user_config.as_deref(), &keys).ok_or_else(|| {
        let message = "the CVM's user_config is no JSON object; replace it with one first";
        ApiError::explained(ErrorCode::IncompatibleParameters, message)
    })?;
    let is_other = keys != lines(&cvm);
    let is_awaited = is_other || awaits_start(&api, &cvm).await?;
    let at_once = request.apply_now || cvm.status == CvmStatus::Stopped;
    if is_awaited && at_once {
        let update = UpdateRequest {
            kind: OperationKind::Update,
            configuration: Configuration { user_config: Some(config), ..cvm.configuration() },
            base_revision: cvm.revision_id,
            shutdown_timeout_s: None,
            allow_force_stop: true,
        };
        api.lifecycle.update(cvm.id, &update, caller.user_id).await.map_err(request_error)?;
    } else if is_other {
        let stored = api.lifecycle.configure(cvm.id, cvm.revision_id, Some(config), caller.user_id).await;
        stored.map_err(request_error)?;
    }
    let restart_required = is_awaited && !at_once;
    Ok(Json(CvmSshKeys { keys: shown(&keys, &members), restart_required }))
}

/// The lines of the keys that a request names, each once.
fn chosen(request: &UpdateCvmSshKeysRequest, members: &[SshKeyRow]) -> ApiResult<Vec<String>> {
    let missing = |what: String| ApiError::plain(StatusCode::NOT_FOUND, what);
    for (member, named) in [("ssh_key_ids", &request.ssh_key_ids), ("usernames", &request.usernames)] {
        // Each is looked for among the keys of all members.
        if named.len() > MAX_KEYS {
            return Err(too_many(member));
        }
    }
    let mut rows = Vec::new();
    for text in &request.ssh_key_ids {
        let id = text.parse::<SshKeyId>().ok();
        let row = members.iter().find(|row| id == Some(SshKeyId(row.id)));
        rows.push(row.ok_or_else(|| missing(format!("No member of the workspace has an SSH key {text:?}")))?);
    }
    for name in &request.usernames {
        let before = rows.len();
        rows.extend(members.iter().filter(|row| row.username == *name));
        if rows.len() == before {
            return Err(missing(format!("No member {name:?} of the workspace has an SSH key")));
        }
    }
    let mut seen = HashSet::new();
    rows.retain(|row| seen.insert(row.fingerprint.as_str()));
    if rows.len() > MAX_KEYS {
        return Err(too_many("ssh_key_ids"));
    }
    Ok(rows.into_iter().map(|row| row.public_key.clone()).collect())
}

fn too_many(member: &str) -> ApiError {
    ApiError::fault(&["body", member], "too_long", format!("List should have at most {MAX_KEYS} items"))
}

/// The keys in a CVM's configuration.
fn lines(cvm: &CvmRow) -> Vec<String> {
    user_config::read(cvm.user_config.as_deref()).unwrap_or_default().ssh_authorized_keys
}

/// Whether a VM that is up was started before the CVM got its present configuration.
async fn awaits_start(api: &Api, cvm: &CvmRow) -> ApiResult<bool> {
    if cvm.status == CvmStatus::Stopped {
        return Ok(false);
    }
    let Some(revision) = cvm.revision_id else { return Ok(false) };
    let applied = api.store.revision(revision).await?.and_then(|revision| revision.applied_at_ms);
    Ok(applied.zip(cvm.started_at_ms).is_some_and(|(applied, started)| started < applied))
}

/// Keys with whose they are.
fn shown(lines: &[String], members: &[SshKeyRow]) -> Vec<CvmSshKey> {
    let wire = |line: &String| {
        let key: Result<SshPublicKey, InvalidSshKey> = line.parse();
        let fingerprint = key.as_ref().map_or_else(|_| String::new(), |key| key.fingerprint.clone());
        let owned = members.iter().find(|row| row.fingerprint == fingerprint);
        CvmSshKey {
            id: owned.map(|row| SshKeyId(row.id)),
            owner_user_id: owned.map(|row| UserId(row.user_id)),
            owner_username: owned.map(|row| row.username.clone()),
            added_by_user_id: None,
            name: owned.map_or_else(
                || key.as_ref().map_or_else(|_| String::new(), |key| key.comment.clone()),
                |row| row.name.clone(),
            ),
            public_key: line.clone(),
            fingerprint,
            key_type: key.map_or("unknown", |key| key.key_type).to_owned(),
        }
    };
    lines.iter().map(wire).collect()
}

/// A configuration with keys that the request of a new CVM lets in.
pub(super) fn provisioned(user_config: Option<String>, keys: &[String]) -> ApiResult<Option<String>> {
    if keys.is_empty() {
        return Ok(user_config);
    }
    if keys.len() > MAX_KEYS {
        return Err(too_many("ssh_authorized_keys"));
    }
    let read = |(index, text): (usize, &String)| {
        text.parse::<SshPublicKey>().map(|key| key.line).map_err(|error| {
            let message = format!("ssh_authorized_keys[{index}]: {error}");
            ApiError::explained(ErrorCode::InvalidParameter, message)
        })
    };
    let lines = keys.iter().enumerate().map(read).collect::<ApiResult<Vec<_>>>()?;
    let config = user_config::with_ssh_keys(user_config.as_deref(), &lines).ok_or_else(|| {
        let message = "user_config must be a JSON object where ssh_authorized_keys is given";
        ApiError::explained(ErrorCode::IncompatibleParameters, message)
    })?;
    Ok(Some(config))
}
