//! Whoever logged in.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use cloister_management_api::{AuditActor, UserId};
use maud::{Markup, html};
use sha2::{Digest, Sha256};
use url::Url;
use zeroize::Zeroizing;

use super::cookies::{CookieOf, SESSION};
use super::form::Fields;
use super::markup::Page;
use crate::api::Api;
use crate::api::auth::hash_key;
use crate::api::error::{ApiError, ApiResult};
use crate::api::guard::RequestId;
use crate::audit::{self, Named, Scope};
use crate::store::{Change, PersonRow};

/// The field of forms that says that this server wrote them.
const FORM_FIELD: &str = "form";

/// The cookie of a request, if it has the form of one.
fn token(headers: &HeaderMap, public_url: &Url) -> Option<Zeroizing<String>> {
    SESSION.sent(headers, public_url)
}

/// An answer after which the browser has this cookie, or none.
pub(super) fn with_cookie(response: impl IntoResponse, public_url: &Url, token: Option<&str>) -> Response {
    SESSION.set(response, public_url, token)
}

/// Begins a session in a change; its cookie.
pub(super) async fn begin(api: &Api, change: &mut Change, user_id: i64) -> ApiResult<Zeroizing<String>> {
    let token = CookieOf::new_value(api)?;
    change.insert_session(&hash_key(&token), user_id, api.clock.now_ms()).await?;
    Ok(token)
}

/// The same instead of the session that the browser has.
pub(super) async fn begin_another(
    api: &Api,
    change: &mut Change,
    headers: &HeaderMap,
    user_id: i64,
) -> ApiResult<Zeroizing<String>> {
    if let Some(former) = token(headers, &api.public_url) {
        change.end_session(&hash_key(&former)).await?;
    }
    begin(api, change, user_id).await
}

/// Somebody who logged in.
pub(in crate::api) struct Person {
    /// Who it is.
    pub(in crate::api) row: PersonRow,
    token: Zeroizing<String>,
    request_id: Option<String>,
}

impl Person {
    /// How the session is kept.
    pub(in crate::api) fn session(&self) -> String {
        hash_key(&self.token)
    }

    /// The id of the request, for a record of it.
    pub(in crate::api) fn request_id(&self) -> Option<String> {
        self.request_id.clone()
    }

    /// What forms of this session hold: nobody makes it without the cookie.
    fn form(&self) -> String {
        hex::encode(Sha256::new().chain_update("cloister-form").chain_update(&*self.token).finalize())
    }

    /// The field with that.
    pub(in crate::api) fn field(&self) -> Markup {
        html! { input type="hidden" name=(FORM_FIELD) value=(self.form()); }
    }

    /// Refuses a form that was not made for this session.
    pub(in crate::api) fn refuses(&self, fields: &Fields) -> Option<Response> {
        if fields.text(FORM_FIELD) == self.form() {
            return None;
        }
        let body = html! { p { a href="/account" { "Go to your account" } } };
        let words =
            "This form is of another session, and nothing was done. Load the page again and repeat it there.";
        Some(Page::new("Too old", body).refused(StatusCode::FORBIDDEN, words).into_response())
    }

    /// Runs what this person does; what it changes is recorded in the chain of the installation.
    pub(in crate::api) async fn does<F: Future>(
        &self,
        api: &Api,
        operation: &'static str,
        work: F,
    ) -> F::Output {
        let actor = audit::person(&self.row.username, self.row.id);
        recorded(api, actor, operation, self.row.id, self.request_id.clone(), work).await
    }
}

/// Runs what somebody does to the account of a user, in the chain of the installation.
pub(super) async fn recorded<F: Future>(
    api: &Api,
    actor: AuditActor,
    operation: &'static str,
    user_id: i64,
    request_id: Option<String>,
    work: F,
) -> F::Output {
    let named = Named { kind: "user", id: UserId(user_id).to_string() };
    let scope = Scope::new(actor, operation, named, api.clock.clone()).of_request(request_id);
    audit::within(scope.in_chain(audit::INSTALLATION), work).await
}

/// Who sends a request, if it is somebody who logged in.
pub(in crate::api) struct MaybePerson(pub(in crate::api) Option<Person>);

impl FromRequestParts<Api> for MaybePerson {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> ApiResult<Self> {
        let Some(token) = token(&parts.headers, &api.public_url) else { return Ok(Self(None)) };
        let (now_ms, hash) = (api.clock.now_ms(), hash_key(&token));
        let Some((user_id, is_to_be_noted)) = api.store.session(&hash, now_ms).await? else {
            return Ok(Self(None));
        };
        if is_to_be_noted {
            let mut change = api.store.upkeep().await?;
            change.touch_session(&hash, now_ms).await?;
            change.commit().await?;
        }
        let request_id = parts.extensions.get::<RequestId>().map(|RequestId(id)| id.to_string());
        let row = api.store.person(user_id).await?;
        Ok(Self(row.map(|row| Person { row, token, request_id })))
    }
}

impl FromRequestParts<Api> for Person {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Response> {
        match MaybePerson::from_request_parts(parts, api).await.map_err(IntoResponse::into_response)? {
            MaybePerson(Some(person)) => Ok(person),
            MaybePerson(None) => Err(to_login(wanted(parts))),
        }
    }
}

/// What was asked for; a form is sent again by nobody.
fn wanted(parts: &Parts) -> &str {
    let path = parts.uri.path_and_query().filter(|_| parts.method.is_safe());
    path.map_or("/account", |path| path.as_str())
}

/// Where somebody logs in who then goes on to what was asked for.
pub(super) fn to_login(wanted: &str) -> Response {
    let query = url::form_urlencoded::Serializer::new(String::new()).append_pair("next", wanted).finish();
    Redirect::to(&format!("/login?{query}")).into_response()
}
