//! `/workspace/webhooks`: where a workspace wants events told to, what became of them, and telling them again.
//!
//! Everything looks for the webhook in the caller's workspace first: one of another workspace is not there.

pub(crate) mod attempts;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod deliveries;
pub(crate) mod detail;
pub(crate) mod event_types;
mod input;
pub(crate) mod list;
pub(crate) mod replay;
pub(crate) mod resend;
pub(crate) mod reveal_secret;
pub(crate) mod rotate_secret;
pub(crate) mod stats;
pub(crate) mod stream;
pub(crate) mod test;
pub(crate) mod update;
mod wire;

pub(crate) use input::MAX_CHECKS;
pub(crate) use stream::MAX_STREAMS;

use std::num::NonZeroU32;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::StatusCode;
use axum::http::request::Parts;
use cloister_management_api::WebhookId;

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::rate::Left;
use crate::store::{Caller, WebhookRow};

/// Most webhooks of a workspace.
const MAX_WEBHOOKS: i64 = 20;
/// Tests, repetitions and replays of a workspace in a minute: somebody else's server may stand at the address.
pub(crate) const SENT_PER_MINUTE: Option<NonZeroU32> = NonZeroU32::new(60);

/// The webhook that the path's `webhook_id` names, of the caller's workspace. It is looked for before the rest of a
/// request is read.
pub(crate) struct OwnWebhook(WebhookRow);

impl FromRequestParts<Api> for OwnWebhook {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> ApiResult<Self> {
        let Auth(caller) = Auth::from_request_parts(parts, api).await?;
        let path = RawPathParams::from_request_parts(parts, api).await.map_err(|_| missing())?;
        let text = path.iter().find_map(|(name, value)| (name == "webhook_id").then_some(value));
        let id = named(text.unwrap_or_default())?;
        api.store.webhook(caller.workspace_id, id).await?.map(Self).ok_or_else(missing)
    }
}

/// The number behind an id; a text that is none names nothing.
fn named(id: &str) -> ApiResult<i64> {
    id.parse::<WebhookId>().map(|id| id.0).map_err(|_| missing())
}

/// Counts something that is to be sent; refuses it when it is too much.
fn may_send(api: &Api, caller: &Caller) -> ApiResult<()> {
    let too_often = |left: Left| {
        let limit = left.limit();
        left.error(format!("A workspace sends tests, repetitions and replays {limit} times a minute"))
    };
    api.webhook_sends.take(&caller.workspace_id).map(drop).map_err(too_often)
}

fn missing() -> ApiError {
    ApiError::not_found("Webhook")
}

fn refused(reason: impl Into<String>) -> ApiError {
    ApiError::plain(StatusCode::BAD_REQUEST, reason)
}

/// Nothing is sent to a webhook that is disabled.
fn disabled() -> ApiError {
    refused(
        "The webhook is disabled; enable it first: PUT /workspace/webhooks/{webhook_id} {\"enabled\": true}",
    )
}
