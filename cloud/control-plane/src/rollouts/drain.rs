//! Emptying a node: CVMs whose application has another ready replica elsewhere are moved, one at a time. A
//! move makes a replica on another node, waits until that is ready and only then deletes the old CVM, so an
//! application never has fewer ready replicas than before.

use super::driver::{Driver, READY_WITHIN, RolloutStep};
use super::machine::{MemberState, RolloutEvent, RolloutState};
use crate::governance::CannotTell;
use crate::operations::{CvmStatus, LifecycleRequest, OperationKind, OperationStatus, RequestError};
use crate::replicas::{self, Devices, Place, ReplicaError, ReplicaRequest};
use crate::store::{Change, CvmRow, MemberRow, NewMember, PlacedRow, RolloutRow, StoreError};
use tracing::warn;

/// Longest name of a CVM.
const MAX_NAME: usize = cloister_management_api::MAX_NAME;

/// Why a CVM stays on a node that is being emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Obstacle {
    #[error("the node does not report; it has to be back before CVMs can leave it")]
    NodeAway,
    #[error("a rollout of its application is under way; it waits for that")]
    Rollout,
    #[error("an operation is at work on it; it waits for that")]
    Busy,
    #[error("it is {0}; only running CVMs are moved: its owner starts or deletes it")]
    NotRunning(CvmStatus),
    #[error("it is not healthy; its owner has to look after it")]
    NotHealthy,
    #[error(
        "no other CVM of its application is ready on another node: its disk and identity are bound to it, and \
         its owner has to add a replica elsewhere or delete it"
    )]
    OnlyOne,
}

/// What keeps a CVM from being moved now; `None` when nothing does.
pub(crate) fn obstacle(cvm: &PlacedRow, fresh_ms: i64) -> Option<Obstacle> {
    let checks = [
        (cvm.reported_at_ms.is_none_or(|at_ms| at_ms <= fresh_ms), Obstacle::NodeAway),
        (cvm.rollouts > 0, Obstacle::Rollout),
        (cvm.operation_id.is_some(), Obstacle::Busy),
        (cvm.status != CvmStatus::Running, Obstacle::NotRunning(cvm.status)),
        (!is_healthy(cvm), Obstacle::NotHealthy),
        (cvm.ready_elsewhere == 0, Obstacle::OnlyOne),
    ];
    checks.into_iter().find_map(|(holds, obstacle)| holds.then_some(obstacle))
}

fn is_healthy(cvm: &PlacedRow) -> bool {
    cvm.health.as_deref().is_none_or(|health| health == "healthy")
}

/// What a move waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    /// Its replacement is not made.
    Replacement,
    /// Its replacement is up, and the application is not ready to lose the old one.
    Readiness,
}

impl Driver {
    pub(super) async fn drain_round(
        &self,
        mut change: Change,
        rollout: &RolloutRow,
    ) -> Result<(), StoreError> {
        let now_ms = self.clock.now_ms();
        let mut rows = change.rollout_members(rollout.id).await?;
        let (mut lacking, mut waiting_since_ms) = (None, None);
        for row in rows.iter_mut().filter(|row| row.state.is_under_way()) {
            let before = row.clone();
            let need = self.follow(&mut change, rollout, row).await?;
            if *row != before {
                change.set_rollout_member(rollout.id, row, now_ms).await?;
                self.reached(rollout, RolloutStep::Settled);
            }
            match need {
                Some(Need::Replacement) => lacking = Some(row.clone()),
                Some(Need::Readiness) => waiting_since_ms = rollout.waiting_since_ms.or(Some(now_ms)),
                None => {}
            }
        }
        let is_idle = !rows.iter().any(|row| row.state.is_under_way());
        match rollout.state {
            RolloutState::Running if is_idle => self.begin_move(&mut change, rollout, &rows).await?,
            RolloutState::Aborting if is_idle => {
                self.steer(&mut change, rollout, RolloutEvent::Done, None).await?;
                return self.commit(change, rollout).await;
            }
            _ => {}
        }
        change.schedule_rollout(rollout.id, self.look_again_ms(), waiting_since_ms).await?;
        self.commit(change, rollout).await?;
        match lacking {
            Some(row) => self.make_replacement(rollout, row).await,
            None => Ok(()),
        }
    }

