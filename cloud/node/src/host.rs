//! What the host has, and what of it is given to VMs.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use cloister_node_api::NodeCapacity;
use uuid::Uuid;

use crate::config::Limits;
use crate::error::VmError;

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
    let disk =
        rustix::fs::statvfs(data_dir).map_err(io::Error::from).map_err(VmError::storage("see the disk"))?;
    if disk.f_bavail * disk.f_frsize < DISK_RESERVE_BYTES {
        let source = io::Error::from(io::ErrorKind::StorageFull);
        return Err(VmError::Storage { what: "use the disk", source });
    }
    Ok(())
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

/// Memory and slots that running VMs hold. CPUs may be promised several times, memory may not.
#[derive(Debug)]
pub(crate) struct Budget {
    capacity: NodeCapacity,
    held_mb: Mutex<HashMap<Uuid, u32>>,
}

/// A VM's share of the host; given back when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    vm: Uuid,
}

impl Budget {
    pub(crate) fn new(capacity: NodeCapacity) -> Arc<Self> {
        Arc::new(Self { capacity, held_mb: Mutex::default() })
    }

    pub(crate) fn capacity(&self) -> NodeCapacity {
        self.capacity
    }

    /// A share for a VM that is to start.
    pub(crate) fn reserve(self: &Arc<Self>, vm: Uuid, memory_mb: u32) -> Result<Share, VmError> {
        let mut held = self.held_mb.lock().unwrap_or_else(PoisonError::into_inner);
        let others = held.iter().filter(|(id, _)| **id != vm);
        let (slots, held_mb) = others.fold((0, 0), |(count, sum), (_, mb)| (count + 1, sum + u64::from(*mb)));
        if slots >= u64::from(self.capacity.cvm_slots) {
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
        held.insert(vm, memory_mb);
        Ok(Share { budget: Arc::clone(self), vm })
    }

    /// The share of a VM that runs already, whatever else there is.
    pub(crate) fn acknowledge(self: &Arc<Self>, vm: Uuid, memory_mb: u32) -> Share {
        self.held_mb.lock().unwrap_or_else(PoisonError::into_inner).insert(vm, memory_mb);
        Share { budget: Arc::clone(self), vm }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.held_mb.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.vm);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_slots_are_never_promised_twice() {
        let budget = Budget::new(NodeCapacity { cvm_slots: 2, vcpu: 8, memory_mb: 3000, disk_gb: 10 });
        let [a, b, c] = [1, 2, 3].map(Uuid::from_u128);
        let share = budget.reserve(a, 2000).unwrap();
        assert!(matches!(budget.reserve(b, 1001), Err(VmError::OutOfResources(_))));
        let _b = budget.reserve(b, 1000).unwrap();
        assert!(matches!(budget.reserve(c, 0), Err(VmError::OutOfResources(_))));
        drop(share);
        assert!(budget.reserve(c, 2000).is_ok());
    }

    #[test]
    fn the_host_has_something_to_offer() {
        let capacity = capacity(&Limits::default(), Path::new("/")).unwrap();
        assert!(capacity.vcpu >= 1 && capacity.memory_mb > 0 && capacity.disk_gb > 0, "{capacity:?}");
    }
}
