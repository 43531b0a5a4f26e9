//! The queue of deliveries: who makes which attempt, and what came of it. Everything goes in batches, so that one
//! commit serves many requests.
//!
//! An attempt is written before its request is made, together with a lease of the delivery. Whoever has the lease
//! records what came of it; when the lease runs out first, the attempt is recorded as interrupted and the delivery is
//! due again. The number of the attempt is what the lease is held by: nobody records for a later one.

mod sql;

use std::collections::BTreeMap;

use serde::Serialize;
use sqlx::FromRow;

use super::{Change, Result, Store};

/// Attempts of one delivery, those that were interrupted included: something about it ends processes.
const MAX_TRIES: i64 = 32;

/// A delivery that could be tried now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The delivery.
    pub(crate) id: i64,
    /// Where to.
    pub(crate) webhook_id: i64,
}

/// A stretch of the queue that is looked at: some webhooks, and what is due of each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stretch<'a> {
    /// Webhooks behind this id.
    pub(crate) after: i64,
    /// So many webhooks.
    pub(crate) webhooks: i64,
    /// So many deliveries of each.
    pub(crate) of_each: i64,
    /// Webhooks that nothing is wanted of.
    pub(crate) without: &'a [i64],
    /// The time.
    pub(crate) now_ms: i64,
    /// When whoever takes a delivery is taken for dead.
    pub(crate) lease_until_ms: i64,
}

/// An attempt that was written and is now to be made.
#[derive(Clone, PartialEq, Eq, FromRow)]
pub(crate) struct TakenDelivery {
    pub(crate) id: i64,
    pub(crate) webhook_id: i64,
    /// Number of this attempt.
    pub(crate) number: i64,
    /// Attempts of the schedule, this one included.
    pub(crate) attempts: i64,
    pub(crate) event_id: String,
    pub(crate) event_type: String,
    /// What is told; `None` when it is forgotten.
    pub(crate) data: Option<String>,
    pub(crate) happened_at_ms: Option<i64>,
    pub(crate) workspace_slug: String,
    pub(crate) workspace_name: String,
    pub(crate) url: String,
    pub(crate) enabled: i64,
    pub(crate) sealed_secret: String,
    pub(crate) previous_sealed_secret: Option<String>,
    pub(crate) previous_until_ms: Option<i64>,
}

/// What was taken, and where the next stretch begins; `None` behind the last webhook.
pub(crate) struct Taken {
    pub(crate) deliveries: Vec<TakenDelivery>,
    pub(crate) next_after: Option<i64>,
}

/// What came of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct AttemptResult {
    /// The delivery.
    #[serde(rename = "d")]
    pub(crate) delivery: i64,
    /// Number of the attempt.
    #[serde(rename = "n")]
    pub(crate) number: i64,
    #[serde(rename = "ended")]
    pub(crate) ended_at_ms: i64,
    /// `success` or `failed`.
    pub(crate) outcome: &'static str,
    /// What becomes of the delivery: `pending`, `success` or `failed`.
    pub(crate) status: &'static str,
    /// When a pending one is tried again.
    #[serde(rename = "due")]
    pub(crate) due_at_ms: Option<i64>,
    #[serde(rename = "rs")]
    pub(crate) response_status: i64,
    #[serde(rename = "err")]
    pub(crate) error_message: String,
    #[serde(rename = "dur")]
    pub(crate) duration_ms: i64,
    /// The webhook, when its receiver wants nothing any more.
    #[serde(skip)]
    pub(crate) gone: Option<i64>,
}

/// How much waits to be delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Backlog {
    /// So many deliveries.
    pub(crate) count: i64,
    /// When the oldest of them began.
    pub(crate) oldest_ms: Option<i64>,
}

impl Store {
    /// Waits until something new is to be delivered, or has been since the last time.
    pub(crate) async fn deliveries_wanted(&self) {
        self.deliveries.notified().await;
    }

    /// Takes what `choose` chooses of what is due in a stretch of the queue. Their attempts are written when this
    /// returns. What nobody can be told any more ends here.
    pub(crate) async fn take_deliveries(
        &self,
        stretch: &Stretch<'_>,
        choose: impl FnOnce(&[Candidate]) -> Vec<i64>,
    ) -> Result<Taken> {
        let mut change = self.change().await?;
        let found: Vec<(i64, Option<i64>)> = sqlx::query_as(sql::candidates(self.engine))
            .bind(stretch.after)
            .bind(stretch.webhooks)
            .bind(stretch.now_ms)
            .bind(stretch.of_each)
            .bind(sql::json(stretch.without))
            .fetch_all(&mut *change.transaction)
            .await?;
        let mut webhooks: Vec<_> = found.iter().map(|(webhook_id, _)| *webhook_id).collect();
        webhooks.dedup();
        let is_full = i64::try_from(webhooks.len()).is_ok_and(|count| count == stretch.webhooks);
        let next_after = webhooks.last().copied().filter(|_| is_full);
        let candidates: Vec<_> =
            found.iter().filter_map(|&(webhook_id, id)| Some(Candidate { id: id?, webhook_id })).collect();
        let chosen = choose(&candidates);
        if chosen.is_empty() {
            // Gives back what it holds before it answers; a transaction that is dropped does so some time later.
            change.commit().await?;
            return Ok(Taken { deliveries: Vec::new(), next_after });
        }
        let looked_up: Vec<TakenDelivery> = sqlx::query_as(sql::details(self.engine))
            .bind(sql::json(&chosen))
            .fetch_all(&mut *change.transaction)
            .await?;
        let (deliveries, over): (Vec<_>, Vec<_>) =
            looked_up.into_iter().partition(|row| row.enabled == 1 && row.data.is_some());
        for row in &over {
            change.give_up(row, stretch.now_ms).await?;
        }
        let ids: Vec<_> = deliveries.iter().map(|row| row.id).collect();
        for statement in [sql::lease(self.engine), sql::begin_attempts(self.engine)] {
            sqlx::query(statement)
                .bind(sql::json(&ids))
                .bind(stretch.lease_until_ms)
                .bind(stretch.now_ms)
                .execute(&mut *change.transaction)
                .await?;
        }
        change.commit().await?;
        Ok(Taken { deliveries, next_after })
    }

