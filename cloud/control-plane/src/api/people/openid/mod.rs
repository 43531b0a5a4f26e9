//! `/login/openid`: people whom an OpenID provider names.
//!
//! A browser gets a random cookie and goes to the provider with values that are computed of it; it comes back with a code,
//! once, within ten minutes. What it needs after that is what a password needs: the code of a second factor, where the
//! account has one (`code`). Who has no account may get one (`join`).

mod code;
mod join;

use std::sync::Arc;

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::header::{CACHE_CONTROL, RETRY_AFTER};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use tracing::{info, warn};
use url::{Url, form_urlencoded};

use code::wait_for_code;
pub(super) use code::{code, code_page};
use join::{join, unknown};

use super::cookies::{CookieOf, OPENID};
use super::form::{Fields, From};
use super::guess::too_often;
use super::login::{HOME, TITLE, own_path};
use super::markup::Page;
use super::session::{self, MaybePerson, recorded, with_cookie};
use crate::api::Api;
use crate::api::auth::hash_key;
use crate::api::error::{ApiError, ApiResult};
use crate::api::guard::RequestId;
use crate::audit;
use crate::openid::{Attempt, CALLBACK, CameBack, Claimed, Openid, OpenidError, UnknownPeople};
use crate::store::{OpenidLoginRow, Subject};

/// How long a login may take at the provider, and how long a code of the second factor is waited for.
pub(super) const LOGIN_MS: i64 = 10 * 60 * 1000;
/// Logins that are on their way.
const MAX_LOGINS: i64 = 10_000;
/// Parameters that an answer has at most once.
const PARAMETERS: [&str; 4] = ["code", "state", "error", "iss"];

fn redirect_uri(public_url: &Url) -> String {
    let mut url = public_url.clone();
    url.set_path(CALLBACK);
    url.set_query(None);
    url.into()
}

fn again(next: &str) -> Markup {
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("next", next).finish();
    html! { p { a href=(format!("/login?{query}")) { "Log in again" } } }
}

fn failed(status: StatusCode, words: impl Into<String>) -> Response {
    Page::new(TITLE, again(HOME)).refused(status, words).into_response()
}

/// A way elsewhere, which nobody keeps: the address that leads here holds a code.
fn away(to: &str) -> Response {
    ([(CACHE_CONTROL, "no-store")], Redirect::to(to)).into_response()
}

fn no_provider() -> Response {
    failed(
        StatusCode::NOT_FOUND,
        "Nobody logs in here by an OpenID provider: the operator has configured none.",
    )
}

/// What a person is told of a provider that failed; the rest is in the log, without a code or a token.
fn unanswered(openid: &Openid, error: &OpenidError) -> Response {
    warn!(error = error as &dyn std::error::Error, "a login by the OpenID provider failed");
    let name = &openid.config().name;
    let (status, words) = match error {
        OpenidError::Busy => {
            let words = "Too many people log in at this moment. Try again in a few seconds.".to_owned();
            (StatusCode::SERVICE_UNAVAILABLE, words)
        }
        OpenidError::Declined(_) | OpenidError::NoCode => {
            (StatusCode::FORBIDDEN, format!("{name} did not let you through, or you changed your mind."))
        }
        OpenidError::AnotherIssuer | OpenidError::Refused(_) | OpenidError::Token(_) => {
            let words = format!(
                "{name} did not say who you are in a way that can be relied on. Log in again; if that repeats itself, \
                 tell the operator."
            );
            (StatusCode::FORBIDDEN, words)
        }
        _ => {
            let instead = if openid.config().password_login { ", or log in with a password" } else { "" };
            let words = format!(
                "{name} does not answer as it should. Try again in a minute{instead}; if that repeats itself, tell the \
                 operator."
            );
            (StatusCode::BAD_GATEWAY, words)
        }
    };
    let mut response = failed(status, words);
    if status != StatusCode::FORBIDDEN {
        let wait_s = i64::from(crate::api::error::RETRY_AFTER_S);
        response.headers_mut().insert(RETRY_AFTER, wait_s.into());
    }
    response
}

/// Sends the browser to the provider.
pub(super) async fn begin(
    State(api): State<Api>,
    MaybePerson(person): MaybePerson,
    from: From,
    RawQuery(query): RawQuery,
) -> ApiResult<Response> {
    let Some(openid) = &api.openid else { return Ok(no_provider()) };
    let next = own_path(&api.public_url, Fields::parse(query.unwrap_or_default().as_bytes()).text("next"));
    if person.is_some() {
        return Ok(away(&next));
    }
    if let Some(refusal) = too_often(&api, from) {
        return Ok(refusal.page(Page::new(TITLE, again(&next)), ""));
    }
    let cookie = CookieOf::new_value(&api)?;
    let attempt = Attempt::of(&cookie).map_err(|error| ApiError::internal(&error))?;
    let url = match openid.authorization_url(&attempt, &redirect_uri(&api.public_url)).await {
        Ok(url) => url,
        Err(error) => return Ok(unanswered(openid, &error)),
    };
    let login = OpenidLoginRow { next, user_id: None };
    if !keep(&api, &cookie, &login).await? {
        return Ok(unanswered(openid, &OpenidError::Busy));
    }
    Ok(OPENID.set(away(url.as_str()), &api.public_url, Some(&cookie)))
}

