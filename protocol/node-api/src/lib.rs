//! What the control plane and a node tell each other.
//!
//! Both directions are JSON over mutually authenticated TLS. The control plane calls the node's
//! [`paths`] to change VMs; every such call is idempotent, keyed by the VM's UUID. The node reports
//! itself and its VMs to the control plane ([`NodeReport`]) at least every [`REPORT_INTERVAL`] and at
//! once when something changed. A report is the whole truth about the node, never a difference.

mod text;

use std::fmt;
use std::time::Duration;

use cloister_app_compose::{AppId, InstanceId, OsImageHash};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use text::MAX_TEXT_BYTES;

/// Longest pause between two reports of a living node.
pub const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// A node that has not reported for this long is OFFLINE.
pub const OFFLINE_AFTER: Duration = Duration::from_secs(20);

/// Paths of the node's listener.
///
/// | Method and path | Body → answer |
/// |---|---|
/// | `PUT /v1/vms/{uuid}` | [`VmSpec`] → [`VmReport`]; prepares disks, boots nothing |
/// | `POST /v1/vms/{uuid}/start` | – → `VmReport`; a running VM stays as it is |
/// | `POST /v1/vms/{uuid}/drain` | [`DrainRequest`] → `VmReport`; the ingress begins nothing new with the VM, and the answer comes when nothing flows any more or the time is over. The next start ends it |
/// | `POST /v1/vms/{uuid}/shutdown` | [`ShutdownRequest`] → `VmReport`; returns at once |
/// | `POST /v1/vms/{uuid}/stop` | – → `VmReport`; returns when the VM's process is gone |
/// | `GET /v1/vms/{uuid}` | → `VmReport` |
/// | `DELETE /v1/vms/{uuid}` | → 204, also for an unknown VM; stops it and removes every file of it |
/// | `GET /v1/vms/{uuid}/serial` | `?tail=LINES` → `text/plain` |
/// | `GET /v1/vms/{uuid}/stats` | → the guest agent's `/stats` document, [`GuestStats`] |
/// | `GET /v1/vms/{uuid}/network` | → [`VmNetwork`] |
/// | `GET /v1/vms/{uuid}/ports/{port}` | `Connection: upgrade`, `Upgrade: tcp` → 101, then bytes to and from the guest's TCP port; for other nodes' ingresses |
/// | `GET /v1/vms/{uuid}/attestation` | `?report_data=HEX` → the guest agent's `/attestation` document |
/// | `GET /v1/vms/{uuid}/containers` | → the guest agent's `/containers` document |
/// | `GET /v1/vms/{uuid}/logs/{container}` | query passed on → the guest agent's log stream |
/// | `PUT /v1/workspaces/{workspace}/images?reference=` | image archive (tar stream) → [`ImportedImage`] |
/// | `GET /v1/workspaces/{workspace}/images` | → `[ImportedImage]` |
///
/// Errors are [`NodeError`] with a 4xx or 5xx status.
pub mod paths {
    /// Collection of VMs.
    pub const VMS: &str = "/v1/vms";
    /// Images that tenants pushed, by workspace.
    pub const WORKSPACES: &str = "/v1/workspaces";
    /// On the control plane's node listener: `POST` a [`NodeReport`](super::NodeReport), answered with
    /// [`ReportReceipt`](super::ReportReceipt). The node is the one named by the client certificate.
    pub const REPORT: &str = "/v1/report";
    /// On the control plane's node listener, without a client certificate: `POST` an
    /// [`EnrolRequest`](super::EnrolRequest), answered with [`EnrolResponse`](super::EnrolResponse).
    pub const ENROL: &str = "/v1/enrol";
    /// On the control plane's node listener: `POST` a [`PlatformRequest`](super::PlatformRequest) for the
    /// node's development TEE, answered with [`PlatformCertificate`](super::PlatformCertificate).
    pub const DEVELOPMENT_PLATFORM: &str = "/v1/development-platform";
    /// On the control plane's node listener: `GET …/{id}` with an application or instance id in hex gives
    /// [`Routes`](super::Routes), where it runs in the whole installation.
    pub const ROUTES: &str = "/v1/routes";
    /// On the control plane's node listener: `GET …/{os_image_hash}` streams the files of a guest image of
    /// the catalogue as a tar archive.
    pub const OS_IMAGES: &str = "/v1/os-images";
}

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

/// A GPU of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeGpu {
    /// PCI address on the host, for example `0000:41:00.0`; names the GPU on its node.
    #[serde(deserialize_with = "text::plain")]
    pub slot: String,
    /// PCI vendor and device, lower-case hex, for example `10de:2335`.
    #[serde(deserialize_with = "text::plain")]
    pub product_id: String,
    /// Name for people, for example `NVIDIA H200 SXM 141GB`.
    #[serde(deserialize_with = "text::plain")]
    pub product_name: String,
    /// Whether its memory and its traffic are protected.
    pub confidential_computing: GpuConfidentialMode,
    /// Whether the host keeps it for VMs (bound to `vfio-pci`), so that it can be assigned.
    pub assignable: bool,
}

