//! Why a VM's process ended.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a VM's process ended, as its hypervisor said before it did: the reasons of QEMU's event `SHUTDOWN`
/// (QAPI `ShutdownCause`), by what they mean here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitReason {
    /// The guest powered off.
    PoweredOff,
    /// The guest restarted, which ends a VM: its kernel panicked, or something in it asked for that.
    Restarted,
    /// The guest's kernel said that it panicked.
    Panicked,
    /// The hypervisor could not go on.
    HostError,
    /// Somebody on the node ended it by a signal that lets the hypervisor say so.
    Signalled,
    /// The node took its power.
    PowerTaken,
    /// It ended without a word: killed, as by a host that is out of memory, or crashed.
    Silent,
}

/// For people: goes on from "the VM ended: ".
impl fmt::Display for ExitReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::PoweredOff => "the guest powered itself off",
            Self::Restarted => "the guest's kernel panicked or restarted",
            Self::Panicked => "the guest's kernel panicked",
            Self::HostError => "the node's hypervisor could not go on",
            Self::Signalled => "its process was told to end on the node",
            Self::PowerTaken => "its node took its power",
            Self::Silent => "its process was killed or crashed on the node, whose kernel log may say why",
        })
    }
}
