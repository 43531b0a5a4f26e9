//! What to do when a node's account of a VM and the store's account of the CVM differ while no operation
//! is at work on it.

use cloister_node_api::{VmHealth, VmReport, VmState};

use crate::operations::CvmStatus;

/// What a node says about the VM of a CVM at rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Finding {
    /// The node does not know the VM.
    Missing,
    /// There is no process.
    Off,
    /// The process runs, but the application was not started.
    Booting,
    /// The application was started, and is not healthy yet.
    Starting,
    /// The application was started and is healthy, or nothing is known of its health.
    Up,
    /// The application was started and fails.
    Unhealthy,
    /// The application was started, and its ingress begins nothing new with it.
    Drained,
    /// The guest is being shut down.
    Ending,
}

impl Finding {
    /// Reads a report; `None` is a VM that the node did not list.
    #[must_use]
    pub(super) fn of(report: Option<&VmReport>) -> Self {
        let Some(report) = report else { return Self::Missing };
        match report.state {
            VmState::Stopped | VmState::Exited => Self::Off,
            VmState::Stopping => Self::Ending,
            VmState::Running if report.boot_progress.as_deref() != Some("done") => Self::Booting,
            VmState::Running if report.draining => Self::Drained,
            VmState::Running => match report.health {
                Some(VmHealth::Starting) => Self::Starting,
                Some(VmHealth::Unhealthy) => Self::Unhealthy,
                Some(VmHealth::Healthy) | None => Self::Up,
            },
        }
    }
}

/// How the difference is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Remedy {
    /// They agree, or time will tell.
    Nothing,
    /// The CVM takes this status.
    SetStatus(CvmStatus),
    /// The VM is a leftover: the node takes its power away.
    Stop,
    /// Whoever took it out of service is gone: the node puts it back.
    EndDrain,
}

/// The whole policy. A CVM in a transitional status without an operation does not occur; it is left
/// alone.
#[must_use]
pub(super) fn remedy(status: CvmStatus, finding: Finding) -> Remedy {
    use Finding::{Booting, Drained, Ending, Missing, Off, Starting, Unhealthy, Up};
    match (status, finding) {
        // The guest powered off by itself, or its process died.
        (CvmStatus::Running, Off) => Remedy::SetStatus(CvmStatus::Stopped),
        (CvmStatus::Running, Missing) => Remedy::SetStatus(CvmStatus::Error),
        (CvmStatus::Stopped, Booting | Starting | Up | Unhealthy | Drained | Ending)
        | (CvmStatus::Error, Booting) => Remedy::Stop,
        // The operation that drained it ended without powering it off.
        (CvmStatus::Running | CvmStatus::Error, Drained) => Remedy::EndDrain,
        // It came up after its operation had given up: the better news is true. One that does not do well keeps
        // its error until it does: that may be what its operation waited for in vain.
        (CvmStatus::Error, Up) => Remedy::SetStatus(CvmStatus::Running),
        _ => Remedy::Nothing,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const FINDINGS: [Finding; 8] = [
        Finding::Missing,
        Finding::Off,
        Finding::Booting,
        Finding::Starting,
        Finding::Up,
        Finding::Unhealthy,
        Finding::Drained,
        Finding::Ending,
    ];

    /// The policy as people read it, for docs/cvm-states.md.
    pub(crate) fn table() -> String {
        let mut table = String::from(
            "| Status | missing | off | booting | starting | up | unhealthy | drained | shutting down |\n|---|---|---|---|---|---|---|---|---|\n",
        );
        for status in CvmStatus::ALL.iter().filter(|status| status.is_stable()) {
            let cells = FINDINGS.map(|finding| match remedy(*status, finding) {
                Remedy::Nothing => "–".to_owned(),
                Remedy::SetStatus(to) => format!("becomes {to}"),
                Remedy::Stop => "stop the VM".to_owned(),
                Remedy::EndDrain => "end the drain".to_owned(),
            });
            table += &format!("| {status} | {} |\n", cells.join(" | "));
        }
        table
    }

    #[test]
    fn nothing_is_settled_while_an_operation_is_at_work() {
        for status in CvmStatus::ALL.iter().filter(|status| !status.is_stable()) {
            assert!(FINDINGS.iter().all(|finding| remedy(*status, *finding) == Remedy::Nothing), "{status}");
        }
    }

    #[test]
    fn a_remedy_settles_the_difference() {
        for status in CvmStatus::ALL {
            for finding in FINDINGS {
                if let Remedy::SetStatus(to) = remedy(*status, finding) {
                    assert_eq!(remedy(to, finding), Remedy::Nothing, "{status} {finding:?}");
                }
            }
        }
    }
}
