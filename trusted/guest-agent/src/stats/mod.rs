//! What the guest tells about its machine: to the node as JSON, to everybody as metrics where the application
//! allows it.

mod metrics;
mod parse;

use std::fs;
use std::io;

use cloister_node_api::{GuestDisk, GuestStats};
use rustix::fs::statvfs;
use rustix::system::uname;
use tokio::task::spawn_blocking;

use crate::machine::cpus::Cpus;
use crate::machine::{DATA, clock};

pub(crate) use metrics::exposition;

/// File systems of interest: the image, and what the CVM keeps.
const MOUNT_POINTS: [&str; 2] = ["/", DATA];

/// The machine as it is now.
pub(crate) async fn gather() -> io::Result<GuestStats> {
    spawn_blocking(read).await?
}

fn read() -> io::Result<GuestStats> {
    let (os_name, os_version) = parse::os_release(&fs::read_to_string("/etc/os-release").unwrap_or_default());
    let cpu = Cpus::parse(&fs::read_to_string("/proc/cpuinfo")?);
    let memory = parse::memory(&fs::read_to_string("/proc/meminfo")?);
    let [loadavg_one, loadavg_five, loadavg_fifteen] =
        parse::load_averages(&fs::read_to_string("/proc/loadavg")?);
    let mounts = fs::read_to_string("/proc/mounts")?;
    Ok(GuestStats {
        os_name,
        os_version,
        kernel_version: uname().release().to_string_lossy().into_owned(),
        cpu_model: cpu.model,
        num_cpus: cpu.count,
        total_memory: memory.total,
        available_memory: memory.available,
        used_memory: memory.total.saturating_sub(memory.available),
        free_memory: memory.free,
        total_swap: memory.swap_total,
        used_swap: memory.swap_total.saturating_sub(memory.swap_free),
        free_swap: memory.swap_free,
        uptime: clock::uptime_ms() / 1000,
        loadavg_one,
        loadavg_five,
        loadavg_fifteen,
        disks: MOUNT_POINTS.iter().filter_map(|mount_point| disk(&mounts, mount_point)).collect(),
    })
}

/// The file system that is mounted there, if one is: before its keys are there, the data disk is not.
fn disk(mounts: &str, mount_point: &str) -> Option<GuestDisk> {
    let name = parse::device_at(mounts, mount_point)?.to_owned();
    let sizes = statvfs(mount_point).ok()?;
    Some(GuestDisk {
        name,
        mount_point: mount_point.to_owned(),
        total_size: sizes.f_blocks.saturating_mul(sizes.f_frsize),
        free_size: sizes.f_bavail.saturating_mul(sizes.f_frsize),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn this_machine_has_something_to_tell() {
        let stats = gather().await.unwrap();
        assert!(stats.num_cpus > 0 && !stats.kernel_version.is_empty());
        assert!((1..=stats.total_memory).contains(&stats.available_memory), "{stats:?}");
        assert!(stats.disks.iter().any(|disk| disk.mount_point == "/" && disk.total_size > 0), "{stats:?}");
        let told = serde_json::to_value(&stats).unwrap();
        assert_eq!(serde_json::from_value::<GuestStats>(told).unwrap(), stats);
    }
}
