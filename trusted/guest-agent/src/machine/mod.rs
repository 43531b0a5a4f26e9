//! The virtual machine as the agent finds it and sets it up.

pub(crate) mod clock;
pub(crate) mod configuration;
pub(crate) mod cpus;
pub(crate) mod data_disk;
pub(crate) mod disks;
pub(crate) mod emulation;
pub(crate) mod identity;
pub(crate) mod network;
pub(crate) mod power_button;
pub(crate) mod power_mark;
mod superblock;

use std::path::Path;

/// Where the data disk is mounted.
pub(crate) const DATA: &str = "/data";
/// What the agent writes for other programs, new on every boot.
pub(crate) const RUNTIME: &str = "/run/cloister";

/// The kernel's identifier of this boot, or none where the kernel keeps none.
pub(crate) fn boot_id() -> uuid::Uuid {
    let text = std::fs::read_to_string(Path::new("/proc/sys/kernel/random/boot_id"));
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or_default()
}
