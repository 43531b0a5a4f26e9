//! Any bytes: as a sealed form they do not open, as a plaintext they come back, and one changed byte is told.
#![no_main]

use cloister_sealed_env::{open, public_key, seal_bytes};

const SECRET: [u8; 32] = [7; 32];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    assert!(open(&SECRET, bytes).is_err());
    let mut random = |to: &mut [u8]| {
        to.iter_mut().zip(bytes.iter().chain(&[1; 64])).for_each(|(to, byte)| *to = *byte);
        Ok::<_, std::convert::Infallible>(())
    };
    let Ok(mut blob) = seal_bytes(&public_key(&SECRET), bytes, &mut random) else { return };
    assert_eq!(open(&SECRET, &blob).unwrap().as_slice(), bytes);
    let at = bytes.first().map_or(0, |first| usize::from(*first) * 256) % blob.len();
    // Not the highest bit, which a public key does not count.
    blob[at] ^= 1;
    assert!(open(&SECRET, &blob).is_err());
});
