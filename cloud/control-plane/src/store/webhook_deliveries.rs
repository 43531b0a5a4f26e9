//! Deliveries of events to webhooks, as people look at them: lists, figures; how they begin, and are forgotten.

use sqlx::FromRow;

use super::{Change, Engine, Result, Store};

/// One event on its way to one webhook.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct DeliveryRow {
    /// Id; later ones are larger, and it fits an integer of JavaScript.
    pub id: i64,
    /// Where to.
    pub webhook_id: i64,
    /// The identity of the event that the receiver sees.
    pub event_id: String,
    /// What kind of event.
    pub event_type: String,
    /// Of what was sent again: the event id of the first time. Empty otherwise.
    pub original_event_id: String,
    /// `pending`, `success` or `failed`.
    pub status: String,
    /// Attempts that were begun; those that a crash of this service interrupted do not count.
    pub attempts: i64,
    /// Where the last attempt went, or the first one will go.
    pub request_url: String,
    /// Status of the last answer; 0 without an answer.
    pub response_status: i64,
    /// Why the last attempt failed; empty if it did not.
    pub error_message: String,
    /// How long the last attempt took.
    pub duration_ms: i64,
    /// When it began.
    pub created_at_ms: i64,
    /// When the receiver had it.
    pub delivered_at_ms: Option<i64>,
}

/// One request of a delivery.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct AttemptRow {
    /// The delivery.
    pub delivery_id: i64,
    /// From 1.
    pub number: i64,
    /// When it began.
    pub began_at_ms: i64,
    /// When it ended.
    pub ended_at_ms: Option<i64>,
    /// `success`, `failed` or `interrupted`; `None` while it is under way.
    pub outcome: Option<String>,
    /// Status of the answer; 0 without one.
    pub response_status: i64,
    /// Why it failed; empty if it did not.
    pub error_message: String,
    /// How long it took.
    pub duration_ms: i64,
}

/// Figures about the deliveries of a webhook that are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRow)]
pub struct WebhookStats {
    /// All of them.
    pub total: i64,
    /// Those that the receiver has.
    pub success_count: i64,
    /// Those that were given up.
    pub failed_count: i64,
    /// Mean duration of the last attempts of those that ended.
    pub avg_duration_ms: i64,
    /// The longest of these.
    pub max_duration_ms: i64,
    /// When the receiver last had one.
    pub last_delivery_at_ms: Option<i64>,
}

/// Bits of an id below its milliseconds: 1024 ids a millisecond, and ids below 2^53 for some 250 years.
const ID_BITS: u32 = 10;
/// 2020-01-01, where the milliseconds of ids begin.
const ID_EPOCH_MS: i64 = 1_577_836_800_000;

/// The smallest id of a delivery that begins at a time.
pub(super) const fn first_id_at(now_ms: i64) -> i64 {
    let since = now_ms.saturating_sub(ID_EPOCH_MS);
    if since < 0 { 0 } else { since.saturating_mul(1 << ID_BITS) }
}

/// When the delivery with an id began.
pub(super) const fn time_of_id(id: i64) -> i64 {
    (id >> ID_BITS).saturating_add(ID_EPOCH_MS)
}

const LIST: &str = "SELECT id, webhook_id, event_id, event_type, original_event_id, status, attempts, \
     request_url, response_status, error_message, duration_ms, created_at_ms, delivered_at_ms \
     FROM webhook_deliveries WHERE webhook_id = $1 ORDER BY id DESC LIMIT $2 OFFSET $3";
pub(super) const BY_ID: &str = "SELECT id, webhook_id, event_id, event_type, original_event_id, status, attempts, \
     request_url, response_status, error_message, duration_ms, created_at_ms, delivered_at_ms \
     FROM webhook_deliveries WHERE id = $1";
const STATS: &str = "SELECT COUNT(*) AS total, \
     COALESCE(SUM(CASE WHEN status = 'success' THEN 1 ELSE 0 END), 0) AS success_count, \
     COALESCE(SUM(CASE WHEN status = 'failed' THEN 1 ELSE 0 END), 0) AS failed_count, \
     CAST(COALESCE(AVG(CASE WHEN status <> 'pending' THEN duration_ms END), 0) AS BIGINT) AS avg_duration_ms, \
     COALESCE(MAX(CASE WHEN status <> 'pending' THEN duration_ms END), 0) AS max_duration_ms, \
     MAX(delivered_at_ms) AS last_delivery_at_ms FROM webhook_deliveries WHERE webhook_id = $1";

impl Store {
    /// Deliveries of a webhook, newest first. Whose webhook it is, the caller has looked at.
    pub async fn webhook_deliveries(
        &self,
        webhook_id: i64,
        limit: i64,
        offset: i64,
    ) -> Result<Vec<DeliveryRow>> {
        Ok(sqlx::query_as(LIST).bind(webhook_id).bind(limit).bind(offset).fetch_all(&self.pool).await?)
    }

