//! What was used, read for statements.

use std::error::Error;

use cloister_app_compose::AppId;
use cloister_metering::{Interval, Span, Statement, Tally, UsageType, Window};
use futures_util::TryStreamExt;
use rust_decimal::Decimal;
use sqlx::FromRow;
use uuid::Uuid;

use super::OPEN;
use crate::store::{Result, Store, StoreError};

/// Whose usage it is about; deleted CVMs count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageScope {
    /// Of this workspace.
    pub workspace_id: i64,
    /// Of this application only.
    pub app_id: Option<AppId>,
}

impl UsageScope {
    /// The application ids that are meant, both ends included.
    fn apps(&self) -> (String, String) {
        // Behind every hex digit.
        self.app_id.map_or_else(|| (String::new(), "g".to_owned()), |app| (app.to_string(), app.to_string()))
    }
}

// Both in the order of the index, which is the one that statements need. All spans of a meter are one text, as
// [`spans_of`] reads it: there are tens of thousands in a year of a large application, and each row takes its time.
// A meter has at most one span for each minute of the window.
const SPANS: &str = "SELECT cvm_id, usage_type, string_agg(rate_per_hour || ' ' || CAST(from_ms AS TEXT) || ' ' || \
     CAST(to_ms AS TEXT), ',' ORDER BY from_ms) FROM usage_intervals \
     WHERE workspace_id = $1 AND app_id >= $2 AND app_id <= $3 AND from_ms < $4 AND to_ms > $5 \
     GROUP BY app_id, cvm_id, usage_type ORDER BY app_id, cvm_id, usage_type";
const INTERVALS: &str = "SELECT i.cvm_id, i.usage_type, i.rate_per_hour, i.from_ms, i.to_ms, i.workspace_id, \
     i.app_id, i.what, c.vm_uuid FROM usage_intervals i JOIN cvms c ON c.id = i.cvm_id \
     WHERE i.workspace_id = $1 AND i.app_id >= $2 AND i.app_id <= $3 AND i.from_ms < $4 AND i.to_ms > $5 \
     AND (i.app_id, i.cvm_id, i.usage_type, i.from_ms) > ($6, $7, $8, $9) \
     ORDER BY i.app_id, i.cvm_id, i.usage_type, i.from_ms LIMIT $10";
const RUNNING_RATES: &str = "SELECT rate_per_hour FROM usage_intervals \
     WHERE workspace_id = $1 AND app_id >= $2 AND app_id <= $3 AND to_ms = 9223372036854775807";

/// A column that holds what this version does not know.
fn unreadable(error: impl Error + Send + Sync + 'static) -> StoreError {
    StoreError::Database(sqlx::Error::Decode(Box::new(error)))
}

pub(super) fn usage_type(name: &str) -> Result<UsageType> {
    name.parse().map_err(unreadable)
}

pub(super) fn rate(text: &str) -> Result<Decimal> {
    Decimal::from_str_exact(text).map_err(unreadable)
}

/// A text that is no span.
#[derive(Debug, thiserror::Error)]
#[error("a stored interval cannot be read")]
struct Malformed;

/// Reads a row of [`SPANS`].
fn spans_of((cvm_id, name, texts): &(i64, String, String)) -> Result<impl Iterator<Item = Result<Span>>> {
    let (cvm_id, usage_type) = (*cvm_id, usage_type(name)?);
    Ok(texts.split(',').map(move |text| {
        let mut words = text.split(' ');
        let mut word = || words.next().ok_or_else(|| unreadable(Malformed));
        let rate = rate(word()?)?;
        let mut moment = || word()?.parse().map_err(unreadable);
        Ok(Span { cvm_id, usage_type, rate, from_ms: moment()?, to_ms: end_of(moment()?) })
    }))
}

fn end_of(to_ms: i64) -> Option<i64> {
    Some(to_ms).filter(|to_ms| *to_ms != OPEN)
}

#[derive(Debug, FromRow)]
struct IntervalRow {
    cvm_id: i64,
    usage_type: String,
    rate_per_hour: String,
    from_ms: i64,
    to_ms: i64,
    workspace_id: i64,
    app_id: String,
    what: String,
    #[sqlx(try_from = "String")]
    vm_uuid: Uuid,
}

