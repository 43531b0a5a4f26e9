//! `/login/openid/code`: the second factor of people who came back from the provider.

use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use maud::html;

use super::{away, keep, unanswered};
use crate::api::Api;
use crate::api::auth::hash_key;
use crate::api::error::ApiResult;
use crate::api::guard::RequestId;
use crate::api::people::cookies::{CookieOf, OPENID};
use crate::api::people::form::{Fields, From};
use crate::api::people::guess::{Refusal, Target, presented, take, too_often};
use crate::api::people::login::TITLE;
use crate::api::people::markup::{Page, code_field};
use crate::api::people::session::{self, recorded, with_cookie};
use crate::audit;
use crate::openid::{Openid, OpenidError};
use crate::people::Presented;
use crate::store::{OpenidLoginRow, PersonRow, Subject};

const CODE_PAGE: &str = "/login/openid/code";
const WRONG: &str = "This code is wrong, too old, or was used before.";

/// Asks for a code of the second factor, on a page whose address holds nothing.
pub(super) async fn wait_for_code(
    api: &Api,
    openid: &Openid,
    user_id: i64,
    next: &str,
) -> ApiResult<Response> {
    let cookie = CookieOf::new_value(api)?;
    let login = OpenidLoginRow { next: next.to_owned(), user_id: Some(user_id) };
    if !keep(api, &cookie, &login).await? {
        return Ok(unanswered(openid, &OpenidError::Busy));
    }
    Ok(OPENID.set(away(CODE_PAGE), &api.public_url, Some(&cookie)))
}

fn code_form() -> Page {
    let body = html! {
        form method="post" action=(CODE_PAGE) {
            (code_field("Code of your authenticator, or a backup code", true))
            button type="submit" { "Log in" }
        }
    };
    Page::new(TITLE, body)
}

/// The login of this browser that waits for a code: its hash, who it is and where that one goes on.
async fn waiting(api: &Api, headers: &HeaderMap) -> ApiResult<Option<(String, PersonRow, String)>> {
    let Some(cookie) = OPENID.sent(headers, &api.public_url) else { return Ok(None) };
    let hash = hash_key(&cookie);
    let login = api.store.waiting_openid_login(&hash, api.clock.now_ms()).await?;
    let Some((user_id, next)) = login.and_then(|login| Some((login.user_id?, login.next))) else {
        return Ok(None);
    };
    Ok(api.store.person(user_id).await?.map(|row| (hash, row, next)))
}

/// The form for the code.
pub(in crate::api::people) async fn code_page(
    State(api): State<Api>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    Ok(match waiting(&api, &headers).await? {
        Some(_) => code_form().into_response(),
        None => away("/login"),
    })
}

/// What became of a code.
enum Checked {
    In(zeroize::Zeroizing<String>),
    Wrong,
    /// The login ended meanwhile.
    Gone,
}

/// Takes the code.
pub(in crate::api::people) async fn code(
    State(api): State<Api>,
    from: From,
    Extension(RequestId(request_id)): Extension<RequestId>,
    headers: HeaderMap,
    fields: Fields,
) -> ApiResult<Response> {
    let Some((hash, row, next)) = waiting(&api, &headers).await? else { return Ok(away("/login")) };
    if let Some(refusal) = too_often(&api, from) {
        return Ok(refusal.page(code_form(), WRONG));
    }
    let target = Target::code(row.id);
    if let Err(refusal) = target.take(&api).await? {
        return Ok(refusal.page(code_form(), WRONG));
    }
    let request_id = Some(request_id.to_string());
    let checked = match presented(&api, &row, fields.text("code")).await? {
        Ok(presented) => {
            let work = check(&api, &target, &headers, (&hash, row.id), presented);
            let actor = audit::person(&row.username, row.id);
            recorded(&api, actor, "log_in", row.id, request_id.clone(), work).await?
        }
        Err(_) => Checked::Wrong,
    };
    match checked {
        Checked::In(token) => {
            let response = with_cookie(away(&next), &api.public_url, Some(&token));
            Ok(OPENID.set(response, &api.public_url, None))
        }
        Checked::Gone => Ok(away("/login")),
        Checked::Wrong => {
            target.was_wrong(&api, Some(row.id), request_id).await?;
            Ok(Refusal::Wrong.page(code_form(), WRONG))
        }
    }
}

async fn check(
    api: &Api,
    target: &Target,
    headers: &HeaderMap,
    (hash, user_id): (&str, i64),
    presented: Option<Presented>,
) -> ApiResult<Checked> {
    let mut change = api.store.change().await?;
    change.about(Subject::User(user_id)).await?;
    if !change.take_waiting_openid_login(hash, user_id, api.clock.now_ms()).await? {
        return Ok(Checked::Gone);
    }
    if !take(&mut change, user_id, presented).await? {
        return Ok(Checked::Wrong);
    }
    target.was_right(&mut change).await?;
    let token = session::begin_another(api, &mut change, headers, user_id).await?;
    change.commit().await?;
    Ok(Checked::In(token))
}