/// Confidential-computing mode of a GPU, as its administrator set it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuConfidentialMode {
    /// On.
    On,
    /// On, with performance counters open to the host: development only.
    Devtools,
    /// Off, or the GPU has none.
    Off,
    /// The host cannot tell.
    Unknown,
}

/// What a guest tells about its machine; sizes in bytes, uptime in seconds, load averages times 100.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestStats {
    /// `NAME` of its `os-release`.
    #[serde(deserialize_with = "text::plain")]
    pub os_name: String,
    /// `VERSION` of its `os-release`.
    #[serde(deserialize_with = "text::plain")]
    pub os_version: String,
    /// Release of its kernel.
    #[serde(deserialize_with = "text::plain")]
    pub kernel_version: String,
    /// Model name of its first CPU.
    #[serde(deserialize_with = "text::plain")]
    pub cpu_model: String,
    /// CPUs.
    pub num_cpus: u32,
    /// Memory.
    pub total_memory: u64,
    /// Memory that can be had without swapping.
    pub available_memory: u64,
    /// Memory that is used.
    pub used_memory: u64,
    /// Memory that nothing uses.
    pub free_memory: u64,
    /// Swap.
    pub total_swap: u64,
    /// Swap that is used.
    pub used_swap: u64,
    /// Swap that is free.
    pub free_swap: u64,
    /// Time since its boot.
    pub uptime: u64,
    /// Load average over one minute.
    pub loadavg_one: u32,
    /// Over five minutes.
    pub loadavg_five: u32,
    /// Over fifteen minutes.
    pub loadavg_fifteen: u32,
    /// Its file systems.
    pub disks: Vec<GuestDisk>,
}

/// A file system of a guest; sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestDisk {
    /// Device.
    #[serde(deserialize_with = "text::plain")]
    pub name: String,
    /// Where it is mounted.
    #[serde(deserialize_with = "text::plain")]
    pub mount_point: String,
    /// Size.
    pub total_size: u64,
    /// Free.
    pub free_size: u64,
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

/// Where an application, or an instance of one, runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Routes {
    /// Its VMs on all nodes, at most 100.
    pub vms: Vec<VmRoute>,
}

/// A VM behind the ingress of some node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmRoute {
    /// Which VM.
    pub vm_uuid: Uuid,
    /// Name of its node, which its certificate carries.
    #[serde(deserialize_with = "text::plain")]
    pub node: String,
    /// Where the node's listener is, `host:port`.
    #[serde(deserialize_with = "text::plain")]
    pub endpoint: String,
    /// Whether requests may be sent to it.
    pub ready: bool,
}

/// A guest image that a node can boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeImage {
    /// Name, for example `cloister-0.1.0`.
    #[serde(deserialize_with = "text::plain")]
    pub name: String,
    /// Version for ordering: three or four numbers, dotted.
    #[serde(deserialize_with = "text::plain")]
    pub version: String,
    /// Whether it is a development image (shell access).
    pub is_dev: bool,
    /// Hash that names its contents.
    pub os_image_hash: OsImageHash,
    /// Whether it brings drivers for GPUs; a CVM with a GPU needs one that does.
    #[serde(default)]
    pub supports_gpu: bool,
}

/// How a node runs VMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Platform {
    /// Intel TDX.
    Tdx,
    /// AMD SEV-SNP.
    SevSnp,
    /// KVM without memory protection: development only.
    Kvm,
    /// Software emulation: development only.
    Emulation,
}

/// What a node offers in total; what is free, the control plane computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCapacity {
    /// CVMs.
    pub cvm_slots: u32,
    /// Virtual CPUs.
    pub vcpu: u32,
    /// Memory in MiB.
    pub memory_mb: u32,
    /// Disk for CVMs in GiB.
    pub disk_gb: u32,
}

/// Everything a node tells about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Version of the node's program.
    #[serde(deserialize_with = "text::plain")]
    pub version: String,
    /// Region label given by its operator.
    #[serde(deserialize_with = "text::plain")]
    pub region: String,
    /// Where the control plane reaches the node's listener, `host:port`.
    #[serde(deserialize_with = "text::plain")]
    pub endpoint: String,
    /// Domain under which the node's ingress routes, with scheme and port as users type it, for example
    /// `http://{host}.localhost:8080` with `{host}` for `<app_id>[-<port>]`.
    #[serde(deserialize_with = "text::plain")]
    pub ingress_url_template: String,
    /// Bare domain of the ingress, for example `apps.localhost`.
    #[serde(deserialize_with = "text::plain")]
    pub ingress_domain: String,
    /// How it runs VMs.
    pub platform: Platform,
    /// The operator wants no new CVMs here and none changed.
    pub maintenance: bool,
    /// Totals.
    pub capacity: NodeCapacity,
    /// Images it can boot.
    pub images: Vec<NodeImage>,
    /// Every VM it knows.
    pub vms: Vec<VmReport>,
    /// Its GPUs, assigned or not.
    #[serde(default)]
    pub gpus: Vec<NodeGpu>,
    /// First and last port of the host that mappings may use; `None` where the operator allows none.
    #[serde(default)]
    pub port_range: Option<(u16, u16)>,
}

