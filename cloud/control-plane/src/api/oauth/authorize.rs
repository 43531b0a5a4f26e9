//! `/oauth/authorize`: a person lets an application in (RFC 6749 section 4.1.1), with PKCE (RFC 7636).

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::http::header::CACHE_CONTROL;
use axum::response::{IntoResponse, Redirect, Response};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use cloister_management_api::{KeyScope, UserId};
use maud::html;
use url::{Host, Url};

use super::clients::{Client, is_loopback};
use super::metadata::issuer;
use crate::api::Api;
use crate::api::auth::hash_key;
use crate::api::error::ApiResult;
use crate::api::people::{Fields, Page, Person, choice};
use crate::audit::{self, Named, Scope};
use crate::store::{NewOauthCode, WorkspaceRow};

/// How long a code works.
const CODE_MS: i64 = 60_000;
const MAX_STATE: usize = 2048;
/// A SHA-256 in base64url.
const CHALLENGE_CHARS: usize = 43;
const TITLE: &str = "Let an application in";
/// Parameters that a request has at most once (RFC 6749 section 3.1).
const PARAMETERS: [&str; 7] = [
    "client_id",
    "redirect_uri",
    "response_type",
    "state",
    "scope",
    "code_challenge",
    "code_challenge_method",
];
/// What an application asks for, which has told who it is and where answers go.
struct Asked<'a> {
    client: &'a Client,
    redirect: Url,
    redirect_uri: String,
    state: Option<String>,
}

/// The same in full.
struct Request<'a> {
    asked: Asked<'a>,
    scope: KeyScope,
    challenge: String,
}

/// Why the application is told nothing but an error (RFC 6749 section 4.1.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Refused(&'static str, &'static str);

impl Asked<'_> {
    /// An answer to the application, which says whose it is (RFC 9207).
    fn answer(&self, api: &Api, members: &[(&str, &str)]) -> Response {
        let mut url = self.redirect.clone();
        {
            let mut query = url.query_pairs_mut();
            query.extend_pairs(members);
            if let Some(state) = &self.state {
                query.append_pair("state", state);
            }
            query.append_pair("iss", &issuer(&api.public_url));
        }
        ([(CACHE_CONTROL, "no-store")], Redirect::to(url.as_str())).into_response()
    }

    fn refuse(&self, api: &Api, Refused(error, description): Refused) -> Response {
        self.answer(api, &[("error", error), ("error_description", description)])
    }

    /// Where a form of the page may lead: browsers look at redirects, too.
    fn form_target(&self) -> String {
        let origin = self.redirect.origin();
        match self.redirect.host() {
            Some(Host::Domain(_) | Host::Ipv4(_)) if origin.is_tuple() => origin.ascii_serialization(),
            // There is no way to write an IPv6 address in a policy, and an application's own scheme has no origin.
            _ => format!("{}:", self.redirect.scheme()),
        }
    }

    /// The machine that the answer goes to; none, if it is a program on the person's computer.
    fn machine(&self) -> Option<&str> {
        let is_here = is_loopback(&self.redirect) || self.redirect.scheme() != "https";
        self.redirect.host_str().filter(|_| !is_here)
    }
}

/// Reads who asks. What does not belong to a known application goes nowhere: a person reads it.
fn asked<'a>(api: &'a Api, fields: &Fields) -> Result<Asked<'a>, Box<Response>> {
    let refused = |words: &str| {
        let body = html! { p { "Nothing was allowed. Tell whoever made the application, or the operator of this service." } };
        Page::new("Unknown application", body).refused(StatusCode::BAD_REQUEST, words).into_response().into()
    };
    if fields.has_twice(&["client_id", "redirect_uri"]) {
        return Err(refused("The application says twice who it is."));
    }
    let client = api.oauth_clients.iter().find(|client| client.id == fields.text("client_id"));
    let Some(client) = client else {
        return Err(refused("This service does not know the application that sent you here."));
    };
    let redirect_uri = fields.text("redirect_uri").to_owned();
    let Some(redirect) = client.redirect(&redirect_uri) else {
        return Err(refused(
            "The application wants the answer at an address that is not known to be its own.",
        ));
    };
    let state = Some(fields.text("state")).filter(|state| !state.is_empty()).map(str::to_owned);
    Ok(Asked { client, redirect, redirect_uri, state })
}

/// Reads what is asked for.
fn read(fields: &Fields) -> Result<(KeyScope, String), Refused> {
    if fields.has_twice(&PARAMETERS) {
        return Err(Refused("invalid_request", "a parameter is there twice"));
    }
    if fields.text("state").len() > MAX_STATE {
        return Err(Refused("invalid_request", "state has more than 2048 bytes"));
    }
    if fields.text("response_type") != "code" {
        return Err(Refused("unsupported_response_type", "response_type has to be code"));
    }
    if fields.text("code_challenge_method") != "S256" {
        return Err(Refused("invalid_request", "code_challenge_method has to be S256"));
    }
    let challenge = fields.text("code_challenge");
    let is_hash = challenge.len() == CHALLENGE_CHARS && BASE64_URL_SAFE_NO_PAD.decode(challenge).is_ok();
    if !is_hash {
        return Err(Refused("invalid_request", "code_challenge has to be a SHA-256 in base64url"));
    }
    let scope = match fields.text("scope") {
        "" => KeyScope::Deploy,
        text => text.parse().map_err(|_| {
            Refused("invalid_scope", "scope has to be one of inference, read, deploy and admin")
        })?,
    };
    Ok((scope, challenge.to_owned()))
}

