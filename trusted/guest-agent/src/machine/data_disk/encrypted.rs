//! The encrypted data disk: LUKS2, whose header is checked strictly and used from memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use cloister_guest_channel::DATA_DISK_SERIAL;
use cloister_luks_header::{DiskHead, HEADER_BYTES, Header, HeaderError, PAYLOAD_OFFSET};
use tokio::task::spawn_blocking;
use tracing::info;

use super::luks::{DEVICE, Scratch};
use super::{DataDiskError, contents, file_system, head};
use crate::machine::RUNTIME;
use crate::machine::disks::{self, Disk};
use crate::machine::identity::InstanceSeed;
use crate::machine::superblock::Contents;

/// Keys that may open the disk, 32 bytes each.
#[derive(Clone, Copy)]
pub(crate) struct DiskKeys<'a> {
    /// The disk is under this one when [`EncryptedDisk::open`] succeeds.
    pub(crate) current: &'a [u8; 32],
    /// Keys that it may have been under before, tried in this order.
    pub(crate) former: &'a [[u8; 32]],
}

/// How the disk came to be open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opened {
    /// It was blank and is new.
    Created,
    /// It was under the current key.
    AsItWas,
    /// It was under the former key with this index and is now under the current one.
    Resealed(usize),
}

/// A data disk that is encrypted, or blank and will be; not yet open.
#[derive(Debug)]
pub(crate) struct EncryptedDisk {
    disk: Disk,
    seed: InstanceSeed,
    /// What the disk began with when it was found.
    head: Vec<u8>,
    /// Of a disk that is not blank.
    header: Option<Box<Header>>,
}

impl EncryptedDisk {
    /// Finds the disk and reads its header; nothing is written. A blank disk gets a new seed.
    pub(crate) async fn find() -> Result<Self, DataDiskError> {
        Self::on(disks::find(DATA_DISK_SERIAL)?).await
    }

    pub(super) async fn on(disk: Disk) -> Result<Self, DataDiskError> {
        let (disk, head) = off_thread(DataDiskError::Read, move || {
            let head = head::<HEADER_BYTES>(&disk)?;
            Ok((disk, head))
        })
        .await?;
        let header = match cloister_luks_header::survey(&head) {
            Ok(DiskHead::Header(header)) => Some(header),
            Ok(DiskHead::Blank) => None,
            Err(HeaderError::Foreign) if is_plain(&head) => return Err(DataDiskError::NotEncrypted),
            Err(HeaderError::Foreign) => return Err(DataDiskError::Foreign),
            Err(error) => return Err(DataDiskError::Header(error)),
        };
        let seed = match &header {
            Some(header) => InstanceSeed(header.seed()),
            None => InstanceSeed::random().map_err(DataDiskError::Seed)?,
        };
        Ok(Self { disk, seed, head, header })
    }

    /// What the identity of this CVM is derived from; the host knows it and could have changed it, but then
    /// the keys of that identity do not open the disk.
    pub(crate) fn seed(&self) -> InstanceSeed {
        self.seed
    }

    /// Opens the disk, or makes it if it is blank, and mounts it where [`super::prepare`] does.
    pub(crate) async fn open(self, keys: DiskKeys<'_>) -> Result<Opened, DataDiskError> {
        match self.header {
            None => self.create(keys.current).await,
            Some(_) => self.unlock(keys).await,
        }
    }

    /// The header reaches the disk last: a disk with a header has a file system, and one whose formatting was
    /// interrupted is still blank.
    async fn create(self, key: &[u8; 32]) -> Result<Opened, DataDiskError> {
        info!("encrypting and formatting the data disk");
        let scratch = Scratch::new(Path::new(RUNTIME), None).map_err(DataDiskError::Scratch)?;
        scratch.format(&self.disk, &self.seed.0, key).await?;
        let header = scratch.header()?;
        if !scratch.open(&self.disk, key).await? {
            return Err(DataDiskError::WrongKey);
        }
        let opened = self.opened();
        file_system::format(&opened).await?;
        self.write(*header).await?;
        file_system::mount(&opened, opened.bytes).await?;
        Ok(Opened::Created)
    }

    async fn unlock(mut self, keys: DiskKeys<'_>) -> Result<Opened, DataDiskError> {
        let mut header = self.header.take().ok_or(DataDiskError::Foreign)?;
        let scratch = Scratch::new(Path::new(RUNTIME), Some(&header)).map_err(DataDiskError::Scratch)?;
        let mut how = Opened::AsItWas;
        if !scratch.open(&self.disk, keys.current).await? {
            how = Opened::Resealed(reseal(&scratch, keys).await?);
            header = scratch.header()?;
            // Before the former key's way is wiped, the current one must have worked.
            if !scratch.open(&self.disk, keys.current).await? {
                return Err(DataDiskError::WrongKey);
            }
        }
        let opened = self.opened();
        self.write(*header).await?;
        let Contents::Ext4 { bytes, has_errors } = contents(&opened).map_err(DataDiskError::Read)? else {
            return Err(DataDiskError::NoFileSystem);
        };
        if has_errors {
            file_system::repair(&opened).await?;
        }
        file_system::mount(&opened, bytes).await?;
        Ok(how)
    }

    fn opened(&self) -> Disk {
        Disk { device: PathBuf::from(DEVICE), bytes: self.disk.bytes.saturating_sub(PAYLOAD_OFFSET) }
    }

    /// Puts the header onto the disk, if it is not there as it is.
    async fn write(self, header: Header) -> Result<(), DataDiskError> {
        off_thread(DataDiskError::WriteHeader, move || {
            let writes = header.writes_onto(&self.head);
            if writes.is_empty() {
                return Ok(());
            }
            let device = File::options().write(true).open(&self.disk.device)?;
            writes.into_iter().try_for_each(|write| {
                device.write_all_at(&write.bytes, write.offset as u64)?;
                device.sync_data()
            })
        })
        .await
    }
}

/// Which of the former keys the header was under; it is under the current one afterwards.
pub(super) async fn reseal(scratch: &Scratch, keys: DiskKeys<'_>) -> Result<usize, DataDiskError> {
    for (index, former) in keys.former.iter().enumerate() {
        if scratch.change_key(former, keys.current).await? {
            info!("the data disk was under a former key");
            return Ok(index);
        }
    }
    Err(DataDiskError::WrongKey)
}

fn is_plain(head: &[u8]) -> bool {
    head.first_chunk().is_some_and(|head| matches!(Contents::of(head), Contents::Ext4 { .. }))
}

async fn off_thread<T: Send + 'static>(
    failure: fn(io::Error) -> DataDiskError,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, DataDiskError> {
    spawn_blocking(work).await.map_err(io::Error::from).and_then(|result| result).map_err(failure)
}
