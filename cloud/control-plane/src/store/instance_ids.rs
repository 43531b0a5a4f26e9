//! Instance ids of CVMs.

use cloister_app_compose::InstanceId;

use super::{Change, Result, Store};

// A bound of 0 switches a condition off.
const MISSING: &str = "FROM cvms WHERE deleted_at_ms IS NULL AND ($1 = 0 OR workspace_id = $1) \
     AND ($2 = 0 OR status = 'running') AND ($3 = 0 OR instance_id IS NULL)";

/// Which CVMs are looked at for their instance ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceIdFilter {
    /// Only those of this workspace.
    pub workspace_id: Option<i64>,
    /// Only running ones.
    pub running_only: bool,
    /// Only ones without an instance id.
    pub missing_only: bool,
}

impl Store {
    /// Ids of living CVMs, oldest first, at most `limit`, and how many there are in all.
    pub async fn cvms_by_instance_id(&self, filter: InstanceIdFilter, limit: i64) -> Result<(Vec<i64>, i64)> {
        let bounds = (
            filter.workspace_id.unwrap_or_default(),
            i64::from(filter.running_only),
            i64::from(filter.missing_only),
        );
        let (total,): (i64,) = sqlx::query_as(sqlx::AssertSqlSafe(format!("SELECT COUNT(*) {MISSING}")))
            .bind(bounds.0)
            .bind(bounds.1)
            .bind(bounds.2)
            .fetch_one(&self.pool)
            .await?;
        let ids: Vec<(i64,)> =
            sqlx::query_as(sqlx::AssertSqlSafe(format!("SELECT id {MISSING} ORDER BY id LIMIT $4")))
                .bind(bounds.0)
                .bind(bounds.1)
                .bind(bounds.2)
                .bind(limit)
                .fetch_all(&self.pool)
                .await?;
        Ok((ids.into_iter().map(|(id,)| id).collect(), total))
    }
}

impl Change {
    /// Whether a living CVM other than this one has an instance id.
    pub async fn is_instance_of_other(&mut self, cvm_id: i64, instance_id: InstanceId) -> Result<bool> {
        let row: Option<(i64,)> = sqlx::query_as(
            "SELECT id FROM cvms WHERE instance_id = $1 AND id <> $2 AND deleted_at_ms IS NULL LIMIT 1",
        )
        .bind(instance_id.to_string())
        .bind(cvm_id)
        .fetch_optional(&mut *self.transaction)
        .await?;
        Ok(row.is_some())
    }

    /// Sets the instance id of a CVM.
    pub async fn set_instance_id(&mut self, cvm_id: i64, instance_id: InstanceId, now_ms: i64) -> Result<()> {
        sqlx::query("UPDATE cvms SET instance_id = $2, updated_at_ms = $3 WHERE id = $1")
            .bind(cvm_id)
            .bind(instance_id.to_string())
            .bind(now_ms)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }
}
