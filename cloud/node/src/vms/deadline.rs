//! Until when a guest may take to power off, and what happens then.

use serde::{Deserialize, Serialize};

/// What becomes of a VM that has not powered off in time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Overdue {
    /// It loses its power.
    #[default]
    TakePower,
    /// It runs on, and can be asked again.
    KeepRunning,
}

/// A moment and what happens then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deadline<T> {
    pub(crate) at: T,
    pub(crate) overdue: Overdue,
}

impl<T: Ord> Deadline<T> {
    /// The deadline after `self` was said to a VM that had `known`. That power will be taken is never
    /// revoked and never put off; patience can be prolonged.
    pub(super) fn after(self, known: Option<Self>) -> Self {
        match known {
            Some(known) if known.overdue == Overdue::TakePower => match self.overdue {
                Overdue::TakePower if self.at < known.at => self,
                Overdue::TakePower | Overdue::KeepRunning => known,
            },
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn take(at: u8) -> Deadline<u8> {
        Deadline { at, overdue: Overdue::TakePower }
    }

    const fn keep(at: u8) -> Deadline<u8> {
        Deadline { at, overdue: Overdue::KeepRunning }
    }

    #[test]
    fn a_threat_stands_and_patience_grows() {
        for (known, said, then) in [
            (None, keep(5), keep(5)),
            (Some(take(5)), take(9), take(5)),
            (Some(take(5)), take(3), take(3)),
            (Some(take(5)), keep(3), take(5)),
            (Some(keep(5)), keep(9), keep(9)),
            (Some(keep(5)), take(9), take(9)),
        ] {
            assert_eq!(said.after(known), then, "{known:?}, then {said:?}");
        }
    }
}
