//! Small questions about webhooks that only the API asks.

use super::webhook_deliveries::DeliveryRow;
use super::{Result, Store};

/// How a delivery is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryName<'a> {
    /// By its id.
    Id(i64),
    /// By an event id: the newest one.
    Event(&'a str),
}

const BY_ID: &str = "SELECT id, webhook_id, event_id, event_type, original_event_id, status, attempts, \
     request_url, response_status, error_message, duration_ms, created_at_ms, delivered_at_ms \
     FROM webhook_deliveries WHERE webhook_id = $1 AND id = $2";
const BY_EVENT: &str = "SELECT id, webhook_id, event_id, event_type, original_event_id, status, attempts, \
     request_url, response_status, error_message, duration_ms, created_at_ms, delivered_at_ms \
     FROM webhook_deliveries WHERE webhook_id = $1 AND event_id = $2 ORDER BY id DESC LIMIT 1";

impl Store {
    /// A delivery of a webhook.
    pub async fn webhook_delivery(
        &self,
        webhook_id: i64,
        name: DeliveryName<'_>,
    ) -> Result<Option<DeliveryRow>> {
        let query = match name {
            DeliveryName::Id(id) => sqlx::query_as(BY_ID).bind(webhook_id).bind(id),
            DeliveryName::Event(id) => sqlx::query_as(BY_EVENT).bind(webhook_id).bind(id.to_owned()),
        };
        Ok(query.fetch_optional(&self.pool).await?)
    }

    /// How many deliveries of a webhook did not end yet.
    pub async fn count_waiting_deliveries(&self, webhook_id: i64) -> Result<i64> {
        let (count,): (i64,) = sqlx::query_as(
            "SELECT COUNT(*) FROM webhook_deliveries WHERE webhook_id = $1 AND status = 'pending'",
        )
        .bind(webhook_id)
        .fetch_one(&self.pool)
        .await?;
        Ok(count)
    }

    /// The number of the last event of a workspace; 0 when nothing happened yet.
    pub async fn last_webhook_event(&self, workspace_id: i64) -> Result<i64> {
        let (last,): (i64,) =
            sqlx::query_as("SELECT COALESCE(MAX(id), 0) FROM webhook_events WHERE workspace_id = $1")
                .bind(workspace_id)
                .fetch_one(&self.pool)
                .await?;
        Ok(last)
    }
}
