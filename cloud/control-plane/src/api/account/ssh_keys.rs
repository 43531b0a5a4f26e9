//! `GET` and `POST /user/ssh-keys`, `DELETE /user/ssh-keys/{key_id}`, and taking keys over from elsewhere

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use cloister_management_api::{
    GithubProfileImportRequest, GithubProfileImportResponse, GithubSyncResponse, InvalidId, PlainError,
    SshKey, SshKeyCreateRequest, SshKeyId, UserId,
};

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::Body;
use crate::api::responses::Authenticated;
use crate::api::ssh_key::{InvalidSshKey, SshPublicKey};
use crate::api::view::time;
use crate::store::{NewSshKey, SshKeyRow};

/// Most keys of a user.
const MAX_KEYS: i64 = 100;
const MAX_NAME: usize = 100;
const MAX_GITHUB_NAME: usize = 39;
/// Where every key comes from here.
const SOURCE: &str = "manual";
const NO_OUTSIDE_ACCESS: &str =
    "This installation reads no keys from other services; add each key with POST /user/ssh-keys";

/// List SSH keys
///
/// The public keys of the user, oldest first.
#[utoipa::path(
    get, path = "/user/ssh-keys", tag = "SSH keys", operation_id = "list_ssh_keys",
    responses((status = 200, description = "The keys", body = Vec<SshKey>), Authenticated),
)]
pub(crate) async fn list(State(api): State<Api>, Auth(caller): Auth) -> ApiResult<Json<Vec<SshKey>>> {
    let rows = api.store.ssh_keys_of(caller.user_id).await?;
    Ok(Json(rows.into_iter().map(wire).collect()))
}

/// Add an SSH key
///
/// CVMs get it by `PUT /cvms/{cvm_id}/ssh-keys`.
#[utoipa::path(
    post, path = "/user/ssh-keys", tag = "SSH keys", operation_id = "create_ssh_key",
    request_body = SshKeyCreateRequest,
    responses(
        (status = 201, description = "The key", body = SshKey),
        (status = 400, description = "No usable public key, one that the user has already, or too many", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn create(
    State(api): State<Api>,
    Auth(caller): Auth,
    Body(request): Body<SshKeyCreateRequest>,
) -> ApiResult<(StatusCode, Json<SshKey>)> {
    let name = checked_name(&request.name)?;
    let key: SshPublicKey =
        request.public_key.parse().map_err(|error: InvalidSshKey| refused(&error.to_string()))?;
    let new = NewSshKey {
        user_id: caller.user_id,
        name,
        public_key: &key.line,
        fingerprint: &key.fingerprint,
        key_type: key.key_type,
    };
    let now_ms = api.clock.now_ms();
    let mut change = api.store.change().await?;
    if change.lock_ssh_keys(caller.user_id).await? >= MAX_KEYS {
        return Err(refused(&format!("You have {MAX_KEYS} keys; delete one first")));
    }
    let inserted = change.insert_ssh_key(&new, now_ms).await;
    let id = inserted.map_err(|error| {
        if error.is_duplicate() {
            refused(&format!("You have the key {} already", key.fingerprint))
        } else {
            error.into()
        }
    })?;
    change.commit().await?;
    let row = SshKeyRow {
        id,
        user_id: caller.user_id,
        username: caller.username.clone(),
        name: name.to_owned(),
        public_key: key.line,
        fingerprint: key.fingerprint,
        key_type: key.key_type.to_owned(),
        created_at_ms: now_ms,
    };
    Ok((StatusCode::CREATED, Json(wire(row))))
}

/// Delete an SSH key
///
/// CVMs that have it keep it until their keys are replaced.
#[utoipa::path(
    delete, path = "/user/ssh-keys/{key_id}", tag = "SSH keys", operation_id = "delete_ssh_key",
    params(("key_id" = SshKeyId, Path, description = "Id of the key")),
    responses(
        (status = 204, description = "Deleted"),
        (status = 400, description = "Not the id of a key", body = PlainError),
        (status = 404, description = "The user has no such key", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn delete(
    State(api): State<Api>,
    Auth(caller): Auth,
    Path(id): Path<String>,
) -> ApiResult<StatusCode> {
    let id: SshKeyId = id.parse().map_err(|error: InvalidId| refused(&error.to_string()))?;
    let mut change = api.store.change().await?;
    let deleted = change.delete_ssh_key(caller.user_id, id.0, api.clock.now_ms()).await?;
    change.commit().await?;
    if deleted { Ok(StatusCode::NO_CONTENT) } else { Err(ApiError::not_found("SSH key")) }
}

/// Take over the SSH keys of a GitHub account
///
/// Refused: this service asks no other one for the keys that open CVMs.
#[utoipa::path(
    post, path = "/user/ssh-keys/github-profile", tag = "SSH keys", operation_id = "import_github_ssh_keys",
    request_body = GithubProfileImportRequest,
    responses(
        (status = 200, description = "What became of the keys", body = GithubProfileImportResponse),
        (status = 400, description = "This installation reads no keys from other services", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn github_profile(
    _: Auth,
    Body(request): Body<GithubProfileImportRequest>,
) -> ApiResult<Json<GithubProfileImportResponse>> {
    if !(1..=MAX_GITHUB_NAME).contains(&request.github_username.chars().count()) {
        let message = format!("String should have 1 to {MAX_GITHUB_NAME} characters");
        return Err(ApiError::fault(&["body", "github_username"], "string_length", message));
    }
    Err(refused(NO_OUTSIDE_ACCESS))
}

/// Compare SSH keys with a GitHub account
///
/// Refused: this service asks no other one for the keys that open CVMs.
#[utoipa::path(
    post, path = "/user/ssh-keys/github-sync", tag = "SSH keys", operation_id = "sync_github_ssh_keys",
    responses(
        (status = 200, description = "What became of the keys", body = GithubSyncResponse),
        (status = 400, description = "This installation reads no keys from other services", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn github_sync(_: Auth) -> ApiResult<Json<GithubSyncResponse>> {
    Err(refused(NO_OUTSIDE_ACCESS))
}

fn refused(reason: &str) -> ApiError {
    ApiError::plain(StatusCode::BAD_REQUEST, reason)
}

fn checked_name(name: &str) -> ApiResult<&str> {
    let fault = |kind, message: String| Err(ApiError::fault(&["body", "name"], kind, message));
    if !(1..=MAX_NAME).contains(&name.chars().count()) {
        return fault("string_length", format!("String should have 1 to {MAX_NAME} characters"));
    }
    if name.contains(char::is_control) {
        return fault("value_error", "Input should have no control characters".to_owned());
    }
    Ok(name)
}

fn wire(row: SshKeyRow) -> SshKey {
    SshKey {
        id: SshKeyId(row.id),
        user_id: UserId(row.user_id),
        name: row.name,
        public_key: row.public_key,
        fingerprint: row.fingerprint,
        key_type: row.key_type,
        source: SOURCE.to_owned(),
        key_metadata: None,
        last_synced_at: None,
        created_at: time(row.created_at_ms),
        // Keys are added and deleted, never changed.
        updated_at: time(row.created_at_ms),
    }
}
