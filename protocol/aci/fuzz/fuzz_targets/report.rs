//! Any bytes as a report: one whose parts belong together carries the digest of its keyset.
#![no_main]

use cloister_aci::report;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(document) = cloister_aci::parse(bytes) else { return };
    if let Ok(bound) = report::bound(&document, None) {
        assert_eq!(report::report_data(&bound.digest, None), bound.report_data);
    }
});
