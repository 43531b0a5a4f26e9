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

    /// Whether requests may be sent to it: what [`VmReport::is_ready`] says of its report.
    pub(crate) fn is_ready(&self) -> bool {
        self.live.is_some()
            && self.power.state == VmState::Running
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
            health: self.health().map(health),
            health_detail: self.health().and(guest).and_then(|guest| guest.health_detail.clone()),
            draining: self.power.draining,
        })
    }
}
