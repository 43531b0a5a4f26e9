//! What gateways told of inference: each attempt once, and its cost in the same transaction.

use cloister_metering::Window;
use futures_util::TryStreamExt;
use rust_decimal::Decimal;
use sqlx::FromRow;

use super::billing::{amount, stored};
use super::{Change, Result, Store};

const HOUR_MS: i64 = 60 * 60 * 1000;

/// An attempt to have a request answered.
#[derive(Debug, Clone)]
pub struct NewAttempt<'a> {
    /// The gateway's id of the request.
    pub request_id: &'a str,
    /// Which attempt at it, from 0.
    pub attempt_index: i64,
    /// How it ended; with the two above it says which attempt this is.
    pub status: i64,
    /// Who pays.
    pub workspace_id: i64,
    /// Whose key asked.
    pub api_key_id: i64,
    /// Path of the surface.
    pub endpoint: &'a str,
    /// The model that was asked for.
    pub model: &'a str,
    /// The route that was tried.
    pub route: &'a str,
    /// Tokens that were sent.
    pub prompt_tokens: i64,
    /// Tokens that came back.
    pub completion_tokens: i64,
    /// What they cost.
    pub cost: Decimal,
    /// Whether the request is over with it, so that nothing stays set aside for it.
    pub is_last: bool,
}

impl NewAttempt<'_> {
    /// Whether the client got an answer, or left while it came.
    const fn is_answered(&self) -> bool {
        matches!(self.status, 200..=299 | 499)
    }
}

/// What a key used of a model in an hour.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct InferenceHour {
    /// When the hour began.
    pub hour_ms: i64,
    /// The model.
    pub model: String,
    /// The key.
    pub api_key_id: i64,
    /// Its name.
    pub api_key_name: String,
    /// Attempts that were answered.
    pub answered: i64,
    /// Other attempts.
    pub failed: i64,
    /// Tokens that were sent.
    pub prompt_tokens: i64,
    /// Tokens that came back.
    pub completion_tokens: i64,
    /// Exact decimal text.
    pub cost: String,
}

/// What a window has of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InferenceHours {
    /// Those that were asked for.
    pub page: Vec<InferenceHour>,
    /// What all of them cost.
    pub cost: Decimal,
    /// How many there are.
    pub total: u64,
}

const NEW_ATTEMPT: &str = "INSERT INTO inference_attempts (request_id, attempt_index, status, workspace_id, \
     api_key_id, endpoint, model, route, prompt_tokens, completion_tokens, cost, recorded_at_ms) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING";
const NEW_HOUR: &str = "INSERT INTO inference_hours (workspace_id, hour_ms, model, api_key_id, answered, failed, \
     prompt_tokens, completion_tokens, cost) VALUES ($1, $2, $3, $4, 0, 0, 0, 0, '0') ON CONFLICT DO NOTHING";
const COST_OF_HOUR: &str = "SELECT cost FROM inference_hours \
     WHERE workspace_id = $1 AND hour_ms = $2 AND model = $3 AND api_key_id = $4";
const ADD_TO_HOUR: &str = "UPDATE inference_hours SET answered = answered + $5, failed = failed + $6, \
     prompt_tokens = prompt_tokens + $7, completion_tokens = completion_tokens + $8, cost = $9 \
     WHERE workspace_id = $1 AND hour_ms = $2 AND model = $3 AND api_key_id = $4";
const COSTS: &str =
    "SELECT cost FROM inference_hours WHERE workspace_id = $1 AND hour_ms >= $2 AND hour_ms < $3";
const HOURS: &str = "SELECT h.hour_ms, h.model, h.api_key_id, k.name AS api_key_name, h.answered, h.failed, \
     h.prompt_tokens, h.completion_tokens, h.cost FROM inference_hours h JOIN api_keys k ON k.id = h.api_key_id \
     WHERE h.workspace_id = $1 AND h.hour_ms >= $2 AND h.hour_ms < $3 \
     ORDER BY h.hour_ms DESC, h.model, h.api_key_id";
const OLD_ATTEMPTS: &str = "DELETE FROM inference_attempts WHERE (request_id, attempt_index, status) IN \
     (SELECT request_id, attempt_index, status FROM inference_attempts WHERE recorded_at_ms < $1 LIMIT $2)";

