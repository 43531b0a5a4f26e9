//! The file system on a data disk or on the device that decrypts one.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::path::Path;

use rustix::mount::{self, MountFlags};
use tokio::process::Command;
use tracing::info;

use super::DataDiskError;
use crate::machine::DATA;
use crate::machine::disks::Disk;
use crate::output::{self, CommandError};

/// A file system is grown when the disk is larger by this much; less is what formatting leaves over.
const GROW_FROM_BYTES: u64 = 64 << 20;
/// The engine does not flush what it writes, and the power can go at any moment. Without delayed allocation
/// the contents of a file are never younger than its name, so that what is found after a power cut is a
/// state that existed.
///
/// The kernel zeroes inode tables, a sixtieth of a disk, in the background, and encrypts what it writes: for minutes after the
/// first boot. After each group it waits a hundred times as long as the group took (ten times by default), and so ends
/// later, but takes little of a processor.
const OPTIONS: &CStr = c"nodelalloc,data=ordered,init_itable=100";
/// Directories that the agent and the engine keep their data in.
const DIRECTORIES: [&str; 4] = ["app", "containers/networks", "containers/storage", TEMPORARY];
/// What the engine downloads; a power cut in the middle of it leaves rubbish.
const TEMPORARY: &str = "containers/tmp";

/// Inode tables and journal are left to be zeroed later: the file system knows which of them it has never
/// written, and does not read those.
pub(super) async fn format(disk: &Disk) -> Result<(), DataDiskError> {
    let mut format = Command::new("mkfs.ext4");
    format.args(["-F", "-q", "-m", "1", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard"]);
    output::check(format.arg(&disk.device)).await.map_err(DataDiskError::Format)
}

pub(super) async fn repair(disk: &Disk) -> Result<(), DataDiskError> {
    info!("repairing the data disk");
    let mut repair = Command::new("e2fsck");
    match output::check(repair.arg("-p").arg(&disk.device)).await {
        // Exit status 1: errors were found and corrected.
        Err(CommandError::Failed { status, .. }) if status.code() == Some(1) => Ok(()),
        other => other.map_err(DataDiskError::Repair),
    }
}

/// Mounts a disk whose file system has `size` bytes, and grows that to the disk.
pub(super) async fn mount(disk: &Disk, size: u64) -> Result<(), DataDiskError> {
    // Containers bring set-user-id programs and device nodes of their own, so both stay allowed here.
    mount::mount(&disk.device, DATA, "ext4", MountFlags::NOATIME, OPTIONS)
        .map_err(|error| DataDiskError::Mount(error.into()))?;
    if disk.bytes.saturating_sub(size) >= GROW_FROM_BYTES {
        info!("growing the data disk from {size} to {} bytes", disk.bytes);
        let mut grow = Command::new("resize2fs");
        output::check(grow.arg(&disk.device)).await.map_err(DataDiskError::Grow)?;
    }
    make_directories(Path::new(DATA)).map_err(DataDiskError::Directories)
}

fn make_directories(data: &Path) -> io::Result<()> {
    match fs::remove_dir_all(data.join(TEMPORARY)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    DIRECTORIES.iter().try_for_each(|name| fs::create_dir_all(data.join(name)))
}
