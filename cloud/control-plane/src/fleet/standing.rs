//! What a node is, has and gives: its row, its last report and what its CVMs take, seen together.

use std::collections::BTreeSet;
use std::sync::Arc;

use cloister_app_compose::OsImageHash;
use cloister_node_api::{NodeImage, NodeReport, OFFLINE_AFTER};

use super::gpus::GpuNeed;
use crate::store::{Change, DeviceRow, NodeRow, ProvisionRow, StoreError, Usage};

/// Status of a node on the wire (spec 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeStatus {
    /// Reports and takes CVMs.
    Online,
    /// Has not reported for [`OFFLINE_AFTER`].
    Offline,
    /// Takes no changes by its operator's wish.
    Maintenance,
}

impl NodeStatus {
    /// Name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Online => "ONLINE",
            Self::Offline => "OFFLINE",
            Self::Maintenance => "MAINTENANCE",
        }
    }
}

/// What a CVM needs of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requirements {
    /// Virtual CPUs.
    pub vcpu: i64,
    /// Memory in MiB.
    pub memory_mb: i64,
    /// Disk in GiB.
    pub disk_gb: i64,
    /// The guest image, once it is chosen.
    pub os_image_hash: Option<OsImageHash>,
    /// GPUs.
    pub gpus: GpuNeed,
}

impl From<&ProvisionRow> for Requirements {
    fn from(row: &ProvisionRow) -> Self {
        Self {
            vcpu: row.vcpu,
            memory_mb: row.memory_mb,
            disk_gb: row.disk_gb,
            os_image_hash: Some(row.os_image_hash),
            gpus: GpuNeed::exactly(&row.gpus),
        }
    }
}

/// Why a node does not take a CVM; reads after the node's name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum Refusal {
    /// It does not report.
    #[error("is offline; try again when it is back, or choose another node")]
    Offline,
    /// It takes no changes.
    #[error("is under maintenance; try again later, or choose another node")]
    Maintenance,
    /// Its CVMs are being moved away.
    #[error("is being drained and takes no new CVMs; choose another node")]
    Draining,
    /// It is not where the request wants the CVM.
    #[error("is in another region")]
    Region,
    /// No slot is free.
    #[error("has no free CVM slot")]
    Slots,
    /// Too few virtual CPUs are free.
    #[error("has not enough free virtual CPUs")]
    Vcpu,
    /// Too little memory is free.
    #[error("has not enough free memory")]
    Memory,
    /// Too little disk is free.
    #[error("has not enough free disk")]
    Disk,
    /// It lacks the image that was named.
    #[error("does not have this OS image")]
    Image,
    /// It has no image of the wanted kind.
    #[error("has no OS image of the wanted kind")]
    NoFittingImage,
    /// It has fewer GPUs of the wanted kind than needed.
    #[error("has too few GPUs of the wanted kind")]
    Gpus,
    /// Its GPUs of the wanted kind are in use.
    #[error("has too few free GPUs of the wanted kind")]
    GpusOccupied,
    /// A GPU that was named is not there.
    #[error("has no GPU {0} that can be assigned")]
    GpuUnknown(String),
    /// A GPU that was named is in use.
    #[error("has given GPU {0} to another CVM")]
    GpuTaken(String),
    /// Its GPUs do not protect what they compute.
    #[error("has GPUs whose confidential-computing mode is not on")]
    GpusUnprotected,
    /// The application's contract does not allow it.
    #[error("is a device that the application's contract does not allow; its owner can add it")]
    Device,
}

/// Why a chosen node does not take a CVM.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// It was removed.
    #[error("the chosen node was removed; provision again")]
    NodeGone,
    /// It refuses.
    #[error("node {node} {reason}")]
    Refused {
        /// Name of the node.
        node: String,
        /// Why.
        reason: Refusal,
    },
}

/// A node with its last report and what its CVMs take.
#[derive(Debug, Clone)]
pub struct NodeStanding {
    /// The node.
    pub node: NodeRow,
    /// What it reported last, without VMs; `None` before the first report.
    pub report: Option<Arc<NodeReport>>,
    /// Its status now.
    pub status: NodeStatus,
    /// The platform that it is, once a CVM on it has proved that; only where it was asked for.
    pub device: Option<DeviceRow>,
    /// PCI addresses of its GPUs that CVMs have; only where they were asked for.
    pub gpus_used: BTreeSet<String>,
    /// Images that no new CVM is to get; only where they were asked for.
    pub retired: Arc<BTreeSet<OsImageHash>>,
}

impl NodeStanding {
    /// The standing of a node at a time.
    #[must_use]
    pub fn of(node: &NodeRow, now_ms: i64) -> Self {
        Self::with_report(node.clone(), parse_report(node).map(Arc::new), now_ms)
    }

    /// The standing of a node whose report was read before.
    #[must_use]
    pub fn with_report(node: NodeRow, report: Option<Arc<NodeReport>>, now_ms: i64) -> Self {
        let is_fresh = node.reported_at_ms.is_some_and(|at_ms| {
            now_ms.saturating_sub(at_ms) < i64::try_from(OFFLINE_AFTER.as_millis()).unwrap_or(i64::MAX)
        });
        let status = match &report {
            Some(report) if node.maintenance != 0 || report.maintenance => NodeStatus::Maintenance,
            Some(_) if is_fresh => NodeStatus::Online,
            _ => NodeStatus::Offline,
        };
        Self { node, report, status, device: None, gpus_used: BTreeSet::new(), retired: Arc::default() }
    }

