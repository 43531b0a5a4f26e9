//! Operations and their events: the durable work queue and its history.

use std::collections::BTreeSet;

use sqlx::{AssertSqlSafe, FromRow};
use uuid::Uuid;

use super::{Change, Engine, Result, Store};
use crate::operations::{CvmStatus, OperationKind, OperationStatus};

/// An operation on a CVM.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct OperationRow {
    /// Identity, shared with its events and webhooks.
    #[sqlx(try_from = "String")]
    pub correlation_id: Uuid,
    /// Subject.
    pub cvm_id: i64,
    /// What is done.
    #[sqlx(try_from = "String")]
    pub kind: OperationKind,
    /// How it stands.
    #[sqlx(try_from = "String")]
    pub status: OperationStatus,
    /// JSON of the kind's arguments.
    pub arguments: String,
    /// Who asked for it.
    pub triggered_by: i64,
    /// That user's name.
    pub triggered_by_username: String,
    /// That user's mail address.
    pub triggered_by_email: String,
    /// Index of the current step, or of the current undo step once `failure` is set.
    pub step: i64,
    /// When the current step has taken too long; 0 until a worker took it up.
    pub step_deadline_ms: i64,
    /// Why it fails or failed.
    pub failure: Option<String>,
    /// 0: nobody wants it to end; 1: somebody cancelled it; 2: another operation waits for the CVM.
    pub cancel_requested: i64,
    /// The revision that it brings.
    pub to_revision: Option<i64>,
    /// The revision that it goes back to when it fails.
    pub from_revision: Option<i64>,
    /// Compose hash of the revision that it brings.
    pub compose_hash: Option<String>,
    /// Status that the CVM has again after a failure that was undone.
    pub recovered_to: Option<String>,
    /// Acceptance time.
    pub started_at_ms: i64,
    /// End time.
    pub completed_at_ms: Option<i64>,
}

/// A transition of an operation.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct EventRow {
    /// The operation.
    #[sqlx(try_from = "String")]
    pub correlation_id: Uuid,
    /// Position within the operation, from 0.
    pub sequence: i64,
    /// For example `instance.create.prepare_disk`.
    pub event_type: String,
    /// Status of the CVM after it.
    pub state: String,
    /// When.
    pub at_ms: i64,
}

/// An operation to be stored.
#[derive(Debug, Clone)]
pub struct NewOperation {
    /// Identity.
    pub correlation_id: Uuid,
    /// Subject.
    pub cvm_id: i64,
    /// What to do.
    pub kind: OperationKind,
    /// JSON of the kind's arguments.
    pub arguments: String,
    /// Who asks.
    pub triggered_by: i64,
    /// An operation that ends before this one begins.
    pub predecessor: Option<Uuid>,
    /// The revision that it brings.
    pub to_revision: Option<i64>,
    /// The revision that it goes back to when it fails.
    pub from_revision: Option<i64>,
}

/// How an operation is wanted to end early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CancelRequest {
    /// Not at all.
    No,
    /// Somebody cancelled it: what it did is undone.
    Cancel,
    /// Another operation waits for the CVM and takes its power away: only what is stored is undone.
    MakeRoom,
}

impl CancelRequest {
    /// As it is stored.
    #[must_use]
    pub const fn from_column(value: i64) -> Self {
        match value {
            0 => Self::No,
            1 => Self::Cancel,
            _ => Self::MakeRoom,
        }
    }

    const fn column(self) -> i64 {
        match self {
            Self::No => 0,
            Self::Cancel => 1,
            Self::MakeRoom => 2,
        }
    }
}

/// Which operations of a CVM a list shows, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OperationFilter {
    /// Started at or after.
    pub start_ms: Option<i64>,
    /// Started at or before.
    pub end_ms: Option<i64>,
    /// Only these kinds; empty means all.
    pub kinds: Vec<OperationKind>,
    /// Only those after this one in the list's order: its start and correlation id.
    pub after: Option<(i64, Uuid)>,
}

macro_rules! select_operation {
    ($condition:literal) => {
        concat!(
            "SELECT o.correlation_id, o.cvm_id, o.kind, o.status, o.arguments, o.triggered_by, \
             u.username AS triggered_by_username, u.email AS triggered_by_email, o.step, \
             o.step_deadline_ms, o.failure, o.cancel_requested, o.started_at_ms, o.completed_at_ms, \
             o.to_revision, o.from_revision, o.recovered_to, r.compose_hash \
             FROM operations o JOIN users u ON u.id = o.triggered_by \
             LEFT JOIN revisions r ON r.id = o.to_revision WHERE ",
            $condition
        )
    };
}

