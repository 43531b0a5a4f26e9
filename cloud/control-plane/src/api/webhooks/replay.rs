//! `POST /workspace/webhooks/{webhook_id}/replay`

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cloister_management_api::{PlainError, ReplayWebhookRequest, WebhookCursor, WebhookId, WebhookReplay};

use super::{OwnWebhook, disabled, may_send};
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::Body;
use crate::api::responses::Authenticated;
use crate::store::ReplayRange;

/// Nothing is added to more deliveries that wait than these.
const MAX_WAITING: i64 = 5_000;
const RETRY_AFTER_S: u32 = 60;

/// Send what happened again
///
/// The events of a time that the webhook is told of, in their order and each under its own event id, so that a
/// receiver that has seen one has nothing to do. One request looks at up to 1,000 events; `next_after` says where to
/// go on. Events are kept for 14 days.
#[utoipa::path(
    post, path = "/workspace/webhooks/{webhook_id}/replay", tag = "Webhooks", operation_id = "replay_webhook",
    params(("webhook_id" = WebhookId, Path, description = "Id of the webhook")),
    request_body = ReplayWebhookRequest,
    responses(
        (status = 200, description = "What is on its way", body = WebhookReplay),
        (status = 400, description = "The webhook is disabled", body = PlainError),
        (status = 404, description = "The workspace has no such webhook", body = PlainError),
        (status = 429, description = "Too often in a minute, or 5,000 deliveries wait; repeat the request after `Retry-After`", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn replay(
    State(api): State<Api>,
    Auth(caller): Auth,
    OwnWebhook(row): OwnWebhook,
    Body(request): Body<ReplayWebhookRequest>,
) -> ApiResult<Json<WebhookReplay>> {
    let now_ms = api.clock.now_ms();
    let range = ReplayRange {
        from_ms: request.since.0.as_millisecond(),
        until_ms: request.until.map_or(now_ms, |until| until.0.as_millisecond()),
        after: request.after.map_or(0, |after| after.0.0),
        only_failed: request.only_failed,
    };
    if range.until_ms <= range.from_ms {
        return Err(ApiError::fault(&["body", "until"], "value_error", "Input should be later than since"));
    }
    let waiting = api.store.count_waiting_deliveries(row.id).await?;
    if waiting >= MAX_WAITING {
        let text = format!("{waiting} deliveries of the webhook wait; repeat the request when they are done");
        return Err(ApiError::plain(StatusCode::TOO_MANY_REQUESTS, text).retry_after(RETRY_AFTER_S));
    }
    may_send(&api, &caller)?;
    let mut change = api.store.change().await?;
    let replayed = change.replay(caller.workspace_id, row.id, range, now_ms).await?.ok_or_else(disabled)?;
    change.commit().await?;
    Ok(Json(WebhookReplay { count: replayed.count, next_after: replayed.next_after.map(WebhookCursor) }))
}
