//! The encrypted data disk: LUKS2, whose header is checked strictly and used from memory.

use super::DataDiskError;
use crate::machine::identity::InstanceSeed;

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
    seed: InstanceSeed,
}

impl EncryptedDisk {
    /// Finds the disk and reads its header; nothing is written. A blank disk gets a new seed.
    pub(crate) async fn find() -> Result<Self, DataDiskError> {
        Err(DataDiskError::Foreign)
    }

    /// What the identity of this CVM is derived from; the host knows it and could have changed it, but then
    /// the keys of that identity do not open the disk.
    pub(crate) fn seed(&self) -> InstanceSeed {
        self.seed
    }

    /// Opens the disk, or makes it if it is blank, and mounts it where [`super::prepare`] does.
    pub(crate) async fn open(self, _keys: DiskKeys<'_>) -> Result<Opened, DataDiskError> {
        Err(DataDiskError::Foreign)
    }
}
