//! Any bytes: an SNP report is refused or of the one length, and what is signed lies in it.
#![no_main]

use cloister_evidence::{SNP_REPORT_BYTES, SnpReport};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(report) = SnpReport::parse(bytes) else { return };
    assert_eq!(bytes.len(), SNP_REPORT_BYTES);
    assert!(bytes.starts_with(report.signed()));
});
