//! What the host has, and what of it is given to VMs.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use cloister_node_api::NodeCapacity;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::config::Limits;
use crate::error::VmError;
use crate::gpus::PciAddress;

/// Disk that stays free for the node itself, in bytes: without it no VM is prepared or started.
const DISK_RESERVE_BYTES: u64 = 512 << 20;

/// What this host offers to VMs under the operator's limits.
pub(crate) fn capacity(limits: &Limits, data_dir: &Path) -> io::Result<NodeCapacity> {
    let cores = u32::try_from(std::thread::available_parallelism()?.get()).unwrap_or(u32::MAX);
    let memory_mb = memory_total_mb()?.saturating_sub(limits.memory_reserve_mb);
    let disk = rustix::fs::statvfs(data_dir)?;
    let disk_gb = u32::try_from((disk.f_blocks * disk.f_frsize) >> 30).unwrap_or(u32::MAX);
    Ok(NodeCapacity {
        cvm_slots: limits.cvm_slots,
        vcpu: percent(cores, limits.cpu_percent),
        memory_mb,
        disk_gb: percent(disk_gb, limits.disk_percent),
    })
}

/// Refuses when the disk of `data_dir` is nearly full.
pub(crate) fn require_free_disk(data_dir: &Path) -> Result<(), VmError> {
    if !has_free_disk(data_dir).map_err(VmError::storage("see the disk"))? {
        let source = io::Error::from(io::ErrorKind::StorageFull);
        return Err(VmError::Storage { what: "use the disk", source });
    }
    Ok(())
}

/// Whether the disk of a directory has more left than the node itself needs.
pub(crate) fn has_free_disk(dir: &Path) -> io::Result<bool> {
    let disk = rustix::fs::statvfs(dir)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize) >= DISK_RESERVE_BYTES)
}

fn percent(value: u32, percent: u32) -> u32 {
    u32::try_from(u64::from(value) * u64::from(percent) / 100).unwrap_or(u32::MAX)
}

fn memory_total_mb() -> io::Result<u32> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let kilobytes = text.lines().find_map(|line| {
        line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    let megabytes = kilobytes.ok_or(io::ErrorKind::InvalidData)? / 1024;
    Ok(u32::try_from(megabytes).unwrap_or(u32::MAX))
}

/// What a running VM has to itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Need {
    /// Memory in MiB.
    pub(crate) memory_mb: u32,
    pub(crate) gpus: Vec<PciAddress>,
}

/// Memory, GPUs and slots that running VMs hold. CPUs may be promised several times, these may not.
#[derive(Debug)]
pub(crate) struct Budget {
    capacity: NodeCapacity,
    held: Mutex<HashMap<Uuid, Need>>,
}

/// A VM's share of the host; given back when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    vm: Uuid,
}

impl Budget {
    pub(crate) fn new(capacity: NodeCapacity) -> Arc<Self> {
        Arc::new(Self { capacity, held: Mutex::default() })
    }

    pub(crate) fn capacity(&self) -> NodeCapacity {
        self.capacity
    }

    /// A share for a VM that is to start.
    pub(crate) fn reserve(self: &Arc<Self>, vm: Uuid, need: Need) -> Result<Share, VmError> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let others: Vec<_> = held.iter().filter(|(id, _)| **id != vm).map(|(_, need)| need).collect();
        let (slots, memory_mb) = (others.len(), need.memory_mb);
        let held_mb: u64 = others.iter().map(|need| u64::from(need.memory_mb)).sum();
        if slots as u64 >= u64::from(self.capacity.cvm_slots) {
            return Err(VmError::OutOfResources(format!(
                "the node runs {slots} CVMs, as many as it may: choose another node"
            )));
        }
        if held_mb + u64::from(memory_mb) > u64::from(self.capacity.memory_mb) {
            let free = u64::from(self.capacity.memory_mb).saturating_sub(held_mb);
            return Err(VmError::OutOfResources(format!(
                "the node has {free} MiB of memory left, the CVM needs {memory_mb}: choose another node or a smaller size"
            )));
        }
        let is_held = |gpu: &&PciAddress| others.iter().any(|other| other.gpus.contains(gpu));
        if let Some(gpu) = need.gpus.iter().find(is_held) {
            return Err(VmError::OutOfResources(format!(
                "the GPU {gpu} is used by another CVM: stop that one, or choose another GPU"
            )));
        }
        held.insert(vm, need);
        Ok(Share { budget: Arc::clone(self), vm })
    }

    /// The share of a VM that runs already, whatever else there is.
    pub(crate) fn acknowledge(self: &Arc<Self>, vm: Uuid, need: Need) -> Share {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).insert(vm, need);
        Share { budget: Arc::clone(self), vm }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.held.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.vm);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_slots_are_never_promised_twice() {
        let budget = Budget::new(NodeCapacity { cvm_slots: 2, vcpu: 8, memory_mb: 3000, disk_gb: 10 });
        let [a, b, c] = [1, 2, 3].map(Uuid::from_u128);
        let reserve = |vm, memory_mb| budget.reserve(vm, Need { memory_mb, gpus: Vec::new() });
        let share = reserve(a, 2000).unwrap();
        assert!(matches!(reserve(b, 1001), Err(VmError::OutOfResources(_))));
        let _b = reserve(b, 1000).unwrap();
        assert!(matches!(reserve(c, 0), Err(VmError::OutOfResources(_))));
        drop(share);
        assert!(reserve(c, 2000).is_ok());
    }

    #[test]
    fn a_gpu_is_in_one_vm() {
        let budget = Budget::new(NodeCapacity { cvm_slots: 9, vcpu: 8, memory_mb: 3000, disk_gb: 10 });
        let need = |slot: &str| Need { memory_mb: 1, gpus: vec![slot.parse().unwrap()] };
        let [a, b] = [1, 2].map(Uuid::from_u128);
        let adopted = budget.acknowledge(a, need("0000:41:00.0"));
        assert!(matches!(budget.reserve(b, need("0000:41:00.0")), Err(VmError::OutOfResources(_))));
        let _b = budget.reserve(b, need("0000:42:00.0")).unwrap();
        drop(adopted);
        assert!(budget.reserve(b, need("0000:41:00.0")).is_ok());
    }

    #[test]
    fn the_host_has_something_to_offer() {
        let capacity = capacity(&Limits::default(), Path::new("/")).unwrap();
        assert!(capacity.vcpu >= 1 && capacity.memory_mb > 0 && capacity.disk_gb > 0, "{capacity:?}");
    }
}
