//! Names of GPUs for people.

use super::Vendor;

/// PCI device id and name of what data centres have. What is not listed still works and is called by its
/// number.
const NVIDIA: [(u16, &str); 13] = [
    (0x20b0, "NVIDIA A100 SXM4 40GB"),
    (0x20b2, "NVIDIA A100 SXM4 80GB"),
    (0x20b5, "NVIDIA A100 PCIe 80GB"),
    (0x20f1, "NVIDIA A100 PCIe 40GB"),
    (0x2321, "NVIDIA H100 NVL"),
    (0x2330, "NVIDIA H100 SXM 80GB"),
    (0x2331, "NVIDIA H100 PCIe 80GB"),
    (0x2335, "NVIDIA H200 SXM 141GB"),
    (0x233b, "NVIDIA H200 NVL"),
    (0x26b5, "NVIDIA L40"),
    (0x26b9, "NVIDIA L40S"),
    (0x27b8, "NVIDIA L4"),
    (0x2901, "NVIDIA B200"),
];

const AMD: [(u16, &str); 5] = [
    (0x738c, "AMD Instinct MI100"),
    (0x740c, "AMD Instinct MI250X"),
    (0x740f, "AMD Instinct MI210"),
    (0x74a1, "AMD Instinct MI300X"),
    (0x74a5, "AMD Instinct MI325X"),
];

pub(super) fn name(vendor: Vendor, device: u16) -> String {
    let (table, maker) = match vendor {
        Vendor::Nvidia => (NVIDIA.as_slice(), "NVIDIA"),
        Vendor::Amd => (AMD.as_slice(), "AMD"),
    };
    let known = table.iter().find(|(id, _)| *id == device).map(|(_, name)| (*name).to_owned());
    known.unwrap_or_else(|| format!("{maker} GPU {device:04x}"))
}
