//! How far this boot is: the one place that the status line is made of.

use cloister_app_compose::InstanceId;
use cloister_guest_channel::status::{BootPhase, GuestStatus, Health, MAX_TEXT_BYTES, PhaseStart};
use tokio::sync::watch;
use tracing::{error, info};

use crate::cut;
use crate::health::Verdict;
use crate::machine::{boot_id, clock};

/// The status of this guest, changed from everywhere, watched by the status port.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    status: watch::Sender<GuestStatus>,
}

impl Progress {
    /// A boot of which nothing is known yet.
    pub(crate) fn new() -> Self {
        let status = GuestStatus {
            boot_id: boot_id(),
            instance_id: None,
            phases: Vec::new(),
            detail: None,
            boot_error: None,
            shutdown_progress: None,
            health: None,
            health_detail: None,
        };
        Self { status: watch::Sender::new(status) }
    }

    /// Follows all changes.
    pub(crate) fn watch(&self) -> watch::Receiver<GuestStatus> {
        self.status.subscribe()
    }

    /// The boot has come to a phase. Phases only go forward, and not after a failure. With the last one the
    /// application is starting, unless more is known: no status says that it was started and nothing of how
    /// it does.
    pub(crate) fn enter(&self, phase: BootPhase) {
        let uptime_ms = clock::uptime_ms();
        let entered = self.status.send_if_modified(|status| advance(status, phase, uptime_ms));
        if entered {
            info!("{} ({uptime_ms} ms since power-on)", phase.as_progress());
        }
    }

    /// What is going on within the phase. What ends because the guest shuts down is no news.
    pub(crate) fn detail(&self, text: &str) {
        let text = cut::printable(text, MAX_TEXT_BYTES);
        self.status.send_if_modified(|status| {
            let counts = status.shutdown_progress.is_none();
            if counts {
                status.detail = Some(text);
            }
            counts
        });
    }

    /// How the application does. What ends because the guest shuts down is no news.
    pub(crate) fn health(&self, verdict: Verdict) {
        let detail = verdict.detail.map(|text| cut::printable(&text, MAX_TEXT_BYTES));
        let (health, detail) = (Some(verdict.health), detail);
        let changed = self.status.send_if_modified(|status| {
            let is_news = (status.health, &status.health_detail) != (health, &detail);
            if !is_news || status.shutdown_progress.is_some() {
                return false;
            }
            (status.health, status.health_detail) = (health, detail.clone());
            true
        });
        if changed {
            let name = match verdict.health {
                Health::Starting => "starting",
                Health::Healthy => "healthy",
                Health::Unhealthy => "not healthy",
            };
            info!("the application is {name}{}", detail.map(|why| format!(": {why}")).unwrap_or_default());
        }
    }

    /// Who this CVM is.
    pub(crate) fn identify(&self, instance: InstanceId) {
        self.status.send_modify(|status| status.instance_id = Some(instance));
    }

    /// The boot failed; the first reason is the one that counts.
    pub(crate) fn fail(&self, reason: &str) {
        error!("boot failed: {reason}");
        let reason = cut::printable(reason, MAX_TEXT_BYTES);
        self.status.send_modify(|status| {
            status.boot_error.get_or_insert(reason);
        });
    }

    /// An orderly shutdown is under way.
    pub(crate) fn shutting_down(&self, text: &str) {
        info!("shutdown: {text}");
        self.status.send_modify(|status| status.shutdown_progress = Some(text.to_owned()));
    }
}

fn advance(status: &mut GuestStatus, phase: BootPhase, uptime_ms: u64) -> bool {
    let forward = status.phase().is_none_or(|current| current < phase);
    if !forward || status.boot_error.is_some() {
        return false;
    }
    status.phases.push(PhaseStart { phase, uptime_ms });
    status.detail = None;
    if phase == BootPhase::Done {
        status.health.get_or_insert(Health::Starting);
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PHASES: [BootPhase; 6] = [
        BootPhase::AgentStarted,
        BootPhase::PreparingDisk,
        BootPhase::StartingEngine,
        BootPhase::PreLaunch,
        BootPhase::StartingContainers,
        BootPhase::Done,
    ];

    proptest! {
        #[test]
        fn phases_ascend_and_stop_at_the_first_failure(steps in proptest::collection::vec(0usize..8, 0..30)) {
            let progress = Progress::new();
            let mut at_failure = None;
            for step in steps {
                if let Some(phase) = PHASES.get(step) {
                    progress.enter(*phase);
                    continue;
                }
                progress.fail(&format!("failure {step}"));
                let status = progress.status.borrow().clone();
                at_failure.get_or_insert((status.phases, status.boot_error));
            }
            let status = progress.status.borrow().clone();
            prop_assert!(status.phases.is_sorted_by(|a, b| a.phase < b.phase));
            prop_assert_eq!(status.health.is_some(), status.phase() == Some(BootPhase::Done));
            if let Some((phases, reason)) = at_failure {
                prop_assert_eq!((status.phases, status.boot_error), (phases, reason));
            }
        }
    }

    #[test]
    fn texts_are_bounded() {
        let progress = Progress::new();
        progress.detail(&"ä".repeat(MAX_TEXT_BYTES));
        progress.fail(&"\u{1}".repeat(2 * MAX_TEXT_BYTES));
        progress.health(Verdict::unhealthy("\u{1}".repeat(2 * MAX_TEXT_BYTES)));
        progress.shutting_down("powering off");
        let line = serde_json::to_vec(&*progress.status.borrow()).unwrap();
        assert!(line.len() < cloister_guest_channel::status::MAX_LINE_BYTES);
    }
}