    /// Takes a move as far as it has come; what it waits for then. What is judged is acted on in the same
    /// transaction: a CVM that could go before the control plane was down for an hour may be the last one that is
    /// ready now.
    async fn follow(
        &self,
        change: &mut Change,
        rollout: &RolloutRow,
        row: &mut MemberRow,
    ) -> Result<Option<Need>, StoreError> {
        let replacement = match row.replacement_id {
            Some(id) => change.placed(id, self.fresh_ms()).await?,
            None => None,
        };
        if let (MemberState::Replicating, Some(new)) = (row.state, &replacement) {
            let ready = change.placed(row.cvm_id, self.fresh_ms()).await?;
            let is_late =
                rollout.waiting_since_ms.is_some_and(|since_ms| self.is_over(READY_WITHIN, since_ms));
            judge(row, new, ready.map_or(0, |old| old.ready_elsewhere), is_late);
            if row.state == MemberState::Retiring {
                change.hand_over_schedule(row.cvm_id, new.id).await?;
            }
        }
        match (row.state, replacement) {
            (MemberState::Replicating, None) if row.deleted_at_ms.is_some() => row.state = MemberState::Gone,
            (MemberState::Replicating, None) => return Ok(Some(Need::Replacement)),
            (MemberState::Replicating, Some(new)) if new.operation_id.is_none() => {
                return Ok(Some(Need::Readiness));
            }
            (MemberState::Retiring, _) if row.deleted_at_ms.is_some() => row.state = MemberState::Moved,
            (MemberState::Retiring, _) => self.delete(change, rollout, row, row.cvm_id).await?,
            (MemberState::Discarding, Some(new)) if new.deleted_at_ms.is_none() => {
                self.delete(change, rollout, row, new.id).await?;
            }
            (MemberState::Discarding, _) if row.deleted_at_ms.is_some() => row.state = MemberState::Gone,
            (MemberState::Discarding, _) => row.state = MemberState::Failed,
            _ => {}
        }
        Ok(None)
    }

    /// Begins the next move, if a CVM can be moved.
    async fn begin_move(
        &self,
        change: &mut Change,
        rollout: &RolloutRow,
        rows: &[MemberRow],
    ) -> Result<(), StoreError> {
        let Some(node_id) = rollout.node_id else { return Ok(()) };
        let fresh_ms = self.fresh_ms();
        let placed = change.placed_on(node_id, fresh_ms).await?;
        let is_known = |cvm: &&PlacedRow| !rows.iter().any(|row| row.cvm_id == cvm.id);
        let mut movable = placed.iter().filter(is_known).filter(|cvm| obstacle(cvm, fresh_ms).is_none());
        let Some(next) = movable.next() else { return Ok(()) };
        let position = rows.iter().map(|row| row.position + 1).max().unwrap_or(0);
        let name = replacement_name(&next.name, rollout.id, next.id);
        let member = NewMember {
            cvm_id: next.id,
            state: MemberState::Replicating,
            configuration: None,
            from_revision: None,
            replacement_name: Some(&name),
        };
        change.insert_rollout_member(rollout.id, position, &member, self.clock.now_ms()).await
    }

    /// Makes the replacement of a member, or finds the one that was made before a crash.
    async fn make_replacement(&self, rollout: &RolloutRow, mut row: MemberRow) -> Result<(), StoreError> {
        let name = row.replacement_name.clone().unwrap_or_default();
        let is_it = |cvm: &CvmRow| cvm.app_id == row.app_id && Some(cvm.node_id) != rollout.node_id;
        let made = self.store.cvm_by_name(row.workspace_id, &name).await?.filter(is_it);
        let request = ReplicaRequest {
            changes: Vec::new(),
            source: row.cvm_id,
            place: Place::Anywhere { but: rollout.node_id },
            compose_hash: Some(row.compose_hash),
            encrypted_env: None,
            name: Some(name),
            user_id: row.user_id,
        };
        let made = match made {
            Some(cvm) => Ok(cvm),
            None => self.replicate(&request).await,
        };
        self.reached(rollout, RolloutStep::Replicated);
        match made {
            Ok(cvm) => row.replacement_id = Some(cvm.id),
            Err(ReplicaError::Store(error)) => return Err(error),
            // The next look may find it idle, or find what another process made.
            Err(ReplicaError::SourceBusy | ReplicaError::SourceGone | ReplicaError::Random(_)) => {
                return Ok(());
            }
            // A chain that cannot be asked now may be asked later.
            Err(error @ ReplicaError::CannotTell(CannotTell::Chain(_))) => {
                warn!(
                    cvm_id = row.cvm_id,
                    error = &error as &dyn std::error::Error,
                    "a CVM is not moved yet"
                );
                return Ok(());
            }
            Err(error) => (row.state, row.error) = (MemberState::Failed, Some(error.to_string())),
        }
        let mut change = self.store.change().await?;
        change.lock_rollout(rollout.id).await?;
        let now = change.rollout_members(rollout.id).await?;
        let still = |now: &MemberRow| now.position == row.position && now.state == MemberState::Replicating;
        // Unless the member has gone on.
        if now.iter().any(still) {
            change.set_rollout_member(rollout.id, &row, self.clock.now_ms()).await?;
        }
        change.commit().await
    }

