//! Any bytes as a session record: its id is that of what was parsed, whatever the order of its members.
#![no_main]

use cloister_aci::session::{self, Session};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(document) = cloister_aci::parse(bytes) else { return };
    if let Ok(id) = session::id(&document) {
        let canonical = cloister_aci::canonical(&document).expect("what has an id is canonical");
        let again = cloister_aci::parse(&canonical).expect("and can be read");
        assert_eq!(session::id(&again).expect("with the same id"), id);
    }
    if let Ok(record) = serde_json::from_value::<Session>(document) {
        drop(record.evidence.bytes());
        drop(record.document());
    }
});