impl IntervalRow {
    fn interval(self) -> Result<Interval> {
        let span = Span {
            cvm_id: self.cvm_id,
            usage_type: usage_type(&self.usage_type)?,
            rate: rate(&self.rate_per_hour)?,
            from_ms: self.from_ms,
            to_ms: end_of(self.to_ms),
        };
        let Self { workspace_id, app_id, what, vm_uuid, .. } = self;
        Ok(Interval { span, workspace_id, app_id, vm_uuid, what })
    }
}

impl Store {
    /// A page of the records of a window, newest first, with the totals of the whole window. Time that has not
    /// come yet is not used.
    pub async fn usage_statement(
        &self,
        scope: UsageScope,
        window: Window,
        now_ms: i64,
        limit: usize,
        offset: u64,
    ) -> Result<Statement> {
        const AT_ONCE: i64 = 2000;
        let mut page = self.usage_tally(scope, window, now_ms).await?.page(window, now_ms, limit, offset);
        let mut last = None;
        loop {
            let intervals = self.usage_intervals(scope, page.window(), last.as_ref(), AT_ONCE).await?;
            for interval in &intervals {
                page.add(interval);
            }
            let is_last = i64::try_from(intervals.len()).unwrap_or(i64::MAX) < AT_ONCE;
            last = intervals.into_iter().next_back();
            if is_last {
                return Ok(page.finish());
            }
        }
    }

    /// What everything in a window costs: the sum of all its records.
    pub async fn usage_cost(&self, scope: UsageScope, window: Window, now_ms: i64) -> Result<Decimal> {
        Ok(self.usage_tally(scope, window, now_ms).await?.cost())
    }

    /// What the meters that run now cost per hour.
    pub async fn usage_rate(&self, scope: UsageScope) -> Result<Decimal> {
        let (first, last) = scope.apps();
        let rates: Vec<(String,)> = sqlx::query_as(RUNNING_RATES)
            .bind(scope.workspace_id)
            .bind(first)
            .bind(last)
            .fetch_all(&self.pool)
            .await?;
        rates.iter().try_fold(Decimal::ZERO, |sum, (text,)| Ok(sum.saturating_add(rate(text)?)))
    }

    /// At most `limit` intervals that reach into a window, after one, in the order that
    /// [`cloister_metering::Records`] needs.
    pub async fn usage_intervals(
        &self,
        scope: UsageScope,
        window: Window,
        after: Option<&Interval>,
        limit: i64,
    ) -> Result<Vec<Interval>> {
        let (first, last) = scope.apps();
        let after = after.map_or(("", 0, "", i64::MIN), |interval| {
            let Span { cvm_id, usage_type, from_ms, .. } = interval.span;
            (interval.app_id.as_str(), cvm_id, usage_type.as_str(), from_ms)
        });
        let rows: Vec<IntervalRow> = sqlx::query_as(INTERVALS)
            .bind(scope.workspace_id)
            .bind(first)
            .bind(last)
            .bind(window.end_ms)
            .bind(window.start_ms)
            .bind(after.0)
            .bind(after.1)
            .bind(after.2)
            .bind(after.3)
            .bind(limit)
            .fetch_all(&self.pool)
            .await?;
        rows.into_iter().map(IntervalRow::interval).collect()
    }

    /// Counts what is in a window, meter by meter.
    async fn usage_tally(&self, scope: UsageScope, window: Window, now_ms: i64) -> Result<Tally> {
        let (first, last) = scope.apps();
        let mut rows = sqlx::query_as::<_, (i64, String, String)>(SPANS)
            .bind(scope.workspace_id)
            .bind(first)
            .bind(last)
            .bind(window.end_ms)
            .bind(window.start_ms)
            .fetch(&self.pool);
        let mut tally = Tally::new(window, now_ms);
        while let Some(row) = rows.try_next().await? {
            for span in spans_of(&row)? {
                tally.add(&span?);
            }
        }
        Ok(tally)
    }
}
