//! `/account/link/{token}`: somebody whom the operator gave a link sets a password.

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::html;

use super::account::{chosen, new_password};
use super::form::{Fields, From};
use super::guess::{Refusal, Target, too_often};
use super::login::no_passwords;
use super::markup::Page;
use super::session::recorded;
use crate::api::Api;
use crate::api::auth::hash_key;
use crate::api::error::{ApiError, ApiResult};
use crate::api::guard::RequestId;
use crate::audit;
use crate::people::PasswordError;
use crate::store::PersonRow;

const TITLE: &str = "Set a password";

fn form(row: &PersonRow) -> Page {
    Page::new(
        TITLE,
        html! {
            p { "For the user " strong { (row.username) } ". This link works once." }
            form method="post" {
                // Lets password managers know whose it is.
                input name="username" autocomplete="username" value=(row.username) aria-label="User name" readonly;
                (new_password())
                button type="submit" { "Set the password" }
            }
        },
    )
}

fn missing() -> Response {
    let body = html! { p { "Ask the operator for another one: " code { "cloister accounts reset NAME" } } };
    let words = "This link does not work: it was used, is too old, or another one was made since.";
    Page::new(TITLE, body).refused(StatusCode::NOT_FOUND, words).into_response()
}

async fn person(api: &Api, token: &str) -> ApiResult<Option<PersonRow>> {
    match api.store.linked_user(&hash_key(token), api.clock.now_ms()).await? {
        Some(id) => Ok(api.store.person(id).await?),
        None => Ok(None),
    }
}

/// The form.
pub(super) async fn page(State(api): State<Api>, Path(token): Path<String>) -> ApiResult<Response> {
    if let Some(refusal) = no_passwords(&api) {
        return Ok(refusal);
    }
    Ok(person(&api, &token).await?.map_or_else(missing, |row| form(&row).into_response()))
}

/// Sets the password, and uses the link up.
pub(super) async fn set_password(
    State(api): State<Api>,
    from: From,
    Path(token): Path<String>,
    Extension(RequestId(request_id)): Extension<RequestId>,
    fields: Fields,
) -> ApiResult<Response> {
    if let Some(refusal) = no_passwords(&api) {
        return Ok(refusal);
    }
    let Some(row) = person(&api, &token).await? else { return Ok(missing()) };
    if let Some(refusal) = too_often(&api, from) {
        return Ok(refusal.page(form(&row), ""));
    }
    let new = match chosen(&fields, &row.username) {
        Ok(new) => new,
        Err(words) => return Ok(form(&row).refused(StatusCode::BAD_REQUEST, words).into_response()),
    };
    let phc = match api.people.hashed(new, api.random).await {
        Ok(phc) => phc,
        Err(PasswordError::Busy) => return Ok(Refusal::Busy.page(form(&row), "")),
        Err(error) => return Err(ApiError::internal(&error)),
    };
    let now_ms = api.clock.now_ms();
    let work = async {
        let mut change = api.store.change().await?;
        if change.take_password_link(&hash_key(&token), now_ms).await? != Some(row.id) {
            return ApiResult::Ok(false);
        }
        change.set_password(row.id, &phc, now_ms).await?;
        Target::login(&row.username).was_right(&mut change).await?;
        change.commit().await?;
        Ok(true)
    };
    let actor = audit::person(&row.username, row.id);
    let is_set = recorded(&api, actor, "set_password", row.id, Some(request_id.to_string()), work).await?;
    Ok(if is_set { Redirect::to("/login").into_response() } else { missing() })
}
