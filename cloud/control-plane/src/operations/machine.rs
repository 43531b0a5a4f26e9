//! What can be done to a CVM, as one table: which operation is legal in which status, what it does step
//! by step, how it is undone and where it leads. docs/cvm-states.md shows it; everything else only reads it.

use std::time::Duration;

/// A stored name that this version does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind} {name:?} in the database")]
pub struct UnknownName {
    kind: &'static str,
    name: String,
}

impl UnknownName {
    /// A name that is none of this kind.
    pub(crate) fn new(kind: &'static str, name: &str) -> Self {
        Self { kind, name: name.to_owned() }
    }
}

macro_rules! named_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// Every value, in order of declaration.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Name on the wire and in the database.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::operations::UnknownName;

            fn from_str(name: &str) -> Result<Self, $crate::operations::UnknownName> {
                Self::ALL
                    .iter()
                    .copied()
                    .find(|value| value.as_str() == name)
                    .ok_or_else(|| $crate::operations::UnknownName::new(stringify!($name), name))
            }
        }

        impl TryFrom<String> for $name {
            type Error = $crate::operations::UnknownName;

            fn try_from(name: String) -> Result<Self, $crate::operations::UnknownName> {
                name.parse()
            }
        }
    };
}

pub(crate) use named_enum;

named_enum!(
    /// Status of a CVM. Only `running`, `stopped` and `error` are at rest.
    CvmStatus {
        /// Accepted, being made for the first time.
        Creating = "creating",
        /// Being powered on.
        Starting = "starting",
        /// Up; its application was started.
        Running = "running",
        /// Being shut down and powered on again.
        Restarting = "restarting",
        /// Being shut down in order.
        ShuttingDown = "shutting_down",
        /// Its configuration is being replaced.
        Updating = "updating",
        /// Power is being taken away.
        Stopping = "stopping",
        /// Off.
        Stopped = "stopped",
        /// Being deleted.
        Removing = "removing",
        /// The last operation failed; `boot_error` says why.
        Error = "error",
    }
);

named_enum!(
    /// What an operation does.
    OperationKind {
        /// First boot of a new CVM.
        Create = "create",
        /// Power on.
        PowerOn = "power_on",
        /// Orderly shutdown.
        Shutdown = "shutdown",
        /// Take the power away.
        PowerOff = "power_off",
        /// Shut down and power on.
        Restart = "restart",
        /// First boot of another CVM of an application.
        Replicate = "replicate",
        /// Another compose document.
        ComposeUpdate = "compose_update",
        /// Another sealed environment.
        EnvUpdate = "env_update",
        /// Another size.
        Resize = "resize",
        /// Another guest image.
        OsUpgrade = "os_upgrade",
        /// Several of these at once, a former revision, or what is not measured.
        Update = "update",
        /// Other ports of the node that lead to it.
        MapPorts = "map_ports",
        /// Remove with everything.
        Delete = "delete",
    }
);

named_enum!(
    /// How an operation stands.
    OperationStatus {
        /// Waiting or being worked on.
        InProgress = "in_progress",
        /// Done.
        Completed = "completed",
        /// Ended without reaching its target.
        Failed = "failed",
    }
);

named_enum!(
    /// One idempotent unit of work.
    Step {
        /// The key management service lets the application run its document.
        AllowKeys = "allow_keys",
        /// The ingress begins nothing new with the VM, and what flows ends.
        Drain = "drain",
        /// The new revision becomes the CVM's configuration.
        ApplyRevision = "apply_revision",
        /// The last good revision becomes the CVM's configuration again.
        RestoreRevision = "restore_revision",
        /// The node makes or updates the VM's directory, disks and configuration.
        PrepareDisk = "prepare_disk",
        /// The node starts the VM.
        StartVm = "start_vm",
        /// The guest reports that the application was started.
        AwaitBoot = "await_boot",
        /// The guest reports that the application does well, for a while.
        AwaitHealthy = "await_healthy",
        /// The guest is asked to shut down, or with `force` loses its power.
        RequestShutdown = "request_shutdown",
        /// The VM's process is gone.
        AwaitPowerOff = "await_power_off",
        /// The node takes the power away.
        StopVm = "stop_vm",
        /// The node removes the VM and all its files.
        RemoveVm = "remove_vm",
        /// The key management service takes back what no CVM of the application needs any more.
        RetireKeys = "retire_keys",
        /// The former port mappings become the CVM's again.
        RestorePorts = "restore_ports",
    }
);

