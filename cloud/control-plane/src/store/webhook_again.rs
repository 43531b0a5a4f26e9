//! Telling webhooks again what somebody asks for: one event, a test, the events of a time.

use sqlx::FromRow;

use super::webhook_deliveries::{BY_ID, DeliveryRow, NewDelivery};
use super::webhook_events::{NewWebhookEvent, Recipient};
use super::{Change, Result, WebhookEventRow};

/// What became of a wish to send something again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "one at a time, and nearly always the large one")]
pub enum Resent {
    /// It is on its way as this delivery.
    Sent(DeliveryRow),
    /// The webhook has no delivery of such an event, or there is no such webhook.
    Unknown,
    /// What happened is forgotten.
    Forgotten,
    /// The webhook is disabled.
    Disabled,
}

/// Which events are sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayRange {
    /// Events from this time on.
    pub from_ms: i64,
    /// Events before this time.
    pub until_ms: i64,
    /// Only those behind the event with this number; 0 for all.
    pub after: i64,
    /// Only those that the receiver should have had: of which it has no delivery that succeeded or still may.
    pub only_failed: bool,
}

/// What was sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    /// So many events.
    pub count: i64,
    /// Where to go on if there may be more: the number of the last event that was looked at.
    pub next_after: Option<i64>,
}

/// Events that one replay looks at.
pub const MAX_REPLAYED: i64 = 1_000;

#[derive(FromRow)]
struct Original {
    event: i64,
    event_type: String,
    first_id: String,
    kept: i64,
}

impl Change {
    /// Sends an event of a webhook of this workspace again, at once, under a new event id.
    pub async fn resend(
        &mut self,
        workspace_id: i64,
        webhook_id: i64,
        event_id: &str,
        new_event_id: &str,
        now_ms: i64,
    ) -> Result<Resent> {
        let Some(webhook) = self.lock_webhook(workspace_id, webhook_id).await? else {
            return Ok(Resent::Unknown);
        };
        let original: Option<Original> = sqlx::query_as(
            "SELECT d.event, d.event_type, CASE WHEN d.original_event_id = '' THEN d.event_id \
             ELSE d.original_event_id END AS first_id, (SELECT COUNT(*) FROM webhook_events e \
             WHERE e.id = d.event) AS kept FROM webhook_deliveries d \
             WHERE d.webhook_id = $1 AND d.event_id = $2 ORDER BY d.id DESC LIMIT 1",
        )
        .bind(webhook_id)
        .bind(event_id)
        .fetch_optional(&mut *self.transaction)
        .await?;
        let Some(original) = original else { return Ok(Resent::Unknown) };
        match (webhook.enabled, original.kept) {
            (0, _) => return Ok(Resent::Disabled),
            (_, 0) => return Ok(Resent::Forgotten),
            _ => {}
        }
        let id = self.next_delivery_ids(1, now_ms).await?;
        let new = NewDelivery {
            id,
            webhook_id,
            event: original.event,
            event_id: new_event_id,
            event_type: &original.event_type,
            original_event_id: &original.first_id,
            // Waits for nothing: somebody wants to see it now.
            ordering: new_event_id,
            due_at_ms: Some(now_ms),
            request_url: &webhook.url,
        };
        self.insert_delivery(&new, now_ms).await?;
        let row = sqlx::query_as(BY_ID).bind(id).fetch_one(&mut *self.transaction).await?;
        Ok(Resent::Sent(row))
    }

