//! Any bytes as the first copy of a header, with a good checksum: what is accepted is written anew as a header
//! that says the same, and reaches a disk with any content.
#![no_main]

use cloister_luks_header::{DiskHead, HEADER_BYTES, survey};
use sha2::{Digest as _, Sha256, Sha512};

const COPY_BYTES: usize = 16 << 10;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut disk = vec![0; HEADER_BYTES];
    let length = bytes.len().min(COPY_BYTES);
    disk[..length].copy_from_slice(&bytes[..length]);
    drop(survey(&disk));
    disk[448..512].fill(0);
    let sum = Sha256::digest(&disk[..COPY_BYTES]);
    disk[448..480].copy_from_slice(&sum);
    let Ok(DiskHead::Header(header)) = survey(&disk) else { return };
    assert_eq!(survey(&header.image()), Ok(DiskHead::Header(header.clone())));
    let mut other = Sha512::digest(bytes).repeat(HEADER_BYTES.div_ceil(64));
    other.truncate(HEADER_BYTES);
    for write in header.writes_onto(&other) {
        other[write.offset..][..write.bytes.len()].copy_from_slice(&write.bytes);
    }
    assert_eq!(other, header.image());
});