/// Keeps a login that is on its way; whether there was room.
async fn keep(api: &Api, cookie: &str, login: &OpenidLoginRow) -> ApiResult<bool> {
    let now_ms = api.clock.now_ms();
    let mut change = api.store.upkeep().await?;
    let times = (now_ms, now_ms + LOGIN_MS);
    let is_kept = change.insert_openid_login(&hash_key(cookie), login, times, MAX_LOGINS).await?;
    change.commit().await?;
    Ok(is_kept)
}

/// Takes the browser back.
pub(super) async fn callback(
    State(api): State<Api>,
    Extension(RequestId(request_id)): Extension<RequestId>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> ApiResult<Response> {
    let Some(openid) = &api.openid else { return Ok(no_provider()) };
    let fields = Fields::parse(query.unwrap_or_default().as_bytes());
    let Some((attempt, login)) = begun(&api, &headers, &fields).await? else {
        let words =
            "This login was not begun in this browser, or more than ten minutes ago, or it was used before.";
        return Ok(failed(StatusCode::BAD_REQUEST, words));
    };
    let came_back =
        CameBack { code: fields.text("code"), error: fields.text("error"), issuer: fields.text("iss") };
    let named = openid.finish(&attempt, &redirect_uri(&api.public_url), came_back).await;
    let response = match named {
        Ok(claimed) => let_in(&api, openid, &claimed, &login.next, &headers, &request_id).await?,
        Err(error) => unanswered(openid, &error),
    };
    Ok(response)
}

/// The login that comes back, which is used up by that. A state that is not of this browser uses nothing up.
async fn begun(
    api: &Api,
    headers: &HeaderMap,
    fields: &Fields,
) -> ApiResult<Option<(Attempt, OpenidLoginRow)>> {
    let Some(cookie) = OPENID.sent(headers, &api.public_url) else { return Ok(None) };
    let attempt = Attempt::of(&cookie).map_err(|error| ApiError::internal(&error))?;
    if fields.has_twice(&PARAMETERS) || fields.text("state") != attempt.state {
        return Ok(None);
    }
    let mut change = api.store.upkeep().await?;
    let login = change.take_openid_login(&hash_key(&cookie), api.clock.now_ms()).await?;
    change.commit().await?;
    Ok(login.map(|login| (attempt, login)))
}

/// Lets somebody in whom the provider named, as far as the operator does.
async fn let_in(
    api: &Api,
    openid: &Openid,
    claimed: &Claimed,
    next: &str,
    headers: &HeaderMap,
    request_id: &Arc<str>,
) -> ApiResult<Response> {
    let config = openid.config();
    let subject = claimed.subject.as_str();
    if let Err(why) = claimed.check(config) {
        info!(%why, subject, "somebody whom the OpenID provider knows was not let in");
        let words = format!("{} knows you, but the operator lets only certain people in.", config.name);
        return Ok(failed(StatusCode::FORBIDDEN, words));
    }
    let known = api.store.user_of_openid(&config.issuer, subject).await?;
    let user_id = match (known, config.unknown_people) {
        (Some(id), _) => id,
        (None, UnknownPeople::Refuse) => return Ok(unknown(openid, subject)),
        (None, UnknownPeople::Create) => match join(api, openid, claimed, request_id).await? {
            Ok(id) => id,
            Err(refusal) => return Ok(refusal),
        },
    };
    let row = api.store.person(user_id).await?.ok_or_else(|| ApiError::not_found("User"))?;
    if row.has_second_factor > 0 && !claimed.has_second_factor(config) {
        return wait_for_code(api, openid, user_id, next).await;
    }
    let work = async {
        let mut change = api.store.change().await?;
        change.about(Subject::User(row.id)).await?;
        let token = session::begin_another(api, &mut change, headers, row.id).await?;
        change.commit().await?;
        ApiResult::Ok(token)
    };
    let actor = audit::person(&row.username, row.id);
    let token = recorded(api, actor, "log_in", row.id, Some(request_id.to_string()), work).await?;
    let response = with_cookie(away(next), &api.public_url, Some(&token));
    Ok(OPENID.set(response, &api.public_url, None))
}
