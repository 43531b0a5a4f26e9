//! What to do when a node's account of a VM and the store's account of the CVM differ while no operation
//! is at work on it.

use cloister_node_api::{VmReport, VmState};

use crate::operations::CvmStatus;

/// What a node says about the VM of a CVM at rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Finding {
    /// The node does not know the VM.
    Missing,
    /// There is no process.
    Off,
    /// The application was started.
    Up,
    /// The process runs, but the application was not started.
    Booting,
}

impl Finding {
    /// Reads a report; `None` is a VM that the node did not list.
    #[must_use]
    pub(super) fn of(report: Option<&VmReport>) -> Self {
        match report {
            None => Self::Missing,
            Some(VmReport { state: VmState::Stopped | VmState::Exited, .. }) => Self::Off,
            Some(report) if report.boot_progress.as_deref() == Some("done") => Self::Up,
            Some(_) => Self::Booting,
        }
    }
}

/// How the difference is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Remedy {
    /// They agree.
    Nothing,
    /// The CVM takes this status.
    SetStatus(CvmStatus),
    /// The VM is a leftover: the node takes its power away.
    Stop,
}

/// The whole policy. A CVM in a transitional status without an operation does not occur; it is left
/// alone.
#[must_use]
pub(super) fn remedy(status: CvmStatus, finding: Finding) -> Remedy {
    match (status, finding) {
        // The guest powered off by itself, or its process died.
        (CvmStatus::Running, Finding::Off) => Remedy::SetStatus(CvmStatus::Stopped),
        (CvmStatus::Running, Finding::Missing) => Remedy::SetStatus(CvmStatus::Error),
        (CvmStatus::Stopped, Finding::Up | Finding::Booting) | (CvmStatus::Error, Finding::Booting) => {
            Remedy::Stop
        }
        // It came up after its operation had given up: the better news is true.
        (CvmStatus::Error, Finding::Up) => Remedy::SetStatus(CvmStatus::Running),
        _ => Remedy::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../../docs/cvm-states.md");

    #[test]
    fn the_policy_is_the_reviewed_one() {
        let findings = [Finding::Missing, Finding::Off, Finding::Booting, Finding::Up];
        let mut table = String::from("| Status | missing | off | booting | up |\n|---|---|---|---|---|\n");
        for status in CvmStatus::ALL {
            let cells: Vec<_> = findings
                .iter()
                .map(|finding| match remedy(*status, *finding) {
                    Remedy::Nothing => "–".to_owned(),
                    Remedy::SetStatus(to) => format!("becomes {to}"),
                    Remedy::Stop => "stop the VM".to_owned(),
                })
                .collect();
            table += &format!("| {status} | {} |\n", cells.join(" | "));
        }
        assert!(PAGE.contains(&table), "docs/cvm-states.md must hold:\n{table}");
    }

    #[test]
    fn a_remedy_settles_the_difference() {
        for status in CvmStatus::ALL {
            for finding in [Finding::Missing, Finding::Off, Finding::Booting, Finding::Up] {
                if let Remedy::SetStatus(to) = remedy(*status, finding) {
                    assert_eq!(remedy(to, finding), Remedy::Nothing, "{status} {finding:?}");
                }
            }
        }
    }
}
