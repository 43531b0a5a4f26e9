//! What a rollout is in, and what leads from where to where: one table, printed into docs/rollouts.md.

use crate::operations::named_enum;

named_enum!(
    /// What a rollout is for.
    RolloutKind {
        /// A change is brought to the CVMs of an application.
        Update = "update",
        /// The CVMs of a node are moved away.
        Drain = "drain",
    }
);

named_enum!(
    /// How a rollout stands.
    RolloutState {
        /// One member after the other is changed.
        Running = "running",
        /// Nothing new begins until somebody resumes it; what was begun ends.
        Paused = "paused",
        /// One changed member after the other goes back.
        RollingBack = "rolling_back",
        /// The same, waiting for somebody to resume it.
        RollbackPaused = "rollback_paused",
        /// Nothing new begins any more; what was begun ends.
        Aborting = "aborting",
        /// Every member that is left was changed.
        Completed = "completed",
        /// Every member that is left has what it had before.
        RolledBack = "rolled_back",
        /// It ended where somebody ended it.
        Aborted = "aborted",
    }
);

named_enum!(
    /// What moves a rollout.
    RolloutEvent {
        /// Somebody pauses it.
        Pause = "pause",
        /// Somebody resumes it; members that failed are tried again.
        Resume = "resume",
        /// Somebody ends it; members keep what they have.
        Abort = "abort",
        /// Somebody ends it; members that were changed go back.
        AbortAndRollBack = "abort, roll back",
        /// A member failed, and the rollout's policy is to go back.
        MemberFailed = "member failed",
        /// It cannot go on without somebody: a node is away, a changed member does badly, or a member failed
        /// and the policy is to wait.
        Obstacle = "obstacle",
        /// Nothing is left to do.
        Done = "done",
    }
);

named_enum!(
    /// What a rollout does when a member fails.
    OnFailure {
        /// Members that were changed go back, one after the other.
        RollBack = "roll_back",
        /// It waits for somebody.
        Pause = "pause",
    }
);

named_enum!(
    /// How a member stands.
    MemberState {
        /// Waits for its turn.
        Pending = "pending",
        /// Its operation is at work.
        Updating = "updating",
        /// It was changed.
        Updated = "updated",
        /// Its operation failed; the CVM's own policy says what it has now.
        Failed = "failed",
        /// The operation that takes it back is at work.
        Restoring = "restoring",
        /// It has what it had before.
        Restored = "restored",
        /// It could not be taken back.
        RestoreFailed = "restore_failed",
        /// Its replacement on another node is being made.
        Replicating = "replicating",
        /// Its replacement is ready; it is being deleted.
        Retiring = "retiring",
        /// Its replacement did not become ready, and is being deleted.
        Discarding = "discarding",
        /// Its replacement is ready, and it is gone.
        Moved = "moved",
        /// It was deleted meanwhile by somebody else.
        Gone = "gone",
    }
);

use RolloutEvent::{Abort, AbortAndRollBack, Done, MemberFailed, Obstacle, Pause, Resume};
use RolloutState::{Aborted, Aborting, Completed, Paused, RollbackPaused, RolledBack, RollingBack, Running};

/// Every move. What is not here is refused, or does not happen.
const MOVES: &[(RolloutState, RolloutEvent, RolloutState)] = &[
    (Running, Pause, Paused),
    (Running, Resume, Running),
    (Running, Abort, Aborting),
    (Running, AbortAndRollBack, RollingBack),
    (Running, MemberFailed, RollingBack),
    (Running, Obstacle, Paused),
    (Running, Done, Completed),
    (Paused, Pause, Paused),
    (Paused, Resume, Running),
    (Paused, Abort, Aborting),
    (Paused, AbortAndRollBack, RollingBack),
    (RollingBack, Pause, RollbackPaused),
    (RollingBack, Resume, RollingBack),
    (RollingBack, Abort, Aborting),
    (RollingBack, AbortAndRollBack, RollingBack),
    (RollingBack, Obstacle, RollbackPaused),
    (RollingBack, Done, RolledBack),
    (RollbackPaused, Pause, RollbackPaused),
    (RollbackPaused, Resume, RollingBack),
    (RollbackPaused, Abort, Aborting),
    (RollbackPaused, AbortAndRollBack, RollingBack),
    (Aborting, Abort, Aborting),
    (Aborting, Done, Aborted),
];

impl RolloutKind {
    /// Who holds a CVM back, at the beginning of a sentence.
    #[must_use]
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Update => "a rollout of its application",
            Self::Drain => "the drain of its node",
        }
    }
}

impl RolloutState {
    /// Where an event leads; `None` when it is not possible here.
    #[must_use]
    pub fn after(self, event: RolloutEvent) -> Option<Self> {
        let found = MOVES.iter().find(|(from, by, _)| (*from, *by) == (self, event));
        found.map(|(_, _, to)| *to)
    }

    /// Whether nothing leads on from here.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Completed | RolledBack | Aborted)
    }
}

impl MemberState {
    /// Whether an operation of the rollout is at work on the CVM.
    #[must_use]
    pub const fn is_under_way(self) -> bool {
        matches!(
            self,
            Self::Updating | Self::Restoring | Self::Replicating | Self::Retiring | Self::Discarding
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const PAGE: &str = include_str!("../../../../docs/rollouts.md");

    /// The table as people read it: a row for each state, a column for each event.
    fn table() -> String {
        let events: Vec<_> = RolloutEvent::ALL.iter().map(|event| event.as_str()).collect();
        let mut text = format!("| State | {} |\n|---|", events.join(" | "));
        text += &"---|".repeat(events.len());
        for state in RolloutState::ALL {
            text += &format!("\n| {state} |");
            for event in RolloutEvent::ALL {
                text += &format!(" {} |", state.after(*event).map_or("–", RolloutState::as_str));
            }
        }
        text + "\n"
    }

    #[test]
    fn the_table_is_the_reviewed_one() {
        let table = table();
        assert!(PAGE.contains(&table), "docs/rollouts.md must hold:\n{table}");
    }

    #[test]
    fn every_move_is_there_once_and_only_final_states_end() {
        let moves: BTreeSet<_> = MOVES.iter().map(|(from, by, _)| (*from, *by)).collect();
        assert_eq!(moves.len(), MOVES.len());
        for state in RolloutState::ALL {
            let leads_on = RolloutEvent::ALL.iter().any(|event| state.after(*event).is_some());
            assert_eq!(state.is_final(), !leads_on, "{state}");
            if !state.is_final() {
                assert!(state.after(Abort).is_some(), "somebody can end it in {state}");
            }
        }
    }
}
