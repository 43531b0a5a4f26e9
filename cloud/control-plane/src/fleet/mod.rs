//! The nodes: their enrolment and reports, placement of CVMs on them, calls to them.

mod client;
mod listener;
mod placement;
mod reconcile;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use cloister_node_api::VmReport;
use parking_lot::Mutex;
use tokio::sync::Notify;
use uuid::Uuid;

pub use client::{Fleet, FleetClientError, NodeStream};
pub use listener::JoinTokenError;
pub(crate) use listener::{NodeListener, make_join_token};
pub use placement::{NodeStanding, NodeStatus, PlacementError, Requirements};

use crate::store::ObservedVm;

/// Tells whoever waits for a VM that its node reported something new about it.
#[derive(Clone, Default)]
pub(crate) struct VmChanges(Arc<Mutex<HashMap<Uuid, Arc<Notify>>>>);

impl VmChanges {
    pub(crate) async fn changed(&self, vm: Uuid) {
        let notify = Arc::clone(self.0.lock().entry(vm).or_default());
        notify.notified().await;
    }

    pub(crate) fn tell(&self, vm: Uuid) {
        // Removed, so that the map never holds more than what somebody waits for.
        if let Some(notify) = self.0.lock().remove(&vm) {
            notify.notify_waiters();
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
    }
}
