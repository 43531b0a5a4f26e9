//! Any bytes: an attestation that decodes encodes to the same bytes.
#![no_main]

use cloister_evidence::VersionedAttestation;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(attestation) = VersionedAttestation::decode(bytes) else { return };
    assert_eq!(attestation.encode().as_deref(), Ok(bytes));
    drop(attestation.event_log());
});