named_enum!(
    /// What became of a revision.
    RevisionState {
        /// The operation that brings it has not applied it.
        Pending = "pending",
        /// The CVM has it; whether it works is not known yet.
        Applied = "applied",
        /// The CVM's application was up with it.
        Good = "good",
        /// It was taken back, or never came to be.
        RolledBack = "rolled_back",
    }
);

impl CvmStatus {
    /// Whether nothing moves in this status.
    #[must_use]
    pub const fn is_stable(self) -> bool {
        matches!(self, Self::Running | Self::Stopped | Self::Error)
    }
}

impl Step {
    /// How long a step may take from the moment a worker first takes it up, unless the CVM's policy or the
    /// request says otherwise.
    #[must_use]
    pub const fn time_limit(self) -> Duration {
        Duration::from_secs(match self {
            Self::AllowKeys | Self::PrepareDisk | Self::StartVm | Self::StopVm | Self::RemoveVm => 60,
            Self::AwaitBoot => 600,
            Self::AwaitHealthy => 300,
            Self::RequestShutdown | Self::Drain => 30,
            Self::AwaitPowerOff => 120,
            Self::ApplyRevision | Self::RestoreRevision | Self::RetireKeys | Self::RestorePorts => 10,
        })
    }

    /// Whether the operation goes on when the step fails.
    #[must_use]
    pub const fn is_optional(self) -> bool {
        matches!(self, Self::Drain | Self::RetireKeys)
    }

    /// Whether the step of an undo path is left out when another operation waits to take the VM's power away:
    /// it starts the VM again, or can be done later.
    #[must_use]
    pub(super) const fn gives_way(self) -> bool {
        matches!(self, Self::AllowKeys | Self::PrepareDisk | Self::StartVm | Self::AwaitBoot)
            || self.is_optional()
    }

    /// Whether the undo goes on when this step of it fails. Behind every other one the VM, or the CVM's row,
    /// is not what the next step builds on.
    #[must_use]
    const fn undo_goes_on(self) -> bool {
        matches!(self, Self::AllowKeys) || self.is_optional()
    }

    /// Whether a failure of the step leaves the VM as it was.
    #[must_use]
    const fn leaves_vm_alone(self) -> bool {
        matches!(self, Self::AllowKeys | Self::Drain)
    }
}

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

/// How far an operation got with its VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Nothing concerned the VM.
    Untouched,
    /// It was taken from the ingress and runs on.
    Drained,
    /// Its power or its files may be different.
    Changed,
}

impl Rules {
    /// How far an operation got that tried the step with this number. What a KMS that is away cannot allow
    /// must not end a VM that runs.
    pub(super) fn reach(&self, tried: i64) -> Reach {
        let tried =
            usize::try_from(tried).ok().and_then(|tried| self.steps.get(..=tried)).unwrap_or(self.steps);
        match tried {
            tried if !tried.iter().all(|step| step.leaves_vm_alone()) => Reach::Changed,
            tried if tried.contains(&Drain) => Reach::Drained,
            _ => Reach::Untouched,
        }
    }

    /// Whether the new revision became the CVM's before the step with this number.
    pub(super) fn has_applied(&self, before: i64) -> bool {
        let applies = self.steps.iter().position(|step| *step == ApplyRevision);
        applies.and_then(|index| i64::try_from(index).ok()).is_some_and(|index| index < before)
    }

    /// Whether only steps are left, from this number on, that do not decide the outcome: it is too late to
    /// end the operation.
    pub(super) fn is_decided(&self, step: i64) -> bool {
        let rest = usize::try_from(step).ok().and_then(|step| self.steps.get(step..)).unwrap_or_default();
        rest.iter().all(|step| step.is_optional())
    }

