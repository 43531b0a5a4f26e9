//! VMs: what is ordered, what is done with them, and how they are.

use std::fmt;

use cloister_app_compose::{AppId, InstanceId, OsImageHash};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{ExitReason, text};

/// What a node needs to know to run one CVM. Two calls with the same VM and the same specification
/// change nothing; a different one replaces what the next start uses, the data disk stays.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmSpec {
    /// Identity of the VM on every node.
    pub vm_uuid: Uuid,
    /// Workspace whose pushed images the VM may use.
    pub workspace_id: i64,
    /// Name for people and the guest's host name.
    pub name: String,
    /// Application identity, for routing.
    pub app_id: AppId,
    /// Exact bytes of the app-compose document as UTF-8 text.
    pub app_compose: String,
    /// Guest image to boot.
    pub os_image_hash: OsImageHash,
    /// Virtual CPUs, at least 1.
    pub vcpu: u32,
    /// Memory in MiB.
    pub memory_mb: u32,
    /// Data disk in GiB; can grow, never shrink.
    pub disk_gb: u32,
    /// Sealed environment in hex, if any.
    pub encrypted_env: Option<String>,
    /// Unmeasured configuration, if any.
    pub user_config: Option<String>,
    /// Where the CVM asks for its keys, `https://host:port` as guests reach it, tried in order; empty for an
    /// application without a KMS.
    #[serde(default)]
    pub kms_urls: Vec<String>,
    /// PCI addresses of the host's GPUs that the VM gets, for example `0000:41:00.0`.
    #[serde(default)]
    pub gpus: Vec<String>,
    /// Ports of the host that lead to ports of the guest.
    #[serde(default)]
    pub ports: Vec<PortMapping>,
}

/// A port of the host that leads to a port of a guest, beside the ingress.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PortMapping {
    /// Transport.
    pub protocol: PortProtocol,
    /// Address of the host; empty for the node's default.
    pub host_address: String,
    /// Port of the host.
    pub host_port: u16,
    /// Port of the guest.
    pub vm_port: u16,
}

/// Transport of a port mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortProtocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

// Environment, configuration and document belong to the tenant and into no log.
impl fmt::Debug for VmSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VmSpec")
            .field("vm_uuid", &self.vm_uuid)
            .field("name", &self.name)
            .field("app_id", &self.app_id)
            .field("os_image_hash", &self.os_image_hash)
            .field("vcpu", &self.vcpu)
            .field("memory_mb", &self.memory_mb)
            .field("disk_gb", &self.disk_gb)
            .field("kms_urls", &self.kms_urls)
            .finish_non_exhaustive()
    }
}

/// Body of a graceful shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShutdownRequest {
    /// Seconds that the guest gets before the node takes the power away.
    pub timeout_s: u32,
    /// Whether the node takes the power away when the time is over. Otherwise the VM is running and in service
    /// again then, and can be drained and asked again.
    #[serde(default = "yes")]
    pub force: bool,
}

const fn yes() -> bool {
    true
}

/// Body of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainRequest {
    /// Seconds that what flows through the ingress gets to end, at most 300.
    pub timeout_s: u32,
}

/// How the application of a VM does, as its guest agent tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VmHealth {
    /// Something is still within its start period.
    Starting,
    /// Everything that should run runs and passes its checks.
    Healthy,
    /// Something failed, or fails its check.
    Unhealthy,
}

/// State of a VM's process on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VmState {
    /// Prepared or powered off; no process.
    Stopped,
    /// The process runs; how far the guest is, the status tells.
    Running,
    /// An orderly shutdown was asked for and the process still runs.
    Stopping,
    /// The process ended although nobody asked for it.
    Exited,
}

/// One VM as its node sees it now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmReport {
    /// Which VM.
    pub vm_uuid: Uuid,
    /// State of its process.
    pub state: VmState,
    /// Identity that the guest reported, once known.
    pub instance_id: Option<InstanceId>,
    /// Platform wording of the boot phase; `"done"` when the application was started.
    #[serde(default, deserialize_with = "text::optional")]
    pub boot_progress: Option<String>,
    /// Why the boot failed, for people.
    #[serde(default, deserialize_with = "text::optional")]
    pub boot_error: Option<String>,
    /// Progress of an orderly shutdown.
    #[serde(default, deserialize_with = "text::optional")]
    pub shutdown_progress: Option<String>,
    /// When the VM's process was started last.
    pub started_at: Option<Timestamp>,
    /// When it ended last.
    pub exited_at: Option<Timestamp>,
    /// Why it did, where the node was told.
    #[serde(default)]
    pub exit_reason: Option<ExitReason>,
    /// How the application does; `None` before it was started, and when the guest does not tell.
    #[serde(default)]
    pub health: Option<VmHealth>,
    /// What is not healthy, for people.
    #[serde(default, deserialize_with = "text::optional")]
    pub health_detail: Option<String>,
    /// The ingress begins nothing new with it.
    #[serde(default)]
    pub draining: bool,
}

impl VmReport {
    /// A VM of which nothing is known but its state.
    #[must_use]
    pub const fn new(vm_uuid: Uuid, state: VmState) -> Self {
        Self {
            vm_uuid,
            state,
            instance_id: None,
            boot_progress: None,
            boot_error: None,
            shutdown_progress: None,
            started_at: None,
            exited_at: None,
            exit_reason: None,
            health: None,
            health_detail: None,
            draining: false,
        }
    }

    /// Whether the ingress may send requests to it: it runs, its application was started and does not fail.
    /// A guest that says nothing of its health is ready with its start.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state == VmState::Running
            && self.boot_progress.as_deref() == Some("done")
            && matches!(self.health, None | Some(VmHealth::Healthy))
            && !self.draining
    }
}

/// How a VM is connected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmNetwork {
    /// Address of the guest in its network, if the node knows it.
    pub internal_ip: Option<std::net::IpAddr>,
    /// When the node heard of the guest last.
    pub last_heard_at: Option<Timestamp>,
    /// Ports of the host that lead to it now.
    pub ports: Vec<PortMapping>,
}
