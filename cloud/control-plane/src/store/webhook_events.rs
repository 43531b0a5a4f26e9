//! What happened and is to be told to webhooks: written in the transaction of what happened.

use sqlx::FromRow;

use super::{Change, Result, Store};

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct WebhookEventRow {
    /// Its number; later ones are larger.
    pub id: i64,
    /// What kind of event, such as `cvm.update.pending_approval`.
    pub event_type: String,
    /// The CVM that it is about.
    pub cvm_id: Option<i64>,
    /// What is told about it, JSON; without anything secret.
    pub data: String,
    /// When it happened.
    pub created_at_ms: i64,
}

impl Store {
    /// At most `limit` events of a workspace after the one with a number, oldest first.
    pub async fn webhook_events(
        &self,
        workspace_id: i64,
        after: i64,
        limit: i64,
    ) -> Result<Vec<WebhookEventRow>> {
        Ok(sqlx::query_as(
            "SELECT id, event_type, cvm_id, data, created_at_ms FROM webhook_events \
             WHERE workspace_id = $1 AND id > $2 ORDER BY id LIMIT $3",
        )
        .bind(workspace_id)
        .bind(after)
        .bind(limit)
        .fetch_all(&self.pool)
        .await?)
    }
}

impl Change {
    /// Notes that something happened; its number.
    pub async fn insert_webhook_event(
        &mut self,
        workspace_id: i64,
        event_type: &str,
        cvm_id: Option<i64>,
        data: &str,
        now_ms: i64,
    ) -> Result<i64> {
        let id = self.next_id("webhook_events").await?;
        sqlx::query(
            "INSERT INTO webhook_events (id, workspace_id, event_type, cvm_id, data, created_at_ms) \
             VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(id)
        .bind(workspace_id)
        .bind(event_type)
        .bind(cvm_id)
        .bind(data)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(id)
    }

    /// Forgets at most `limit` events from before this time; how many it were.
    pub async fn delete_old_webhook_events(&mut self, before_ms: i64, limit: i64) -> Result<u64> {
        let done = sqlx::query(
            "DELETE FROM webhook_events WHERE id IN \
             (SELECT id FROM webhook_events WHERE created_at_ms <= $1 ORDER BY id LIMIT $2)",
        )
        .bind(before_ms)
        .bind(limit)
        .execute(&mut *self.transaction)
        .await?;
        Ok(done.rows_affected())
    }
}
