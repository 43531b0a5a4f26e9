//! People whom the provider names and who have no account here.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::html;
use tracing::info;

use crate::api::Api;
use crate::api::error::ApiResult;
use crate::api::people::login::TITLE;
use crate::api::people::markup::Page;
use crate::audit::{self, Named, Scope};
use crate::openid::{Claimed, Openid};

/// Tells somebody who has no account how to get one.
pub(super) fn unknown(openid: &Openid, subject: &str) -> Response {
    info!(subject, "the OpenID provider names somebody who has no account");
    let name = &openid.config().name;
    refused(openid, subject, format!("{name} knows you, but you have no account here."))
}

/// A refusal with what the operator needs to let somebody in after all. What the provider calls people is its own text: it
/// stands in no command that could be copied into a shell.
fn refused(openid: &Openid, subject: &str, words: String) -> Response {
    let body = html! {
        p { "Ask the operator for an account, or to link yours, and say what " (openid.config().name) " calls you:" }
        dl { dt { "Subject" } dd { (subject) } }
        p { code { "cloister accounts create NAME --openid-subject SUBJECT" } }
        p { code { "cloister accounts link NAME --openid-subject SUBJECT" } }
    };
    Page::new(TITLE, body).refused(StatusCode::FORBIDDEN, words).into_response()
}

/// Makes an account for somebody. Whoever has the same name already is somebody else.
pub(super) async fn join(
    api: &Api,
    openid: &Openid,
    claimed: &Claimed,
    request_id: &Arc<str>,
) -> ApiResult<Result<i64, Response>> {
    let config = openid.config();
    let Some(username) = claimed.username(config) else {
        let words = format!("{} names no user name for you that can be one here.", config.name);
        return Ok(Err(refused(openid, &claimed.subject, words)));
    };
    let now_ms = api.clock.now_ms();
    let openid_name = (config.issuer.as_str(), claimed.subject.as_str());
    let work = async {
        let mut change = api.store.change().await?;
        let email = claimed.email().unwrap_or_default();
        let id = change.insert_user(&username, email, "user", now_ms).await?;
        change.insert_workspace(&username, &username, api.random.bytes()?, id, now_ms).await?;
        change.put_openid(id, openid_name, now_ms).await?;
        change.commit().await?;
        Ok::<_, Joining>(id)
    };
    let named = Named { kind: "user", id: String::new() };
    let scope = Scope::new(audit::newcomer(&username), "join_by_openid", named, api.clock.clone());
    let scope = scope.of_request(Some(request_id.to_string())).in_chain(audit::INSTALLATION);
    match audit::within(scope, work).await {
        Ok(id) => Ok(Ok(id)),
        Err(Joining::Store(error)) if error.is_duplicate() => {
            // Perhaps the same person, in another window, was quicker.
            if let Some(id) = api.store.user_of_openid(openid_name.0, openid_name.1).await? {
                return Ok(Ok(id));
            }
            info!(
                username,
                subject = claimed.subject,
                "a name that the OpenID provider gives somebody is taken"
            );
            let words = format!(
                "There is a user or a workspace of the name '{username}' already, who may be somebody else."
            );
            Ok(Err(refused(openid, &claimed.subject, words)))
        }
        Err(Joining::Store(error)) => Err(error.into()),
        Err(Joining::Random(error)) => Err(error.into()),
    }
}

/// What keeps somebody from getting an account.
#[derive(Debug, thiserror::Error)]
enum Joining {
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
    #[error(transparent)]
    Random(#[from] crate::clock::NoRandomness),
}
