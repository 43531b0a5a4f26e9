//! The LUKS2 header of an encrypted data disk.
//!
//! A disk is the host's: whatever its header says, the host may have written it. LUKS2 leaves a header many
//! freedoms that an attacker would use, such as a key slot or a segment without a cipher, a token, or a
//! pending re-encryption. So this crate accepts exactly the header that [`cryptsetup::format`] makes, down to the
//! bytes of its JSON, in which only salts, the digest, and the place of the one key slot vary. From what it
//! accepted it writes a new header ([`Header::image`]) for cryptsetup to work on in memory, so that nothing is
//! used that was not checked, and nothing can change in between.
//!
//! Layout (LUKS2 On-Disk Format Specification 1.1.2): two copies of 16 KiB, each a binary part and JSON; two
//! areas for key slots, of which one is in use; nothing up to [`PAYLOAD_OFFSET`]; the payload.
//!
//! The label holds what the instance id is derived from. The host can read and change it: with a changed one
//! the guest is another instance, whose key does not open the disk.

pub mod cryptsetup;

mod binary;
mod metadata;
mod write;

#[cfg(test)]
mod tests;

use binary::{Binary, Copy};
use metadata::Metadata;
pub use write::Write;

/// Bytes at the beginning of the disk that [`survey`] reads: both copies and both key areas.
pub const HEADER_BYTES: usize = 2 * COPY_BYTES + 2 * KEY_AREA_BYTES;
/// Where the payload begins, in bytes.
pub const PAYLOAD_OFFSET: u64 = 16 << 20;
/// Bytes of the seed in the label.
pub const SEED_BYTES: usize = 20;

const COPY_BYTES: usize = 16 << 10;
/// 4000 stripes of a key of 512 bits, rounded up to 4 KiB.
const KEY_AREA_BYTES: usize = 252 << 10;
const KEY_AREAS: [usize; 2] = [2 * COPY_BYTES, 2 * COPY_BYTES + KEY_AREA_BYTES];
/// Stands at the beginning of a disk whose header is being written for the first time. Shorter than a sector,
/// so that it is there or is not.
const UNFINISHED: &[u8] = b"Cloister data disk, being formatted\n";

/// What the beginning of a disk holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskHead {
    /// Nothing, or a header of ours that was never finished: there has been no data yet.
    Blank,
    /// A header of ours.
    Header(Box<Header>),
}

/// Why a disk must not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Fewer bytes than [`HEADER_BYTES`].
    #[error("it is too small for a header")]
    TooSmall,
    /// Something else than LUKS2.
    #[error("it holds something else")]
    Foreign,
    /// Neither copy of the header is whole.
    #[error("both copies of its header are damaged, or made by another system")]
    Damaged,
    /// A whole LUKS2 header that this system does not make.
    #[error("its header is not one that this system makes: {0}")]
    NotOurs(String),
}

/// A header that has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    binary: Binary,
    metadata: Metadata,
    /// Content of the key area in use: the volume key, split and encrypted.
    key_area: Vec<u8>,
}

/// Judges the first [`HEADER_BYTES`] of a disk (more do no harm). With two good copies the later one counts,
/// as the earlier is from before a change that was being written when the power went.
pub fn survey(disk: &[u8]) -> Result<DiskHead, HeaderError> {
    let disk = disk.get(..HEADER_BYTES).ok_or(HeaderError::TooSmall)?;
    let (first, rest) = disk.split_at_checked(COPY_BYTES).ok_or(HeaderError::TooSmall)?;
    let (second, areas) = rest.split_at_checked(COPY_BYTES).ok_or(HeaderError::TooSmall)?;
    let copies = [(Copy::First, first), (Copy::Second, second)]
        .map(|(copy, bytes)| Binary::parse(bytes, copy).map(|binary| (binary, copy, bytes)));
    let newest = copies.iter().flatten().max_by_key(|(binary, ..)| binary.sequence());
    let Some((binary, copy, bytes)) = newest else {
        return without_header(first, second, areas);
    };
    let json = binary.judge(bytes, *copy).map_err(HeaderError::NotOurs)?;
    let metadata = Metadata::parse(json).map_err(HeaderError::NotOurs)?;
    let key_area = disk.get(metadata.key_area()).ok_or(HeaderError::Damaged)?.to_vec();
    Ok(DiskHead::Header(Box::new(Header { binary: binary.clone(), metadata, key_area })))
}

/// A disk without a whole copy is blank, or ours and unfinished, or none of our business.
fn without_header(first: &[u8], second: &[u8], areas: &[u8]) -> Result<DiskHead, HeaderError> {
    let zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    if zero(first) && zero(second) && zero(areas) {
        return Ok(DiskHead::Blank);
    }
    if first.strip_prefix(UNFINISHED).is_some_and(zero) {
        return Ok(DiskHead::Blank);
    }
    let ours = Copy::First.is_at(first) || Copy::Second.is_at(second);
    Err(if ours { HeaderError::Damaged } else { HeaderError::Foreign })
}

impl Header {
    /// What the instance id is derived from.
    #[must_use]
    pub fn seed(&self) -> [u8; SEED_BYTES] {
        self.binary.seed()
    }

    /// Counts the changes of this header.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.binary.sequence()
    }

    /// The whole header, [`HEADER_BYTES`], made anew from what was checked: two good copies, the key area
    /// in use, and zeros in the other.
    #[must_use]
    pub fn image(&self) -> Vec<u8> {
        let json = self.metadata.text();
        let mut image = self.binary.copy(&json, Copy::First);
        image.extend(self.binary.copy(&json, Copy::Second));
        image.resize(HEADER_BYTES, 0);
        if let Some(area) = image.get_mut(self.metadata.key_area()) {
            area.copy_from_slice(&self.key_area);
        }
        image
    }
}
