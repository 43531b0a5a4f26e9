//! The disk that keeps a CVM's data over restarts.

mod encrypted;

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use cloister_guest_channel::DATA_DISK_SERIAL;
use rustix::fs::syncfs;
use rustix::mount::{MountFlags, mount};
use tokio::process::Command;
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use crate::machine::DATA;
use crate::machine::disks::{self, Disk, DiskError};
use crate::machine::superblock::{Contents, HEAD_BYTES};
use crate::output::{self, CommandError};

pub(crate) use encrypted::{DiskKeys, EncryptedDisk, Opened};

/// A file system is grown when the disk is larger by this much; less is what formatting leaves over.
const GROW_FROM_BYTES: u64 = 64 << 20;
/// The engine does not flush what it writes, and the power can go at any moment. Without delayed allocation
/// the contents of a file are never younger than its name, so that what is found after a power cut is a
/// state that existed.
const OPTIONS: &CStr = c"nodelalloc,data=ordered";
/// Directories that the agent and the engine keep their data in.
const DIRECTORIES: [&str; 4] = ["app", "containers/networks", "containers/storage", TEMPORARY];
/// What the engine downloads; a power cut in the middle of it leaves rubbish.
const TEMPORARY: &str = "containers/tmp";

/// Why there is no data disk to work with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DataDiskError {
    #[error("no data disk")]
    Disk(#[from] DiskError),
    #[error("cannot read the data disk")]
    Read(#[source] io::Error),
    #[error("the data disk holds something else than this system's data; it was left untouched")]
    Foreign,
    #[error("cannot format the data disk")]
    Format(#[source] CommandError),
    #[error("the data disk is damaged beyond automatic repair")]
    Repair(#[source] CommandError),
    #[error("cannot mount the data disk")]
    Mount(#[source] io::Error),
    #[error("cannot grow the file system of the data disk")]
    Grow(#[source] CommandError),
    #[error("cannot make directories on the data disk")]
    Directories(#[source] io::Error),
}

/// Brings the data disk to its mount point: formats a blank one, repairs a damaged one, grows a file
/// system that its disk has outgrown.
pub(crate) async fn prepare() -> Result<(), DataDiskError> {
    let disk = disks::find(DATA_DISK_SERIAL)?;
    let size = match contents(&disk).map_err(DataDiskError::Read)? {
        Contents::Unknown => return Err(DataDiskError::Foreign),
        Contents::Blank => {
            info!("formatting the data disk");
            format(&disk).await?;
            disk.bytes
        }
        Contents::Ext4 { bytes, has_errors } => {
            if has_errors {
                repair(&disk).await?;
            }
            bytes
        }
    };
    // Containers bring set-user-id programs and device nodes of their own, so both stay allowed here.
    mount(&disk.device, DATA, "ext4", MountFlags::NOATIME, OPTIONS)
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

/// Writes everything that is still in memory to the data disk.
pub(crate) async fn flush() {
    let flushed = spawn_blocking(|| Ok(syncfs(File::open(DATA)?)?)).await;
    if let Ok(Err(error)) = flushed.map(|result: io::Result<()>| result) {
        warn!("cannot flush the data disk: {error}");
    }
}

fn contents(disk: &Disk) -> io::Result<Contents> {
    let mut head = [0; HEAD_BYTES];
    File::open(&disk.device)?.read_exact(&mut head)?;
    Ok(Contents::of(&head))
}

/// Inode tables and journal are left to be zeroed later: a blank disk reads as zeros anyway.
async fn format(disk: &Disk) -> Result<(), DataDiskError> {
    let mut format = Command::new("mkfs.ext4");
    format.args(["-F", "-q", "-m", "1", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard"]);
    output::check(format.arg(&disk.device)).await.map_err(DataDiskError::Format)
}

async fn repair(disk: &Disk) -> Result<(), DataDiskError> {
    info!("repairing the data disk");
    let mut repair = Command::new("e2fsck");
    match output::check(repair.arg("-p").arg(&disk.device)).await {
        // Exit status 1: errors were found and corrected.
        Err(CommandError::Failed { status, .. }) if status.code() == Some(1) => Ok(()),
        other => other.map_err(DataDiskError::Repair),
    }
}
