//! The root disk behind dm-verity: every block that is read is compared with the hash tree, whose root
//! stands on the measured command line.

use std::path::{Path, PathBuf};

use cloister_device_mapper::{DeviceMapper, DeviceMapperError, Target};
use cloister_guest_channel::ROOT_DISK_SERIAL;
use tracing::warn;

use super::command_line::RootPromise;
use crate::machine::disks::{self, DiskError};

/// Bytes of a block of the file system and of its hash tree; `images/lib/rootfs.sh` says the same.
pub(super) const BLOCK_BYTES: u64 = 4096;
const SECTORS_PER_BLOCK: u64 = BLOCK_BYTES / 512;
/// Of the hashes that the kernel has, the one that costs an emulated CPU the least; SHA-256 is quick
/// only where the CPU has instructions for it. `images/lib/rootfs.sh` says the same.
const HASH: &str = "blake2b-512";
const DEVICE_NAME: &str = "root";
/// The kernel's own choice is 128. A boot needs most pages of two programs of 50 MB, in no order, and without hardware
/// virtualisation a read costs much for itself, whatever its size; `scripts/check-guest-image.sh` says the same.
const READ_AHEAD_KIB: u32 = 2048;

/// Why there is no root disk to mount.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RootDiskError {
    #[error(transparent)]
    Missing(#[from] DiskError),
    #[error("it has {found} bytes, but the kernel command line promises more than {promised}")]
    TooSmall { found: u64, promised: u64 },
    #[error(transparent)]
    DeviceMapper(#[from] DeviceMapperError),
}

/// The device of verified blocks. A block that is not the one promised cannot be read: whoever asks for it
/// gets an I/O error, and the kernel says so on the console.
pub(super) fn verified(promise: &RootPromise) -> Result<PathBuf, RootDiskError> {
    let disk = disks::find(ROOT_DISK_SERIAL)?;
    let promised = promise.blocks.saturating_mul(BLOCK_BYTES);
    if disk.bytes <= promised {
        return Err(RootDiskError::TooSmall { found: disk.bytes, promised });
    }
    let device = DeviceMapper::open()?.create_read_only(DEVICE_NAME, &target(&disk.device, promise))?;
    // It only makes the guest quicker, so one where it fails starts nevertheless.
    if let Err(error) = disks::set_read_ahead(&device, READ_AHEAD_KIB) {
        warn!("the root disk is read in pieces of the kernel's choice, so the guest starts slowly: {error}");
    }
    Ok(device)
}

/// The target's words (kernel documentation, `device-mapper/verity`): the hash tree begins right after the
/// last block of the file system, without a header and without salt.
///
/// Blocks are verified whenever they are read, not only once: the disk is the host's, which can change
/// what it gives between two reads.
fn target(device: &Path, promise: &RootPromise) -> Target {
    let (device, blocks, root_hash) = (device.display(), promise.blocks, &promise.root_hash);
    Target {
        sectors: blocks.saturating_mul(SECTORS_PER_BLOCK),
        kind: "verity".to_owned(),
        parameters: format!(
            "1 {device} {device} {BLOCK_BYTES} {BLOCK_BYTES} {blocks} {blocks} {HASH} {root_hash} -"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_is_what_the_kernel_documents() {
        let promise = RootPromise { root_hash: "ab".repeat(64), blocks: 51_401 };
        let target = target(Path::new("/dev/vda"), &promise);
        assert_eq!((target.sectors, target.kind.as_str()), (411_208, "verity"));
        assert_eq!(
            target.parameters,
            format!("1 /dev/vda /dev/vda 4096 4096 51401 51401 blake2b-512 {} -", "ab".repeat(64))
        );
    }
}
