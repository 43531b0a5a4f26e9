//! `GET /workspace/webhooks/{webhook_id}/deliveries/{delivery}/attempts`

use axum::Json;
use axum::extract::{Path, State};
use cloister_management_api::{PlainError, WebhookAttempt, WebhookId};

use super::OwnWebhook;
use crate::api::Api;
use crate::api::error::{ApiError, ApiResult};
use crate::api::responses::Authenticated;
use crate::api::view::time;
use crate::store::{AttemptRow, DeliveryName};

/// What stands for the outcome of an attempt that is under way.
const UNDER_WAY: &str = "pending";

/// List the attempts of a delivery
///
/// Every request that was begun, first to last.
#[utoipa::path(
    get, path = "/workspace/webhooks/{webhook_id}/deliveries/{delivery}/attempts", tag = "Webhooks",
    operation_id = "list_webhook_attempts",
    params(
        ("webhook_id" = WebhookId, Path, description = "Id of the webhook"),
        ("delivery" = String, Path, description = "`snowflake_id` of the delivery, or an event id, which stands for the newest one of that event"),
    ),
    responses(
        (status = 200, description = "The attempts", body = Vec<WebhookAttempt>),
        (status = 404, description = "The workspace has no such webhook, or the webhook no such delivery", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn attempts(
    State(api): State<Api>,
    OwnWebhook(webhook): OwnWebhook,
    Path(path): Path<(String, String)>,
) -> ApiResult<Json<Vec<WebhookAttempt>>> {
    let name = path.1.parse().map_or(DeliveryName::Event(&path.1), DeliveryName::Id);
    let delivery = api.store.webhook_delivery(webhook.id, name).await?;
    let delivery = delivery.ok_or_else(|| ApiError::not_found("Delivery"))?;
    let rows = api.store.webhook_attempts(delivery.id).await?;
    Ok(Json(rows.into_iter().map(wire).collect()))
}

fn wire(row: AttemptRow) -> WebhookAttempt {
    WebhookAttempt {
        number: row.number,
        outcome: row.outcome.unwrap_or_else(|| UNDER_WAY.to_owned()),
        began_at: time(row.began_at_ms),
        ended_at: row.ended_at_ms.map(time),
        duration_ms: row.duration_ms,
        response_status: row.response_status,
        error_message: row.error_message,
    }
}
