//! Any bytes: parsing keeps them, a prepared draft parses again to the same bytes, YAML stays in limits.
#![no_main]

use cloister_app_compose::decode::{self, Source};
use cloister_app_compose::{Additions, AppCompose, ComposeFile, Draft};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(compose) = AppCompose::parse(bytes) {
        assert_eq!(compose.bytes(), bytes);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        drop(ComposeFile::parse(text));
    }
    let Ok(value) = serde_json::from_slice(bytes) else { return };
    let Ok(draft) = decode::decode::<Draft>(&value, Source::Json, &[]) else { return };
    if let Ok(compose) = draft.prepare(&Additions::default()) {
        assert_eq!(AppCompose::parse(compose.bytes()).as_ref(), Ok(&compose));
    }
});
