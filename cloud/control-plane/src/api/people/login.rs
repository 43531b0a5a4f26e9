//! `/login` and `/logout`

use std::sync::Arc;

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use url::{Url, form_urlencoded};
use zeroize::Zeroizing;

use super::form::{Fields, From};
use super::guess::{Refusal, Target, is_password, presented, take, too_often};
use super::markup::{Page, code_field};
use super::session::{self, MaybePerson, Person, recorded, with_cookie};
use crate::api::Api;
use crate::api::error::ApiResult;
use crate::api::guard::RequestId;
use crate::audit;
use crate::openid::Openid;

pub(super) const TITLE: &str = "Log in";
const WRONG: &str = "The user name, the password or the code is wrong. If you have set up an authenticator, a code of it \
                     belongs to every login, and each code works once.";
/// Where people go who did not say where.
pub(super) const HOME: &str = "/account";

/// Where somebody goes on who logged in: a path of this server and nothing else.
pub(super) fn own_path(public_url: &Url, wanted: &str) -> String {
    let joined = public_url.join(wanted).ok().filter(|url| {
        wanted.starts_with('/') && url.origin() == public_url.origin() && !url.path().starts_with("//")
    });
    let Some(url) = joined else { return HOME.to_owned() };
    url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()))
}

fn form(api: &Api, username: &str, next: &str) -> Markup {
    html! {
        @if let Some(openid) = &api.openid { (openid_link(openid, next)) }
        @if passwords(api) { (password_form(username, next)) }
        @if let Some(query) = next.strip_prefix("/device") {
            p { "Who has an API key of the scope " code { "admin" } " lets a device in "
                a href={ "/device/key" (query) } { "with that" } ", too." }
        }
    }
}

/// Whether people may log in with a password.
pub(super) fn passwords(api: &Api) -> bool {
    api.openid.as_ref().is_none_or(|openid| openid.config().password_login)
}

/// What to say to those who would like to.
pub(super) fn no_passwords(api: &Api) -> Option<Response> {
    let openid = api.openid.as_ref().filter(|_| !passwords(api))?;
    let words = format!("People log in with {} here, and passwords are not used.", openid.config().name);
    Some(Page::new(TITLE, openid_link(openid, HOME)).refused(StatusCode::FORBIDDEN, words).into_response())
}

fn openid_link(openid: &Openid, next: &str) -> Markup {
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("next", next).finish();
    html! { p { a.button href=(format!("/login/openid?{query}")) { "Log in with " (openid.config().name) } } }
}

fn password_form(username: &str, next: &str) -> Markup {
    html! {
        form method="post" action="/login" {
            input type="hidden" name="next" value=(next);
            label for="username" { "User name" }
            input #username name="username" autocomplete="username" autocapitalize="none" spellcheck="false"
                maxlength="100" value=(username) required;
            label for="password" { "Password" }
            input #password name="password" type="password" autocomplete="current-password" required;
            (code_field("Code of your authenticator, or a backup code, if you have set one up", false))
            button type="submit" { "Log in" }
        }
        p { "Who has no password, or has lost it, asks the operator for a link: " code { "cloister accounts reset NAME" } }
    }
}

/// The form.
pub(super) async fn page(
    State(api): State<Api>,
    MaybePerson(person): MaybePerson,
    RawQuery(query): RawQuery,
) -> Response {
    let next = own_path(&api.public_url, Fields::parse(query.unwrap_or_default().as_bytes()).text("next"));
    if person.is_some() {
        return Redirect::to(&next).into_response();
    }
    Page::new(TITLE, form(&api, "", &next)).into_response()
}

