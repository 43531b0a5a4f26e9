//! What can be done to a CVM, as one table: which operation is legal in which status, what it does step
//! by step, how it is undone and where it leads. docs/cvm-states.md shows it; everything else only reads it.

mod names;
mod progress;
#[cfg(test)]
mod tests;

pub use names::{CvmStatus, OperationKind, OperationStatus, RevisionState, Step};
pub(super) use progress::Reach;

/// The rules of one kind of operation.
#[derive(Debug)]
pub struct Rules {
    /// Statuses in which it may begin.
    pub from: &'static [CvmStatus],
    /// A status in which asking for it changes nothing, because it is already so.
    pub already: Option<CvmStatus>,
    /// Status while it runs.
    pub during: CvmStatus,
    /// Status after success; `None` when the CVM is gone then.
    pub target: Option<CvmStatus>,
    /// Its work.
    pub steps: &'static [Step],
    /// Done after a failure or cancellation, up to the first that fails; keys may fail to be allowed.
    pub undo: &'static [Step],
    /// Status after a cancellation that was undone.
    pub after_cancel: CvmStatus,
    /// Status after a failure or cancellation that was undone to its end; `None` where undoing cannot bring
    /// back what was.
    pub recovered: Option<CvmStatus>,
    /// Whether it can be cancelled.
    pub cancellable: bool,
    /// Whether it may begin while another operation runs, which is cancelled first.
    pub preempts: bool,
}

use CvmStatus::{
    Creating, Error, Removing, Restarting, Running, ShuttingDown, Starting, Stopped, Stopping, Updating,
};
use Step::{
    AllowKeys, ApplyRevision, AwaitBoot, AwaitHealthy, AwaitPowerOff, Drain, PrepareDisk, RemoveVm,
    RequestShutdown, RestorePorts, RestoreRevision, RetireKeys, StartVm, StopVm,
};

const FIRST_BOOT: Rules = Rules {
    from: &[Creating],
    already: None,
    during: Creating,
    target: Some(Running),
    steps: &[AllowKeys, PrepareDisk, StartVm, AwaitBoot],
    undo: &[StopVm],
    after_cancel: Stopped,
    recovered: None,
    cancellable: true,
    preempts: false,
};

/// A change of a CVM that is up, or should be. The VM keeps running while the key management service is
/// asked and while what flows through the ingress ends.
const CHANGE: Rules = Rules {
    from: &[Running, Error],
    already: None,
    during: Updating,
    target: Some(Running),
    steps: &[
        AllowKeys,
        Drain,
        RequestShutdown,
        AwaitPowerOff,
        ApplyRevision,
        PrepareDisk,
        StartVm,
        AwaitBoot,
        AwaitHealthy,
        RetireKeys,
    ],
    undo: &[StopVm, RestoreRevision, AllowKeys, PrepareDisk, StartVm, AwaitBoot, RetireKeys],
    after_cancel: Error,
    recovered: Some(Running),
    cancellable: true,
    preempts: false,
};

/// The same of a CVM that is off, and stays so.
const CHANGE_WHILE_OFF: Rules = Rules {
    from: &[Stopped],
    target: Some(Stopped),
    steps: &[ApplyRevision, PrepareDisk],
    undo: &[RestoreRevision],
    recovered: Some(Stopped),
    ..CHANGE
};

/// Other ports lead to a VM that goes on; the CVM has them already, and its node gets to know.
const MAP_PORTS: Rules = Rules {
    from: &[Running],
    already: None,
    during: Updating,
    target: Some(Running),
    steps: &[PrepareDisk],
    undo: &[RestorePorts, PrepareDisk],
    after_cancel: Running,
    recovered: Some(Running),
    cancellable: false,
    preempts: false,
};

/// The same of a CVM that is off: its next start brings what its node does not know yet.
const MAP_PORTS_WHILE_OFF: Rules = Rules {
    from: &[Stopped],
    target: Some(Stopped),
    undo: &[RestorePorts],
    after_cancel: Stopped,
    recovered: Some(Stopped),
    ..MAP_PORTS
};

/// How an operation finds its CVM, and wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Power {
    /// Up, or meant to be.
    On,
    /// Off; it stays off.
    Off,
}

impl OperationKind {
    /// Whether it brings another revision.
    #[must_use]
    pub const fn changes_revision(self) -> bool {
        matches!(self, Self::ComposeUpdate | Self::EnvUpdate | Self::Resize | Self::OsUpgrade | Self::Update)
    }

    /// Whether its rules are others for a CVM that is off.
    #[must_use]
    pub const fn depends_on_power(self) -> bool {
        self.changes_revision() || matches!(self, Self::MapPorts)
    }

    /// The rules of this kind for a CVM that is up; those that bring another revision do less for one that
    /// is off.
    #[must_use]
    pub const fn rules_for(self, power: Power) -> &'static Rules {
        match (self, power) {
            (
                Self::ComposeUpdate | Self::EnvUpdate | Self::Resize | Self::OsUpgrade | Self::Update,
                Power::Off,
            ) => &CHANGE_WHILE_OFF,
            (Self::MapPorts, Power::Off) => &MAP_PORTS_WHILE_OFF,
            _ => self.rules(),
        }
    }

    /// The rules of this kind for a CVM that is up.
    #[must_use]
    pub const fn rules(self) -> &'static Rules {
        match self {
            Self::Create => &FIRST_BOOT,
            Self::Replicate => {
                &Rules { steps: &[AllowKeys, PrepareDisk, StartVm, AwaitBoot, AwaitHealthy], ..FIRST_BOOT }
            }
            Self::PowerOn => {
                &Rules { from: &[Stopped, Error], already: Some(Running), during: Starting, ..FIRST_BOOT }
            }
            Self::Shutdown => &Rules {
                from: &[Running, Error],
                already: Some(Stopped),
                during: ShuttingDown,
                target: Some(Stopped),
                steps: &[Drain, RequestShutdown, AwaitPowerOff],
                undo: &[],
                after_cancel: Error,
                recovered: None,
                cancellable: false,
                preempts: false,
            },
            Self::PowerOff => &Rules {
                from: CvmStatus::ALL,
                already: Some(Stopped),
                during: Stopping,
                target: Some(Stopped),
                steps: &[StopVm],
                undo: &[],
                after_cancel: Error,
                recovered: None,
                cancellable: false,
                preempts: true,
            },
            Self::Restart => &Rules {
                from: &[Running, Stopped, Error],
                during: Restarting,
                steps: &[AllowKeys, Drain, RequestShutdown, AwaitPowerOff, PrepareDisk, StartVm, AwaitBoot],
                ..FIRST_BOOT
            },
            Self::ComposeUpdate | Self::EnvUpdate | Self::Resize | Self::OsUpgrade | Self::Update => &CHANGE,
            Self::MapPorts => &MAP_PORTS,
            Self::Delete => &Rules {
                from: CvmStatus::ALL,
                already: None,
                during: Removing,
                target: None,
                steps: &[RemoveVm, RetireKeys],
                undo: &[],
                after_cancel: Error,
                recovered: None,
                cancellable: false,
                preempts: true,
            },
        }
    }
}
