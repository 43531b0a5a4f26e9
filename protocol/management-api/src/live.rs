//! A CVM as it is now, and how it is connected.

use cloister_app_compose::members;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::PortMappingId;
use crate::refs::CvmNetworkUrls;

/// `GET /cvms/{cvm_id}/stats`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CvmSystemInfo {
    /// Whether the guest answered.
    pub is_online: bool,
    /// Whether the guest shows its figures to everybody.
    pub is_public: bool,
    /// Why there are no figures.
    pub error: Option<String>,
    /// Figures.
    pub sysinfo: Option<SystemInfo>,
    /// Status of the CVM.
    pub status: Option<String>,
    /// Whether an operation works on it.
    pub in_progress: bool,
    /// How far the boot came.
    pub boot_progress: Option<String>,
    /// Why the boot failed.
    pub boot_error: Option<String>,
}

/// What a guest tells about its machine; sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SystemInfo {
    /// Name of its operating system.
    pub os_name: String,
    /// Version of that.
    pub os_version: String,
    /// Release of its kernel.
    pub kernel_version: String,
    /// Model of its CPU.
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
    /// Seconds since its boot.
    pub uptime: u64,
    /// Load average over one minute, times 100.
    pub loadavg_one: u32,
    /// Load average over five minutes, times 100.
    pub loadavg_five: u32,
    /// Load average over fifteen minutes, times 100.
    pub loadavg_fifteen: u32,
    /// File systems.
    pub disks: Vec<DiskInfo>,
}

/// A file system of a guest; sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiskInfo {
    /// Device.
    pub name: String,
    /// Where it is mounted.
    pub mount_point: String,
    /// Size.
    pub total_size: u64,
    /// Free.
    pub free_size: u64,
}

/// `GET /cvms/{cvm_id}/network`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CvmNetwork {
    /// Whether the VM runs on its node.
    pub is_online: bool,
    /// Whether the guest shows its figures to everybody.
    pub is_public: bool,
    /// Why nothing is known.
    pub error: Option<String>,
    /// Address of the guest in its own network.
    pub internal_ip: Option<String>,
    /// When the node heard of the guest last.
    pub latest_handshake: Option<Timestamp>,
    /// Where the ingress routes to it.
    pub public_urls: Option<Vec<CvmNetworkUrls>>,
}

/// `GET /cvms/{cvm_id}/user_config`: the members that are known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct CvmUserConfig {
    /// Host name of the guest.
    pub hostname: Option<String>,
    /// Keys that may log in, in OpenSSH's form.
    pub ssh_authorized_keys: Vec<String>,
    /// Domain of the gateway.
    pub default_gateway_domain: Option<String>,
}

/// `GET /cvms/{cvm_id}/firewall-status`: whether ports of the node can lead to the CVM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FirewallStatus {
    /// Whether they can.
    pub available: bool,
    /// Why not.
    pub reason: Option<String>,
}

/// A port of the node that leads to a port of a CVM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PortMappingResponse)]
pub struct MappedPort {
    /// Id; stays while the mapping does.
    pub id: PortMappingId,
    /// Port of the node.
    pub host_port: u16,
    /// Port of the CVM.
    pub vm_port: u16,
    /// `tcp` or `udp`.
    pub protocol: String,
    /// Address or name of the node.
    pub host_address: String,
}

members! {
    /// Body of `PUT /cvms/{cvm_id}/ports`.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct UpdatePortMappingsRequest {
        /// All ports that should be reachable, at most 64; ports of the node are assigned by the service.
        pub ports: Vec<PortMappingEntry>,
    }
}

members! {
    /// A port of a CVM that should be reachable through its node.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct PortMappingEntry {
        /// Port of the CVM, 1 to 65535.
        #[schema(minimum = 1, maximum = 65535)]
        pub vm_port: u32,
        /// `tcp` or `udp`.
        #[schema(pattern = "^(tcp|udp)$")]
        #[schema(required = false)]
        pub protocol: String = "tcp".to_owned(),
    }
}

/// `GET /cvms/{cvm_id}/network-config`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = NetworkConfigResponse)]
pub struct NetworkConfig {
    /// Where the CVM asks for its keys, tried in order.
    pub kms_urls: Vec<String>,
    /// Gateways that the tenant set.
    pub gateway_urls: Vec<String>,
    /// Ports of the node that lead to it.
    pub ports: Vec<NetworkConfigPort>,
}

/// A port of the node that leads to a port of a CVM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = NetworkConfigPortMappingEntry)]
pub struct NetworkConfigPort {
    /// Port of the node.
    pub host_port: u16,
    /// Port of the CVM.
    pub vm_port: u16,
    /// `tcp` or `udp`.
    pub protocol: String,
    /// Address of the node; empty for its default.
    pub host_address: String,
}

members! {
    /// Body of `PATCH /cvms/{cvm_id}/network-config`.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct UpdateNetworkConfigRequest {
        /// Where the CVM asks for its keys, at most 16 `https://` addresses; an empty list stands for those of the
        /// installation. Left out: they stay.
        pub kms_urls: Option<Vec<String>>,
        /// Gateways, at most 16 `https://` addresses. Left out: they stay.
        pub gateway_urls: Option<Vec<String>>,
        /// Restart the CVM, so that they take effect now instead of with its next start.
        #[schema(required = false)]
        pub restart: bool = false,
    }
}
