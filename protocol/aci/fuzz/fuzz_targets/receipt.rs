//! Any bytes as a receipt, under a keyset that is known: checking it never fails, and nothing unsigned holds.
#![no_main]

use cloister_aci::verify::{self, Known, Logged};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(document) = cloister_aci::parse(bytes) else { return };
    let findings = verify::receipt(&document, &Known::default());
    assert!(!verify::holds(&findings), "no key is known");
    let text = String::from_utf8_lossy(bytes);
    let session = Known {
        session: Some(&document),
        request: Some(bytes),
        response: Some(bytes),
        logged: Logged::Record(&text),
        ..Known::default()
    };
    assert!(!verify::holds(&verify::receipt(&document, &session)));
    if let Ok(canonical) = cloister_aci::canonical(&document) {
        let again = cloister_aci::parse(&canonical).expect("the canonical form can be read");
        assert_eq!(cloister_aci::canonical(&again).expect("and written"), canonical);
    }
});
