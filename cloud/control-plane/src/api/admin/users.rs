//! `/admin/users`: people who use the installation

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use cloister_management_api::{
    AdminUser, CreateUserRequest, PlainError, UserId, UserLink, UserLinkRequest, UserOpenidRequest,
};

use crate::api::Api;
use crate::api::auth::{Admin, Auth, hash_key};
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::{Body, OptionalBody};
use crate::api::oauth::step_up;
use crate::api::responses::ForAdmins;
use crate::api::view::time;
use crate::people::{is_mail_address, is_subject, is_username};
use crate::store::{PersonRow, StoreError};

/// How long a link works.
const LINK_MS: i64 = 24 * 60 * 60 * 1000;
/// Most users of a list.
const MAX_USERS: i64 = 10_000;

/// List users
#[utoipa::path(
    get, path = "/admin/users", tag = "Administration", operation_id = "admin_list_users",
    responses((status = 200, description = "Every user", body = Vec<AdminUser>), ForAdmins),
)]
pub(crate) async fn list(State(api): State<Api>, _: Admin) -> ApiResult<Json<Vec<AdminUser>>> {
    let mut users = Vec::new();
    for row in api.store.people(0, MAX_USERS).await? {
        users.push(wire(&api, row).await?);
    }
    Ok(Json(users))
}

/// Create a user
///
/// The answer has a link by which the user sets a password within a day, unless it is said what the OpenID provider of the
/// installation calls the user.
#[utoipa::path(
    post, path = "/admin/users", tag = "Administration", operation_id = "admin_create_user",
    request_body(content = CreateUserRequest, example = json!({"username": "ada", "email": "ada@example.org"})),
    responses(
        (status = 201, description = "The link; shown once", body = UserLink),
        (status = 400, description = "There is such a user, or such a workspace, or somebody else has the subject; or there is \
                                      no OpenID provider", body = PlainError),
        (status = 404, description = "No such workspace", body = PlainError),
        (status = 428, description = "A person's token needs a step-up: `POST /auth/step-up`", body = PlainError),
        ForAdmins,
    ),
)]
pub(crate) async fn create(
    State(api): State<Api>,
    Auth(caller): Auth,
    _: Admin,
    Body(request): Body<CreateUserRequest>,
) -> ApiResult<(StatusCode, Json<UserLink>)> {
    check(&request)?;
    step_up::unless_without_second_factor(&api, &caller).await?;
    let refused = |error: StoreError| {
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
    let link = if let Some(subject) = &request.openid_subject {
        let named = (issuer(&api)?, subject.as_str());
        change.put_openid(id, named, now_ms).await.map_err(|error| known(error, subject))?;
        None
    } else {
        change.put_password_link(id, &hash_key(&token), now_ms + LINK_MS).await?;
        Some(token.as_str())
    };
    change.commit().await?;
    Ok((StatusCode::CREATED, Json(answer(&api, id, link, now_ms).await?)))
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
        (status = 428, description = "A person's token needs a step-up: `POST /auth/step-up`", body = PlainError),
        ForAdmins,
    ),
)]
pub(crate) async fn link(
    State(api): State<Api>,
    Auth(caller): Auth,
    _: Admin,
    Path(username): Path<String>,
    OptionalBody(request): OptionalBody<UserLinkRequest>,
) -> ApiResult<Json<UserLink>> {
    // Or a stolen token would make itself a login, and take the second factor away.
    step_up::unless_without_second_factor(&api, &caller).await?;
    let id = api.store.user_named(&username).await?.ok_or_else(|| ApiError::not_found("User"))?;
    let now_ms = api.clock.now_ms();
    let token = hex::encode(api.random.bytes::<32>()?);
    let mut change = api.store.change().await?;
    change.put_password_link(id, &hash_key(&token), now_ms + LINK_MS).await?;
    if request.is_some_and(|request| request.remove_second_factor == Some(true)) {
        change.remove_second_factor(id).await?;
    }
    change.commit().await?;
    Ok(Json(answer(&api, id, Some(&token), now_ms).await?))
}

