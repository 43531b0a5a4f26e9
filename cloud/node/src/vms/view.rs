//! What everybody may see of a VM without waiting for it.

use std::sync::Arc;

use cloister_app_compose::AppId;
use cloister_guest_channel::NodeToken;
use cloister_guest_channel::status::{BootPhase, GuestStatus, Health};
use cloister_node_api::{VmHealth, VmReport, VmState};
use jiff::Timestamp;
use uuid::Uuid;

use super::directory::{GuestRecord, PowerRecord};
use super::live::Live;
use super::power::has_process;

/// What is known of a VM.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// Identity of its application; `None` when there is no such VM (any more).
    pub(crate) app_id: Option<AppId>,
    pub(crate) node_token: Option<NodeToken>,
    pub(crate) power: PowerRecord,
    pub(crate) guest: GuestRecord,
    pub(crate) live: Option<Arc<Live>>,
    /// When the guest spoke last, since the node or the VM was started.
    pub(crate) heard_at: Option<Timestamp>,
}

const fn health(told: Health) -> VmHealth {
    match told {
        Health::Starting => VmHealth::Starting,
        Health::Healthy => VmHealth::Healthy,
        Health::Unhealthy => VmHealth::Unhealthy,
    }
}

impl View {
    pub(super) const NOTHING: Self = Self {
        app_id: None,
        node_token: None,
        power: PowerRecord::NEW,
        guest: GuestRecord { instance_id: None, status: None },
        live: None,
        heard_at: None,
    };

    /// Whether the application was started.
    pub(crate) fn is_booted(&self) -> bool {
        self.guest.status.as_ref().and_then(GuestStatus::phase) == Some(BootPhase::Done)
    }

    /// Whether requests may be sent to it.
    pub(crate) fn is_ready(&self) -> bool {
        self.live.is_some() && self.serves()
    }

    /// What [`VmReport::is_ready`] says of its report, without making one for every request.
    fn serves(&self) -> bool {
        self.power.state == VmState::Running
            && self.is_booted()
            && matches!(self.health(), None | Some(Health::Healthy))
            && !self.power.draining
    }

    /// How the application does. What the guest said last does not outlive its power.
    fn health(&self) -> Option<Health> {
        self.guest.status.as_ref().filter(|_| has_process(self.power.state))?.health
    }

    /// The report on the VM; `None` when there is none.
    pub(super) fn report(&self, vm_uuid: Uuid) -> Option<VmReport> {
        self.app_id?;
        let guest = self.guest.status.as_ref();
        Some(VmReport {
            vm_uuid,
            state: self.power.state,
            instance_id: self.guest.instance_id,
            boot_progress: guest.and_then(GuestStatus::phase).map(|phase| phase.as_progress().to_owned()),
            boot_error: guest.and_then(|guest| guest.boot_error.clone()),
            shutdown_progress: guest.and_then(|guest| guest.shutdown_progress.clone()),
            started_at: self.power.started_at,
            exited_at: self.power.exited_at,
            exit_reason: self.power.exit_reason,
            health: self.health().map(health),
            health_detail: self.health().and(guest).and_then(|guest| guest.health_detail.clone()),
            draining: self.power.draining,
        })
    }
}

#[cfg(test)]
mod tests {
    use cloister_guest_channel::status::PhaseStart;

    use super::*;

    #[test]
    fn a_vm_serves_exactly_when_its_report_says_so() {
        let mut serving = 0;
        for state in [VmState::Stopped, VmState::Running, VmState::Stopping, VmState::Exited] {
            for phase in [None, Some(BootPhase::StartingContainers), Some(BootPhase::Done)] {
                for health in [None, Some(Health::Starting), Some(Health::Healthy), Some(Health::Unhealthy)] {
                    for draining in [false, true] {
                        let status = GuestStatus {
                            boot_id: Uuid::nil(),
                            instance_id: None,
                            phases: phase
                                .map(|phase| PhaseStart { phase, uptime_ms: 1 })
                                .into_iter()
                                .collect(),
                            detail: None,
                            boot_error: None,
                            shutdown_progress: None,
                            health,
                            health_detail: Some("why".to_owned()),
                        };
                        let mut power = PowerRecord::NEW;
                        (power.state, power.draining) = (state, draining);
                        let view = View {
                            app_id: Some(AppId::from_bytes([1; 20])),
                            power,
                            guest: GuestRecord { instance_id: None, status: Some(status) },
                            ..View::NOTHING
                        };
                        let report = view.report(Uuid::nil()).unwrap();
                        assert_eq!(view.serves(), report.is_ready(), "{report:?}");
                        assert_eq!(report.health.is_some(), health.is_some() && has_process(state));
                        assert_eq!(report.health_detail.is_some(), report.health.is_some());
                        serving += usize::from(view.serves());
                    }
                }
            }
        }
        assert_eq!(serving, 2, "with good health, and without a word about it");
    }
}
