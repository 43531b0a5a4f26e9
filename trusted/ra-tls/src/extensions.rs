//! Certificate extensions below the arc 1.3.6.1.4.1.62397.1: an OCTET STRING around the content, inside
//! the octet string that every extension's value is.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use rcgen::CustomExtension;

/// Object identifiers.
pub mod oid {
    /// TDX quote.
    pub const QUOTE: &[u64] = &[1, 3, 6, 1, 4, 1, 62397, 1, 1];
    /// Event log, JSON, possibly compressed.
    pub const EVENT_LOG: &[u64] = &[1, 3, 6, 1, 4, 1, 62397, 1, 2];
    /// Application id, 20 bytes: a claim of the issuer.
    pub const APP_ID: &[u64] = &[1, 3, 6, 1, 4, 1, 62397, 1, 3];
    /// What the certificate is for, such as `app:custom`: a claim of the issuer.
    pub const USAGE: &[u64] = &[1, 3, 6, 1, 4, 1, 62397, 1, 4];
    /// Versioned attestation, preferred over quote and event log.
    pub const ATTESTATION: &[u64] = &[1, 3, 6, 1, 4, 1, 62397, 1, 8];
}

/// Largest quote in a certificate, in bytes.
pub const MAX_QUOTE_BYTES: usize = 16 << 10;
/// Largest event log in a certificate after inflation, in bytes. Public peers read 16 KiB.
pub const MAX_EVENT_LOG_BYTES: usize = 64 << 10;
/// Largest versioned attestation in a certificate, in bytes; a TLS handshake message ends at 64 KiB.
pub const MAX_ATTESTATION_BYTES: usize = 48 << 10;
/// Largest text of a usage, in bytes.
pub(crate) const MAX_USAGE_BYTES: usize = 64;

const COMPRESSED: &[u8] = b"ELGZv1";
/// From this size on an event log is compressed; the oldest peers read plain text only.
const COMPRESS_FROM: usize = 8 << 10;

/// An extension, not critical: peers that do not know it ignore it.
pub(crate) fn extension(oid: &[u64], content: &[u8]) -> CustomExtension {
    CustomExtension::from_oid_content(oid, yasna::construct_der(|writer| writer.write_bytes(content)))
}

/// The content of an extension's value; `None` unless it is exactly one OCTET STRING.
pub(crate) fn content(value: &[u8]) -> Option<Vec<u8>> {
    yasna::decode_der(value).ok()
}

/// The event log as it stands in a certificate.
pub(crate) fn pack_event_log(json: &str) -> std::io::Result<Vec<u8>> {
    if json.len() < COMPRESS_FROM {
        return Ok(json.as_bytes().to_vec());
    }
    let mut encoder = GzEncoder::new(COMPRESSED.to_vec(), Compression::best());
    encoder.write_all(json.as_bytes())?;
    encoder.finish()
}

/// The event log's JSON text, from either form; `None` when it is too long, damaged or no text.
pub(crate) fn unpack_event_log(packed: &[u8]) -> Option<String> {
    let json = match packed.strip_prefix(COMPRESSED) {
        Some(compressed) => {
            let mut json = Vec::new();
            // One byte more than allowed tells a log that is too long from one that just fits.
            let most = u64::try_from(MAX_EVENT_LOG_BYTES).ok()?.saturating_add(1);
            GzDecoder::new(compressed).take(most).read_to_end(&mut json).ok()?;
            json
        }
        None => packed.get(..MAX_EVENT_LOG_BYTES.saturating_add(1)).unwrap_or(packed).to_vec(),
    };
    if json.len() > MAX_EVENT_LOG_BYTES { None } else { String::from_utf8(json).ok() }
}
