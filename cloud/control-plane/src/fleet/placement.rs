//! Which node takes a CVM.

use cloister_app_compose::OsImageHash;
use cloister_node_api::{NodeImage, NodeReport, OFFLINE_AFTER};

use crate::store::{DeviceRow, NodeRow, ProvisionRow, Usage};

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requirements {
    /// Virtual CPUs.
    pub vcpu: i64,
    /// Memory in MiB.
    pub memory_mb: i64,
    /// Disk in GiB.
    pub disk_gb: i64,
    /// The guest image, once it is chosen.
    pub os_image_hash: Option<OsImageHash>,
}

impl From<&ProvisionRow> for Requirements {
    fn from(row: &ProvisionRow) -> Self {
        Self {
            vcpu: row.vcpu,
            memory_mb: row.memory_mb,
            disk_gb: row.disk_gb,
            os_image_hash: Some(row.os_image_hash),
        }
    }
}

/// Why a node does not take a CVM. The codes are those of the management API's catalogue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// It was removed.
    #[error("the chosen node was removed; provision again")]
    NodeGone,
    /// It does not report.
    #[error("node {0} is offline; try again when it is back, or provision again for another node")]
    Offline(String),
    /// It takes no changes.
    #[error("node {0} is under maintenance; try again later, or provision again for another node")]
    Maintenance(String),
    /// ERR-02-003.
    #[error("node {0} has not enough free virtual CPUs")]
    Vcpu(String),
    /// ERR-02-004.
    #[error("node {0} has not enough free memory")]
    Memory(String),
    /// ERR-02-005.
    #[error("node {0} has no free CVM slot")]
    Slots(String),
    /// ERR-02-002.
    #[error("node {0} has not enough free disk")]
    Disk(String),
    /// ERR-02-010.
    #[error("node {0} does not have this OS image")]
    Image(String),
}

/// A node with its last report and what its CVMs take.
#[derive(Debug, Clone)]
pub struct NodeStanding {
    /// The node.
    pub node: NodeRow,
    /// What it reported last, without VMs; `None` before the first report.
    pub report: Option<NodeReport>,
    /// Its status now.
    pub status: NodeStatus,
    /// The platform that it is, once a CVM on it has proved that; only where it was asked for.
    pub device: Option<DeviceRow>,
}

impl NodeStanding {
    /// The standing of a node at a time.
    #[must_use]
    pub fn of(node: &NodeRow, now_ms: i64) -> Self {
        let report = parse_report(node);
        let is_fresh = node.reported_at_ms.is_some_and(|at_ms| {
            now_ms.saturating_sub(at_ms) < i64::try_from(OFFLINE_AFTER.as_millis()).unwrap_or(i64::MAX)
        });
        let status = match &report {
            Some(_) if Self::in_maintenance(node) => NodeStatus::Maintenance,
            Some(_) if is_fresh => NodeStatus::Online,
            _ => NodeStatus::Offline,
        };
        Self { node: node.clone(), report, status, device: None }
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

    /// Checks that the node takes a CVM with these needs now.
    pub fn accept(&self, needs: &Requirements) -> Result<(), PlacementError> {
        self.accept_beside(needs, 1)
    }

    fn accept_beside(&self, needs: &Requirements, slots: i64) -> Result<(), PlacementError> {
        let name = || self.node.name.clone();
        match self.status {
            NodeStatus::Offline => return Err(PlacementError::Offline(name())),
            NodeStatus::Maintenance => return Err(PlacementError::Maintenance(name())),
            NodeStatus::Online => {}
        }
        let left = self.remaining();
        let has_image = |hash| self.images().iter().any(|image| image.os_image_hash == hash);
        let checks = [
            (left.cvms >= slots, PlacementError::Slots as fn(String) -> PlacementError),
            (left.vcpu >= needs.vcpu, PlacementError::Vcpu),
            (left.memory_mb >= needs.memory_mb, PlacementError::Memory),
            (left.disk_gb >= needs.disk_gb, PlacementError::Disk),
            (needs.os_image_hash.is_none_or(has_image), PlacementError::Image),
        ];
        checks.into_iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, error)| Err(error(name())))
    }

    /// Checks that the node gives a CVM that it has this much more now, and has the image that it wants
    /// instead, if it wants another one.
    pub fn accept_growth(&self, growth: &Requirements) -> Result<(), PlacementError> {
        // The CVM keeps its slot.
        self.accept_beside(growth, 0)
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

fn parse_report(node: &NodeRow) -> Option<NodeReport> {
    serde_json::from_str(node.report.as_deref()?).ok()
}
