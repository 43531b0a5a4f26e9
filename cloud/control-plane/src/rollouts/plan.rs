//! What comes next in a rollout. Pure: members in, decision out.

use super::machine::{MemberState, OnFailure, RolloutEvent, RolloutState};
use crate::operations::{CvmStatus, OperationStatus};
use crate::store::MemberRow;

/// How the CVM of a member does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// Up, and nothing is known against it.
    Ready,
    /// Off because somebody wants it so.
    Off,
    /// Not ready yet; it may become so.
    Unready(String),
    /// Its node does not report.
    Away(String),
    /// Its last operation left it in `error`.
    Broken(String),
    /// Deleted.
    Gone,
}

/// A member as the plan sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) position: i64,
    pub(super) name: String,
    pub(super) state: MemberState,
    pub(super) standing: Standing,
    /// An operation holds the CVM.
    pub(super) is_busy: bool,
    /// The CVM has the revision that it had before the rollout.
    pub(super) has_original: bool,
    /// Why it failed, where it did.
    pub(super) error: Option<String>,
}

/// What is to be done in a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing before the next look.
    Wait,
    /// Nothing before changed members do well; not for ever.
    WaitForReady(String),
    /// Change the member at this position.
    Change(i64),
    /// Take the member at this position back.
    Restore(i64),
    /// The rollout moves.
    Move(RolloutEvent, Option<String>),
}

impl Standing {
    /// Of a member's CVM; a node that has not reported since `fresh_ms` is away.
    pub(super) fn of(row: &MemberRow, fresh_ms: i64) -> Self {
        let detail = || row.health_detail.clone().unwrap_or_else(|| "no detail was given".to_owned());
        match (row.deleted_at_ms, row.cvm_status, row.health.as_deref()) {
            (Some(_), ..) => Self::Gone,
            (None, CvmStatus::Stopped, _) => Self::Off,
            _ if row.reported_at_ms.is_none_or(|at_ms| at_ms <= fresh_ms) => {
                Self::Away(row.node_name.clone())
            }
            (None, CvmStatus::Running, None | Some("healthy")) => Self::Ready,
            (None, CvmStatus::Running, Some("unhealthy")) => Self::Unready(detail()),
            (None, CvmStatus::Error, _) => Self::Broken("its last operation failed".to_owned()),
            (None, status, _) => Self::Unready(format!("it is {status}")),
        }
    }
}

/// What became of the operation that a rollout gave a member; `None` while that is at work.
pub(super) fn settled(row: &MemberRow) -> Option<(MemberState, Option<String>)> {
    if row.deleted_at_ms.is_some() && (row.state.is_under_way() || row.state == MemberState::Pending) {
        return Some((MemberState::Gone, None));
    }
    let status = row.operation_status.as_deref().and_then(|name| name.parse().ok());
    let (good, bad) = match row.state {
        MemberState::Updating => (MemberState::Updated, MemberState::Failed),
        MemberState::Restoring => (MemberState::Restored, MemberState::RestoreFailed),
        _ => return None,
    };
    match status? {
        OperationStatus::InProgress => None,
        OperationStatus::Completed => Some((good, None)),
        OperationStatus::Failed => {
            let reason = row.failure.clone().unwrap_or_else(|| "the operation failed".to_owned());
            Some((bad, Some(reason)))
        }
    }
}

/// Which members wait for their turn again when somebody resumes a rollout into this state, and as what. One that
/// failed on the way forward is none of those that a rollout tries again that goes back: it still has to.
pub(super) const fn retried(state: RolloutState) -> (MemberState, MemberState) {
    match state {
        RolloutState::RollingBack => (MemberState::RestoreFailed, MemberState::Updated),
        _ => (MemberState::Failed, MemberState::Pending),
    }
}

/// Decides the next step of an update from members whose operations were settled.
pub(super) fn next(
    state: RolloutState,
    on_failure: OnFailure,
    max_unavailable: usize,
    members: &[Member],
) -> Next {
    let under_way = members.iter().filter(|member| member.state.is_under_way()).count();
    let has_room = under_way < max_unavailable;
    match state {
        RolloutState::Running => forward(on_failure, has_room, under_way, members),
        RolloutState::RollingBack => back(has_room, under_way, members),
        RolloutState::Aborting if under_way == 0 => Next::Move(RolloutEvent::Done, None),
        _ => Next::Wait,
    }
}

fn forward(on_failure: OnFailure, has_room: bool, under_way: usize, members: &[Member]) -> Next {
    let changed = || members.iter().filter(|member| member.state == MemberState::Updated);
    if let Some(away) = members.iter().filter(|member| is_touched(member)).find_map(away) {
        return obstacle(away);
    }
    if let Some(failed) = members.iter().find(|member| member.state == MemberState::Failed) {
        let error = failed.error.as_deref().unwrap_or("its operation failed");
        let reason = Some(format!("{} could not be changed: {error}", failed.name));
        return match on_failure {
            OnFailure::RollBack => Next::Move(RolloutEvent::MemberFailed, reason),
            OnFailure::Pause => Next::Move(RolloutEvent::Obstacle, reason),
        };
    }
    for member in changed() {
        match &member.standing {
            Standing::Broken(why) => {
                return obstacle(format!("{} was changed and then failed: {why}", member.name));
            }
            Standing::Unready(why) => {
                return Next::WaitForReady(format!("{} was changed and is not ready: {why}", member.name));
            }
            Standing::Ready | Standing::Off | Standing::Away(_) | Standing::Gone => {}
        }
    }
    let pending = || members.iter().filter(|member| member.state == MemberState::Pending);
    if pending().count() == 0 {
        return if under_way == 0 { Next::Move(RolloutEvent::Done, None) } else { Next::Wait };
    }
    // What does not serve anyway comes first: nothing is lost with it.
    let candidate = pending()
        .filter(|member| !member.is_busy)
        .min_by_key(|member| (member.standing == Standing::Ready, member.position));
    match candidate {
        Some(member) if has_room => Next::Change(member.position),
        _ => Next::Wait,
    }
}

fn back(has_room: bool, under_way: usize, members: &[Member]) -> Next {
    if let Some(failed) = members.iter().find(|member| member.state == MemberState::RestoreFailed) {
        let error = failed.error.as_deref().unwrap_or("its operation failed");
        return obstacle(format!("{} could not be taken back: {error}", failed.name));
    }
    let to_restore = || members.iter().filter(|member| needs_restoring(member));
    if let Some(away) = to_restore().find_map(away) {
        return obstacle(away);
    }
    if to_restore().count() == 0 {
        return if under_way == 0 { Next::Move(RolloutEvent::Done, None) } else { Next::Wait };
    }
    match to_restore().rev().find(|member| !member.is_busy) {
        Some(member) if has_room => Next::Restore(member.position),
        _ => Next::Wait,
    }
}

/// Whether the rollout has concerned the member and waits for it.
const fn is_touched(member: &Member) -> bool {
    matches!(member.state, MemberState::Updating | MemberState::Updated | MemberState::Failed)
}

/// One that waits for another try may have kept what the first one brought.
fn needs_restoring(member: &Member) -> bool {
    matches!(member.state, MemberState::Updated | MemberState::Failed | MemberState::Pending)
        && !member.has_original
        && member.standing != Standing::Gone
}

fn away(member: &Member) -> Option<String> {
    match &member.standing {
        Standing::Away(node) => {
            Some(format!("node {node} of {} is offline; resume when it is back", member.name))
        }
        _ => None,
    }
}

const fn obstacle(reason: String) -> Next {
    Next::Move(RolloutEvent::Obstacle, Some(reason))
}
