//! The names that the table is made of, and what each says by itself.

use std::time::Duration;

use crate::operations::named::named_enum;

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
    pub(in crate::operations) const fn gives_way(self) -> bool {
        matches!(self, Self::AllowKeys | Self::PrepareDisk | Self::StartVm | Self::AwaitBoot)
            || self.is_optional()
    }

    /// Whether the undo goes on when this step of it fails. Behind every other one the VM, or the CVM's row,
    /// is not what the next step builds on.
    #[must_use]
    pub(super) const fn undo_goes_on(self) -> bool {
        matches!(self, Self::AllowKeys) || self.is_optional()
    }

    /// Whether a failure of the step leaves the VM as it was.
    #[must_use]
    pub(super) const fn leaves_vm_alone(self) -> bool {
        matches!(self, Self::AllowKeys | Self::Drain)
    }
}
