//! The 64 bytes that evidence is bound to, and the conventions for filling them (platform reference,
//! section 6).

use sha2::{Digest as _, Sha512};

/// What a quote is made over.
pub type ReportData = [u8; 64];

/// Longest value that a caller may give, in bytes; shorter ones are padded with zeros on the right.
pub const MAX_BYTES: usize = 64;

/// A caller's bytes, padded with zeros on the right; `None` when there are more than 64.
#[must_use]
pub fn padded(bytes: &[u8]) -> Option<ReportData> {
    let mut data = [0; 64];
    data.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(data)
}

/// SHA-512(`tag` ‖ ":" ‖ `content`).
#[must_use]
pub fn tagged(tag: &str, content: &[u8]) -> ReportData {
    let mut hasher = Sha512::new();
    hasher.update(tag);
    hasher.update(b":");
    hasher.update(content);
    hasher.finalize().into()
}

/// For a certificate or certificate request with the key of this `SubjectPublicKeyInfo` (DER).
#[must_use]
pub fn of_tls_key(subject_public_key_info: &[u8]) -> ReportData {
    tagged("ratls-cert", subject_public_key_info)
}
