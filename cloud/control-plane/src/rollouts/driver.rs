//! Rounds of rollouts: each looks at the members of one, decides, and records the decision together with the
//! operation that carries it out.

use std::sync::Arc;
use std::time::Duration;

use cloister_node_api::OFFLINE_AFTER;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::machine::{MemberState, RolloutEvent, RolloutKind, RolloutState};
use super::plan::{self, Member, Next, Standing};
use crate::clock::Clock;
use crate::governance::{Contracts, NoContracts};
use crate::kms::Kmses;
use crate::operations::{Lifecycle, OperationKind, RequestError, UpdateRequest};
use crate::store::{Change, Configuration, MemberRow, RolloutRow, Store, StoreError};

/// Pause between two looks at a rollout.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The same of one that waits for somebody.
const LOOK_AGAIN_PAUSED: Duration = Duration::from_mins(1);
/// The same of one whose last round failed, so that it does not keep the others waiting.
const LOOK_AGAIN_BROKEN: Duration = Duration::from_secs(30);
/// How long changed members may take to do well before the rollout waits for somebody, and replacements before
/// they are given up.
pub(super) const READY_WITHIN: Duration = Duration::from_mins(5);

/// How the members of a rollout are changed; JSON in the database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Arguments {
    /// Name of the [`OperationKind`] that the history shows.
    pub kind: String,
    /// Seconds that guests get to shut down, 10 to 1200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shutdown_timeout_s: Option<u32>,
    /// Whether the power of a guest that does not shut down in time is taken away.
    pub allow_force_stop: bool,
}

impl Default for Arguments {
    fn default() -> Self {
        Self {
            kind: OperationKind::Update.as_str().to_owned(),
            shutdown_timeout_s: None,
            allow_force_stop: true,
        }
    }
}

impl Arguments {
    /// Those of a stored rollout.
    #[must_use]
    pub fn of(rollout: &RolloutRow) -> Self {
        serde_json::from_str(&rollout.arguments).unwrap_or_default()
    }

    /// As they are stored.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// A moment in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RolloutStep {
    /// What became of a member is known, and not recorded.
    Settled,
    /// What comes next is prepared, and not recorded.
    Decided,
    /// The round is recorded.
    Recorded,
    /// A replacement was made, and is not recorded.
    Replicated,
}

impl RolloutStep {
    /// Every moment.
    pub const ALL: [Self; 4] = [Self::Settled, Self::Decided, Self::Recorded, Self::Replicated];
}

/// Called at every moment; a crash test ends the round, or the process, in it.
pub type Observer = Arc<dyn Fn(RolloutState, RolloutStep) + Send + Sync>;

/// Makes rounds until it is stopped.
pub(crate) struct Driver {
    pub(super) store: Store,
    pub(super) lifecycle: Lifecycle,
    pub(super) clock: Clock,
    pub(super) observer: Option<Observer>,
    /// Who decides for applications, and how they are asked.
    pub(super) kmses: Arc<Kmses>,
    pub(super) contracts: Arc<dyn Contracts>,
}

impl Driver {
    pub(crate) fn new(store: Store, lifecycle: Lifecycle, clock: Clock, observer: Option<Observer>) -> Self {
        let (kmses, contracts) = (Arc::default(), Arc::new(NoContracts));
        Self { store, lifecycle, clock, observer, kmses, contracts }
    }

    /// The same where contracts decide about applications.
    pub(crate) fn under(self, kmses: Arc<Kmses>, contracts: Arc<dyn Contracts>) -> Self {
        Self { kmses, contracts, ..self }
    }

