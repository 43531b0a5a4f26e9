//! The history of an application's configurations, without the configurations themselves: a page of those
//! would weigh hundreds of megabytes.

use cloister_app_compose::{AppId, ComposeHash};
use sqlx::FromRow;
use uuid::Uuid;

use super::{Result, Store};
use crate::operations::RevisionState;

/// A revision in a list.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct RevisionSummary {
    /// Id; later ones are larger.
    pub id: i64,
    /// Whose.
    pub cvm_id: i64,
    /// That CVM's identity on its node.
    #[sqlx(try_from = "String")]
    pub vm_uuid: Uuid,
    /// Its name.
    pub cvm_name: String,
    /// Application.
    #[sqlx(try_from = "String")]
    pub app_id: AppId,
    /// `deploy` or `update`.
    pub operation_type: String,
    /// What became of it.
    #[sqlx(try_from = "String")]
    pub state: RevisionState,
    /// Whether its CVM is alive and has it.
    pub is_current: i64,
    /// Hash of its document.
    #[sqlx(try_from = "String")]
    pub compose_hash: ComposeHash,
    /// Correlation id of the operation that brought it.
    pub correlation_id: Option<String>,
    /// Who asked for it.
    pub triggered_by: i64,
    /// That user's name.
    pub username: String,
    /// When it was asked for.
    pub created_at_ms: i64,
}

macro_rules! select_summary {
    ($condition:literal) => {
        concat!(
            "SELECT r.id, r.cvm_id, c.vm_uuid, c.name AS cvm_name, r.app_id, r.operation_type, r.state, \
             CAST(CASE WHEN c.revision_id = r.id AND c.deleted_at_ms IS NULL THEN 1 ELSE 0 END AS BIGINT) \
             AS is_current, r.compose_hash, r.correlation_id, r.triggered_by, u.username, r.created_at_ms \
             FROM revisions r JOIN cvms c ON c.id = r.cvm_id JOIN users u ON u.id = r.triggered_by \
             WHERE r.app_id = $1 AND r.workspace_id = $2 AND r.applied_at_ms IS NOT NULL",
            $condition
        )
    };
}

const OF_APP: &str = select_summary!(" ORDER BY r.id DESC LIMIT $3 OFFSET $4");
const ONE: &str = select_summary!(" AND r.id = $3");

impl Store {
    /// A stretch of the applied revisions of an application in a workspace, newest first, of deleted CVMs too.
    pub async fn revision_summaries(
        &self,
        app_id: AppId,
        workspace_id: i64,
        limit: i64,
        offset: i64,
    ) -> Result<Vec<RevisionSummary>> {
        Ok(sqlx::query_as(OF_APP)
            .bind(app_id.to_string())
            .bind(workspace_id)
            .bind(limit)
            .bind(offset)
            .fetch_all(&self.pool)
            .await?)
    }

    /// One applied revision of an application in a workspace.
    pub async fn revision_summary(
        &self,
        app_id: AppId,
        workspace_id: i64,
        id: i64,
    ) -> Result<Option<RevisionSummary>> {
        Ok(sqlx::query_as(ONE)
            .bind(app_id.to_string())
            .bind(workspace_id)
            .bind(id)
            .fetch_optional(&self.pool)
            .await?)
    }
}
