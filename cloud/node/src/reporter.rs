//! Tells the control plane what this node is and what its VMs do.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cloister_app_compose::OsImageHash;
use cloister_node_api::{NodeImage, NodeReport, REPORT_INTERVAL, ReportReceipt, paths};
use tokio::sync::watch;

use crate::clock;
use crate::control_plane::{CallError, ControlPlaneClient};
use crate::vms::{Host, Vms};

/// Changes within this time go into one report; no guest can make a node report more often.
const COALESCE: Duration = Duration::from_millis(50);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Most images of the catalogue that a node keeps.
const MAX_WANTED_IMAGES: usize = 64;
/// A file of this name in the data directory puts the node into maintenance.
const MAINTENANCE_FILE: &str = "maintenance";

/// What a report says besides what changes by itself.
pub(crate) struct Reporter {
    pub(crate) host: Arc<Host>,
    pub(crate) vms: Arc<Vms>,
    pub(crate) images: watch::Receiver<Vec<NodeImage>>,
    /// What the control plane wants the node to have.
    pub(crate) wanted_images: watch::Sender<Vec<OsImageHash>>,
    pub(crate) client: ControlPlaneClient,
    pub(crate) maintenance: bool,
    /// The report with everything that stays the same filled in.
    pub(crate) constant: NodeReport,
}

impl Reporter {
    /// Reports at once, on every change and in the usual interval, for ever.
    pub(crate) async fn run(self) {
        let mut failures = 0u32;
        let mut registered = None;
        loop {
            match self.client.post::<ReportReceipt>(paths::REPORT, &self.report()).await {
                Ok(receipt) => {
                    if failures > 0 || registered != Some(receipt.node_id) {
                        tracing::info!(node_id = receipt.node_id, "the control plane takes reports");
                    }
                    (failures, registered) = (0, Some(receipt.node_id));
                    self.note_wanted(receipt.os_images);
                    tokio::select! {
                        () = tokio::time::sleep(REPORT_INTERVAL) => {}
                        () = self.host.changed.notified() => tokio::time::sleep(COALESCE).await,
                    }
                }
                Err(error) => {
                    note_failure(failures, &error);
                    let pause = FIRST_PAUSE * 2u32.saturating_pow(failures.min(8));
                    failures = failures.saturating_add(1);
                    tokio::time::sleep(clock::jittered(pause.min(LONGEST_PAUSE))).await;
                }
            }
        }
    }

    fn note_wanted(&self, mut images: Vec<OsImageHash>) {
        images.truncate(MAX_WANTED_IMAGES);
        self.wanted_images.send_if_modified(|known| (*known != images).then(|| *known = images).is_some());
    }

    fn report(&self) -> NodeReport {
        NodeReport {
            maintenance: self.maintenance || self.maintenance_file().exists(),
            images: self.images.borrow().clone(),
            vms: self.vms.reports(),
            gpus: self.host.gpus.known(),
            ..self.constant.clone()
        }
    }

    fn maintenance_file(&self) -> PathBuf {
        self.host.data_dir.join(MAINTENANCE_FILE)
    }
}

/// An outage is worth one line, not one per attempt.
fn note_failure(failures: u32, error: &CallError) {
    let error = error as &dyn std::error::Error;
    if failures == 0 {
        tracing::warn!(error, "cannot report to the control plane; trying again until it works");
    } else {
        tracing::debug!(error, failures, "still cannot report to the control plane");
    }
}