fn request<'a>(api: &'a Api, fields: &Fields) -> Result<Request<'a>, Box<Response>> {
    let asked = asked(api, fields)?;
    match read(fields) {
        Ok((scope, challenge)) => Ok(Request { asked, scope, challenge }),
        Err(refused) => {
            // A state that is too long is not sent back either.
            let state = asked.state.clone().filter(|state| state.len() <= MAX_STATE);
            Err(Asked { state, ..asked }.refuse(api, refused).into())
        }
    }
}

/// Asks the person.
pub(crate) async fn page(
    State(api): State<Api>,
    RawQuery(query): RawQuery,
    person: Result<Person, Response>,
) -> ApiResult<Response> {
    let fields = Fields::parse(query.unwrap_or_default().as_bytes());
    let request = match request(&api, &fields) {
        Ok(request) => request,
        Err(response) => return Ok(*response),
    };
    let person = match person {
        Ok(person) => person,
        Err(to_login) => return Ok(to_login),
    };
    let workspaces = api.store.workspaces_of(person.row.id).await?;
    Ok(consent(&request, &person, &workspaces, &fields).into_response())
}

fn consent(request: &Request<'_>, person: &Person, workspaces: &[WorkspaceRow], fields: &Fields) -> Page {
    let Request { asked, scope, .. } = request;
    let body = html! {
        p { strong { (asked.client.name) } " asks to act in your name, " strong { (person.row.username) } "." }
        p {
            @if let Some(machine) = asked.machine() { "The answer goes to " strong { (machine) } "." }
            @else { "The answer goes to a program on this computer. Allow it only if you started that a moment ago." }
        }
        form method="post" action="/oauth/authorize" {
            (person.field())
            @for name in PARAMETERS {
                @if !fields.text(name).is_empty() { input type="hidden" name=(name) value=(fields.text(name)); }
            }
            (choice::fields("It may", workspaces, *scope))
            button type="submit" name="decision" value="allow" { "Allow" }
            " "
            button type="submit" name="decision" value="refuse" { "Refuse" }
        }
        p { "What you allow ends when you delete its key: " code { "cloister tokens list" } "." }
    };
    Page::new(TITLE, body).leading_to(asked.form_target())
}

/// Takes the decision of the person, and sends the browser back to the application.
pub(crate) async fn decide(State(api): State<Api>, person: Person, fields: Fields) -> ApiResult<Response> {
    if let Some(refusal) = person.refuses(&fields) {
        return Ok(refusal);
    }
    let request = match request(&api, &fields) {
        Ok(request) => request,
        Err(response) => return Ok(*response),
    };
    if fields.text("decision") != "allow" {
        return Ok(request.asked.refuse(&api, Refused("access_denied", "the person refused")));
    }
    let workspaces = api.store.workspaces_of(person.row.id).await?;
    let Some((workspace, scope)) = choice::made(&fields, &workspaces, request.scope) else {
        let page = consent(&request, &person, &workspaces, &fields);
        return Ok(page.refused(StatusCode::BAD_REQUEST, choice::NOT_MADE).into_response());
    };
    let now_ms = api.clock.now_ms();
    if !choice::has_room(&api, workspace.id).await? {
        let page = consent(&request, &person, &workspaces, &fields);
        return Ok(page.refused(StatusCode::TOO_MANY_REQUESTS, choice::TOO_MANY_KEYS).into_response());
    }
    let code = hex::encode(api.random.bytes::<32>()?);
    let new = NewOauthCode {
        code_hash: hash_key(&code),
        client_id: request.asked.client.id.clone(),
        redirect_uri: request.asked.redirect_uri.clone(),
        challenge: request.challenge.clone(),
        user_id: person.row.id,
        workspace_id: workspace.id,
        scope,
        expires_at_ms: now_ms + CODE_MS,
    };
    let work = async {
        let mut change = api.store.change().await?;
        change.insert_oauth_code(&new).await?;
        change.commit().await
    };
    let named = Named { kind: "user", id: UserId(person.row.id).to_string() };
    let actor = audit::person(&person.row.username, person.row.id);
    let scope = Scope::new(actor, "allow_application", named, api.clock.clone());
    audit::within(scope.of_request(person.request_id()).in_chain(workspace.id), work).await?;
    Ok(request.asked.answer(&api, &[("code", &code)]))
}