    /// To a device that its contract allows, if one decides. A CVM whose service is gone would get no keys anywhere.
    async fn replicate(&self, request: &ReplicaRequest) -> Result<CvmRow, ReplicaError> {
        let kms = match self.store.cvm(request.source).await?.and_then(|cvm| cvm.kms_id) {
            Some(id) => Some(self.kmses.get(id).ok_or(CannotTell::NoKms)?),
            None => None,
        };
        let devices = kms
            .and_then(|kms| kms.contract())
            .map(|contract| Devices::required(self.contracts.as_ref(), contract));
        replicas::replicate(&self.store, &self.lifecycle, request, devices).await
    }

    /// Has a CVM deleted for a member and notes the operation, or what became of it.
    async fn delete(
        &self,
        change: &mut Change,
        rollout: &RolloutRow,
        row: &mut MemberRow,
        cvm_id: i64,
    ) -> Result<(), StoreError> {
        if row.correlation_id.is_some() {
            failed_deletion(row);
            return Ok(());
        }
        let request = LifecycleRequest { kind: OperationKind::Delete, force: false };
        match self.lifecycle.request_in(change, cvm_id, request, rollout.triggered_by).await {
            Ok(cvm) => row.correlation_id = cvm.operation_id,
            Err(RequestError::Store(error)) => return Err(error),
            // Refusals come before anything is written.
            Err(RequestError::NotFound | RequestError::Busy(_) | RequestError::Random(_)) => {}
            Err(error) => (row.state, row.error) = (MemberState::Failed, Some(error.to_string())),
        }
        Ok(())
    }
}

/// What becomes of a move whose replacement was made. The old CVM goes only when the application has two
/// ready ones elsewhere: the new one, and the one without which nothing is moved.
/// One that waited too long for that ends, so that it holds up neither the others nor its owner.
fn judge(row: &mut MemberRow, new: &PlacedRow, ready_elsewhere: i64, is_late: bool) {
    let discard = |row: &mut MemberRow, reason: Option<String>| {
        (row.state, row.correlation_id, row.error) = (MemberState::Discarding, None, reason);
    };
    if new.deleted_at_ms.is_some() {
        (row.state, row.error) = (MemberState::Failed, Some("its replacement was deleted".to_owned()));
    } else if row.deleted_at_ms.is_some() {
        discard(row, None);
    } else if new.operation_id.is_some() {
        // Still on its way.
    } else if matches!(new.status, CvmStatus::Error | CvmStatus::Stopped) {
        let reason = new.boot_error.as_ref().or(new.exit_reason.as_ref());
        let reason = reason.cloned().unwrap_or_else(|| format!("it is {}", new.status));
        discard(row, Some(format!("its replacement did not become ready: {reason}")));
    } else if new.status == CvmStatus::Running && is_healthy(new) && ready_elsewhere >= 2 {
        (row.state, row.correlation_id) = (MemberState::Retiring, None);
    } else if is_late {
        let reason = "its replacement, or the application's other CVMs, were not ready in time";
        discard(row, Some(reason.to_owned()));
    }
}

/// What becomes of a move whose deletion failed.
fn failed_deletion(row: &mut MemberRow) {
    let status = row.operation_status.as_deref().and_then(|status| status.parse().ok());
    if status == Some(OperationStatus::Failed) {
        let reason = row.failure.as_deref().unwrap_or("the deletion failed");
        row.error = Some(format!("a CVM could not be deleted: {reason}"));
        row.state = MemberState::Failed;
    }
}

/// A name for the replacement of a CVM that no other CVM has by chance.
fn replacement_name(name: &str, rollout: i64, cvm: i64) -> String {
    let suffix = format!("-m{rollout}x{cvm}");
    let kept: String = name.chars().take(MAX_NAME.saturating_sub(suffix.len())).collect();
    format!("{}{suffix}", kept.trim_end_matches('-'))
}

#[cfg(test)]
mod tests {
    use cloister_management_api::CvmName;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn replacements_have_valid_names(
            name in "[a-z][a-z0-9]{0,30}(-[a-z0-9]{1,15}){0,2}", rollout in 1..100_000_i64, cvm in 1..i64::MAX
        ) {
            let name: String = name.chars().take(MAX_NAME).collect();
            let name = replacement_name(name.trim_end_matches('-'), rollout, cvm);
            prop_assert!(name.parse::<CvmName>().is_ok(), "{}", name);
        }
    }
}
