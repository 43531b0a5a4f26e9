//! What an operator decides about a node.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use cloister_fleet_tls::Credentials;
use cloister_node_api::{GpuConfidentialMode, Platform};

use crate::gpus::PciAddress;
use crate::images;
use crate::ingress;
use crate::ports::PortRange;

/// Configuration of a node.
#[derive(Clone)]
pub struct Config {
    /// Directory for VMs and the node's memory; made if absent. At most 63 bytes long unless
    /// [`Config::socket_dir`] is given.
    pub data_dir: PathBuf,
    /// Directory for sockets, at most 67 bytes long; `None` takes one in the data directory.
    pub socket_dir: Option<PathBuf>,
    /// Directory of guest images, one directory each.
    pub images_dir: PathBuf,
    /// The node's key and certificate.
    pub credentials: Credentials,
    /// Node listener of the control plane, `host:port`.
    pub control_plane: String,
    /// Address for calls of the control plane; port 0 takes a free one.
    pub listen: SocketAddr,
    /// `host:port` under which the control plane reaches this node; `None` takes the bound address.
    pub endpoint: Option<String>,
    /// Region label.
    pub region: String,
    /// URL form of apps on this node, with `{host}` for `<app_id>[-<port>]`. Serving it is the ingress'
    /// task, which finds the VMs through [`Node::backends`](crate::Node::backends).
    pub ingress_url_template: String,
    /// Bare domain of apps on this node.
    pub ingress_domain: String,
    /// How to run VMs; `None` probes for the best way that the host has.
    pub platform: Option<Platform>,
    /// QEMU's program, found in the search path if it is a bare name.
    pub qemu: PathBuf,
    /// Program and first arguments of the relay; a socket path is appended. It must run
    /// [`relay`](crate::relay()).
    pub relay_command: Vec<String>,
    /// Ports of the host that CVMs may have, beside the ingress; `None` gives them none. To be kept apart from
    /// the ports of outgoing connections (`net.ipv4.ip_local_port_range`).
    pub port_range: Option<PortRange>,
    /// Address of the host for these ports.
    pub port_address: Ipv4Addr,
    /// Where the host shows its PCI devices; the GPUs among them that are bound to `vfio-pci` can be
    /// assigned.
    pub pci_devices: PathBuf,
    /// Confidential-computing mode of GPUs, which the host cannot read: the operator's word.
    pub gpu_modes: BTreeMap<PciAddress, GpuConfidentialMode>,
    /// Test devices that stand for GPUs, at most 8; only on hosts that protect guests from nobody.
    pub emulated_gpus: u8,
    /// Limits on what tenants push.
    pub app_images: images::Limits,
    /// Limits on what VMs get.
    pub limits: Limits,
    /// Take no new CVMs and change none. The file `maintenance` in the data directory says the same
    /// while the node runs.
    pub maintenance: bool,
    /// Guests must be protected by hardware: a host without it is refused.
    pub production: bool,
    /// Position of the encryption bit of AMD SEV-SNP hosts (CPUID 0x8000001F, EBX bits 0–5).
    pub snp_c_bit_position: u32,
    /// A process beside the node for which it plays a confidential machine; never in production.
    pub host_process: Option<HostProcess>,
}

/// A process of this host that gets evidence and sealing keys as if it ran in a machine of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostProcess {
    /// Where the guest agent's API is served to it, at most 107 bytes long, in a directory that only the
    /// node's user enters; both are made if absent.
    pub socket: PathBuf,
    /// Its program, which is what is measured; read when the node starts.
    pub executable: PathBuf,
}

/// Limits on what VMs get from the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Most VMs that run at once.
    pub cvm_slots: u32,
    /// Virtual CPUs offered per hundred CPUs of the host.
    pub cpu_percent: u32,
    /// Disk offered per hundred GiB of the data directory's file system; disks are sparse.
    pub disk_percent: u32,
    /// Memory that VMs don't get, in MiB. Memory is never promised twice.
    pub memory_reserve_mb: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { cvm_slots: 64, cpu_percent: 800, disk_percent: 400, memory_reserve_mb: 1024 }
    }
}

impl Config {
    /// A node on this machine with defaults for everything that has one.
    #[must_use]
    pub fn new(
        data_dir: PathBuf,
        images_dir: PathBuf,
        credentials: Credentials,
        control_plane: String,
    ) -> Self {
        Self {
            data_dir,
            socket_dir: None,
            images_dir,
            credentials,
            control_plane,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            endpoint: None,
            region: "local".to_owned(),
            ingress_url_template: format!("http://{{host}}.{}:8080", ingress::DEFAULT_DOMAIN),
            ingress_domain: ingress::DEFAULT_DOMAIN.to_owned(),
            platform: None,
            qemu: PathBuf::from("qemu-system-x86_64"),
            relay_command: vec!["cloister".to_owned(), "relay".to_owned()],
            port_range: None,
            port_address: Ipv4Addr::UNSPECIFIED,
            pci_devices: PathBuf::from("/sys/bus/pci/devices"),
            gpu_modes: BTreeMap::new(),
            emulated_gpus: 0,
            app_images: images::Limits::default(),
            limits: Limits::default(),
            maintenance: false,
            production: false,
            snp_c_bit_position: 51,
            host_process: None,
        }
    }
}

/// What becomes of the VMs when a node stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnExit {
    /// They go on; the next start of the node adopts them.
    LeaveRunning,
    /// Each is asked to power off and loses its power after this time. The next start of the node
    /// starts them again.
    Shutdown(Duration),
}
