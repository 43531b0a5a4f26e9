//! Any refusal of a contract becomes a short text that is safe to print.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let reason = cloister_contracts::revert_reason(bytes);
    assert!(reason.chars().count() < 300);
    assert!(!reason.contains(|each: char| each.is_control()));
});