    /// Sends a webhook of this workspace an event that did not happen; `None` when there is no such webhook, or it
    /// is disabled.
    pub async fn send_test(
        &mut self,
        workspace_id: i64,
        webhook_id: i64,
        (event_type, event_id, data): (&str, &str, &str),
        now_ms: i64,
    ) -> Result<Option<DeliveryRow>> {
        let Some(webhook) = self.lock_webhook(workspace_id, webhook_id).await?.filter(|row| row.enabled == 1)
        else {
            return Ok(None);
        };
        let new = NewWebhookEvent {
            workspace_id,
            event_type,
            event_id,
            cvm_id: None,
            ordering: event_id,
            correlation_id: None,
            recipient: Recipient::Only(webhook_id),
            data,
        };
        let event = self.insert_webhook_event_row(&new, now_ms).await?;
        let id = self.next_delivery_ids(1, now_ms).await?;
        let delivery = NewDelivery {
            id,
            webhook_id,
            event,
            event_id,
            event_type,
            original_event_id: "",
            ordering: event_id,
            due_at_ms: Some(now_ms),
            request_url: &webhook.url,
        };
        self.insert_delivery(&delivery, now_ms).await?;
        Ok(sqlx::query_as(BY_ID).bind(id).fetch_optional(&mut *self.transaction).await?)
    }

    /// Sends the events of a time again to a webhook of this workspace, those that it is told of, in their order
    /// and under their event ids. Looks at [`MAX_REPLAYED`] of them; `None` when there is no such webhook, or it is
    /// disabled.
    pub async fn replay(
        &mut self,
        workspace_id: i64,
        webhook_id: i64,
        range: ReplayRange,
        now_ms: i64,
    ) -> Result<Option<Replayed>> {
        let Some(webhook) = self.lock_webhook(workspace_id, webhook_id).await?.filter(|row| row.enabled == 1)
        else {
            return Ok(None);
        };
        let events: Vec<WebhookEventRow> = sqlx::query_as(
            "SELECT id, event_id, event_type, cvm_id, ordering, data, created_at_ms FROM webhook_events \
             WHERE workspace_id = $1 AND id > $2 AND created_at_ms >= $3 AND created_at_ms < $4 \
             AND only_for IS NULL AND ($6 = 0 OR EXISTS (SELECT 1 FROM webhook_deliveries d \
             WHERE d.event_id = webhook_events.event_id AND d.webhook_id = $7)) \
             AND ($6 = 0 OR NOT EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.webhook_id = $7 \
             AND d.event_id = webhook_events.event_id AND d.status <> 'failed')) ORDER BY id LIMIT $5",
        )
        .bind(workspace_id)
        .bind(range.after)
        .bind(range.from_ms)
        .bind(range.until_ms)
        .bind(MAX_REPLAYED)
        .bind(i64::from(range.only_failed))
        .bind(webhook_id)
        .fetch_all(&mut *self.transaction)
        .await?;
        self.lock_pending_deliveries(webhook_id).await?;
        let looked_at = i64::try_from(events.len()).unwrap_or(i64::MAX);
        let next_after = events.last().filter(|_| looked_at == MAX_REPLAYED).map(|event| event.id);
        let names: Vec<String> = serde_json::from_str(&webhook.events).unwrap_or_default();
        let wanted: Vec<_> = events.iter().filter(|event| names.contains(&event.event_type)).collect();
        let count = i64::try_from(wanted.len()).unwrap_or(i64::MAX);
        if count == 0 {
            return Ok(Some(Replayed { count, next_after }));
        }
        let first_id = self.next_delivery_ids(count, now_ms).await?;
        for (id, event) in (first_id..).zip(wanted) {
            let new = NewDelivery {
                id,
                webhook_id,
                event: event.id,
                event_id: &event.event_id,
                event_type: &event.event_type,
                original_event_id: &event.event_id,
                ordering: &event.ordering,
                due_at_ms: None,
                request_url: &webhook.url,
            };
            self.insert_delivery(&new, now_ms).await?;
        }
        sqlx::query(
            "UPDATE webhook_deliveries SET due_at_ms = $2 WHERE due_at_ms IS NULL AND lease_until_ms IS NULL \
             AND id IN (SELECT MIN(id) FROM webhook_deliveries WHERE webhook_id = $1 AND status = 'pending' \
             GROUP BY ordering)",
        )
        .bind(webhook_id)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(Some(Replayed { count, next_after }))
    }
}
