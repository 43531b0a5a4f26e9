//! What the first sectors of a data disk say about it.

/// Bytes that [`Contents::of`] needs: the boot sector and the superblock behind it.
pub(super) const HEAD_BYTES: usize = 2048;

const SUPERBLOCK: usize = 1024;
const MAGIC: u16 = 0xEF53;
const STATE_HAS_ERRORS: u16 = 0x0002;
const FEATURE_64BIT: u32 = 0x80;
/// ext4 knows block sizes from 1 KiB to 64 KiB, told as powers of two from 1 KiB.
const MAX_LOG_BLOCK_SIZE: u32 = 6;

/// What is on a data disk.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// Nothing yet: a fresh disk, or one whose formatting was interrupted, as the superblock comes last.
    Blank,
    /// An ext4 file system.
    Ext4 {
        /// Size of the file system in bytes.
        bytes: u64,
        /// The kernel found errors in it.
        has_errors: bool,
    },
    /// Something that is not ours to overwrite.
    Unknown,
}

impl Contents {
    /// Reads the head of a disk; see `Documentation/filesystems/ext4/super.rst` of Linux for the offsets.
    pub(super) fn of(head: &[u8; HEAD_BYTES]) -> Self {
        if head.iter().all(|byte| *byte == 0) {
            return Self::Blank;
        }
        Self::ext4(head).unwrap_or(Self::Unknown)
    }

    fn ext4(head: &[u8; HEAD_BYTES]) -> Option<Self> {
        if u16::from_le_bytes(field(head, 0x38)?) != MAGIC {
            return None;
        }
        let log_block_size = u32::from_le_bytes(field(head, 0x18)?);
        if log_block_size > MAX_LOG_BLOCK_SIZE {
            return None;
        }
        let low = u32::from_le_bytes(field(head, 0x04)?);
        let has_high = u32::from_le_bytes(field(head, 0x60)?) & FEATURE_64BIT != 0;
        let high = if has_high { u32::from_le_bytes(field(head, 0x150)?) } else { 0 };
        let blocks = u64::from(high) << 32 | u64::from(low);
        let bytes = blocks.checked_mul(1024 << log_block_size)?;
        let has_errors = u16::from_le_bytes(field(head, 0x3A)?) & STATE_HAS_ERRORS != 0;
        Some(Self::Ext4 { bytes, has_errors })
    }
}

fn field<const N: usize>(head: &[u8; HEAD_BYTES], offset: usize) -> Option<[u8; N]> {
    head.get(SUPERBLOCK + offset..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn head(fields: &[(usize, &[u8])]) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        for (offset, bytes) in fields {
            head[SUPERBLOCK + offset..][..bytes.len()].copy_from_slice(bytes);
        }
        head
    }

    #[test]
    fn tells_blank_ours_and_foreign_apart() {
        assert_eq!(Contents::of(&[0; HEAD_BYTES]), Contents::Blank);
        let magic = (0x38, [0x53, 0xEF].as_slice());
        let size = (0x04, [0, 0, 0x50, 0].as_slice());
        let log = (0x18, [2].as_slice());
        assert_eq!(
            Contents::of(&head(&[magic, size, log])),
            Contents::Ext4 { bytes: 20 << 30, has_errors: false }
        );
        let high = [(0x60, [0x80].as_slice()), (0x150, [1].as_slice()), (0x3A, [2].as_slice())];
        assert_eq!(
            Contents::of(&head(&[magic, size, log, high[0], high[1], high[2]])),
            Contents::Ext4 { bytes: (20 << 30) + (1 << 44), has_errors: true }
        );
        assert_eq!(Contents::of(&head(&[(0, b"LUKS")])), Contents::Unknown);
        assert_eq!(Contents::of(&head(&[magic, (0x18, &[7])])), Contents::Unknown);
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), HEAD_BYTES)) {
            let mut head: [u8; HEAD_BYTES] = bytes.try_into().unwrap();
            let _ = Contents::of(&head);
            head[SUPERBLOCK + 0x38..][..2].copy_from_slice(&MAGIC.to_le_bytes());
            let _ = Contents::of(&head);
        }
    }
}