impl Store {
    /// The workspace that a key belongs to, whether or not the key still works.
    pub async fn workspace_of_api_key(&self, id: i64) -> Result<Option<i64>> {
        let row: Option<(i64,)> = sqlx::query_as("SELECT workspace_id FROM api_keys WHERE id = $1")
            .bind(id)
            .fetch_optional(&self.pool)
            .await?;
        Ok(row.map(|(workspace_id,)| workspace_id))
    }

    /// What inference cost in a window of full hours.
    pub async fn inference_cost(&self, workspace_id: i64, window: Window) -> Result<Decimal> {
        let mut rows = sqlx::query_as::<_, (String,)>(COSTS)
            .bind(workspace_id)
            .bind(window.start_ms)
            .bind(window.end_ms)
            .fetch(&self.pool);
        let mut sum = Decimal::ZERO;
        while let Some((cost,)) = rows.try_next().await? {
            sum = sum.saturating_add(amount(cost)?);
        }
        Ok(sum)
    }

    /// What was used in a window of full hours: a page of it, newest hour first, and the sum and the number of all
    /// records. One statement reads both, so that they are of one moment.
    pub async fn inference_hours(
        &self,
        workspace_id: i64,
        window: Window,
        page: std::ops::Range<u64>,
    ) -> Result<InferenceHours> {
        let mut rows = sqlx::query_as::<_, InferenceHour>(HOURS)
            .bind(workspace_id)
            .bind(window.start_ms)
            .bind(window.end_ms)
            .fetch(&self.pool);
        let mut all = InferenceHours::default();
        while let Some(hour) = rows.try_next().await? {
            all.cost = all.cost.saturating_add(amount(hour.cost.clone())?);
            if page.contains(&all.total) {
                all.page.push(hour);
            }
            all.total += 1;
        }
        Ok(all)
    }
}

impl Change {
    /// Records an attempt and charges it, unless it was recorded before; whether it was not. With the last one of a
    /// request, what was set aside for the request is free.
    pub async fn record_attempt(&mut self, new: &NewAttempt<'_>, now_ms: i64) -> Result<bool> {
        let done = sqlx::query(NEW_ATTEMPT)
            .bind(new.request_id)
            .bind(new.attempt_index)
            .bind(new.status)
            .bind(new.workspace_id)
            .bind(new.api_key_id)
            .bind(new.endpoint)
            .bind(new.model)
            .bind(new.route)
            .bind(new.prompt_tokens)
            .bind(new.completion_tokens)
            .bind(stored(new.cost))
            .bind(now_ms)
            .execute(&mut *self.transaction)
            .await?;
        let is_new = done.rows_affected() > 0;
        if is_new {
            // The account is locked first, so that sums of a workspace are written one after the other.
            self.charge_inference(new.workspace_id, new.cost).await?;
            self.add_to_hour(new, now_ms.div_euclid(HOUR_MS) * HOUR_MS).await?;
        }
        if new.is_last {
            self.release(new.workspace_id, new.request_id).await?;
        }
        Ok(is_new)
    }

    async fn add_to_hour(&mut self, new: &NewAttempt<'_>, hour_ms: i64) -> Result<()> {
        let place = |query| bind_place(query, new, hour_ms);
        place(sqlx::query(NEW_HOUR)).execute(&mut *self.transaction).await?;
        let (before,): (String,) = sqlx::query_as(COST_OF_HOUR)
            .bind(new.workspace_id)
            .bind(hour_ms)
            .bind(new.model)
            .bind(new.api_key_id)
            .fetch_one(&mut *self.transaction)
            .await?;
        place(sqlx::query(ADD_TO_HOUR))
            .bind(i64::from(new.is_answered()))
            .bind(i64::from(!new.is_answered()))
            .bind(new.prompt_tokens)
            .bind(new.completion_tokens)
            .bind(stored(amount(before)?.saturating_add(new.cost)))
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Forgets attempts that were recorded before a moment, at most so many; what they cost stays.
    pub async fn delete_old_attempts(&mut self, before_ms: i64, limit: i64) -> Result<u64> {
        let done =
            sqlx::query(OLD_ATTEMPTS).bind(before_ms).bind(limit).execute(&mut *self.transaction).await?;
        Ok(done.rows_affected())
    }
}

type Query<'q> = sqlx::query::Query<'q, sqlx::Any, sqlx::any::AnyArguments>;

/// Binds the key of an hour's row.
fn bind_place<'q>(query: Query<'q>, new: &NewAttempt<'q>, hour_ms: i64) -> Query<'q> {
    query.bind(new.workspace_id).bind(hour_ms).bind(new.model).bind(new.api_key_id)
}
