//! The GPUs of the host, as far as VMs can get them.
//!
//! A GPU is assignable when the host's operator bound it to the driver `vfio-pci`. Who has one is settled
//! where memory is settled ([`crate::host::Budget`]): with the process that uses it.

mod address;
mod products;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use cloister_node_api::{GpuConfidentialMode, NodeGpu};

pub use address::{InvalidPciAddress, PciAddress};

use crate::error::VmError;
use crate::vmm::GpuDevice;

/// Most GPUs that a node reports.
const MAX_GPUS: usize = 64;
/// Most emulated GPUs of a node.
pub(crate) const MAX_EMULATED: u8 = 8;
/// Driver of devices that the host keeps for VMs.
const VFIO_DRIVER: &str = "vfio-pci";
/// VGA and 3D controllers; display controllers and processing accelerators, as which AMD's Instinct GPUs
/// show.
const CLASSES: [u32; 4] = [0x0300, 0x0302, 0x0380, 0x1200];
/// What QEMU's test device shows as.
const EMULATED_PRODUCT: &str = "1b36:0005";
/// PCI domain that no host has: emulated GPUs are there.
const EMULATED_DOMAIN: u16 = 0xffff;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vendor {
    Nvidia,
    Amd,
}

impl Vendor {
    const fn of(id: u16) -> Option<Self> {
        match id {
            0x10de => Some(Self::Nvidia),
            0x1002 => Some(Self::Amd),
            _ => None,
        }
    }

    /// The mode of a GPU of which the operator said nothing. NVIDIA's is set inside the GPU, where only its
    /// own tools on the host read it; AMD's GPUs have none.
    const fn usual_mode(self) -> GpuConfidentialMode {
        match self {
            Self::Nvidia => GpuConfidentialMode::Unknown,
            Self::Amd => GpuConfidentialMode::Off,
        }
    }
}

/// The GPUs of this host.
#[derive(Debug)]
pub(crate) struct Gpus {
    devices: PathBuf,
    modes: BTreeMap<PciAddress, GpuConfidentialMode>,
    emulated: u8,
    known: RwLock<Vec<NodeGpu>>,
}

impl Gpus {
    /// The GPUs below `devices`, sysfs' directory of PCI devices, and `emulated` ones. `modes` is what the
    /// operator says about confidential computing, which the host cannot read.
    pub(crate) fn new(
        devices: PathBuf,
        modes: BTreeMap<PciAddress, GpuConfidentialMode>,
        emulated: u8,
    ) -> Self {
        Self { devices, modes, emulated: emulated.min(MAX_EMULATED), known: RwLock::default() }
    }

    /// Looks at the host anew and tells whether something is different. Reads a few small files.
    pub(crate) fn scan(&self) -> bool {
        let found = self.found();
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = *known != found;
        *known = found;
        is_new
    }

    /// The GPUs as they were at the last look, by address.
    pub(crate) fn known(&self) -> Vec<NodeGpu> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What a VM is given for the GPUs of its order, after a new look at the host.
    pub(crate) fn devices(&self, wanted: &[PciAddress]) -> Result<Vec<GpuDevice>, VmError> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        self.scan();
        let known = self.known();
        let device = |address: &PciAddress| {
            let slot = address.to_string();
            let gpu = known.iter().find(|gpu| gpu.slot == slot).ok_or_else(|| {
                VmError::Invalid(format!("the node has no GPU {slot}: choose one of those that it reports"))
            })?;
            if !gpu.assignable {
                return Err(VmError::OutOfResources(format!(
                    "the host keeps the GPU {slot} for itself: choose another, or ask the operator to bind it to {VFIO_DRIVER}"
                )));
            }
            let is_emulated = self.emulated().any(|emulated| emulated == *address);
            Ok(if is_emulated { GpuDevice::Emulated } else { GpuDevice::Host(*address) })
        };
        wanted.iter().map(device).collect()
    }

    fn emulated(&self) -> impl Iterator<Item = PciAddress> {
        (0..self.emulated).map(|index| PciAddress::of_device(EMULATED_DOMAIN, 0, index))
    }

    fn found(&self) -> Vec<NodeGpu> {
        // A host without PCI has no such directory.
        let entries = fs::read_dir(&self.devices).into_iter().flatten().flatten();
        let mut gpus: Vec<_> = entries.filter_map(|entry| self.read(&entry.path())).collect();
        gpus.extend(self.emulated().map(|address| NodeGpu {
            slot: address.to_string(),
            product_id: EMULATED_PRODUCT.to_owned(),
            product_name: "Emulated GPU (development)".to_owned(),
            confidential_computing: GpuConfidentialMode::Off,
            assignable: true,
        }));
        gpus.sort_by(|a, b| a.slot.cmp(&b.slot));
        gpus.truncate(MAX_GPUS);
        gpus
    }

    fn read(&self, device: &Path) -> Option<NodeGpu> {
        let address: PciAddress = device.file_name()?.to_str()?.parse().ok()?;
        // The lowest byte is the programming interface.
        let class = read_hex(&device.join("class"))? >> 8;
        let vendor_id = u16::try_from(read_hex(&device.join("vendor"))?).ok()?;
        let vendor = Vendor::of(vendor_id).filter(|_| CLASSES.contains(&class))?;
        let device_id = u16::try_from(read_hex(&device.join("device"))?).ok()?;
        let driver = fs::read_link(device.join("driver")).ok();
        Some(NodeGpu {
            slot: address.to_string(),
            product_id: format!("{vendor_id:04x}:{device_id:04x}"),
            product_name: products::name(vendor, device_id),
            confidential_computing: self.modes.get(&address).copied().unwrap_or(vendor.usual_mode()),
            assignable: driver.is_some_and(|driver| driver.ends_with(VFIO_DRIVER)),
        })
    }
}

/// Reads a file such as `0x10de`.
fn read_hex(file: &Path) -> Option<u32> {
    let text = fs::read_to_string(file).ok()?;
    u32::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
}