    /// The standing of a node that no other change takes anything of before this one ends.
    pub(crate) async fn locked(
        change: &mut Change,
        node_id: i64,
        now_ms: i64,
    ) -> Result<Option<Self>, StoreError> {
        let Some(node) = change.lock_node(node_id).await? else { return Ok(None) };
        let mut standing = Self::of(&node, now_ms);
        standing.gpus_used = change.gpus_in_use(node_id).await?;
        Ok(Some(standing))
    }

    /// Whether the node, or an administrator, wants no changes on it.
    #[must_use]
    pub fn in_maintenance(node: &NodeRow) -> bool {
        node.maintenance != 0 || parse_report(node).is_some_and(|report| report.maintenance)
    }

    /// What is still free of virtual CPUs, memory (MiB), CVM slots and disk (GiB); never negative.
    #[must_use]
    pub fn remaining(&self) -> Usage {
        let Some(capacity) = self.report.as_ref().map(|report| report.capacity) else {
            return Usage::default();
        };
        let left = |total: u32, used: i64| (i64::from(total) - used).max(0);
        Usage {
            cvms: left(capacity.cvm_slots, self.node.usage.cvms),
            vcpu: left(capacity.vcpu, self.node.usage.vcpu),
            memory_mb: left(capacity.memory_mb, self.node.usage.memory_mb),
            disk_gb: left(capacity.disk_gb, self.node.usage.disk_gb),
        }
    }

    /// The images that the node can boot.
    #[must_use]
    pub fn images(&self) -> &[NodeImage] {
        self.report.as_ref().map_or(&[], |report| &report.images)
    }

    /// The images that the node can boot and that a CVM which has another one, or none, may get.
    pub fn offered_images(&self) -> impl Iterator<Item = &NodeImage> {
        self.images().iter().filter(|image| !self.retired.contains(&image.os_image_hash))
    }

    /// The node's image with a hash.
    #[must_use]
    pub fn image(&self, hash: OsImageHash) -> Option<&NodeImage> {
        self.images().iter().find(|image| image.os_image_hash == hash)
    }

    /// Checks that the node takes a CVM with these needs now.
    pub fn accept(&self, needs: &Requirements) -> Result<(), PlacementError> {
        self.refusals(needs).into_iter().next().map_or(Ok(()), |reason| Err(self.refused(reason)))
    }

    /// Checks that the node gives a CVM that it has this much more now, and has the image that it wants
    /// instead, if it wants another one.
    pub fn accept_growth(&self, growth: &Requirements) -> Result<(), PlacementError> {
        // The CVM keeps its slot, and is no newcomer to a node that is being drained.
        let refusals = self.closed().into_iter().chain(self.lacks(growth, 0));
        refusals.into_iter().next().map_or(Ok(()), |reason| Err(self.refused(reason)))
    }

    /// This node's refusal.
    pub(crate) fn refused(&self, reason: Refusal) -> PlacementError {
        PlacementError::Refused { node: self.node.name.clone(), reason }
    }

    /// Everything that keeps the node from taking a CVM with these needs now.
    #[must_use]
    pub fn refusals(&self, needs: &Requirements) -> Vec<Refusal> {
        let draining = (self.node.draining != 0).then_some(Refusal::Draining);
        match self.closed().or(draining) {
            Some(reason) => vec![reason],
            None => self.lacks(needs, 1),
        }
    }

    fn closed(&self) -> Option<Refusal> {
        match self.status {
            NodeStatus::Offline => Some(Refusal::Offline),
            NodeStatus::Maintenance => Some(Refusal::Maintenance),
            NodeStatus::Online => None,
        }
    }

    fn lacks(&self, needs: &Requirements, slots: i64) -> Vec<Refusal> {
        let left = self.remaining();
        let image = needs.os_image_hash.map(|hash| self.image(hash));
        let is_dev = image.flatten().is_some_and(|image| image.is_dev);
        let checks = [
            (left.cvms < slots, Refusal::Slots),
            (left.vcpu < needs.vcpu, Refusal::Vcpu),
            (left.memory_mb < needs.memory_mb, Refusal::Memory),
            (left.disk_gb < needs.disk_gb, Refusal::Disk),
            (image == Some(None), Refusal::Image),
        ];
        let lacking = checks.into_iter().filter_map(|(lacks, reason)| lacks.then_some(reason));
        lacking.chain(self.choose_gpus(&needs.gpus, is_dev).err()).collect()
    }

    /// How much room is left, for choosing among nodes: the scarcest resource counts, 0 to 1.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a score for ordering, far below 2^52")]
    pub fn resource_score(&self) -> f64 {
        let Some(capacity) = self.report.as_ref().map(|report| report.capacity) else { return 0.0 };
        let left = self.remaining();
        [
            (left.cvms, capacity.cvm_slots),
            (left.vcpu, capacity.vcpu),
            (left.memory_mb, capacity.memory_mb),
            (left.disk_gb, capacity.disk_gb),
        ]
        .into_iter()
        .map(|(left, total)| left as f64 / f64::from(total.max(1)))
        .fold(1.0, f64::min)
    }
}

pub(crate) fn parse_report(node: &NodeRow) -> Option<NodeReport> {
    serde_json::from_str(node.report.as_deref()?).ok()
}