    /// Records what came of attempts, those whose lease still holds, and lets come next what waited for them.
    pub(crate) async fn record_attempts(&self, results: &[AttemptResult], now_ms: i64) -> Result<()> {
        let mut change = self.change().await?;
        let ids: Vec<_> = results.iter().map(|result| result.delivery).collect();
        let said_gone = results.iter().filter_map(|result| Some((result.gone?, result.delivery)));
        let said_gone: BTreeMap<_, _> = said_gone.collect();
        let gone: Vec<_> = said_gone.keys().collect();
        if let Some([webhooks, deliveries]) = sql::locks(self.engine) {
            if !gone.is_empty() {
                let gone = sql::json(&gone);
                sqlx::query(webhooks).bind(gone).fetch_all(&mut *change.transaction).await?;
            }
            sqlx::query(deliveries)
                .bind(sql::json(&ids))
                .bind(sql::json(&gone))
                .fetch_all(&mut *change.transaction)
                .await?;
        }
        let text = serde_json::to_string(results).unwrap_or_default();
        for statement in [sql::end_attempts(self.engine), sql::end_leases(self.engine)] {
            sqlx::query(statement).bind(&text).execute(&mut *change.transaction).await?;
        }
        change.let_next_come(&ids, now_ms).await?;
        for (webhook_id, delivery) in said_gone {
            change.retire_webhook(webhook_id, delivery, "its receiver answered 410 Gone", now_ms).await?;
        }
        change.commit().await
    }

    /// Records attempts as interrupted whose leases ran out by a time, at most `limit`, and makes their deliveries
    /// due again; how many it were.
    pub(crate) async fn interrupt_attempts(&self, until_ms: i64, limit: i64, now_ms: i64) -> Result<usize> {
        let mut change = self.change().await?;
        let found: Vec<(i64, i64)> = sqlx::query_as(sql::run_out(self.engine))
            .bind(until_ms)
            .bind(limit)
            .fetch_all(&mut *change.transaction)
            .await?;
        if found.is_empty() {
            return Ok(0);
        }
        let ids: Vec<_> = found.iter().map(|(id, _)| *id).collect();
        let given_up: Vec<_> =
            found.iter().filter(|(_, tries)| *tries >= MAX_TRIES).map(|(id, _)| *id).collect();
        sqlx::query(sql::interrupt(self.engine))
            .bind(sql::json(&ids))
            .bind(now_ms)
            .execute(&mut *change.transaction)
            .await?;
        sqlx::query(sql::due_again(self.engine))
            .bind(sql::json(&ids))
            .bind(now_ms)
            .execute(&mut *change.transaction)
            .await?;
        sqlx::query(sql::end(self.engine))
            .bind(sql::json(&given_up))
            .bind("this service ended too often while it was being delivered")
            .execute(&mut *change.transaction)
            .await?;
        change.let_next_come(&given_up, now_ms).await?;
        change.commit().await?;
        Ok(found.len())
    }

    /// Takes all leases for run out on an embedded database: it has one process, and that has just started.
    pub(crate) async fn interrupt_attempts_of_the_dead(&self, now_ms: i64) -> Result<()> {
        const BATCH: i64 = 500;
        if self.engine == super::Engine::Sqlite {
            while self.interrupt_attempts(i64::MAX, BATCH, now_ms).await? > 0 {}
        }
        Ok(())
    }

    /// How much waits to be delivered.
    pub(crate) async fn webhook_backlog(&self) -> Result<Backlog> {
        let (count, oldest): (i64, Option<i64>) =
            sqlx::query_as("SELECT COUNT(*), MIN(id) FROM webhook_deliveries WHERE status = 'pending'")
                .fetch_one(&self.pool)
                .await?;
        Ok(Backlog { count, oldest_ms: oldest.map(super::webhook_deliveries::time_of_id) })
    }
}

impl Change {
    /// Ends a delivery that cannot be made.
    async fn give_up(&mut self, row: &TakenDelivery, now_ms: i64) -> Result<()> {
        let reason =
            if row.enabled == 1 { "what happened is not kept any more" } else { "the webhook was disabled" };
        sqlx::query(sql::end(self.engine))
            .bind(sql::json(&[row.id]))
            .bind(reason)
            .execute(&mut *self.transaction)
            .await?;
        self.let_next_come(&[row.id], now_ms).await
    }

    /// Makes those due that waited for deliveries, of these that ended.
    async fn let_next_come(&mut self, ids: &[i64], now_ms: i64) -> Result<()> {
        let done = sqlx::query(sql::next(self.engine))
            .bind(sql::json(ids))
            .bind(now_ms)
            .execute(&mut *self.transaction)
            .await?;
        self.wakes_webhooks |= done.rows_affected() > 0;
        Ok(())
    }
}