/// Say whom the OpenID provider means
///
/// The user logs in by the provider as this subject from now on, and as no other; with null, not at all. Every browser of
/// the user is logged out, and what applications may do in the user's name ends.
#[utoipa::path(
    put, path = "/admin/users/{username}/openid", tag = "Administration", operation_id = "admin_set_user_openid",
    params(("username" = String, Path, description = "Login name")),
    request_body(content = UserOpenidRequest, example = json!({"openid_subject": "248289761001"})),
    responses(
        (status = 200, description = "The user", body = AdminUser),
        (status = 400, description = "Somebody else has the subject, or there is no OpenID provider", body = PlainError),
        (status = 404, description = "No such user", body = PlainError),
        (status = 428, description = "A person's token needs a step-up: `POST /auth/step-up`", body = PlainError),
        ForAdmins,
    ),
)]
pub(crate) async fn set_openid(
    State(api): State<Api>,
    Auth(caller): Auth,
    _: Admin,
    Path(username): Path<String>,
    Body(request): Body<UserOpenidRequest>,
) -> ApiResult<Json<AdminUser>> {
    check_subject(request.openid_subject.as_deref())?;
    step_up::unless_without_second_factor(&api, &caller).await?;
    let id = api.store.user_named(&username).await?.ok_or_else(|| ApiError::not_found("User"))?;
    let now_ms = api.clock.now_ms();
    let mut change = api.store.change().await?;
    match &request.openid_subject {
        Some(subject) => {
            change
                .put_openid(id, (issuer(&api)?, subject.as_str()), now_ms)
                .await
                .map_err(|error| known(error, subject))?;
        }
        None => change.remove_openid(id).await?,
    }
    change.end_oauth_keys_of(id, now_ms).await?;
    change.end_sessions_of(id).await?;
    change.commit().await?;
    let row = api.store.person(id).await?.ok_or_else(|| ApiError::not_found("User"))?;
    Ok(Json(wire(&api, row).await?))
}

/// The issuer whose subjects are meant.
fn issuer(api: &Api) -> ApiResult<&str> {
    let words = "No OpenID provider is configured; start the control plane with --openid-provider-file";
    let openid = api.openid.as_deref().ok_or_else(|| ApiError::plain(StatusCode::BAD_REQUEST, words))?;
    Ok(&openid.config().issuer)
}

fn known(error: StoreError, subject: &str) -> ApiError {
    if !error.is_duplicate() {
        return error.into();
    }
    let text = format!("Another user logs in as the subject '{subject}'; each user has one of their own");
    ApiError::plain(StatusCode::BAD_REQUEST, text)
}

fn taken(username: &str) -> ApiError {
    let text = format!(
        "There is a user or a workspace of the name '{username}'; choose another one, or name a workspace of which the \
         user becomes a member"
    );
    ApiError::plain(StatusCode::BAD_REQUEST, text)
}

fn check(request: &CreateUserRequest) -> ApiResult<()> {
    if !is_username(&request.username) {
        let message = "Input should have 1 to 39 characters, lower-case letters, digits, '-', '_' and '.', the first of \
                       them a letter or a digit";
        return Err(ApiError::fault(&["body", "username"], "value_error", message));
    }
    let email = request.email.as_deref().unwrap_or_default();
    if !email.is_empty() && !is_mail_address(email) {
        let message = "Input should be a mail address of at most 254 characters";
        return Err(ApiError::fault(&["body", "email"], "value_error", message));
    }
    check_subject(request.openid_subject.as_deref())
}

fn check_subject(subject: Option<&str>) -> ApiResult<()> {
    if subject.is_none_or(is_subject) {
        return Ok(());
    }
    let message = "Input should have 1 to 255 printable ASCII characters";
    Err(ApiError::fault(&["body", "openid_subject"], "value_error", message))
}

async fn answer(api: &Api, id: i64, token: Option<&str>, now_ms: i64) -> ApiResult<UserLink> {
    let row = api.store.person(id).await?.ok_or_else(|| ApiError::not_found("User"))?;
    let url = token.map(|token| {
        let mut url = api.public_url.clone();
        url.set_path(&format!("/account/link/{token}"));
        url.into()
    });
    let expires_at = token.map(|_| time(now_ms + LINK_MS));
    Ok(UserLink { user: wire(api, row).await?, url, expires_at })
}

async fn wire(api: &Api, row: PersonRow) -> ApiResult<AdminUser> {
    let workspaces = api.store.workspaces_of(row.id).await?;
    let linked = api.store.openid_of_user(row.id).await?;
    let issuer = api.openid.as_deref().map(|openid| openid.config().issuer.as_str());
    let openid_subject = linked.filter(|(of, _)| Some(of.as_str()) == issuer).map(|(_, subject)| subject);
    Ok(AdminUser {
        id: UserId(row.id),
        username: row.username,
        email: row.email,
        role: row.role,
        has_password: row.has_password > 0,
        totp_enabled: row.has_second_factor > 0,
        openid_subject,
        workspaces: workspaces.into_iter().map(|workspace| workspace.slug).collect(),
        created_at: time(row.created_at_ms),
    })
}
