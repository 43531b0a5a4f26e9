//! Any text: what is read as a statement is written the same, byte for byte.
#![no_main]

use cloister_kms_api::approvals::{ApprovalStatement, MAX_SERIAL, MAX_STATEMENT_BYTES};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(statement) = text.parse::<ApprovalStatement>() else { return };
    assert!(text.len() <= MAX_STATEMENT_BYTES && statement.serial <= MAX_SERIAL);
    assert_eq!(statement.to_string(), text);
});
