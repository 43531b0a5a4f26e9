//! `POST /workspace/webhooks/{webhook_id}/test`

use axum::Json;
use axum::extract::State;
use cloister_management_api::{PlainError, WebhookDelivery, WebhookId};
use cloister_webhooks::{EventId, EventKind, sample_data};

use super::wire::delivery;
use super::{OwnWebhook, disabled, may_send};
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::responses::Authenticated;

/// Send a webhook a test
///
/// An event of the first kind that it is told of, with sample data: nothing of it exists. The answer comes before the
/// receiver's; `GET …/deliveries` shows what became of it.
#[utoipa::path(
    post, path = "/workspace/webhooks/{webhook_id}/test", tag = "Webhooks", operation_id = "test_webhook",
    params(("webhook_id" = WebhookId, Path, description = "Id of the webhook")),
    responses(
        (status = 200, description = "The delivery, on its way", body = WebhookDelivery),
        (status = 400, description = "The webhook is disabled", body = PlainError),
        (status = 404, description = "The workspace has no such webhook", body = PlainError),
        (status = 429, description = "Too often in a minute; repeat the request after `Retry-After`", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn test(
    State(api): State<Api>,
    Auth(caller): Auth,
    OwnWebhook(row): OwnWebhook,
) -> ApiResult<Json<WebhookDelivery>> {
    let names: Vec<String> = serde_json::from_str(&row.events).map_err(|error| ApiError::internal(&error))?;
    let kind = names.iter().find_map(|name| name.parse::<EventKind>().ok()).ok_or_else(disabled)?;
    let now_ms = api.clock.now_ms();
    may_send(&api, &caller)?;
    let event_id = EventId::new(api.random.bytes()?);
    let data = sample_data(kind).to_string();
    let mut change = api.store.change().await?;
    let event = (kind.as_str(), event_id.as_str(), data.as_str());
    let sent = change.send_test(caller.workspace_id, row.id, event, now_ms).await?.ok_or_else(disabled)?;
    change.commit().await?;
    Ok(Json(delivery(sent)))
}