macro_rules! waiting_operation {
    ($locking:literal) => {
        concat!(
            "SELECT w.correlation_id FROM operations w WHERE w.status = 'in_progress' \
             AND w.lease_until_ms <= $1 AND NOT EXISTS (SELECT 1 FROM operations p \
             WHERE p.correlation_id = w.predecessor AND p.status = 'in_progress') \
             ORDER BY w.lease_until_ms, w.started_at_ms LIMIT 1",
            $locking
        )
    };
}

const OPERATION: &str = select_operation!("o.correlation_id = $1");
const PAGE: &str = select_operation!(
    "o.cvm_id = $1 AND o.started_at_ms >= $2 AND (o.started_at_ms, o.correlation_id) < ($3, $4) \
     ORDER BY o.started_at_ms DESC, o.correlation_id DESC LIMIT $5"
);
const PAGE_OF_KIND: &str = select_operation!(
    "o.cvm_id = $1 AND o.started_at_ms >= $2 AND (o.started_at_ms, o.correlation_id) < ($3, $4) \
     AND o.kind = $6 ORDER BY o.started_at_ms DESC, o.correlation_id DESC LIMIT $5"
);
const COUNT: &str = "SELECT COUNT(*) FROM (SELECT 1 AS one FROM operations \
     WHERE cvm_id = $1 AND started_at_ms BETWEEN $2 AND $3 LIMIT $4) AS found";
const COUNT_OF_KIND: &str = "SELECT COUNT(*) FROM (SELECT 1 AS one FROM operations \
     WHERE cvm_id = $1 AND started_at_ms BETWEEN $2 AND $3 AND kind = $5 LIMIT $4) AS found";
const EVENTS: &str = "SELECT correlation_id, sequence, event_type, state, at_ms FROM operation_events \
     WHERE correlation_id IN (";

/// Counts of operations that match a filter end here.
pub const MAX_OPERATION_COUNT: i64 = 1_000;

impl Store {
    /// The operation with this correlation id.
    pub async fn operation(&self, correlation_id: Uuid) -> Result<Option<OperationRow>> {
        Ok(sqlx::query_as(OPERATION).bind(correlation_id.to_string()).fetch_optional(&self.pool).await?)
    }

    /// Events of an operation in order.
    pub async fn events(&self, correlation_id: Uuid) -> Result<Vec<EventRow>> {
        self.events_of(&[correlation_id]).await
    }

    /// Events of operations, at most some hundreds, those of each in order.
    pub async fn events_of(&self, operations: &[Uuid]) -> Result<Vec<EventRow>> {
        if operations.is_empty() {
            return Ok(Vec::new());
        }
        let places: Vec<_> = (1..=operations.len()).map(|number| format!("${number}")).collect();
        // Only numbers of parameters are put into the text.
        let text = AssertSqlSafe(format!("{EVENTS}{}) ORDER BY correlation_id, sequence", places.join(", ")));
        let mut query = sqlx::query_as(text);
        for id in operations {
            query = query.bind(id.to_string());
        }
        Ok(query.fetch_all(&self.pool).await?)
    }

