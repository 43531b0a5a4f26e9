//! What happened and is to be told to webhooks: written in the transaction of what happened, together with one
//! delivery for each webhook that wants to know.

use sqlx::FromRow;

use super::webhook_deliveries::NewDelivery;
use super::{Change, Engine, Result, Store};

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct WebhookEventRow {
    /// Its number; later ones are larger, and none appears behind one that was seen.
    pub id: i64,
    /// Its identity on the wire.
    pub event_id: String,
    /// What kind of event, such as `cvm.update.pending_approval`.
    pub event_type: String,
    /// The CVM that it is about.
    pub cvm_id: Option<i64>,
    /// Events with the same key are told one after the other.
    pub ordering: String,
    /// What is told about it, JSON; without anything secret.
    pub data: String,
    /// When it happened.
    pub created_at_ms: i64,
}

/// Who is told of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recipient {
    /// Every enabled webhook of the workspace that wants to know of its kind.
    Subscribers,
    /// One webhook, of something that did not happen.
    Only(i64),
}

/// An event to be stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewWebhookEvent<'a> {
    /// Where it happened.
    pub(crate) workspace_id: i64,
    /// What kind of event.
    pub(crate) event_type: &'a str,
    /// Its identity on the wire.
    pub(crate) event_id: &'a str,
    /// The CVM that it is about.
    pub(crate) cvm_id: Option<i64>,
    /// Events with the same key are told one after the other.
    pub(crate) ordering: &'a str,
    /// The operation that ended with it.
    pub(crate) correlation_id: Option<uuid::Uuid>,
    /// Who is told.
    pub(crate) recipient: Recipient,
    /// JSON, without anything secret.
    pub(crate) data: &'a str,
}

#[derive(FromRow)]
struct Subscriber {
    id: i64,
    url: String,
    events: String,
}

/// The last delivery that each webhook still has to be told in an order, and the first: who comes behind the last one
/// takes the first one before it, as those do who end the first one and let the next one come.
macro_rules! last_pending {
    ($locking:literal) => {
        concat!(
            "SELECT d.webhook_id FROM webhook_deliveries d WHERE d.status = 'pending' AND d.id IN \
             (SELECT (SELECT MAX(p.id) FROM webhook_deliveries p WHERE p.webhook_id = w.id AND p.ordering = $2 \
             AND p.status = 'pending') FROM webhooks w WHERE w.workspace_id = $1 AND w.deleted_at_ms IS NULL \
             UNION ALL SELECT (SELECT MIN(p.id) FROM webhook_deliveries p WHERE p.webhook_id = w.id \
             AND p.ordering = $2 AND p.status = 'pending') FROM webhooks w WHERE w.workspace_id = $1 \
             AND w.deleted_at_ms IS NULL) ORDER BY d.id",
            $locking
        )
    };
}

impl Store {
    /// At most `limit` events of a workspace after the one with a number, oldest first.
    pub async fn events_after(
        &self,
        workspace_id: i64,
        after: i64,
        limit: i64,
    ) -> Result<Vec<WebhookEventRow>> {
        Ok(sqlx::query_as(
            "SELECT id, event_id, event_type, cvm_id, ordering, data, created_at_ms FROM webhook_events \
             WHERE workspace_id = $1 AND id > $2 AND only_for IS NULL ORDER BY id LIMIT $3",
        )
        .bind(workspace_id)
        .bind(after)
        .bind(limit)
        .fetch_all(&self.pool)
        .await?)
    }

    /// Workspaces with more than `kept` events, each with the number of the newest that is too many.
    pub async fn events_beyond(&self, kept: i64) -> Result<Vec<(i64, i64)>> {
        let found: Vec<(i64, Option<i64>)> = sqlx::query_as(
            "SELECT w.id, (SELECT e.id FROM webhook_events e WHERE e.workspace_id = w.id \
             ORDER BY e.id DESC LIMIT 1 OFFSET $1) FROM workspaces w ORDER BY w.id",
        )
        .bind(kept)
        .fetch_all(&self.pool)
        .await?;
        Ok(found.into_iter().filter_map(|(workspace, event)| Some((workspace, event?))).collect())
    }
}

