//! What an operator lets CVMs have of a host besides processors, memory and disk.

use std::net::Ipv4Addr;
use std::str::FromStr;

use cloister_node::{Config, GpuConfidentialMode, PciAddress, PortRange};

/// Options of every command that runs a node.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct HostOptions {
    /// Ports of this machine that CVMs may have beside the ingress, such as 30000-32767; keep them apart
    /// from those of outgoing connections [default: none]
    #[arg(long, value_name = "FIRST-LAST")]
    port_range: Option<PortRange>,
    /// Address of this machine for these ports [default: all, and with `up` 127.0.0.1]
    #[arg(long, value_name = "ADDRESS", requires = "port_range")]
    port_address: Option<Ipv4Addr>,
    /// Confidential-computing mode that a GPU was set to: on, devtools or off; may be repeated
    #[arg(long = "gpu-mode", value_name = "SLOT=MODE")]
    gpu_modes: Vec<GpuMode>,
    /// Test devices in place of GPUs, for development on a machine without TEE hardware
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=8))]
    emulated_gpus: u8,
}

impl HostOptions {
    /// Puts the options into a node's configuration.
    pub(crate) fn apply(self, config: &mut Config) {
        config.port_range = self.port_range;
        config.port_address = self.port_address.unwrap_or(config.port_address);
        config.gpu_modes = self.gpu_modes.into_iter().map(|GpuMode(slot, mode)| (slot, mode)).collect();
        config.emulated_gpus = self.emulated_gpus;
    }
}

#[derive(Debug, Clone, Copy)]
struct GpuMode(PciAddress, GpuConfidentialMode);

impl FromStr for GpuMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (slot, mode) = text.split_once('=').ok_or("it looks like 0000:41:00.0=on")?;
        let slot = slot.parse().map_err(|error| format!("{error}"))?;
        let mode = match mode {
            "on" => GpuConfidentialMode::On,
            "devtools" => GpuConfidentialMode::Devtools,
            "off" => GpuConfidentialMode::Off,
            _ => return Err("a GPU's mode is on, devtools or off".to_owned()),
        };
        Ok(Self(slot, mode))
    }
}
