//! The binary part of a header's copy: `struct luks2_hdr_disk` of the specification, section 2.1.

use sha2::{Digest as _, Sha256};

use crate::{COPY_BYTES, SEED_BYTES};

const BINARY_BYTES: usize = 4096;
const VERSION: u16 = 2;
const CHECKSUM: &[u8] = b"sha256";
/// Bytes of the field for the checksum, of which SHA-256 fills the first half.
const CHECKSUM_BYTES: usize = 64;
const UUID_BYTES: usize = 36;
const SALT_BYTES: usize = 64;

// Where fields begin; big-endian, texts filled up with zeros.
const VERSION_AT: usize = 6;
const SIZE_AT: usize = 8;
const SEQUENCE_AT: usize = 16;
const LABEL_AT: usize = 24;
const ALGORITHM_AT: usize = 72;
const SALT_AT: usize = 104;
const UUID_AT: usize = 168;
const SUBSYSTEM_AT: usize = 208;
const OFFSET_AT: usize = 256;
const CHECKSUM_AT: usize = 448;

/// Which of the two copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copy {
    First,
    Second,
}

impl Copy {
    const fn magic(self) -> &'static [u8; 6] {
        match self {
            Self::First => b"LUKS\xba\xbe",
            Self::Second => b"SKUL\xba\xbe",
        }
    }

    /// Where the copy begins on the disk.
    pub(crate) const fn offset(self) -> usize {
        match self {
            Self::First => 0,
            Self::Second => COPY_BYTES,
        }
    }

    /// Whether `bytes` begin as this copy does.
    pub(crate) fn is_at(self, bytes: &[u8]) -> bool {
        bytes.starts_with(self.magic())
    }
}

/// What varies in the binary part of headers of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Binary {
    sequence: u64,
    seed: [u8; SEED_BYTES],
    salt: [u8; SALT_BYTES],
    uuid: [u8; UUID_BYTES],
}

impl Binary {
    /// Reads a copy if it is whole: its magic, size and checksum. What it says is for [`judge`](Self::judge).
    pub(crate) fn parse(bytes: &[u8], which: Copy) -> Option<Self> {
        let whole = bytes.len() == COPY_BYTES
            && which.is_at(bytes)
            && u64::from_be_bytes(field(bytes, SIZE_AT)?) == u64::try_from(COPY_BYTES).ok()?
            && field(bytes, CHECKSUM_AT)? == checksum(bytes);
        let mut seed = [0; SEED_BYTES];
        // A label that is none of ours is refused when the copy is made anew and compared.
        let label = field::<{ 2 * SEED_BYTES }>(bytes, LABEL_AT)?;
        let _ = hex::decode_to_slice(label, &mut seed);
        whole.then_some(Self {
            sequence: u64::from_be_bytes(field(bytes, SEQUENCE_AT)?),
            seed,
            salt: field(bytes, SALT_AT)?,
            uuid: field(bytes, UUID_AT)?,
        })
    }

    /// The JSON of this copy, if everything in its binary part is as we make it.
    pub(crate) fn judge<'a>(&self, bytes: &'a [u8], which: Copy) -> Result<&'a [u8], String> {
        let (binary, json) = bytes.split_at_checked(BINARY_BYTES).ok_or("its size")?;
        let end = json.iter().position(|byte| *byte == 0).ok_or("its JSON does not end")?;
        let (json, rest) = json.split_at_checked(end).ok_or("its JSON does not end")?;
        if rest.iter().any(|byte| *byte != 0) {
            return Err("something follows its JSON".to_owned());
        }
        if !self.uuid.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-')) {
            return Err("its UUID".to_owned());
        }
        let expected = self.copy(json, which);
        let parts = [
            ("version", VERSION_AT..SIZE_AT),
            ("label", LABEL_AT..ALGORITHM_AT),
            ("checksum algorithm", ALGORITHM_AT..SALT_AT),
            ("UUID", UUID_AT..SUBSYSTEM_AT),
            ("subsystem", SUBSYSTEM_AT..OFFSET_AT),
            ("offset", OFFSET_AT..OFFSET_AT + 8),
            ("binary part", 0..BINARY_BYTES),
        ];
        match parts.into_iter().find(|(_, range)| binary.get(range.clone()) != expected.get(range.clone())) {
            Some((what, _)) => Err(format!("its {what}")),
            None => Ok(json),
        }
    }

    /// A whole copy with this JSON, which must fit.
    pub(crate) fn copy(&self, json: &[u8], which: Copy) -> Vec<u8> {
        let mut copy = vec![0; COPY_BYTES];
        let label = hex::encode(self.seed);
        let size = (COPY_BYTES as u64).to_be_bytes();
        let offset = (which.offset() as u64).to_be_bytes();
        let fields: [(usize, &[u8]); 11] = [
            (0, which.magic()),
            (VERSION_AT, &VERSION.to_be_bytes()),
            (SIZE_AT, &size),
            (SEQUENCE_AT, &self.sequence.to_be_bytes()),
            (LABEL_AT, label.as_bytes()),
            (ALGORITHM_AT, CHECKSUM),
            (SALT_AT, &self.salt),
            (UUID_AT, &self.uuid),
            (SUBSYSTEM_AT, crate::cryptsetup::SUBSYSTEM.as_bytes()),
            (OFFSET_AT, &offset),
            (BINARY_BYTES, json),
        ];
        for (at, bytes) in fields {
            put(&mut copy, at, bytes);
        }
        let sum = checksum(&copy);
        put(&mut copy, CHECKSUM_AT, &sum);
        copy
    }

    pub(crate) const fn sequence(&self) -> u64 {
        self.sequence
    }

    pub(crate) const fn seed(&self) -> [u8; SEED_BYTES] {
        self.seed
    }
}

/// SHA-256 over a copy whose field for the checksum counts as zeros; what belongs into that field.
fn checksum(copy: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let (before, rest) = copy.split_at_checked(CHECKSUM_AT).unwrap_or((copy, &[]));
    let after = rest.get(CHECKSUM_BYTES..).unwrap_or_default();
    let hash = Sha256::new().chain_update(before).chain_update([0; CHECKSUM_BYTES]).chain_update(after);
    let mut field = [0; CHECKSUM_BYTES];
    put(&mut field, 0, &hash.finalize());
    field
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn put(to: &mut [u8], at: usize, bytes: &[u8]) {
    for (to, from) in to.iter_mut().skip(at).zip(bytes) {
        *to = *from;
    }
}
