//! Why a VM's process ended.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a VM's process ended, as far as its node knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitReason {
    /// The guest powered off.
    PoweredOff,
    /// The guest restarted, which ends a VM: its kernel panicked, or something in it asked for that.
    Restarted,
    /// The guest's kernel said that it panicked.
    Panicked,
    /// The hypervisor could not go on, and said so.
    HostError,
    /// Somebody on the node told the hypervisor to end.
    ToldToEnd,
    /// The hypervisor was listened to and ended without a word: killed, as by a host that is out of memory, or crashed.
    Silent,
    /// The node was restarted, and could not start it again.
    NotStartedAgain,
    /// One that another version of the node knows.
    #[serde(other)]
    Other,
}

impl ExitReason {
    /// Whether the guest itself is the cause, so that its console may say more.
    #[must_use]
    pub const fn is_of_guest(self) -> bool {
        matches!(self, Self::PoweredOff | Self::Restarted | Self::Panicked)
    }
}

/// For people: goes on from "the VM ended: ".
impl fmt::Display for ExitReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::PoweredOff => "the guest powered itself off",
            Self::Restarted => "the guest's kernel panicked or restarted",
            Self::Panicked => "the guest's kernel panicked",
            Self::HostError => "the node's hypervisor could not go on",
            Self::ToldToEnd => "its process was told to end on the node",
            Self::Silent => "its process was killed on the node, as where memory runs out, or crashed",
            Self::NotStartedAgain => "its node was restarted and could not start it again",
            Self::Other => "its node gives a reason that this version does not know",
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_another_version_says_spoils_no_report() {
        let read = |text: &str| serde_json::from_value::<Option<ExitReason>>(json!(text)).unwrap();
        assert_eq!(read("restarted"), Some(ExitReason::Restarted));
        assert_eq!(read("struck_by_lightning"), Some(ExitReason::Other));
        assert_eq!(serde_json::to_value(ExitReason::NotStartedAgain).unwrap(), "not_started_again");
    }
}
