//! What of a CVM changes without an operation: its name, who may see it, its policy and its end.

use super::{Change, Result, Store};

/// How a CVM wants to be changed; what is `None` stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PolicyChange {
    /// Whether a change that does not become healthy is taken back.
    pub rollback_on_failure: Option<bool>,
    /// Seconds that a changed CVM gets to become healthy after its boot, 30 to 3600.
    pub health_timeout_s: Option<i64>,
}

impl PolicyChange {
    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A CVM whose scheduled deletion is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueDeletion {
    /// The CVM.
    pub cvm_id: i64,
    /// Its workspace.
    pub workspace_id: i64,
    /// Who wants it.
    pub user_id: i64,
}

const DUE: &str = "SELECT id, workspace_id, COALESCE(scheduled_delete_by, user_id) FROM cvms \
     WHERE deleted_at_ms IS NULL AND scheduled_delete_at_ms <= $1 AND scheduled_delete_tried_ms <= $2 \
     AND status <> 'removing' ORDER BY scheduled_delete_at_ms, id LIMIT $3";

impl Store {
    /// At most `limit` CVMs whose deletion is due and was not begun after `tried_ms`, longest due first.
    pub async fn due_deletions(&self, now_ms: i64, tried_ms: i64, limit: i64) -> Result<Vec<DueDeletion>> {
        let rows: Vec<(i64, i64, i64)> =
            sqlx::query_as(DUE).bind(now_ms).bind(tried_ms).bind(limit).fetch_all(&self.pool).await?;
        Ok(rows
            .into_iter()
            .map(|(cvm_id, workspace_id, user_id)| DueDeletion { cvm_id, workspace_id, user_id })
            .collect())
    }
}

impl Change {
    /// Takes up a due deletion; whether it is still wanted and nobody else took it up after `tried_ms`.
    pub async fn take_due_deletion(&mut self, cvm_id: i64, now_ms: i64, tried_ms: i64) -> Result<bool> {
        let done = sqlx::query(
            "UPDATE cvms SET scheduled_delete_tried_ms = $2 WHERE id = $1 AND deleted_at_ms IS NULL \
             AND scheduled_delete_at_ms <= $2 AND scheduled_delete_tried_ms <= $3 AND status <> 'removing'",
        )
        .bind(cvm_id)
        .bind(now_ms)
        .bind(tried_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Sets when a living CVM is deleted by itself, or that it is not.
    pub async fn schedule_deletion(
        &mut self,
        cvm_id: i64,
        at_ms: Option<i64>,
        user_id: i64,
        now_ms: i64,
    ) -> Result<()> {
        self.about(super::Subject::Cvm(cvm_id)).await?;
        sqlx::query(
            "UPDATE cvms SET scheduled_delete_at_ms = $2, scheduled_delete_by = $3, \
             scheduled_delete_tried_ms = 0, updated_at_ms = $4 WHERE id = $1 AND deleted_at_ms IS NULL",
        )
        .bind(cvm_id)
        .bind(at_ms)
        .bind(at_ms.map(|_| user_id))
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Renames a living CVM. A name that another one of the workspace has is a duplicate
    /// ([`super::StoreError::is_duplicate`]).
    pub async fn rename_cvm(&mut self, cvm_id: i64, name: &str, now_ms: i64) -> Result<()> {
        self.about(super::Subject::Cvm(cvm_id)).await?;
        sqlx::query(
            "UPDATE cvms SET name = $2, live_name = $3, updated_at_ms = $4 \
             WHERE id = $1 AND deleted_at_ms IS NULL",
        )
        .bind(cvm_id)
        .bind(name)
        .bind(name.to_ascii_lowercase())
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Sets whether people outside of the workspace see a living CVM.
    pub async fn set_listed(&mut self, cvm_id: i64, listed: bool, now_ms: i64) -> Result<()> {
        self.about(super::Subject::Cvm(cvm_id)).await?;
        sqlx::query(
            "UPDATE cvms SET listed = $2, updated_at_ms = $3 WHERE id = $1 AND deleted_at_ms IS NULL",
        )
        .bind(cvm_id)
        .bind(i64::from(listed))
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Sets how a living CVM wants to be changed.
    pub async fn set_policy(&mut self, cvm_id: i64, policy: PolicyChange, now_ms: i64) -> Result<()> {
        self.about(super::Subject::Cvm(cvm_id)).await?;
        sqlx::query(
            "UPDATE cvms SET rollback_on_failure = COALESCE($2, rollback_on_failure), \
             health_timeout_s = COALESCE($3, health_timeout_s), updated_at_ms = $4 \
             WHERE id = $1 AND deleted_at_ms IS NULL",
        )
        .bind(cvm_id)
        .bind(policy.rollback_on_failure.map(i64::from))
        .bind(policy.health_timeout_s)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }
}