/// Logs somebody in.
pub(super) async fn log_in(
    State(api): State<Api>,
    from: From,
    Extension(RequestId(request_id)): Extension<RequestId>,
    headers: HeaderMap,
    fields: Fields,
) -> ApiResult<Response> {
    if let Some(refusal) = no_passwords(&api) {
        return Ok(refusal);
    }
    let username = fields.text("username").trim().to_lowercase();
    let next = own_path(&api.public_url, fields.text("next"));
    if let Some(refusal) = too_often(&api, from) {
        return Ok(refusal.page(Page::new(TITLE, form(&api, &username, &next)), WRONG));
    }
    match begin(&api, &username, &fields, &headers, &request_id).await? {
        Ok(token) => Ok(with_cookie(Redirect::to(&next), &api.public_url, Some(&token))),
        Err(refusal) => Ok(refusal.page(Page::new(TITLE, form(&api, &username, &next)), WRONG)),
    }
}

/// Begins a session; its cookie.
async fn begin(
    api: &Api,
    username: &str,
    fields: &Fields,
    headers: &HeaderMap,
    request_id: &Arc<str>,
) -> ApiResult<Result<Zeroizing<String>, Refusal>> {
    let target = Target::login(username);
    if let Err(refusal) = target.take(api).await? {
        return Ok(Err(refusal));
    }
    let request_id = Some(request_id.to_string());
    let user_id = api.store.user_named(username).await?;
    let wrong = async || -> ApiResult<Result<Zeroizing<String>, Refusal>> {
        target.was_wrong(api, user_id, request_id.clone()).await?;
        Ok(Err(Refusal::Wrong))
    };
    let is_right = match is_password(api, user_id, fields.secret("password")).await? {
        Ok(is_right) => is_right,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let row = match user_id.filter(|_| is_right) {
        Some(id) => api.store.person(id).await?,
        None => None,
    };
    let Some(row) = row else { return wrong().await };
    let Ok(presented) = presented(api, &row, fields.text("code")).await? else { return wrong().await };
    let work = async {
        let mut change = api.store.change().await?;
        change.about(crate::store::Subject::User(row.id)).await?;
        if !take(&mut change, row.id, presented).await? {
            return Ok(None);
        }
        target.was_right(&mut change).await?;
        let token = session::begin_another(api, &mut change, headers, row.id).await?;
        change.commit().await?;
        ApiResult::Ok(Some(token))
    };
    let actor = audit::person(&row.username, row.id);
    match recorded(api, actor, "log_in", row.id, request_id.clone(), work).await? {
        Some(token) => Ok(Ok(token)),
        None => wrong().await,
    }
}

/// Ends the session of this browser.
pub(super) async fn log_out(State(api): State<Api>, person: Person, fields: Fields) -> ApiResult<Response> {
    if let Some(refusal) = person.refuses(&fields) {
        return Ok(refusal);
    }
    let work = async {
        let mut change = api.store.change().await?;
        change.about(crate::store::Subject::User(person.row.id)).await?;
        change.end_session(&person.session()).await?;
        change.commit().await
    };
    person.does(&api, "log_out", work).await?;
    Ok(with_cookie(Redirect::to("/login"), &api.public_url, None))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nobody_is_sent_elsewhere() {
        let public_url = "https://cloud.example".parse().unwrap();
        for (wanted, path) in [
            ("/device?user_code=A", "/device?user_code=A"),
            ("", HOME),
            ("device", HOME),
            ("//evil.example/", HOME),
            ("/\\evil.example/", HOME),
            ("/.//evil.example/", HOME),
            ("/x/..//evil.example/", HOME),
            ("/\t/evil.example/", HOME),
            ("https://evil.example/", HOME),
            ("javascript:alert(1)", HOME),
            ("/a b", "/a%20b"),
        ] {
            assert_eq!(own_path(&public_url, wanted), path, "{wanted}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_wanted_is_here(wanted in "[/\\\\.a-z:@?#\\t \\n%0-9]{0,20}") {
            let public_url: Url = "https://cloud.example".parse().unwrap();
            let path = own_path(&public_url, &wanted);
            prop_assert_eq!(public_url.join(&path).unwrap().origin(), public_url.origin());
            prop_assert!(path.starts_with('/') && path.is_ascii() && !path.contains(char::is_control));
        }
    }
}