    /// A stretch of the operations of a CVM, newest first. What it costs depends on the stretch, not on how many
    /// operations there are: each kind that is asked for is a walk along its own index.
    pub async fn list_operations(
        &self,
        cvm_id: i64,
        filter: &OperationFilter,
        limit: i64,
    ) -> Result<Vec<OperationRow>> {
        let page = |statement: &'static str| {
            let (before_ms, before_id) = filter.before();
            sqlx::query_as(statement)
                .bind(cvm_id)
                .bind(filter.start_ms.unwrap_or(i64::MIN))
                .bind(before_ms)
                .bind(before_id)
                .bind(limit)
        };
        if filter.kinds.is_empty() {
            return Ok(page(PAGE).fetch_all(&self.pool).await?);
        }
        let mut rows: Vec<OperationRow> = Vec::new();
        for kind in filter.distinct_kinds() {
            rows.extend(page(PAGE_OF_KIND).bind(kind.as_str()).fetch_all(&self.pool).await?);
        }
        rows.sort_by_key(|row| std::cmp::Reverse((row.started_at_ms, row.correlation_id)));
        rows.truncate(usize::try_from(limit).unwrap_or_default());
        Ok(rows)
    }

    /// How many operations of a CVM a filter matches, whatever page is looked at; counted up to
    /// [`MAX_OPERATION_COUNT`] of each kind. How many there are at all is in the CVM's row.
    pub async fn count_operations(&self, cvm_id: i64, filter: &OperationFilter) -> Result<i64> {
        let count = |statement: &'static str| {
            sqlx::query_as::<_, (i64,)>(statement)
                .bind(cvm_id)
                .bind(filter.start_ms.unwrap_or(i64::MIN))
                .bind(filter.end_ms.unwrap_or(i64::MAX))
                .bind(MAX_OPERATION_COUNT)
        };
        if filter.kinds.is_empty() {
            return Ok(count(COUNT).fetch_one(&self.pool).await?.0);
        }
        let mut total = 0;
        for kind in filter.distinct_kinds() {
            total += count(COUNT_OF_KIND).bind(kind.as_str()).fetch_one(&self.pool).await?.0;
        }
        Ok(total)
    }

    /// Frees the leases of processes that cannot be alive: an embedded database has one process, and it
    /// has just started. On PostgreSQL leases of the dead run out by themselves.
    pub async fn release_leases_of_the_dead(&self) -> Result<()> {
        match self.engine {
            Engine::Sqlite => self.expire_all_leases().await,
            Engine::Postgres => Ok(()),
        }
    }

    pub(crate) async fn expire_all_leases(&self) -> Result<()> {
        let mut change = self.change().await?;
        sqlx::query("UPDATE operations SET lease_until_ms = 0 WHERE status = 'in_progress'")
            .execute(&mut *change.transaction)
            .await?;
        change.commit().await
    }

    /// Leases the operation that waits longest to `owner`; `None` when nothing waits.
    pub async fn lease_operation(
        &self,
        owner: Uuid,
        now_ms: i64,
        until_ms: i64,
    ) -> Result<Option<OperationRow>> {
        let mut change = self.change().await?;
        let candidate = match change.engine {
            Engine::Sqlite => waiting_operation!(""),
            Engine::Postgres => waiting_operation!(" FOR UPDATE SKIP LOCKED"),
        };
        let Some((id,)): Option<(String,)> =
            sqlx::query_as(candidate).bind(now_ms).fetch_optional(&mut *change.transaction).await?
        else {
            return Ok(None);
        };
        sqlx::query("UPDATE operations SET lease_owner = $2, lease_until_ms = $3 WHERE correlation_id = $1")
            .bind(&id)
            .bind(owner.to_string())
            .bind(until_ms)
            .execute(&mut *change.transaction)
            .await?;
        let operation = sqlx::query_as(OPERATION).bind(&id).fetch_optional(&mut *change.transaction).await?;
        change.commit().await?;
        Ok(operation)
    }

    /// How the operation is wanted to end, or `None` when the lease was lost.
    pub async fn look_at_lease(&self, correlation_id: Uuid, owner: Uuid) -> Result<Option<CancelRequest>> {
        let row: Option<(i64,)> = sqlx::query_as(
            "SELECT cancel_requested FROM operations \
             WHERE correlation_id = $1 AND lease_owner = $2 AND status = 'in_progress'",
        )
        .bind(correlation_id.to_string())
        .bind(owner.to_string())
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(|(cancel,)| CancelRequest::from_column(cancel)))
    }

    /// Keeps a lease alive; how the operation is wanted to end, or `None` when the lease was lost.
    pub async fn renew_lease(
        &self,
        correlation_id: Uuid,
        owner: Uuid,
        until_ms: i64,
    ) -> Result<Option<CancelRequest>> {
        let mut change = self.change().await?;
        let row: Option<(i64,)> = sqlx::query_as(
            "UPDATE operations SET lease_until_ms = $3 \
             WHERE correlation_id = $1 AND lease_owner = $2 AND status = 'in_progress' \
             RETURNING cancel_requested",
        )
        .bind(correlation_id.to_string())
        .bind(owner.to_string())
        .bind(until_ms)
        .fetch_optional(&mut *change.transaction)
        .await?;
        change.commit().await?;
        Ok(row.map(|(cancel,)| CancelRequest::from_column(cancel)))
    }
}

impl OperationFilter {
    /// Whether it lets every operation through.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.start_ms.is_none() && self.end_ms.is_none() && self.kinds.is_empty()
    }

    /// The place in the list's order behind which, exclusively, the stretch begins.
    fn before(&self) -> (i64, String) {
        // No id is smaller than an empty one.
        let end = (self.end_ms.unwrap_or(i64::MAX).saturating_add(1), String::new());
        match self.after {
            Some((started_at_ms, id)) => end.min((started_at_ms, id.to_string())),
            None => end,
        }
    }

    fn distinct_kinds(&self) -> BTreeSet<OperationKind> {
        self.kinds.iter().copied().collect()
    }
}

