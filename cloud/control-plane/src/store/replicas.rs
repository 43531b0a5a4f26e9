//! CVMs of one application beside each other.

use std::collections::BTreeMap;

use cloister_app_compose::{AppId, ComposeHash};

use super::cvms::BY_ID;
use super::{Change, CvmRow, Result, Store};

impl Store {
    /// How many living CVMs of an application each node has, in all workspaces.
    pub async fn cvms_of_app_by_node(&self, app_id: AppId) -> Result<BTreeMap<i64, i64>> {
        let rows: Vec<(i64, i64)> = sqlx::query_as(
            "SELECT node_id, COUNT(*) FROM cvms WHERE app_id = $1 AND deleted_at_ms IS NULL GROUP BY node_id",
        )
        .bind(app_id.to_string())
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().collect())
    }
}

impl Change {
    /// The living CVM with this id, which others may change meanwhile.
    pub async fn cvm(&mut self, id: i64) -> Result<Option<CvmRow>> {
        Ok(sqlx::query_as(BY_ID).bind(id).fetch_optional(&mut *self.transaction).await?)
    }

    /// The living CVMs of an application in a workspace with the hashes of their documents, oldest first, without
    /// those that failed or are on their way out: nobody wants another one of them.
    pub async fn hashes_of_app(
        &mut self,
        workspace_id: i64,
        app_id: AppId,
    ) -> Result<Vec<(i64, ComposeHash)>> {
        let rows: Vec<(i64, String)> = sqlx::query_as(
            "SELECT id, compose_hash FROM cvms WHERE app_id = $2 AND workspace_id = $1 \
             AND deleted_at_ms IS NULL AND status NOT IN ('error', 'removing') ORDER BY id",
        )
        .bind(workspace_id)
        .bind(app_id.to_string())
        .fetch_all(&mut *self.transaction)
        .await?;
        Ok(rows.into_iter().filter_map(|(id, hash)| Some((id, hash.parse().ok()?))).collect())
    }

    /// Whether a living CVM of a workspace has a name; names ignore case.
    pub async fn is_name_taken(&mut self, workspace_id: i64, name: &str) -> Result<bool> {
        let row: Option<(i64,)> =
            sqlx::query_as("SELECT id FROM cvms WHERE workspace_id = $1 AND live_name = $2")
                .bind(workspace_id)
                .bind(name.to_ascii_lowercase())
                .fetch_optional(&mut *self.transaction)
                .await?;
        Ok(row.is_some())
    }

    /// Gives a new CVM what its source was told beside its configuration: how changes of it are judged, and
    /// where it asks for keys and is reached. Ports of the host stay the source's: each leads to one CVM.
    pub async fn copy_cvm_settings(&mut self, source: i64, replica: i64) -> Result<()> {
        sqlx::query(
            "UPDATE cvms SET \
             rollback_on_failure = (SELECT rollback_on_failure FROM cvms s WHERE s.id = $1), \
             health_timeout_s = (SELECT health_timeout_s FROM cvms s WHERE s.id = $1), \
             kms_urls = (SELECT kms_urls FROM cvms s WHERE s.id = $1), \
             gateway_urls = (SELECT gateway_urls FROM cvms s WHERE s.id = $1) WHERE id = $2",
        )
        .bind(source)
        .bind(replica)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Has the CVM that takes another one's place deleted when that one was to be, unless its own time was set.
    pub async fn hand_over_schedule(&mut self, source: i64, replacement: i64) -> Result<()> {
        sqlx::query(
            "UPDATE cvms SET \
             scheduled_delete_at_ms = (SELECT scheduled_delete_at_ms FROM cvms s WHERE s.id = $1), \
             scheduled_delete_by = (SELECT COALESCE(scheduled_delete_by, user_id) FROM cvms s WHERE s.id = $1) \
             WHERE id = $2 AND scheduled_delete_at_ms IS NULL",
        )
        .bind(source)
        .bind(replacement)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }
}
