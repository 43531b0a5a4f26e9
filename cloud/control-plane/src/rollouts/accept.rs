//! Accepting rollouts, and steering them. When a call returns, what was asked for is durable.

use std::collections::BTreeSet;

use cloister_app_compose::AppId;

use super::driver::Arguments;
use super::machine::{MemberState, OnFailure, RolloutEvent, RolloutKind, RolloutState};
use super::plan;
use crate::clock::Clock;
use crate::store::{Configuration, NewMember, NewRollout, RolloutRow, Store, StoreError};

/// A CVM that is to get another configuration.
#[derive(Debug, Clone)]
pub(crate) struct UpdateMember {
    pub(crate) cvm_id: i64,
    /// The revision that its change was made from.
    pub(crate) base_revision: Option<i64>,
    pub(crate) configuration: Configuration,
}

/// An update of several CVMs of an application.
#[derive(Debug, Clone)]
pub(crate) struct NewUpdate {
    pub(crate) app_id: AppId,
    pub(crate) workspace_id: i64,
    /// In the order of their turns.
    pub(crate) members: Vec<UpdateMember>,
    pub(crate) on_failure: OnFailure,
    /// Most members that are being changed at the same time.
    pub(crate) max_unavailable: u32,
    pub(crate) arguments: Arguments,
    pub(crate) user_id: i64,
}