    /// The requests of a delivery, first to last.
    pub async fn webhook_attempts(&self, delivery_id: i64) -> Result<Vec<AttemptRow>> {
        Ok(sqlx::query_as(
            "SELECT delivery_id, number, began_at_ms, ended_at_ms, outcome, response_status, error_message, \
             duration_ms FROM webhook_attempts WHERE delivery_id = $1 ORDER BY number",
        )
        .bind(delivery_id)
        .fetch_all(&self.pool)
        .await?)
    }

    /// Figures about the deliveries of a webhook.
    pub async fn webhook_stats(&self, webhook_id: i64) -> Result<WebhookStats> {
        Ok(sqlx::query_as(STATS).bind(webhook_id).fetch_one(&self.pool).await?)
    }
}

/// A delivery to be stored.
pub(super) struct NewDelivery<'a> {
    pub(super) id: i64,
    pub(super) webhook_id: i64,
    pub(super) event: i64,
    pub(super) event_id: &'a str,
    pub(super) event_type: &'a str,
    pub(super) original_event_id: &'a str,
    pub(super) ordering: &'a str,
    /// `None` where others come first.
    pub(super) due_at_ms: Option<i64>,
    pub(super) request_url: &'a str,
}

impl Change {
    /// So many new ids of deliveries, the first of them: larger than all before, and at least what the time says,
    /// whichever process asks and whatever its clock shows.
    pub(super) async fn next_delivery_ids(&mut self, count: i64, now_ms: i64) -> Result<i64> {
        let (last,): (i64,) = sqlx::query_as(
            "UPDATE sequences SET value = (CASE WHEN value >= $1 THEN value + 1 ELSE $1 END) + $2 - 1 \
             WHERE name = 'webhook_deliveries' RETURNING value",
        )
        .bind(first_id_at(now_ms))
        .bind(count)
        .fetch_one(&mut *self.transaction)
        .await?;
        Ok(last - count + 1)
    }

    pub(super) async fn insert_delivery(&mut self, new: &NewDelivery<'_>, now_ms: i64) -> Result<()> {
        sqlx::query(
            "INSERT INTO webhook_deliveries (id, webhook_id, event, event_id, event_type, original_event_id, \
             ordering, status, attempts, tries, due_at_ms, request_url, response_status, error_message, \
             duration_ms, created_at_ms) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, 'pending', 0, 0, $8, $9, 0, '', 0, $10)",
        )
        .bind(new.id)
        .bind(new.webhook_id)
        .bind(new.event)
        .bind(new.event_id)
        .bind(new.event_type)
        .bind(new.original_event_id)
        .bind(new.ordering)
        .bind(new.due_at_ms)
        .bind(new.request_url)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        self.wakes_webhooks = true;
        Ok(())
    }

    /// Lets nobody else end what a webhook still has to be told, so that whoever comes behind it is not forgotten.
    pub(super) async fn lock_pending_deliveries(&mut self, webhook_id: i64) -> Result<()> {
        // On SQLite a change holds everything anyway.
        if self.engine == Engine::Postgres {
            sqlx::query(
                "SELECT id FROM webhook_deliveries WHERE webhook_id = $1 AND status = 'pending' \
                 ORDER BY id FOR UPDATE",
            )
            .bind(webhook_id)
            .fetch_all(&mut *self.transaction)
            .await?;
        }
        Ok(())
    }

    /// Gives up everything that a webhook still has to be told. What is under way may still reach it.
    pub(super) async fn end_deliveries(&mut self, webhook_id: i64, reason: &str) -> Result<()> {
        self.lock_pending_deliveries(webhook_id).await?;
        sqlx::query(
            "UPDATE webhook_deliveries SET status = 'failed', error_message = $2, due_at_ms = NULL \
             WHERE webhook_id = $1 AND status = 'pending'",
        )
        .bind(webhook_id)
        .bind(reason)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Forgets at most `limit` deliveries that began before this time and ended, with their attempts; how many it
    /// were.
    pub async fn delete_old_deliveries(&mut self, before_ms: i64, limit: i64) -> Result<u64> {
        const OLD: [&str; 2] = [
            "DELETE FROM webhook_attempts WHERE delivery_id IN (SELECT id FROM webhook_deliveries \
             WHERE id < $1 AND status <> 'pending' AND lease_until_ms IS NULL ORDER BY id LIMIT $2)",
            "DELETE FROM webhook_deliveries WHERE id IN (SELECT id FROM webhook_deliveries \
             WHERE id < $1 AND status <> 'pending' AND lease_until_ms IS NULL ORDER BY id LIMIT $2)",
        ];
        let mut count = 0;
        for statement in OLD {
            let done = sqlx::query(statement)
                .bind(first_id_at(before_ms))
                .bind(limit)
                .execute(&mut *self.transaction)
                .await?;
            count = done.rows_affected();
        }
        Ok(count)
    }
}
