//! Rollouts and their members.

mod rows;
mod writes;

use cloister_app_compose::AppId;

use super::{Change, Configuration, Engine, Result, Store};
use crate::rollouts::RolloutKind;

pub use rows::{MemberRow, NewMember, NewRollout, PlacedRow, RolloutRow};

macro_rules! select_rollout {
    ($condition:literal) => {
        concat!(
            "SELECT id, kind, workspace_id, app_id, node_id, state, reason, on_failure, max_unavailable, \
             arguments, triggered_by, created_at_ms, updated_at_ms, completed_at_ms, waiting_since_ms \
             FROM rollouts WHERE ",
            $condition
        )
    };
}

const BY_ID: &str = select_rollout!("id = $1");
const BY_ID_LOCKED: &str = select_rollout!("id = $1 FOR UPDATE");
const OF_APP: &str = select_rollout!(
    "app_id = $1 AND workspace_id = $2 AND kind = 'update' ORDER BY id DESC LIMIT $3 OFFSET $4"
);
const OF_NODE: &str = select_rollout!("node_id = $1 AND kind = 'drain' ORDER BY id DESC LIMIT 1");
const DUE: &str = select_rollout!("completed_at_ms IS NULL AND due_ms <= $1 ORDER BY due_ms, id LIMIT 1");
const DUE_LOCKED: &str = select_rollout!(
    "completed_at_ms IS NULL AND due_ms <= $1 ORDER BY due_ms, id LIMIT 1 FOR UPDATE SKIP LOCKED"
);
const MEMBERS: &str = "SELECT m.position, m.cvm_id, m.state, m.from_revision, m.correlation_id, \
     m.replacement_id, m.replacement_name, m.error, c.workspace_id, c.user_id, c.app_id, c.compose_hash, c.vm_uuid, c.name, c.status AS cvm_status, c.revision_id, c.health, \
     c.health_detail, c.operation_id, c.deleted_at_ms, n.name AS node_name, n.reported_at_ms, \
     o.status AS operation_status, o.failure FROM rollout_members m JOIN cvms c ON c.id = m.cvm_id \
     JOIN nodes n ON n.id = c.node_id LEFT JOIN operations o ON o.correlation_id = m.correlation_id \
     WHERE m.rollout_id = $1 ORDER BY m.position";
// A change must not get lost in a CVM that is being replaced by a copy of what it was.
const AT_WORK_ON: &str = "SELECT r.id, r.kind FROM rollout_members m JOIN rollouts r ON r.id = m.rollout_id \
     WHERE m.cvm_id = $1 AND r.completed_at_ms IS NULL \
     AND (r.kind = 'update' OR m.state IN ('replicating', 'retiring')) ORDER BY r.kind LIMIT 1";

macro_rules! select_placed {
    ($condition:literal) => {
        concat!(
            "SELECT c.id, c.vm_uuid, c.name, c.app_id, c.workspace_id, c.user_id, c.status, c.health, \
             c.boot_error, c.exit_reason, c.operation_id, c.deleted_at_ms, n.name AS node_name, n.reported_at_ms, \
             (SELECT COUNT(*) FROM cvms s JOIN nodes sn ON sn.id = s.node_id WHERE s.app_id = c.app_id \
             AND s.workspace_id = c.workspace_id AND s.node_id <> c.node_id AND s.deleted_at_ms IS NULL \
             AND s.status = 'running' AND (s.health IS NULL OR s.health = 'healthy') \
             AND sn.reported_at_ms > $2) AS ready_elsewhere, \
             (SELECT COUNT(*) FROM rollouts r WHERE r.app_id = c.app_id AND r.kind = 'update' \
             AND r.completed_at_ms IS NULL) AS rollouts \
             FROM cvms c JOIN nodes n ON n.id = c.node_id WHERE ",
            $condition
        )
    };
}

const PLACED: &str = select_placed!("c.id = $1");
const PLACED_ON: &str = select_placed!("c.node_id = $1 AND c.deleted_at_ms IS NULL ORDER BY c.id");

impl Store {
    /// The rollout with this id.
    pub async fn rollout(&self, id: i64) -> Result<Option<RolloutRow>> {
        Ok(sqlx::query_as(BY_ID).bind(id).fetch_optional(&self.pool).await?)
    }

    /// A stretch of the rollouts of an application in a workspace, newest first.
    pub async fn rollouts_of_app(
        &self,
        app_id: AppId,
        workspace_id: i64,
        limit: i64,
        offset: i64,
    ) -> Result<Vec<RolloutRow>> {
        Ok(sqlx::query_as(OF_APP)
            .bind(app_id.to_string())
            .bind(workspace_id)
            .bind(limit)
            .bind(offset)
            .fetch_all(&self.pool)
            .await?)
    }