/// The control plane's answer to a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportReceipt {
    /// The control plane's number for the node (`teepod_id`).
    pub node_id: i64,
    /// Guest images of the catalogue that the node should have; what it lacks it fetches from
    /// [`paths::OS_IMAGES`] and checks against the hash.
    #[serde(default)]
    pub os_images: Vec<OsImageHash>,
}

/// A new node asks for a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnrolRequest {
    /// One-time secret from `cloister nodes invite`.
    pub join_token: String,
    /// Name of the node, unique in the installation.
    pub name: String,
    /// PEM certificate request with the node's key.
    pub certificate_request: String,
    /// Hosts and addresses under which the control plane will reach the node.
    pub subject_alternative_names: Vec<String>,
}

/// The certificate of a new node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnrolResponse {
    /// PEM certificate of the node.
    pub certificate: String,
    /// PEM certificate of the installation's authority.
    pub authority: String,
}

/// A node without TEE hardware asks for the certificate of the platform that it plays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlatformRequest {
    /// Identity of the platform: 16 bytes, hex, made by the node at its first start.
    pub ppid: String,
    /// The node's provisioning certification key: uncompressed P-256 point, 65 bytes, hex.
    pub public_key: String,
    /// That the node has the key: its signature over the identity, r ‖ s, 64 bytes, hex.
    pub proof: String,
}

/// The certificate of a development platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlatformCertificate {
    /// PEM: leaf, intermediate, development root.
    pub certificate_chain: String,
}

/// An image that a tenant pushed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedImage {
    /// Reference under which compose files name it, for example `docker.io/library/hello:1`.
    #[serde(deserialize_with = "text::plain")]
    pub reference: String,
    /// Manifest digest, `sha256:<hex>`.
    #[serde(deserialize_with = "text::plain")]
    pub digest: String,
    /// Bytes of all its blobs.
    pub size: u64,
}

/// Why a node refused or failed; the message is meant for the person whose call it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeError {
    /// What kind of failure, for programs.
    pub code: NodeErrorCode,
    /// What happened and what to do about it; no paths of the host, no secrets.
    #[serde(deserialize_with = "text::plain")]
    pub message: String,
}

/// Kinds of node failures and their HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeErrorCode {
    /// 404: the VM was never prepared here.
    UnknownVm,
    /// 404: the VM runs and has no container of that name.
    UnknownContainer,
    /// 400: the specification or archive is wrong; repeating will not help.
    Invalid,
    /// 404: no image with that hash, or its files do not match the hash.
    BadImage,
    /// 507: not enough disk, memory or slots on the host.
    OutOfResources,
    /// 409: the VM is not in a state for this.
    Conflict,
    /// 502: the guest agent does not answer.
    GuestUnreachable,
    /// 500: anything else; repeating may help.
    Internal,
}

impl NodeErrorCode {
    /// Whether the control plane may try the same call again.
    #[must_use]
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::Internal | Self::GuestUnreachable)
    }

    /// HTTP status that carries this code.
    #[must_use]
    pub const fn http_status(self) -> u16 {
        match self {
            Self::UnknownVm | Self::UnknownContainer | Self::BadImage => 404,
            Self::Invalid => 400,
            Self::OutOfResources => 507,
            Self::Conflict => 409,
            Self::GuestUnreachable => 502,
            Self::Internal => 500,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_are_cut_and_cleaned_when_they_are_read() {
        let long = format!("a\u{0}b\n{}", "ä".repeat(MAX_TEXT_BYTES));
        let report: VmReport = serde_json::from_value(json!({
            "vm_uuid": Uuid::nil(), "state": "running", "boot_error": long,
        }))
        .unwrap();
        let error = report.boot_error.unwrap();
        assert!(error.starts_with("a b\nä") && error.len() <= MAX_TEXT_BYTES);
        assert_eq!((report.boot_progress, report.shutdown_progress), (None, None));
    }

    #[test]
    fn what_belongs_to_the_tenant_is_not_printed() {
        let secret = "planted-words";
        let spec: VmSpec = serde_json::from_value(json!({
            "vm_uuid": Uuid::nil(), "workspace_id": 1, "name": "web", "app_id": "05".repeat(20),
            "app_compose": secret, "os_image_hash": "01".repeat(32), "vcpu": 1, "memory_mb": 512, "disk_gb": 1,
            "encrypted_env": secret, "user_config": secret,
        }))
        .unwrap();
        let printed = format!("{spec:?}");
        assert!(printed.contains("web") && !printed.contains(secret), "{printed}");
    }
}
