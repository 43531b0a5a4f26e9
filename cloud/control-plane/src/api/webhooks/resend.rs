//! `POST /workspace/webhooks/{webhook_id}/deliveries/{event_id}/resend`

use axum::Json;
use axum::extract::{Path, State};
use cloister_management_api::{PlainError, WebhookDelivery, WebhookId};
use cloister_webhooks::EventId;

use super::wire::delivery;
use super::{OwnWebhook, disabled, may_send, missing, refused};
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::responses::Authenticated;
use crate::store::Resent;

/// Send an event again
///
/// At once, under a new event id; `original_event_id` names the first one.
#[utoipa::path(
    post, path = "/workspace/webhooks/{webhook_id}/deliveries/{event_id}/resend", tag = "Webhooks",
    operation_id = "resend_webhook_delivery",
    params(
        ("webhook_id" = WebhookId, Path, description = "Id of the webhook"),
        ("event_id" = String, Path, description = "Event id of the delivery", example = "evt_0123456789abcdef"),
    ),
    responses(
        (status = 200, description = "The new delivery, on its way", body = WebhookDelivery),
        (status = 400, description = "The webhook is disabled, or the event is forgotten", body = PlainError),
        (status = 404, description = "The workspace has no such webhook, or the webhook no such delivery", body = PlainError),
        (status = 429, description = "Too often in a minute; repeat the request after `Retry-After`", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn resend(
    State(api): State<Api>,
    Auth(caller): Auth,
    OwnWebhook(row): OwnWebhook,
    Path(path): Path<(String, String)>,
) -> ApiResult<Json<WebhookDelivery>> {
    let unknown = || ApiError::not_found("Delivery");
    let event_id: EventId = path.1.parse().map_err(|_| unknown())?;
    let now_ms = api.clock.now_ms();
    may_send(&api, &caller)?;
    let new = EventId::new(api.random.bytes()?);
    let mut change = api.store.change().await?;
    match change.resend(caller.workspace_id, row.id, event_id.as_str(), new.as_str(), now_ms).await? {
        Resent::Sent(sent) => {
            change.commit().await?;
            Ok(Json(delivery(sent)))
        }
        Resent::Disabled => Err(disabled()),
        Resent::Forgotten => Err(refused("The event is forgotten: events are kept for 14 days")),
        Resent::Unknown => {
            drop(change);
            // The webhook may have been deleted meanwhile.
            api.store.webhook(caller.workspace_id, row.id).await?.ok_or_else(missing)?;
            Err(unknown())
        }
    }
}
