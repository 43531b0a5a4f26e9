//! Any bytes: a Nitro document is refused or within its limits.
#![no_main]

use cloister_evidence::NitroDocument;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(document) = NitroDocument::parse(bytes) else { return };
    assert!(document.pcrs.keys().all(|index| *index < 32));
    assert!(document.user_data.as_ref().is_none_or(|data| data.len() <= 512));
    assert!(!document.signed().is_empty());
    let _ = (document.image_hash(), document.device_id());
});
