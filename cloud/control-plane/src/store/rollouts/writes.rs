//! What is written about rollouts and their members.

use super::{MemberRow, NewMember, NewRollout};
use crate::rollouts::{MemberState, RolloutState};
use crate::store::{Change, Result};

impl Change {
    /// Adds a rollout. A second living one of the same application or node is a duplicate
    /// ([`crate::store::StoreError::is_duplicate`]).
    pub async fn insert_rollout(&mut self, new: &NewRollout, now_ms: i64) -> Result<i64> {
        let id = self.next_id("rollouts").await?;
        self.about(crate::store::Subject::Rollout(id)).await?;
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
        self.about(crate::store::Subject::Rollout(id)).await?;
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
        self.about(crate::store::Subject::Node(node_id)).await?;
        sqlx::query("UPDATE nodes SET draining = $2 WHERE id = $1 AND draining <> $2")
            .bind(node_id)
            .bind(i64::from(on))
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }
}
