//! Nodes: what they have, what they report, and where VMs are behind them.

use cloister_app_compose::OsImageHash;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{VmReport, text};

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
    /// [`paths::OS_IMAGES`](crate::paths::OS_IMAGES) and checks against the hash.
    #[serde(default)]
    pub os_images: Vec<OsImageHash>,
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
