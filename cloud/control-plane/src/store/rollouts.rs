//! Rollouts and their members.

use cloister_app_compose::{AppId, ComposeHash};
use sqlx::FromRow;
use uuid::Uuid;

use super::{Change, Configuration, Engine, Result, Store};
use crate::operations::CvmStatus;
use crate::rollouts::{MemberState, OnFailure, RolloutKind, RolloutState};

/// A rollout.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct RolloutRow {
    /// Id.
    pub id: i64,
    /// What it is for.
    #[sqlx(try_from = "String")]
    pub kind: RolloutKind,
    /// Of an update: workspace of the application.
    pub workspace_id: Option<i64>,
    /// Of an update: the application, 40 hex digits.
    pub app_id: Option<String>,
    /// Of a drain: the node that is being emptied.
    pub node_id: Option<i64>,
    /// How it stands.
    #[sqlx(try_from = "String")]
    pub state: RolloutState,
    /// Why it does not go on, or went back.
    pub reason: Option<String>,
    /// What it does when a member fails.
    #[sqlx(try_from = "String")]
    pub on_failure: OnFailure,
    /// Most members that are being changed at the same time.
    pub max_unavailable: i64,
    /// JSON of [`crate::rollouts::Arguments`].
    pub arguments: String,
    /// Who asked for it.
    pub triggered_by: i64,
    /// When.
    pub created_at_ms: i64,
    /// Last change.
    pub updated_at_ms: i64,
    /// When it ended.
    pub completed_at_ms: Option<i64>,
    /// Since when it waits for changed members to do well.
    pub waiting_since_ms: Option<i64>,
}

/// A rollout to be stored, in state `running`.
#[derive(Debug, Clone)]
pub struct NewRollout {
    /// What it is for.
    pub kind: RolloutKind,
    /// Of an update: the application and its workspace.
    pub app: Option<(AppId, i64)>,
    /// Of a drain: the node.
    pub node_id: Option<i64>,
    /// What it does when a member fails.
    pub on_failure: OnFailure,
    /// Most members that are being changed at the same time.
    pub max_unavailable: i64,
    /// JSON of [`crate::rollouts::Arguments`].
    pub arguments: String,
    /// Who asks.
    pub triggered_by: i64,
}

/// A member of a rollout with how its CVM, its operation and its replacement stand.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct MemberRow {
    /// Place in the order, from 0.
    pub position: i64,
    /// The CVM.
    pub cvm_id: i64,
    /// How it stands.
    #[sqlx(try_from = "String")]
    pub state: MemberState,
    /// The revision that it had, and goes back to.
    pub from_revision: Option<i64>,
    /// The latest operation of the rollout on it.
    pub correlation_id: Option<String>,
    /// Of a drain: the CVM that takes its place.
    pub replacement_id: Option<i64>,
    /// Its name, known before it is made.
    pub replacement_name: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
    /// Workspace of the CVM.
    pub workspace_id: i64,
    /// Who created it.
    pub user_id: i64,
    /// Its application.
    #[sqlx(try_from = "String")]
    pub app_id: AppId,
    /// What it runs.
    #[sqlx(try_from = "String")]
    pub compose_hash: ComposeHash,
    /// Identity of the CVM on its node.
    #[sqlx(try_from = "String")]
    pub vm_uuid: Uuid,
    /// Its name.
    pub name: String,
    /// Its status.
    #[sqlx(try_from = "String")]
    pub cvm_status: CvmStatus,
    /// What it has.
    pub revision_id: Option<i64>,
    /// How its application does.
    pub health: Option<String>,
    /// What is not healthy.
    pub health_detail: Option<String>,
    /// The operation that holds it.
    pub operation_id: Option<String>,
    /// When it was deleted.
    pub deleted_at_ms: Option<i64>,
    /// Its node.
    pub node_name: String,
    /// When that reported last.
    pub reported_at_ms: Option<i64>,
    /// Status of the rollout's operation.
    pub operation_status: Option<String>,
    /// Why that failed.
    pub failure: Option<String>,
}

