//! Documents that were checked for a CVM and wait to be applied to it.

use std::fmt;

use cloister_app_compose::{AppId, ComposeHash};
use sqlx::FromRow;

use super::{Change, Result, Store};

/// A checked document.
#[derive(Clone, PartialEq, Eq, FromRow)]
pub struct UpdateProvisionRow {
    /// The CVM that it is for.
    pub cvm_id: i64,
    /// SHA-256 of `app_compose`; the key within the CVM.
    #[sqlx(try_from = "String")]
    pub compose_hash: ComposeHash,
    /// Workspace of the CVM.
    pub workspace_id: i64,
    /// Exact text that was hashed.
    pub app_compose: String,
    /// When the cache forgets it.
    pub expires_at_ms: i64,
}

// The document belongs to the tenant and into no log.
impl fmt::Debug for UpdateProvisionRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpdateProvisionRow")
            .field("cvm_id", &self.cvm_id)
            .field("compose_hash", &self.compose_hash)
            .finish_non_exhaustive()
    }
}

/// How many documents wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpdateProvisionCounts {
    /// For the CVM.
    pub of_cvm: i64,
    /// For all CVMs of the workspace.
    pub of_workspace: i64,
}

const BY_HASH: &str = "SELECT cvm_id, compose_hash, workspace_id, app_compose, expires_at_ms \
     FROM update_provisions WHERE cvm_id = $1 AND compose_hash = $2 AND expires_at_ms > $3";

impl Store {
    /// The unexpired document with this hash of a CVM.
    pub async fn update_provision(
        &self,
        cvm_id: i64,
        compose_hash: ComposeHash,
        now_ms: i64,
    ) -> Result<Option<UpdateProvisionRow>> {
        Ok(sqlx::query_as(BY_HASH)
            .bind(cvm_id)
            .bind(compose_hash.to_string())
            .bind(now_ms)
            .fetch_optional(&self.pool)
            .await?)
    }

    /// The CVMs of an application in a workspace, and at most `limit` documents that wait for them.
    pub async fn waiting_documents_of_app(
        &self,
        app_id: AppId,
        workspace_id: i64,
        now_ms: i64,
        limit: i64,
    ) -> Result<Vec<(i64, ComposeHash)>> {
        let rows: Vec<(i64, String)> = sqlx::query_as(
            "SELECT p.cvm_id, p.compose_hash FROM update_provisions p JOIN cvms c ON c.id = p.cvm_id \
             WHERE c.app_id = $1 AND p.workspace_id = $2 AND c.deleted_at_ms IS NULL \
             AND p.applied_at_ms IS NULL AND p.expires_at_ms > $3 ORDER BY p.cvm_id, p.compose_hash LIMIT $4",
        )
        .bind(app_id.to_string())
        .bind(workspace_id)
        .bind(now_ms)
        .bind(limit)
        .fetch_all(&self.pool)
        .await?;
        // What is stored is a hash.
        Ok(rows.into_iter().filter_map(|(cvm, hash)| Some((cvm, hash.parse().ok()?))).collect())
    }
}

impl Change {
    /// How many unexpired documents a CVM and its workspace have besides the one with this hash.
    pub async fn count_other_update_provisions(
        &mut self,
        row: &UpdateProvisionRow,
        now_ms: i64,
    ) -> Result<UpdateProvisionCounts> {
        let (of_workspace, of_cvm): (i64, i64) = sqlx::query_as(
            "SELECT COUNT(*), CAST(COALESCE(SUM(CASE WHEN cvm_id = $2 THEN 1 ELSE 0 END), 0) AS BIGINT) \
             FROM update_provisions WHERE workspace_id = $1 AND expires_at_ms > $4 \
             AND NOT (cvm_id = $2 AND compose_hash = $3)",
        )
        .bind(row.workspace_id)
        .bind(row.cvm_id)
        .bind(row.compose_hash.to_string())
        .bind(now_ms)
        .fetch_one(&mut *self.transaction)
        .await?;
        Ok(UpdateProvisionCounts { of_cvm, of_workspace })
    }

    /// Keeps a document; one with the same hash starts its time anew.
    pub async fn put_update_provision(&mut self, row: &UpdateProvisionRow, now_ms: i64) -> Result<()> {
        self.about(super::Subject::UpdateProvision(row.cvm_id, row.compose_hash)).await?;
        sqlx::query(
            "INSERT INTO update_provisions (cvm_id, compose_hash, workspace_id, app_compose, created_at_ms, \
             expires_at_ms) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (cvm_id, compose_hash) DO UPDATE SET \
             created_at_ms = excluded.created_at_ms, expires_at_ms = excluded.expires_at_ms, \
             applied_at_ms = NULL",
        )
        .bind(row.cvm_id)
        .bind(row.compose_hash.to_string())
        .bind(row.workspace_id)
        .bind(&row.app_compose)
        .bind(now_ms)
        .bind(row.expires_at_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Notes that a document was applied.
    pub async fn set_update_provision_applied(
        &mut self,
        cvm_id: i64,
        compose_hash: ComposeHash,
        now_ms: i64,
    ) -> Result<()> {
        sqlx::query(
            "UPDATE update_provisions SET applied_at_ms = $3 WHERE cvm_id = $1 AND compose_hash = $2",
        )
        .bind(cvm_id)
        .bind(compose_hash.to_string())
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Forgets the documents of a CVM that were applied.
    pub async fn delete_applied_update_provisions(&mut self, cvm_id: i64) -> Result<()> {
        sqlx::query("DELETE FROM update_provisions WHERE cvm_id = $1 AND applied_at_ms IS NOT NULL")
            .bind(cvm_id)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Forgets at most `limit` documents that expired or whose CVM is gone; how many it were.
    pub async fn delete_stale_update_provisions(&mut self, now_ms: i64, limit: i64) -> Result<u64> {
        let done = sqlx::query(
            "DELETE FROM update_provisions WHERE (cvm_id, compose_hash) IN \
             (SELECT p.cvm_id, p.compose_hash FROM update_provisions p JOIN cvms c ON c.id = p.cvm_id \
             WHERE p.expires_at_ms <= $1 OR c.deleted_at_ms IS NOT NULL LIMIT $2)",
        )
        .bind(now_ms)
        .bind(limit)
        .execute(&mut *self.transaction)
        .await?;
        Ok(done.rows_affected())
    }
}