    /// Runs until it is stopped. A round that is cut short has not happened.
    pub(crate) async fn run(self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                more = self.round() => match more {
                    Ok(true) => continue,
                    Ok(false) => {}
                    Err(error) => error!(error = &error as &dyn std::error::Error, "a rollout cannot be recorded"),
                },
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
        }
    }

    /// Looks at the rollout whose turn it is; whether there was one.
    pub(crate) async fn round(&self) -> Result<bool, StoreError> {
        let now_ms = self.clock.now_ms();
        if !self.store.has_due_rollout(now_ms).await? {
            return Ok(false);
        }
        let mut change = self.store.change().await?;
        let Some(rollout) = change.lock_due_rollout(now_ms).await? else { return Ok(false) };
        let made = match rollout.kind {
            RolloutKind::Update => self.update_round(change, &rollout).await,
            RolloutKind::Drain => self.drain_round(change, &rollout).await,
        };
        if made.is_err() {
            let mut change = self.store.change().await?;
            change.schedule_rollout(rollout.id, self.in_ms(LOOK_AGAIN_BROKEN), None).await?;
            change.commit().await?;
        }
        made.map(|()| true)
    }

    async fn update_round(&self, mut change: Change, rollout: &RolloutRow) -> Result<(), StoreError> {
        let now_ms = self.clock.now_ms();
        let mut rows = change.rollout_members(rollout.id).await?;
        for row in &mut rows {
            if let Some((state, error)) = plan::settled(row) {
                (row.state, row.error) = (state, error);
                change.set_rollout_member(rollout.id, row, now_ms).await?;
                self.reached(rollout, RolloutStep::Settled);
            }
        }
        let members: Vec<_> = rows.iter().map(|row| member(row, self.fresh_ms())).collect();
        let limit = usize::try_from(rollout.max_unavailable).unwrap_or(1).max(1);
        match plan::next(rollout.state, rollout.on_failure, limit, &members) {
            Next::Wait => {
                let is_idle = !members.iter().any(|member| member.state.is_under_way());
                let is_paused = matches!(rollout.state, RolloutState::Paused | RolloutState::RollbackPaused);
                let pause = if is_idle && is_paused { LOOK_AGAIN_PAUSED } else { LOOK_AGAIN };
                change.schedule_rollout(rollout.id, self.in_ms(pause), None).await?;
            }
            Next::WaitForReady(reason) => {
                let since_ms = rollout.waiting_since_ms.unwrap_or(now_ms);
                if self.is_over(READY_WITHIN, since_ms) {
                    self.steer(&mut change, rollout, RolloutEvent::Obstacle, Some(&reason)).await?;
                } else {
                    change.schedule_rollout(rollout.id, self.in_ms(LOOK_AGAIN), Some(since_ms)).await?;
                }
            }
            Next::Move(event, reason) => {
                self.steer(&mut change, rollout, event, reason.as_deref()).await?;
            }
            Next::Change(position) | Next::Restore(position) => {
                let row = rows.iter_mut().find(|row| row.position == position);
                let Some(row) = row else { return Ok(()) };
                if let Err(refusal) = self.begin(&mut change, rollout, row).await? {
                    // Nothing of this round may be kept.
                    drop(change);
                    return self.refused(rollout, row, refusal).await;
                }
                change.schedule_rollout(rollout.id, now_ms, None).await?;
            }
        }
        self.commit(change, rollout).await
    }

    /// Gives a member its change, or what it had before, in the transaction of the round.
    async fn begin(
        &self,
        change: &mut Change,
        rollout: &RolloutRow,
        row: &mut MemberRow,
    ) -> Result<Result<(), Refused>, StoreError> {
        let goes_back = rollout.state == RolloutState::RollingBack;
        let configuration = match (goes_back, row.from_revision) {
            (false, _) => change.member_configuration(rollout.id, row.position).await?,
            (true, Some(id)) => change.revision(id).await?.map(|revision| revision.configuration),
            (true, None) => None,
        };
        let Some(configuration) = configuration else { return Ok(Err(Refused::NotStored)) };
        let Some(cvm) = change.lock_living_cvm(row.cvm_id).await? else { return Ok(Err(Refused::Later)) };
        let arguments = Arguments::of(rollout);
        let request = UpdateRequest {
            kind: arguments.kind.parse().unwrap_or(OperationKind::Update),
            // A disk only grows.
            configuration: Configuration { disk_gb: configuration.disk_gb.max(cvm.disk_gb), ..configuration },
            base_revision: None,
            shutdown_timeout_s: arguments.shutdown_timeout_s,
            allow_force_stop: goes_back || arguments.allow_force_stop,
        };
        let user_id = rollout.triggered_by;
        let accepted = self.lifecycle.update_in(change, cvm.id, &request, user_id, Some(rollout.id)).await;
        let accepted = match accepted {
            Ok(accepted) => accepted,
            Err(RequestError::Store(error)) => return Err(error),
            // Operations end; then it is this one's turn.
            Err(RequestError::Busy(_) | RequestError::NotFound | RequestError::Random(_)) => {
                return Ok(Err(Refused::Later));
            }
            Err(RequestError::IllegalStatus { status, .. }) if !status.is_stable() => {
                return Ok(Err(Refused::Later));
            }
            Err(error) => return Ok(Err(Refused::Because(error.to_string()))),
        };
        row.state = if goes_back { MemberState::Restoring } else { MemberState::Updating };
        row.correlation_id = Some(accepted.correlation_id.to_string());
        row.error = None;
        change.set_rollout_member(rollout.id, row, self.clock.now_ms()).await?;
        Ok(Ok(()))
    }

    /// Records that a member did not take its change, where the rollout is still as it was.
    async fn refused(
        &self,
        rollout: &RolloutRow,
        row: &MemberRow,
        refusal: Refused,
    ) -> Result<(), StoreError> {
        let mut change = self.store.change().await?;
        let Some(current) = change.lock_rollout(rollout.id).await? else { return Ok(()) };
        let reason = match refusal {
            Refused::Later => None,
            Refused::NotStored => Some(format!("what {} is to get is not stored any more", row.name)),
            Refused::Because(reason) => Some(format!("{} does not take the change: {reason}", row.name)),
        };
        match reason {
            Some(reason) if current.state == rollout.state => {
                self.steer(&mut change, &current, RolloutEvent::Obstacle, Some(&reason)).await?;
            }
            _ => change.schedule_rollout(rollout.id, self.in_ms(LOOK_AGAIN), None).await?,
        }
        self.commit(change, &current).await
    }

    /// Moves a rollout, if the table knows the move.
    pub(super) async fn steer(
        &self,
        change: &mut Change,
        rollout: &RolloutRow,
        event: RolloutEvent,
        reason: Option<&str>,
    ) -> Result<(), StoreError> {
        let Some(state) = rollout.state.after(event) else {
            return change.schedule_rollout(rollout.id, self.in_ms(LOOK_AGAIN), None).await;
        };
        info!(rollout = rollout.id, %state, reason, "a rollout moves");
        let kept = reason.or(rollout.reason.as_deref());
        change.set_rollout_state(rollout.id, state, kept, self.clock.now_ms()).await
    }

    /// Ends a round.
    pub(super) async fn commit(&self, change: Change, rollout: &RolloutRow) -> Result<(), StoreError> {
        self.reached(rollout, RolloutStep::Decided);
        change.commit().await?;
        self.lifecycle.wake();
        self.reached(rollout, RolloutStep::Recorded);
        Ok(())
    }

    pub(super) fn reached(&self, rollout: &RolloutRow, step: RolloutStep) {
        if let Some(observer) = &self.observer {
            observer(rollout.state, step);
        }
    }

    /// Nodes that have not reported since then are away.
    pub(super) fn fresh_ms(&self) -> i64 {
        fresh_ms(self.clock.now_ms())
    }

    /// Whether a time has passed since a moment.
    pub(super) fn is_over(&self, time: Duration, since_ms: i64) -> bool {
        self.clock.now_ms().saturating_sub(since_ms) >= in_ms(time)
    }

    pub(super) fn look_again_ms(&self) -> i64 {
        self.in_ms(LOOK_AGAIN)
    }

    fn in_ms(&self, pause: Duration) -> i64 {
        self.clock.now_ms().saturating_add(in_ms(pause))
    }
}

/// Why a member did not take its change.
enum Refused {
    /// It may take it a moment later.
    Later,
    /// The configuration is gone.
    NotStored,
    /// It will not by itself.
    Because(String),
}

/// Nodes that have not reported since then are away.
pub(crate) fn fresh_ms(now_ms: i64) -> i64 {
    now_ms.saturating_sub(in_ms(OFFLINE_AFTER))
}

fn in_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn member(row: &MemberRow, fresh_ms: i64) -> Member {
    Member {
        position: row.position,
        name: row.name.clone(),
        state: row.state,
        standing: Standing::of(row, fresh_ms),
        is_busy: row.operation_id.is_some(),
        has_original: row.revision_id == row.from_revision,
        error: row.error.clone(),
    }
}
