//! What a guest tells about its machine.

use serde::{Deserialize, Serialize};

use crate::text;

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