impl Change {
    /// Adds an operation that waits for a worker.
    pub async fn insert_operation(&mut self, new: &NewOperation, now_ms: i64) -> Result<()> {
        sqlx::query(
            "INSERT INTO operations (correlation_id, cvm_id, kind, status, arguments, triggered_by, step, \
             step_deadline_ms, cancel_requested, predecessor, to_revision, from_revision, started_at_ms, \
             lease_until_ms) VALUES ($1, $2, $3, 'in_progress', $4, $5, 0, 0, 0, $6, $7, $8, $9, 0)",
        )
        .bind(new.correlation_id.to_string())
        .bind(new.cvm_id)
        .bind(new.kind.as_str())
        .bind(&new.arguments)
        .bind(new.triggered_by)
        .bind(new.predecessor.map(|id| id.to_string()))
        .bind(new.to_revision)
        .bind(new.from_revision)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        sqlx::query("UPDATE cvms SET operation_count = operation_count + 1 WHERE id = $1")
            .bind(new.cvm_id)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// The operation with this correlation id.
    pub async fn operation(&mut self, correlation_id: Uuid) -> Result<Option<OperationRow>> {
        Ok(sqlx::query_as(OPERATION)
            .bind(correlation_id.to_string())
            .fetch_optional(&mut *self.transaction)
            .await?)
    }

    /// Moves a leased operation to a step of its forward or, with a failure, its undo path, and keeps the
    /// lease alive; how the operation is wanted to end, or `None` when the lease was lost: nothing may be
    /// committed then.
    pub async fn advance_operation(
        &mut self,
        correlation_id: Uuid,
        owner: Uuid,
        until_ms: i64,
        step: i64,
        step_deadline_ms: i64,
        failure: Option<&str>,
    ) -> Result<Option<i64>> {
        let row: Option<(i64,)> = sqlx::query_as(
            "UPDATE operations SET step = $3, step_deadline_ms = $4, failure = $5, lease_until_ms = $6 \
             WHERE correlation_id = $1 AND lease_owner = $2 AND status = 'in_progress' \
             RETURNING cancel_requested",
        )
        .bind(correlation_id.to_string())
        .bind(owner.to_string())
        .bind(step)
        .bind(step_deadline_ms)
        .bind(failure)
        .bind(until_ms)
        .fetch_optional(&mut *self.transaction)
        .await?;
        Ok(row.map(|(cancel,)| cancel))
    }

    /// Notes the status that the CVM has again after a failure.
    pub async fn set_recovered(&mut self, correlation_id: Uuid, status: CvmStatus) -> Result<()> {
        sqlx::query("UPDATE operations SET recovered_to = $2 WHERE correlation_id = $1")
            .bind(correlation_id.to_string())
            .bind(status.as_str())
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Ends a leased operation; whether the lease still held.
    pub async fn finish_operation(
        &mut self,
        correlation_id: Uuid,
        owner: Uuid,
        status: OperationStatus,
        now_ms: i64,
    ) -> Result<bool> {
        let done = sqlx::query(
            "UPDATE operations SET status = $3, completed_at_ms = $4 \
             WHERE correlation_id = $1 AND lease_owner = $2 AND status = 'in_progress'",
        )
        .bind(correlation_id.to_string())
        .bind(owner.to_string())
        .bind(status.as_str())
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Asks the worker of an operation to end it; whether it was still in progress. What was asked for
    /// before is not taken back.
    pub async fn request_cancel(&mut self, correlation_id: Uuid, how: CancelRequest) -> Result<bool> {
        let done = sqlx::query(
            "UPDATE operations SET cancel_requested = CASE WHEN cancel_requested > $2 \
             THEN cancel_requested ELSE $2 END WHERE correlation_id = $1 AND status = 'in_progress'",
        )
        .bind(correlation_id.to_string())
        .bind(how.column())
        .execute(&mut *self.transaction)
        .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Appends to the history of an operation.
    pub async fn append_event(
        &mut self,
        correlation_id: Uuid,
        event_type: &str,
        state: &str,
        now_ms: i64,
    ) -> Result<()> {
        sqlx::query(
            "INSERT INTO operation_events (correlation_id, sequence, event_type, state, at_ms) \
             SELECT $1, COALESCE(MAX(sequence) + 1, 0), $2, $3, $4 FROM operation_events \
             WHERE correlation_id = $1",
        )
        .bind(correlation_id.to_string())
        .bind(event_type)
        .bind(state)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }
}