    /// How many rollouts an application has had in a workspace.
    pub async fn count_rollouts_of_app(&self, app_id: AppId, workspace_id: i64) -> Result<i64> {
        let (count,): (i64,) = sqlx::query_as(
            "SELECT COUNT(*) FROM rollouts WHERE app_id = $1 AND workspace_id = $2 AND kind = 'update'",
        )
        .bind(app_id.to_string())
        .bind(workspace_id)
        .fetch_one(&self.pool)
        .await?;
        Ok(count)
    }

    /// The latest drain of a node, alive or ended.
    pub async fn drain_of_node(&self, node_id: i64) -> Result<Option<RolloutRow>> {
        Ok(sqlx::query_as(OF_NODE).bind(node_id).fetch_optional(&self.pool).await?)
    }

    /// Members of a rollout in their order.
    pub async fn rollout_members(&self, id: i64) -> Result<Vec<MemberRow>> {
        Ok(sqlx::query_as(MEMBERS).bind(id).fetch_all(&self.pool).await?)
    }

    /// Living CVMs on a node with what a drain has to know; nodes that have not reported since `fresh_ms`
    /// count as away.
    pub async fn placed_on(&self, node_id: i64, fresh_ms: i64) -> Result<Vec<PlacedRow>> {
        Ok(sqlx::query_as(PLACED_ON).bind(node_id).bind(fresh_ms).fetch_all(&self.pool).await?)
    }

    /// Whether a rollout is to be looked at. A look without a lock: most of the time there is none.
    pub async fn has_due_rollout(&self, now_ms: i64) -> Result<bool> {
        let row: Option<RolloutRow> = sqlx::query_as(DUE).bind(now_ms).fetch_optional(&self.pool).await?;
        Ok(row.is_some())
    }
}

impl Change {
    /// The rollout that waits longest to be looked at and that nobody else is looking at; it stays this
    /// change's until its end.
    pub async fn lock_due_rollout(&mut self, now_ms: i64) -> Result<Option<RolloutRow>> {
        let query = match self.engine {
            Engine::Sqlite => DUE,
            Engine::Postgres => DUE_LOCKED,
        };
        Ok(sqlx::query_as(query).bind(now_ms).fetch_optional(&mut *self.transaction).await?)
    }

    /// The latest drain of a node, alive or ended, locked.
    pub async fn lock_drain_of_node(&mut self, node_id: i64) -> Result<Option<RolloutRow>> {
        let row: Option<RolloutRow> =
            sqlx::query_as(OF_NODE).bind(node_id).fetch_optional(&mut *self.transaction).await?;
        match row {
            Some(row) => self.lock_rollout(row.id).await,
            None => Ok(None),
        }
    }

    /// The rollout with this id, locked.
    pub async fn lock_rollout(&mut self, id: i64) -> Result<Option<RolloutRow>> {
        let query = match self.engine {
            Engine::Sqlite => BY_ID,
            Engine::Postgres => BY_ID_LOCKED,
        };
        let rollout = sqlx::query_as(query).bind(id).fetch_optional(&mut *self.transaction).await?;
        self.locked(super::Subject::Rollout(id)).await?;
        Ok(rollout)
    }

    /// The rollout that lets nobody else change a CVM's configuration now, if there is one.
    pub async fn rollout_at_work_on(&mut self, cvm_id: i64) -> Result<Option<(i64, RolloutKind)>> {
        let row: Option<(i64, String)> =
            sqlx::query_as(AT_WORK_ON).bind(cvm_id).fetch_optional(&mut *self.transaction).await?;
        Ok(row.and_then(|(id, kind)| Some((id, kind.parse().ok()?))))
    }

    /// Members of a rollout in their order.
    pub async fn rollout_members(&mut self, id: i64) -> Result<Vec<MemberRow>> {
        Ok(sqlx::query_as(MEMBERS).bind(id).fetch_all(&mut *self.transaction).await?)
    }

    /// Living CVMs on a node with what a drain has to know.
    pub async fn placed_on(&mut self, node_id: i64, fresh_ms: i64) -> Result<Vec<PlacedRow>> {
        Ok(sqlx::query_as(PLACED_ON).bind(node_id).bind(fresh_ms).fetch_all(&mut *self.transaction).await?)
    }

    /// One CVM, living or deleted, with what a drain has to know.
    pub async fn placed(&mut self, cvm_id: i64, fresh_ms: i64) -> Result<Option<PlacedRow>> {
        Ok(sqlx::query_as(PLACED).bind(cvm_id).bind(fresh_ms).fetch_optional(&mut *self.transaction).await?)
    }

    /// What a member is to get.
    pub async fn member_configuration(
        &mut self,
        rollout: i64,
        position: i64,
    ) -> Result<Option<Configuration>> {
        let row: Option<(Option<String>,)> = sqlx::query_as(
            "SELECT configuration FROM rollout_members WHERE rollout_id = $1 AND position = $2",
        )
        .bind(rollout)
        .bind(position)
        .fetch_optional(&mut *self.transaction)
        .await?;
        Ok(row.and_then(|(text,)| serde_json::from_str(&text?).ok()))
    }
}
