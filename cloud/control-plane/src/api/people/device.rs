//! `/device`: a person who logged in lets a device in that shows a code (RFC 8628 section 3.3).
//!
//! A code in the address is filled in and nothing more: whoever follows somebody else's link still looks at who asks, and
//! decides there.

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use cloister_management_api::{ApiVersion, KeyScope, UserId};
use maud::html;

use super::choice;
use super::form::Fields;
use super::guess::Refusal;
use super::markup::Page;
use super::session::{MaybePerson, Person, to_login};
use crate::api::Api;
use crate::api::account::device_codes::typed;
use crate::api::account::devices::{Holder, KEY_DAYS, may_look, settle};
use crate::api::error::ApiResult;
use crate::api::page;
use crate::audit::{self, Named, Scope};
use crate::store::{DeviceLoginRow, WorkspaceRow};

const TITLE: &str = "Let a device in";
const MISSING: &str = "No device that waits shows this code. It waited too long, or somebody decided already, or the code is \
                       another one.";

/// Asks for the code. Where nobody can log in there is the page for API keys.
pub(super) async fn page(
    State(api): State<Api>,
    MaybePerson(person): MaybePerson,
    RawQuery(query): RawQuery,
) -> ApiResult<Response> {
    let query = query.unwrap_or_default();
    let Some(person) = person else {
        let wanted = if query.is_empty() { "/device".to_owned() } else { format!("/device?{query}") };
        let has_people = api.openid.is_some() || api.store.has_passwords().await?;
        return Ok(if has_people { to_login(&wanted) } else { page::DEVICE.into_response() });
    };
    let code = typed(Fields::parse(query.as_bytes()).text("user_code"));
    Ok(form(&person, &code).into_response())
}

fn form(person: &Person, code: &str) -> Page {
    let body = html! {
        p { "A command line somewhere asks to act in your name, " strong { (person.row.username) } ". Go on only if you \
             started it yourself a moment ago, and it shows this code." }
        form method="post" action="/device" {
            (person.field())
            label for="code" { "Code that the device shows" }
            input #code name="user_code" autocomplete="off" autocapitalize="characters" spellcheck="false"
                maxlength="40" placeholder="XXXX-XXXX" value=(code) required;
            button type="submit" { "Go on" }
        }
    };
    Page::new(TITLE, body)
}

/// The device that shows the code of a form; the refusal, if none does, or this is not the form of this session.
async fn shown(
    api: &Api,
    person: &Person,
    fields: &Fields,
) -> ApiResult<Result<(String, DeviceLoginRow), Response>> {
    if let Some(refusal) = person.refuses(fields) {
        return Ok(Err(refusal));
    }
    let code = typed(fields.text("user_code"));
    // Before anything is looked up, or the code of somebody else's device could be found by trying.
    if let Err(left) = may_look(api, person.row.id) {
        return Ok(Err(Refusal::Wait(left.retry_after_s().into()).page(form(person, &code), "")));
    }
    let device = api.store.waiting_device(&code, api.clock.now_ms()).await?;
    Ok(match device {
        Some(device) => Ok((code, device)),
        None => Err(missing(person, &code)),
    })
}

fn missing(person: &Person, code: &str) -> Response {
    form(person, code).refused(StatusCode::NOT_FOUND, MISSING).into_response()
}

/// Shows who asks for what.
pub(super) async fn look(State(api): State<Api>, person: Person, fields: Fields) -> ApiResult<Response> {
    let (code, device) = match shown(&api, &person, &fields).await? {
        Ok(shown) => shown,
        Err(refusal) => return Ok(refusal),
    };
    let workspaces = api.store.workspaces_of(person.row.id).await?;
    Ok(question(&person, &code, &device, &workspaces).into_response())
}

fn question(person: &Person, code: &str, device: &DeviceLoginRow, workspaces: &[WorkspaceRow]) -> Page {
    let body = html! {
        p { "What calls itself " strong { (device.client) } " asks to act in your name, " strong { (person.row.username) }
            ". Nobody checked that name." }
        dl { dt { "It shows" } dd { (code) } }
        form method="post" action="/device/decision" {
            (person.field())
            input type="hidden" name="user_code" value=(code);
            (choice::fields("It may", workspaces, device.scope))
            button type="submit" name="decision" value="allow" { "Let it in" }
            " "
            button type="submit" name="decision" value="refuse" { "Refuse" }
        }
        p { "It gets an API key for " (KEY_DAYS) " days, or until you delete it: " code { "cloister tokens list" } "." }
    };
    Page::new(TITLE, body)
}

/// Takes the decision.
pub(super) async fn decide(State(api): State<Api>, person: Person, fields: Fields) -> ApiResult<Response> {
    let (code, device) = match shown(&api, &person, &fields).await? {
        Ok(shown) => shown,
        Err(refusal) => return Ok(refusal),
    };
    if fields.text("decision") != "allow" {
        let is_settled = person.does(&api, "decide_device_login", settle(&api, &code, None)).await?;
        return Ok(if is_settled { done(&device, "was refused") } else { missing(&person, &code) });
    }
    let workspaces = api.store.workspaces_of(person.row.id).await?;
    let Some((workspace, scope)) = choice::made(&fields, &workspaces, device.scope) else {
        let page = question(&person, &code, &device, &workspaces);
        return Ok(page.refused(StatusCode::BAD_REQUEST, choice::NOT_MADE).into_response());
    };
    if !choice::has_room(&api, workspace.id).await? {
        let page = question(&person, &code, &device, &workspaces);
        return Ok(page.refused(StatusCode::TOO_MANY_REQUESTS, choice::TOO_MANY_KEYS).into_response());
    }
    let is_settled = let_in(&api, &person, &code, workspace.id, scope).await?;
    Ok(if is_settled { done(&device, "was let in") } else { missing(&person, &code) })
}

/// The same as an administrator's `POST /auth/device/decision`, in the chain of the workspace.
async fn let_in(
    api: &Api,
    person: &Person,
    code: &str,
    workspace_id: i64,
    scope: KeyScope,
) -> ApiResult<bool> {
    let user_id = person.row.id;
    let holder = Holder { user_id, workspace_id, scope, default_version: ApiVersion::V20260121.as_str() };
    let actor = audit::person(&person.row.username, user_id);
    let named = Named { kind: "user", id: UserId(user_id).to_string() };
    let recorded = Scope::new(actor, "decide_device_login", named, api.clock.clone());
    let recorded = recorded.of_request(person.request_id()).in_chain(workspace_id);
    audit::within(recorded, settle(api, code, Some(holder))).await
}

fn done(device: &DeviceLoginRow, what: &str) -> Response {
    let body = html! { p { strong { (device.client) } " " (what) ". You can close this page." } };
    Page::new(TITLE, body).into_response()
}