/// Why a rollout was not accepted, or not moved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RolloutRequestError {
    #[error("there is no such rollout")]
    NotFound,
    #[error("{0} is under way; wait for it to end, or end it first")]
    UnderWay(&'static str),
    #[error("a CVM of the application was changed meanwhile; look at it and try again")]
    ChangedMeanwhile,
    #[error("no CVM of the application would be changed: they have this configuration already")]
    NothingToChange,
    #[error("max_unavailable must be from 1 to {0}, so that one CVM of the application stays in service")]
    MaxUnavailable(usize),
    #[error("a rollout that is {state} cannot {event}")]
    IllegalMove { state: RolloutState, event: RolloutEvent },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Entry to everything that steers rollouts; cheap to make.
#[derive(Clone)]
pub(crate) struct Rollouts {
    store: Store,
    clock: Clock,
}

impl Rollouts {
    pub(crate) const fn new(store: Store, clock: Clock) -> Self {
        Self { store, clock }
    }

    /// Accepts an update; its id. Nobody else can change the configuration of its members until it ends.
    pub(crate) async fn update(&self, new: &NewUpdate) -> Result<i64, RolloutRequestError> {
        let limit = (new.members.len().saturating_sub(1)).max(1);
        let at_once = usize::try_from(new.max_unavailable).unwrap_or(usize::MAX);
        if !(1..=limit).contains(&at_once) {
            return Err(RolloutRequestError::MaxUnavailable(limit));
        }
        let mut change = self.store.change().await?;
        change.lock_workspace(new.workspace_id).await?;
        // Always in the same order, so that two of these never wait for each other.
        let ids: BTreeSet<i64> = new.members.iter().map(|member| member.cvm_id).collect();
        let mut changed = BTreeSet::new();
        for id in ids {
            let cvm = change.lock_living_cvm(id).await?.ok_or(RolloutRequestError::ChangedMeanwhile)?;
            if let Some((_, kind)) = change.rollout_at_work_on(id).await? {
                return Err(RolloutRequestError::UnderWay(kind.in_words()));
            }
            let member = new.members.iter().find(|member| member.cvm_id == id);
            let Some(member) = member else { continue };
            if cvm.revision_id != member.base_revision || cvm.operation_id.is_some() {
                return Err(RolloutRequestError::ChangedMeanwhile);
            }
            if is_change(&cvm.configuration(), &member.configuration) {
                changed.insert(id);
            }
        }
        if changed.is_empty() {
            return Err(RolloutRequestError::NothingToChange);
        }
        let now_ms = self.clock.now_ms();
        let row = NewRollout {
            kind: RolloutKind::Update,
            app: Some((new.app_id, new.workspace_id)),
            node_id: None,
            on_failure: new.on_failure,
            max_unavailable: i64::from(new.max_unavailable),
            arguments: new.arguments.to_json(),
            triggered_by: new.user_id,
        };
        let inserted = change.insert_rollout(&row, now_ms).await;
        let id = inserted.map_err(|error| under_way(error, RolloutKind::Update))?;
        let members = new.members.iter().filter(|member| changed.contains(&member.cvm_id));
        for (position, member) in (0..).zip(members) {
            let row = NewMember {
                cvm_id: member.cvm_id,
                state: MemberState::Pending,
                configuration: Some(&member.configuration),
                from_revision: member.base_revision,
                replacement_name: None,
            };
            change.insert_rollout_member(id, position, &row, now_ms).await?;
        }
        change.commit().await?;
        Ok(id)
    }

    /// Moves a rollout of an application because somebody wants it; how it is then. Asking for what is so
    /// already changes nothing.
    pub(crate) async fn steer(
        &self,
        id: i64,
        event: RolloutEvent,
        reason: Option<&str>,
    ) -> Result<RolloutRow, RolloutRequestError> {
        let mut change = self.store.change().await?;
        let rollout = change.lock_rollout(id).await?.ok_or(RolloutRequestError::NotFound)?;
        let state = rollout
            .state
            .after(event)
            .ok_or(RolloutRequestError::IllegalMove { state: rollout.state, event })?;
        if state == rollout.state {
            return Ok(rollout);
        }
        let now_ms = self.clock.now_ms();
        if event == RolloutEvent::Resume {
            change.retry_rollout_members(id, plan::retried(state), now_ms).await?;
        }
        change.set_rollout_state(id, state, reason, now_ms).await?;
        let moved = change.lock_rollout(id).await?.ok_or(RolloutRequestError::NotFound)?;
        change.commit().await?;
        Ok(moved)
    }

    /// Begins to empty a node. Of a node that is being emptied already, moves that failed are tried again.
    pub(crate) async fn drain(&self, node_id: i64, user_id: i64) -> Result<(), RolloutRequestError> {
        let now_ms = self.clock.now_ms();
        let mut change = self.store.change().await?;
        match change.lock_drain_of_node(node_id).await? {
            Some(drain) if drain.state == RolloutState::Running => {
                change.forget_failed_moves(drain.id).await?;
                change.schedule_rollout(drain.id, now_ms, None).await?;
            }
            Some(drain) if !drain.state.is_final() => {
                return Err(RolloutRequestError::UnderWay("the end of the node's former drain"));
            }
            _ => {
                let row = NewRollout {
                    kind: RolloutKind::Drain,
                    app: None,
                    node_id: Some(node_id),
                    on_failure: OnFailure::Pause,
                    max_unavailable: 1,
                    arguments: Arguments::default().to_json(),
                    triggered_by: user_id,
                };
                let inserted = change.insert_rollout(&row, now_ms).await;
                inserted.map_err(|error| under_way(error, RolloutKind::Drain))?;
            }
        }
        change.set_node_draining(node_id, true).await?;
        Ok(change.commit().await?)
    }

    /// Lets a node take CVMs again; a move that was begun ends.
    pub(crate) async fn end_drain(&self, node_id: i64) -> Result<(), RolloutRequestError> {
        let now_ms = self.clock.now_ms();
        let mut change = self.store.change().await?;
        if let Some(drain) = change.lock_drain_of_node(node_id).await?
            && let Some(state) = drain.state.after(RolloutEvent::Abort)
            && state != drain.state
        {
            change.set_rollout_state(drain.id, state, None, now_ms).await?;
        }
        change.set_node_draining(node_id, false).await?;
        Ok(change.commit().await?)
    }
}

/// A second living rollout of the same application or node is refused by the database at the latest.
fn under_way(error: StoreError, kind: RolloutKind) -> RolloutRequestError {
    if error.is_duplicate() { RolloutRequestError::UnderWay(kind.in_words()) } else { error.into() }
}

/// Whether a CVM that has one configuration would be changed by another. A key to seal to is only noted.
fn is_change(present: &Configuration, wanted: &Configuration) -> bool {
    let comparable = |configuration: &Configuration| Configuration {
        env_pubkey: None,
        disk_gb: configuration.disk_gb.max(present.disk_gb),
        ..configuration.clone()
    };
    comparable(present) != comparable(wanted)
}
