//! What authorities say when they refuse.

use cloister_kms_api::KmsErrorCode;

/// Longest reason that is passed on, in bytes.
const MAX_REASON_BYTES: usize = 256;

/// Public services name their reasons in words, on chain and off chain alike (platform reference, sections
/// 10.9 and 11.4).
pub(super) fn code_of(reason: &str) -> KmsErrorCode {
    let reason = reason.to_ascii_lowercase();
    if reason.contains("authorization backend unavailable") {
        KmsErrorCode::InternalError
    } else if reason.contains("tcb") || reason.contains("device") || reason.contains("advisor") {
        KmsErrorCode::Unauthorized
    } else {
        KmsErrorCode::MeasurementNotFound
    }
}

/// A stranger's words for logs and answers.
pub(super) fn printable(reason: &str) -> String {
    let mut kept = String::new();
    for c in reason.chars().map(|c| if c.is_control() { ' ' } else { c }) {
        if kept.len() + c.len_utf8() > MAX_REASON_BYTES {
            break;
        }
        kept.push(c);
    }
    kept
}
