//! Rows as the interface shows them.

use cloister_management_api::{Webhook, WebhookDelivery, WebhookId};
use cloister_webhooks::Secret;

use crate::api::Api;
use crate::api::error::{ApiError, ApiResult};
use crate::api::view::time;
use crate::store::{DeliveryRow, WebhookRow};

/// How much of a secret is shown.
pub(super) enum Shown<'a> {
    /// What tells it apart from others.
    Masked,
    /// All of this one.
    Full(&'a Secret),
}

/// A webhook.
pub(super) fn webhook(api: &Api, row: WebhookRow, shown: &Shown<'_>) -> Webhook {
    let secret = match shown {
        Shown::Full(secret) => Some(secret.expose().to_owned()),
        // One that cannot be opened any more is no reason to hide that the webhook is there.
        Shown::Masked => opened(api, &row).ok().map(|secret| secret.masked()),
    };
    let now_ms = api.clock.now_ms();
    Webhook {
        id: WebhookId(row.id),
        url: row.url,
        secret,
        events: serde_json::from_str(&row.events).unwrap_or_default(),
        name: row.name,
        enabled: row.enabled == 1,
        disabled_reason: row.disabled_reason,
        previous_secret_until: row.previous_until_ms.filter(|until_ms| *until_ms > now_ms).map(time),
        created_at: time(row.created_at_ms),
        updated_at: time(row.updated_at_ms),
    }
}

/// The secret of a webhook.
pub(super) fn opened(api: &Api, row: &WebhookRow) -> ApiResult<Secret> {
    api.webhook_secrets.unseal(row.id, &row.sealed_secret).map_err(|error| ApiError::internal(&error))
}

/// A delivery.
pub(super) fn delivery(row: DeliveryRow) -> WebhookDelivery {
    WebhookDelivery {
        snowflake_id: row.id,
        event_id: row.event_id,
        event_type: row.event_type,
        status: row.status,
        attempts: row.attempts,
        request_url: row.request_url,
        response_status: row.response_status,
        error_message: row.error_message,
        created_at: time(row.created_at_ms),
        duration_ms: row.duration_ms,
        delivered_at: row.delivered_at_ms.map(time),
        original_event_id: row.original_event_id,
    }
}