impl Change {
    /// Notes that something happened, with a delivery for everybody who wants to know; its number. Whoever calls it
    /// holds what the event's order goes by (the CVM, or the workspace), and calls it late: what is numbered here
    /// is numbered in the order of commits.
    pub(crate) async fn insert_webhook_event(
        &mut self,
        new: &NewWebhookEvent<'_>,
        now_ms: i64,
    ) -> Result<i64> {
        let event = self.insert_webhook_event_row(new, now_ms).await?;
        let subscribers: Vec<Subscriber> = sqlx::query_as(
            "SELECT id, url, events FROM webhooks \
             WHERE workspace_id = $1 AND enabled = 1 AND deleted_at_ms IS NULL ORDER BY id",
        )
        .bind(new.workspace_id)
        .fetch_all(&mut *self.transaction)
        .await?;
        let is_wanted_by = |subscriber: &Subscriber| {
            let names: Vec<String> = serde_json::from_str(&subscriber.events).unwrap_or_default();
            names.iter().any(|name| name == new.event_type)
        };
        let recipients: Vec<_> = subscribers.into_iter().filter(is_wanted_by).collect();
        if recipients.is_empty() {
            return Ok(event);
        }
        // Held until the commit: whoever ends one of these then finds what is added behind it.
        let last_pending = match self.engine {
            Engine::Sqlite => last_pending!(""),
            Engine::Postgres => last_pending!(" FOR UPDATE"),
        };
        let behind: Vec<(i64,)> = sqlx::query_as(last_pending)
            .bind(new.workspace_id)
            .bind(new.ordering)
            .fetch_all(&mut *self.transaction)
            .await?;
        for subscriber in &recipients {
            let is_behind = behind.contains(&(subscriber.id,));
            let delivery = NewDelivery {
                id: self.next_delivery_ids(1, now_ms).await?,
                webhook_id: subscriber.id,
                event,
                event_id: new.event_id,
                event_type: new.event_type,
                original_event_id: "",
                ordering: new.ordering,
                due_at_ms: (!is_behind).then_some(now_ms),
                request_url: &subscriber.url,
            };
            self.insert_delivery(&delivery, now_ms).await?;
        }
        Ok(event)
    }

    pub(super) async fn insert_webhook_event_row(
        &mut self,
        new: &NewWebhookEvent<'_>,
        now_ms: i64,
    ) -> Result<i64> {
        let id = self.next_id("webhook_events").await?;
        sqlx::query(
            "INSERT INTO webhook_events (id, workspace_id, event_type, event_id, cvm_id, ordering, \
             correlation_id, only_for, data, created_at_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        )
        .bind(id)
        .bind(new.workspace_id)
        .bind(new.event_type)
        .bind(new.event_id)
        .bind(new.cvm_id)
        .bind(new.ordering)
        .bind(new.correlation_id.map(|id| id.to_string()))
        .bind(match new.recipient {
            Recipient::Subscribers => None,
            Recipient::Only(webhook_id) => Some(webhook_id),
        })
        .bind(new.data)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(id)
    }

    /// Forgets at most `limit` events from before this time; how many it were.
    pub async fn delete_old_webhook_events(&mut self, before_ms: i64, limit: i64) -> Result<u64> {
        let done = sqlx::query(
            "DELETE FROM webhook_events WHERE id IN \
             (SELECT id FROM webhook_events WHERE created_at_ms <= $1 ORDER BY created_at_ms LIMIT $2)",
        )
        .bind(before_ms)
        .bind(limit)
        .execute(&mut *self.transaction)
        .await?;
        Ok(done.rows_affected())
    }

    /// Forgets at most `limit` events of a workspace up to a number, oldest first; how many it were.
    pub async fn delete_webhook_events_up_to(
        &mut self,
        workspace_id: i64,
        id: i64,
        limit: i64,
    ) -> Result<u64> {
        let done = sqlx::query(
            "DELETE FROM webhook_events WHERE id IN (SELECT id FROM webhook_events \
             WHERE workspace_id = $1 AND id <= $2 ORDER BY id LIMIT $3)",
        )
        .bind(workspace_id)
        .bind(id)
        .bind(limit)
        .execute(&mut *self.transaction)
        .await?;
        Ok(done.rows_affected())
    }
}
