//! The durable queue: who works on which operation, and for how long nobody else does.

use uuid::Uuid;

use super::{CancelRequest, OPERATION, OperationRow};
use crate::store::{Engine, Result, Store};

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

impl Store {
    /// Frees the leases of processes that cannot be alive: an embedded database has one process, and it
    /// has just started. On PostgreSQL leases of the dead run out by themselves.
    pub async fn release_leases_of_the_dead(&self) -> Result<()> {
        match self.engine {
            Engine::Sqlite => self.expire_all_leases().await,
            Engine::Postgres => Ok(()),
        }
    }

    pub(crate) async fn expire_all_leases(&self) -> Result<()> {
        let mut change = self.upkeep().await?;
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
        let mut change = self.upkeep().await?;
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
        let mut change = self.upkeep().await?;
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
