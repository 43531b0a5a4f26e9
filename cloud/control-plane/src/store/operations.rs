//! Operations and their events: the durable work queue and its history.

mod history;
mod leases;
mod rows;

use uuid::Uuid;

use self::rows::select_operation;
use super::{Change, Result, Store};
use crate::operations::{CvmStatus, OperationStatus};

pub use history::{MAX_OPERATION_COUNT, OperationFilter};
pub use rows::{CancelRequest, EventRow, NewOperation, OperationRow};

const OPERATION: &str = select_operation!("o.correlation_id = $1");

impl Store {
    /// The operation with this correlation id.
    pub async fn operation(&self, correlation_id: Uuid) -> Result<Option<OperationRow>> {
        Ok(sqlx::query_as(OPERATION).bind(correlation_id.to_string()).fetch_optional(&self.pool).await?)
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
