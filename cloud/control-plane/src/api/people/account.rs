//! `/account`

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};

use super::form::Fields;
use super::guess::{Target, is_password};
use super::login::{no_passwords, passwords};
use super::markup::{Page, code_field};
use super::session::{self, Person, with_cookie};
use crate::api::Api;
use crate::api::error::{ApiError, ApiResult};
use crate::openid::Openid;
use crate::people::{MIN_PASSWORD_CHARS, People, Unfit};
use crate::store::WorkspaceRow;

const TITLE: &str = "Your account";
/// What to say of a current password that is not that.
pub(super) const WRONG: &str = "The current password is wrong, and nothing was changed.";

/// The account.
pub(super) async fn page(State(api): State<Api>, person: Person) -> ApiResult<Response> {
    Ok(shown(&api, &person).await?.into_response())
}

/// The same, for a refusal that is shown above it.
pub(super) async fn shown(api: &Api, person: &Person) -> ApiResult<Page> {
    let workspaces = api.store.workspaces_of(person.row.id).await?;
    let linked = api.store.openid_of_user(person.row.id).await?;
    let config = api.openid.as_deref().map(Openid::config);
    let openid = config.zip(linked.as_ref()).filter(|(config, (issuer, _))| config.issuer == *issuer);
    let openid = openid.map(|(config, (_, subject))| (config.name.as_str(), subject.as_str()));
    Ok(Page::new(
        TITLE,
        html! {
            (facts(person, &workspaces, openid))
            @if passwords(api) {
                h2 { "Password" }
                @if person.row.has_password > 0 { (password(person)) } @else { (no_password()) }
            }
            h2 { "Second factor" }
            @if person.row.has_second_factor > 0 { (with_second_factor(person)) } @else { (without(person)) }
            h2 { "This browser" }
            form method="post" action="/logout" { (person.field()) button type="submit" { "Log out" } }
        },
    ))
}

fn facts(person: &Person, workspaces: &[WorkspaceRow], openid: Option<(&str, &str)>) -> Markup {
    let administers = person.row.role == "admin";
    html! {
        dl {
            dt { "User name" } dd { (person.row.username) }
            @if !person.row.email.is_empty() { dt { "Mail" } dd { (person.row.email) } }
            @if let Some((name, subject)) = openid { dt { "At " (name) } dd { (subject) } }
            dt { "May" } dd { @if administers { "administer this installation" } @else { "use workspaces" } }
            @for workspace in workspaces { dt { "Workspace" } dd { (workspace.name) " (" (workspace.slug) ")" } }
        }
    }
}

fn password(person: &Person) -> Markup {
    html! {
        form method="post" action="/account/password" {
            (person.field())
            label for="current" { "Current password" }
            input #current name="current" type="password" autocomplete="current-password" required;
            (new_password())
            button type="submit" { "Change the password" }
        }
        p { "Every other browser is logged out. API keys keep working: " code { "cloister tokens list" } " shows them." }
    }
}

fn no_password() -> Markup {
    html! { p { "None. The operator can give you a link to set one: " code { "cloister accounts reset NAME" } } }
}

/// The fields for a new password.
pub(super) fn new_password() -> Markup {
    html! {
        label for="new" { "New password, at least " (MIN_PASSWORD_CHARS) " characters" }
        input #new name="new" type="password" autocomplete="new-password" minlength=(MIN_PASSWORD_CHARS) required;
        label for="again" { "The same again" }
        input #again name="again" type="password" autocomplete="new-password" minlength=(MIN_PASSWORD_CHARS) required;
    }
}

fn without(person: &Person) -> Markup {
    html! {
        p { "None. With one, a code of an authenticator belongs to every login, and a stolen password is worth nothing." }
        @if person.row.has_password == 0 {
            p { "Setting one up here needs a password, which your account has not." }
        } @else {
            form method="post" action="/account/second-factor" {
                (person.field())
                label for="password" { "Password" }
                input #password name="password" type="password" autocomplete="current-password" required;
                button type="submit" { "Set up an authenticator" }
            }
        }
    }
}

fn with_second_factor(person: &Person) -> Markup {
    html! {
        p { "A code of your authenticator belongs to every login. Backup codes left: " (person.row.backup_codes) "." }
        form method="post" {
            (person.field())
            (code_field("Code of your authenticator, or a backup code", true))
            button type="submit" formaction="/account/backup-codes" { "Make new backup codes" }
            " "
            button type="submit" formaction="/account/second-factor/remove" { "Remove the second factor" }
        }
    }
}

/// A new password, if two fields agree on one that somebody may have.
pub(super) fn chosen(fields: &Fields, username: &str) -> Result<zeroize::Zeroizing<String>, String> {
    let new = fields.secret("new");
    if *new != *fields.secret("again") {
        return Err("The two new passwords are not the same, and nothing was changed.".to_owned());
    }
    People::fits(&new, username).map_err(|unfit: Unfit| unfit.to_string())?;
    Ok(new)
}

/// Changes the password. Every session ends but this one, which gets another cookie.
pub(super) async fn set_password(
    State(api): State<Api>,
    person: Person,
    fields: Fields,
) -> ApiResult<Response> {
    if let Some(refusal) = person.refuses(&fields).or_else(|| no_passwords(&api)) {
        return Ok(refusal);
    }
    let new = match chosen(&fields, &person.row.username) {
        Ok(new) => new,
        Err(words) => {
            return Ok(shown(&api, &person).await?.refused(StatusCode::BAD_REQUEST, words).into_response());
        }
    };
    let target = Target::login(&person.row.username);
    if let Some(refusal) = is_not_known(&api, &person, &target, &fields, "current").await? {
        return Ok(refusal);
    }
    let phc = api.people.hashed(new, api.random).await.map_err(|error| ApiError::internal(&error))?;
    let work = async {
        let mut change = api.store.change().await?;
        target.was_right(&mut change).await?;
        change.set_password(person.row.id, &phc, api.clock.now_ms()).await?;
        let token = session::begin(&api, &mut change, person.row.id).await?;
        change.commit().await?;
        ApiResult::Ok(token)
    };
    let token = person.does(&api, "set_password", work).await?;
    Ok(with_cookie(Redirect::to("/account"), &api.public_url, Some(&token)))
}

/// The refusal of whoever does not know the password: a session alone does not change how one logs in.
pub(super) async fn is_not_known(
    api: &Api,
    person: &Person,
    target: &Target,
    fields: &Fields,
    field: &str,
) -> ApiResult<Option<Response>> {
    if let Err(refusal) = target.take(api).await? {
        return Ok(Some(refusal.page(shown(api, person).await?, WRONG)));
    }
    match is_password(api, Some(person.row.id), fields.secret(field)).await? {
        Ok(true) => Ok(None),
        Ok(false) => {
            target.was_wrong(api, Some(person.row.id), person.request_id()).await?;
            Ok(Some(super::guess::Refusal::Wrong.page(shown(api, person).await?, WRONG)))
        }
        Err(refusal) => Ok(Some(refusal.page(shown(api, person).await?, WRONG))),
    }
}
