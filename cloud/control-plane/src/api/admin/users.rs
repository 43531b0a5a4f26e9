//! `/admin/users`: people who use the installation

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use cloister_management_api::{AdminUser, CreateUserRequest, PlainError, UserId, UserLink, UserLinkRequest};

use crate::api::Api;
use crate::api::auth::{Admin, hash_key};
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::{Body, OptionalBody};
use crate::api::responses::ForAdmins;
use crate::api::view::time;
use crate::store::PersonRow;

/// How long a link works.
const LINK_MS: i64 = 24 * 60 * 60 * 1000;
/// Most users of a list.
const MAX_USERS: i64 = 10_000;
const MAX_USERNAME: usize = 39;
const MAX_EMAIL: usize = 254;

/// List users
#[utoipa::path(
    get, path = "/admin/users", tag = "Administration", operation_id = "admin_list_users",
    responses((status = 200, description = "Every user", body = Vec<AdminUser>), ForAdmins),
)]
pub(crate) async fn list(State(api): State<Arc<Api>>, _: Admin) -> ApiResult<Json<Vec<AdminUser>>> {
    let mut users = Vec::new();
    for row in api.store.people(0, MAX_USERS).await? {
        users.push(wire(&api, row).await?);
    }
    Ok(Json(users))
}

/// Create a user
///
/// The answer has a link by which the user sets a password within a day.
#[utoipa::path(
    post, path = "/admin/users", tag = "Administration", operation_id = "admin_create_user",
    request_body(content = CreateUserRequest, example = json!({"username": "ada", "email": "ada@example.org"})),
    responses(
        (status = 201, description = "The link; shown once", body = UserLink),
        (status = 400, description = "There is such a user, or such a workspace", body = PlainError),
        (status = 404, description = "No such workspace", body = PlainError),
        ForAdmins,
    ),
)]
pub(crate) async fn create(
    State(api): State<Arc<Api>>,
    _: Admin,
    Body(request): Body<CreateUserRequest>,
) -> ApiResult<(StatusCode, Json<UserLink>)> {
    check(&request)?;
    let refused = |error: crate::store::StoreError| {
        if error.is_duplicate() { taken(&request.username) } else { ApiError::from(error) }
    };
    let workspace = match &request.workspace {
        Some(slug) => {
            let id = api.store.workspace_id_of(slug).await?;
            Some(id.ok_or_else(|| ApiError::not_found("Workspace"))?)
        }
        None => None,
    };
    let now_ms = api.clock.now_ms();
    let role = if request.administers == Some(true) { "admin" } else { "user" };
    let email = request.email.as_deref().unwrap_or_default();
    let token = hex::encode(api.random.bytes::<32>()?);
    let mut change = api.store.change().await?;
    let id = change.insert_user(&request.username, email, role, now_ms).await.map_err(refused)?;
    if let Some(workspace) = workspace {
        change.insert_membership(id, workspace).await?;
    } else {
        let name = &request.username;
        change.insert_workspace(name, name, api.random.bytes()?, id, now_ms).await.map_err(refused)?;
    }
    change.put_password_link(id, &hash_key(&token), now_ms + LINK_MS).await?;
    change.commit().await?;
    Ok((StatusCode::CREATED, Json(answer(&api, id, &token, now_ms).await?)))
}

/// Make a link for a user
///
/// By it the user sets another password within a day. Until then the old one works.
#[utoipa::path(
    post, path = "/admin/users/{username}/link", tag = "Administration", operation_id = "admin_make_user_link",
    params(("username" = String, Path, description = "Login name")),
    request_body(content = Option<UserLinkRequest>, example = json!({"remove_second_factor": true})),
    responses(
        (status = 200, description = "The link; shown once", body = UserLink),
        (status = 404, description = "No such user", body = PlainError),
        ForAdmins,
    ),
)]
pub(crate) async fn link(
    State(api): State<Arc<Api>>,
    _: Admin,
    Path(username): Path<String>,
    OptionalBody(request): OptionalBody<UserLinkRequest>,
) -> ApiResult<Json<UserLink>> {
    let id = api.store.user_named(&username).await?.ok_or_else(|| ApiError::not_found("User"))?;
    let now_ms = api.clock.now_ms();
    let token = hex::encode(api.random.bytes::<32>()?);
    let mut change = api.store.change().await?;
    change.put_password_link(id, &hash_key(&token), now_ms + LINK_MS).await?;
    if request.is_some_and(|request| request.remove_second_factor == Some(true)) {
        change.remove_second_factor(id).await?;
    }
    change.commit().await?;
    Ok(Json(answer(&api, id, &token, now_ms).await?))
}

fn taken(username: &str) -> ApiError {
    let text = format!(
        "There is a user or a workspace of the name '{username}'; choose another one, or name a workspace of which the \
         user becomes a member"
    );
    ApiError::plain(StatusCode::BAD_REQUEST, text)
}

fn check(request: &CreateUserRequest) -> ApiResult<()> {
    let name = request.username.as_bytes();
    let is_plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let fits = name.len() <= MAX_USERNAME
        && name.first().is_some_and(is_plain)
        && name.iter().all(|byte| is_plain(byte) || b"-_.".contains(byte));
    if !fits {
        let message = format!(
            "Input should have 1 to {MAX_USERNAME} characters, lower-case letters, digits, '-', '_' and '.', the first \
             of them a letter or a digit"
        );
        return Err(ApiError::fault(&["body", "username"], "value_error", message));
    }
    let email = request.email.as_deref().unwrap_or_default();
    let has_form =
        email.is_empty() || email.split_once('@').is_some_and(|(a, b)| !a.is_empty() && !b.is_empty());
    if email.len() > MAX_EMAIL || !has_form || email.contains(|c: char| c.is_control() || c.is_whitespace()) {
        let message = format!("Input should be a mail address of at most {MAX_EMAIL} characters");
        return Err(ApiError::fault(&["body", "email"], "value_error", message));
    }
    Ok(())
}

async fn answer(api: &Api, id: i64, token: &str, now_ms: i64) -> ApiResult<UserLink> {
    let row = api.store.person(id).await?.ok_or_else(|| ApiError::not_found("User"))?;
    let mut url = api.public_url.clone();
    url.set_path(&format!("/account/link/{token}"));
    Ok(UserLink { user: wire(api, row).await?, url: url.into(), expires_at: time(now_ms + LINK_MS) })
}

async fn wire(api: &Api, row: PersonRow) -> ApiResult<AdminUser> {
    let workspaces = api.store.workspaces_of(row.id).await?;
    Ok(AdminUser {
        id: UserId(row.id),
        username: row.username,
        email: row.email,
        role: row.role,
        has_password: row.has_password > 0,
        totp_enabled: row.has_second_factor > 0,
        workspaces: workspaces.into_iter().map(|workspace| workspace.slug).collect(),
        created_at: time(row.created_at_ms),
    })
}