    /// Whether the CVM is as it was once the undo step with this number succeeded.
    pub(super) fn is_recovered_by(&self, undo: i64) -> bool {
        let last = self.undo.iter().rposition(|step| !step.is_optional());
        self.recovered.is_some() && last.and_then(|last| i64::try_from(last).ok()) == Some(undo)
    }

    /// Number of the undo step that follows a failed one.
    pub(super) fn undo_beyond(&self, failed: Step, number: i64) -> i64 {
        if failed.undo_goes_on() { number + 1 } else { self.undo_nothing() }
    }

    /// Number of the undo step that gives a VM, which was only taken from the ingress, back to it.
    pub(super) fn undo_drain(&self) -> i64 {
        let start = self.undo.iter().position(|step| *step == StartVm);
        start.and_then(|start| i64::try_from(start).ok()).unwrap_or_else(|| self.undo_nothing())
    }

    /// Number of the undo step behind the last one: nothing is undone.
    pub(super) fn undo_nothing(&self) -> i64 {
        i64::try_from(self.undo.len()).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::tests::states_page::all_rules;

    #[test]
    fn every_operation_begins_somewhere_and_ends_at_rest() {
        for (kind, _, rules) in all_rules() {
            assert!(!rules.from.is_empty() && !rules.steps.is_empty(), "{kind}");
            assert!(!rules.during.is_stable(), "{kind} must be visible while it runs");
            assert!(rules.target.is_none_or(CvmStatus::is_stable), "{kind}");
            assert!(rules.after_cancel.is_stable(), "{kind}");
            assert!(rules.recovered.is_none_or(CvmStatus::is_stable), "{kind}");
        }
    }

    #[test]
    fn what_is_applied_can_be_restored_and_the_vm_is_off_meanwhile() {
        for (kind, power, rules) in all_rules().filter(|(kind, ..)| kind.changes_revision()) {
            let forward = |step| rules.steps.iter().position(|other| *other == step);
            let back = |step| rules.undo.iter().position(|other| *other == step);
            assert!(forward(ApplyRevision).is_some() && back(RestoreRevision).is_some(), "{kind}");
            if power == Power::On {
                assert!(forward(AwaitPowerOff) < forward(ApplyRevision), "{kind}");
                assert!(back(StopVm) < back(RestoreRevision), "{kind}");
                assert!(back(RestoreRevision) < back(PrepareDisk), "{kind}");
            }
        }
    }

    #[test]
    fn how_far_an_operation_got_says_what_is_undone() {
        let change = OperationKind::ComposeUpdate.rules();
        let reached: Vec<_> = (0..3).map(|step| change.reach(step)).collect();
        assert_eq!(reached, [Reach::Untouched, Reach::Drained, Reach::Changed]);
        assert_eq!(change.undo[usize::try_from(change.undo_drain()).unwrap()], StartVm);
        let restart = OperationKind::Restart.rules();
        assert_eq!(restart.undo_drain(), restart.undo_nothing(), "its undo starts nothing");
        for (kind, _, rules) in all_rules() {
            let last = i64::try_from(rules.steps.len()).unwrap();
            assert!(rules.is_decided(last) && !rules.is_decided(0), "{kind}");
            assert_eq!(rules.has_applied(last), kind.changes_revision(), "{kind}");
        }
    }

    #[test]
    fn from_every_resting_status_a_cvm_can_be_started_and_deleted() {
        for status in CvmStatus::ALL.iter().filter(|status| status.is_stable()) {
            assert!(OperationKind::Delete.rules().from.contains(status));
            let start = OperationKind::PowerOn.rules();
            assert!(start.from.contains(status) || start.already == Some(*status), "{status}");
        }
    }

    #[test]
    fn names_parse_back_and_no_resting_name_looks_busy() {
        for status in CvmStatus::ALL {
            assert_eq!(status.as_str().parse::<CvmStatus>().unwrap(), *status);
            let looks_busy = status.as_str().ends_with("ing") && *status != CvmStatus::Running;
            assert!(!(status.is_stable() && looks_busy), "clients read …ing as busy: {status}");
        }
        assert!("exploded".parse::<CvmStatus>().is_err());
    }
}