/// The CVM that takes a member's place, or one that a drain looks at.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct PlacedRow {
    /// Id.
    pub id: i64,
    /// Identity on the node.
    #[sqlx(try_from = "String")]
    pub vm_uuid: Uuid,
    /// Name.
    pub name: String,
    /// Application.
    #[sqlx(try_from = "String")]
    pub app_id: AppId,
    /// Owner.
    pub workspace_id: i64,
    /// Who created it.
    pub user_id: i64,
    /// Status.
    #[sqlx(try_from = "String")]
    pub status: CvmStatus,
    /// How its application does.
    pub health: Option<String>,
    /// Why the last boot failed.
    pub boot_error: Option<String>,
    /// The operation that holds it.
    pub operation_id: Option<String>,
    /// When it was deleted.
    pub deleted_at_ms: Option<i64>,
    /// Its node.
    pub node_name: String,
    /// When that reported last.
    pub reported_at_ms: Option<i64>,
    /// Replicas of its application on other nodes that are ready.
    pub ready_elsewhere: i64,
    /// Rollouts of its application that are alive.
    pub rollouts: i64,
}

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
             c.boot_error, c.operation_id, c.deleted_at_ms, n.name AS node_name, n.reported_at_ms, \
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
        Ok(sqlx::query_as(query).bind(id).fetch_optional(&mut *self.transaction).await?)
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

    /// Adds a rollout. A second living one of the same application or node is a duplicate
    /// ([`super::StoreError::is_duplicate`]).
    pub async fn insert_rollout(&mut self, new: &NewRollout, now_ms: i64) -> Result<i64> {
        let id = self.next_id("rollouts").await?;
        sqlx::query(
            "INSERT INTO rollouts (id, kind, workspace_id, app_id, node_id, state, on_failure, \
             max_unavailable, arguments, triggered_by, created_at_ms, updated_at_ms, due_ms) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $11, $11)",
        )
        .bind(id)
        .bind(new.kind.as_str())
        .bind(new.app.map(|(_, workspace_id)| workspace_id))
        .bind(new.app.map(|(app_id, _)| app_id.to_string()))
        .bind(new.node_id)
        .bind(RolloutState::Running.as_str())
        .bind(new.on_failure.as_str())
        .bind(new.max_unavailable)
        .bind(&new.arguments)
        .bind(new.triggered_by)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(id)
    }

    /// Adds a member at a position of its own.
    pub async fn insert_rollout_member(
        &mut self,
        rollout: i64,
        position: i64,
        member: &NewMember<'_>,
        now_ms: i64,
    ) -> Result<()> {
        let configuration =
            member.configuration.and_then(|configuration| serde_json::to_string(configuration).ok());
        sqlx::query(
            "INSERT INTO rollout_members (rollout_id, position, cvm_id, state, configuration, from_revision, \
             replacement_name, updated_at_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        )
        .bind(rollout)
        .bind(position)
        .bind(member.cvm_id)
        .bind(member.state.as_str())
        .bind(configuration)
        .bind(member.from_revision)
        .bind(member.replacement_name)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Records how a member stands.
    pub async fn set_rollout_member(&mut self, rollout: i64, member: &MemberRow, now_ms: i64) -> Result<()> {
        sqlx::query(
            "UPDATE rollout_members SET state = $3, correlation_id = $4, error = $5, replacement_id = $6, \
             updated_at_ms = $7 WHERE rollout_id = $1 AND position = $2",
        )
        .bind(rollout)
        .bind(member.position)
        .bind(member.state.as_str())
        .bind(&member.correlation_id)
        .bind(&member.error)
        .bind(member.replacement_id)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Members that are in one state wait for their turn again in another, without their error.
    pub async fn retry_rollout_members(
        &mut self,
        rollout: i64,
        (from, to): (MemberState, MemberState),
        now_ms: i64,
    ) -> Result<()> {
        sqlx::query(
            "UPDATE rollout_members SET state = $3, error = NULL, updated_at_ms = $4 \
             WHERE rollout_id = $1 AND state = $2",
        )
        .bind(rollout)
        .bind(from.as_str())
        .bind(to.as_str())
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Forgets the moves of a drain that failed, so that they are tried again.
    pub async fn forget_failed_moves(&mut self, rollout: i64) -> Result<()> {
        sqlx::query("DELETE FROM rollout_members WHERE rollout_id = $1 AND state = 'failed'")
            .bind(rollout)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Moves a rollout to a state; a final one ends it, and what its members would have got is forgotten.
    pub async fn set_rollout_state(
        &mut self,
        id: i64,
        state: RolloutState,
        reason: Option<&str>,
        now_ms: i64,
    ) -> Result<()> {
        sqlx::query(
            "UPDATE rollouts SET state = $2, reason = $3, updated_at_ms = $4, due_ms = $4, \
             waiting_since_ms = NULL, completed_at_ms = $5 WHERE id = $1",
        )
        .bind(id)
        .bind(state.as_str())
        .bind(reason)
        .bind(now_ms)
        .bind(state.is_final().then_some(now_ms))
        .execute(&mut *self.transaction)
        .await?;
        if state.is_final() {
            sqlx::query("UPDATE rollout_members SET configuration = NULL WHERE rollout_id = $1")
                .bind(id)
                .execute(&mut *self.transaction)
                .await?;
        }
        Ok(())
    }

    /// Notes when a rollout is looked at again, and since when it waits for members to do well.
    pub async fn schedule_rollout(
        &mut self,
        id: i64,
        due_ms: i64,
        waiting_since_ms: Option<i64>,
    ) -> Result<()> {
        sqlx::query("UPDATE rollouts SET due_ms = $2, waiting_since_ms = $3 WHERE id = $1")
            .bind(id)
            .bind(due_ms)
            .bind(waiting_since_ms)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Switches whether a node is being emptied.
    pub async fn set_node_draining(&mut self, node_id: i64, on: bool) -> Result<()> {
        sqlx::query("UPDATE nodes SET draining = $2 WHERE id = $1")
            .bind(node_id)
            .bind(i64::from(on))
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }
}

/// A member to be stored.
#[derive(Debug, Clone)]
pub struct NewMember<'a> {
    /// The CVM.
    pub cvm_id: i64,
    /// How it stands.
    pub state: MemberState,
    /// What it is to get.
    pub configuration: Option<&'a Configuration>,
    /// The revision that it has.
    pub from_revision: Option<i64>,
    /// Of a drain: name of the CVM that takes its place.
    pub replacement_name: Option<&'a str>,
}
