//! The nodes: their enrolment and reports, placement of CVMs on them, calls to them.

mod client;
mod enrolment;
mod gpus;
mod listener;
mod os_images;
mod placement;
mod reconcile;
mod reports;
mod routes;
mod scheduler;
mod standing;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use cloister_node_api::{ExitReason, VmHealth, VmReport, VmState};
use parking_lot::Mutex;
use tokio::sync::Notify;
use uuid::Uuid;

pub use client::{Fleet, NodeStream};
pub use enrolment::JoinTokenError;
pub(crate) use enrolment::make_join_token;
pub use gpus::GpuNeed;
pub(crate) use listener::{NodeListener, Shared as ForNodes};
pub use placement::{Choice, Demand, DeviceWish, ImageWish, NoNodeFits, Rejected, version};
#[cfg(test)]
pub(crate) use reconcile::tests::table as table_of_remedies;
pub use reports::Reports;
pub(crate) use routes::ReadyVms;
pub use scheduler::{MAX_AGE_MS, PlaceError, Scheduler};
pub use standing::{NodeStanding, NodeStatus, PlacementError, Refusal, Requirements};

use crate::store::ObservedVm;

/// Tells whoever waits for a VM that its node reported something new about it. Holds only VMs that
/// somebody waits for.
#[derive(Clone, Default)]
pub(crate) struct VmChanges(Arc<Mutex<HashMap<Uuid, Arc<Notify>>>>);

impl VmChanges {
    pub(crate) async fn changed(&self, vm: Uuid) {
        let notify = Arc::clone(self.0.lock().entry(vm).or_default());
        let waiting = Waiting { changes: self, vm, notify };
        waiting.notify.notified().await;
    }

    #[cfg(test)]
    pub(crate) fn waited_for(&self) -> usize {
        self.0.lock().len()
    }

    pub(crate) fn tell(&self, vm: Uuid) {
        if let Some(notify) = self.0.lock().remove(&vm) {
            notify.notify_waiters();
        }
    }
}

/// Somebody who waits; the last one who gives up takes the VM out of the map.
struct Waiting<'a> {
    changes: &'a VmChanges,
    vm: Uuid,
    notify: Arc<Notify>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waited_for = self.changes.0.lock();
        let is_kept = waited_for.get(&self.vm).is_some_and(|kept| Arc::ptr_eq(kept, &self.notify));
        // Two: the map's and this one.
        if is_kept && Arc::strong_count(&self.notify) == 2 {
            waited_for.remove(&self.vm);
        }
    }
}

/// The part of a node's report that the CVM's row shows.
pub(crate) fn observed(report: &VmReport) -> ObservedVm {
    ObservedVm {
        instance_id: report.instance_id,
        boot_progress: report.boot_progress.clone(),
        boot_error: report.boot_error.clone(),
        shutdown_progress: report.shutdown_progress.clone(),
        started_at_ms: report.started_at.map(jiff::Timestamp::as_millisecond),
        exited_at_ms: report.exited_at.map(jiff::Timestamp::as_millisecond),
        exit_reason: unasked_end(report).map(|reason| reason.to_string()),
        health: report.health.map(|health| health_name(health).to_owned()),
        health_detail: report.health_detail.clone(),
    }
}

/// Why a VM is off that should run, where its node knows.
fn unasked_end(report: &VmReport) -> Option<ExitReason> {
    report.exit_reason.filter(|_| report.state == VmState::Exited)
}

/// The name of a VM's health on the wire and in the database.
const fn health_name(health: VmHealth) -> &'static str {
    match health {
        VmHealth::Starting => "starting",
        VmHealth::Healthy => "healthy",
        VmHealth::Unhealthy => "unhealthy",
    }
}
