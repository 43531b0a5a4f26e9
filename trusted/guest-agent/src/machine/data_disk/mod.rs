//! The disk that keeps a CVM's data over restarts.
//!
//! An application whose keys come from a key provider has an [`EncryptedDisk`]; others have a plain one
//! ([`prepare`]). Neither is ever taken for the other.

mod encrypted;
mod file_system;
mod luks;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read as _};

use cloister_guest_channel::DATA_DISK_SERIAL;
use cloister_luks_header::{DiskHead, HEADER_BYTES, HeaderError};
use rustix::fs::syncfs;
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use crate::machine::DATA;
use crate::machine::disks::{self, Disk, DiskError};
use crate::machine::superblock::{Contents, HEAD_BYTES};
use crate::output::CommandError;

pub(crate) use encrypted::{DiskKeys, EncryptedDisk, Opened};

/// Why there is no data disk to work with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DataDiskError {
    #[error("no data disk")]
    Disk(#[from] DiskError),
    #[error("cannot read the data disk")]
    Read(#[source] io::Error),
    #[error("the data disk holds something else than this system's data; it was left untouched")]
    Foreign,
    #[error("the data disk is not encrypted, as this application's must be; it was left untouched")]
    NotEncrypted,
    #[error("the data disk is encrypted, but this application has no keys for it; it was left untouched")]
    Encrypted,
    #[error("the data disk cannot be trusted; it was left untouched")]
    Header(#[source] HeaderError),
    #[error("the data disk belongs to another application or instance: the keys of this one do not open it")]
    WrongKey,
    #[error("cannot make the seed of the instance id")]
    Seed(#[source] io::Error),
    #[error("cannot keep the header of the data disk in memory")]
    Scratch(#[source] io::Error),
    #[error("cannot encrypt the data disk")]
    Encrypt(#[source] CommandError),
    #[error("cannot open the data disk")]
    Open(#[source] CommandError),
    #[error("cannot write the header of the data disk")]
    WriteHeader(#[source] io::Error),
    #[error("the data disk opens, but holds no file system; it was left as it is")]
    NoFileSystem,
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

/// Brings a data disk that is not encrypted to its mount point: formats a blank one, repairs a damaged one,
/// grows a file system that its disk has outgrown.
pub(crate) async fn prepare() -> Result<(), DataDiskError> {
    let disk = disks::find(DATA_DISK_SERIAL)?;
    match contents(&disk).map_err(DataDiskError::Read)? {
        Contents::Unknown => Err(what_else(&disk)),
        Contents::Blank => {
            info!("formatting the data disk");
            file_system::format(&disk).await?;
            file_system::mount(&disk, disk.bytes).await
        }
        Contents::Ext4 { bytes, has_errors } => {
            if has_errors {
                file_system::repair(&disk).await?;
            }
            file_system::mount(&disk, bytes).await
        }
    }
}

/// Writes everything that is still in memory to the data disk.
pub(crate) async fn flush() {
    let flushed = spawn_blocking(|| Ok(syncfs(File::open(DATA)?)?)).await;
    if let Ok(Err(error)) = flushed.map(|result: io::Result<()>| result) {
        warn!("cannot flush the data disk: {error}");
    }
}

/// Why a disk without a plain file system is refused.
fn what_else(disk: &Disk) -> DataDiskError {
    match head::<HEADER_BYTES>(disk).map(|head| cloister_luks_header::survey(&head)) {
        Ok(Ok(DiskHead::Header(_)) | Err(HeaderError::NotOurs(_) | HeaderError::Damaged)) => {
            DataDiskError::Encrypted
        }
        _ => DataDiskError::Foreign,
    }
}

fn contents(disk: &Disk) -> io::Result<Contents> {
    Ok(head::<HEAD_BYTES>(disk)?.first_chunk().map_or(Contents::Unknown, Contents::of))
}

fn head<const BYTES: usize>(disk: &Disk) -> io::Result<Vec<u8>> {
    let mut head = vec![0; BYTES];
    File::open(&disk.device)?.read_exact(&mut head)?;
    Ok(head)
}
