//! What binds a keyset to the evidence of a machine.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::canonical::{CanonicalError, canonical, sha256};
use crate::{API_VERSION, Keyset};

/// What a quote's report data are made for; no other statement can be mistaken for this one.
const PURPOSE: &str = "aci.report_data.v1";

/// A caller's challenge: 32 or 64 lower-case hex digits, so that it needs no escaping anywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nonce(String);

/// A text that is no nonce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a nonce is 32 or 64 lower-case hex digits")]
pub struct NotANonce;

impl FromStr for Nonce {
    type Err = NotANonce;

    fn from_str(text: &str) -> Result<Self, NotANonce> {
        let is_hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if is_hex && matches!(text.len(), 32 | 64) { Ok(Self(text.to_owned())) } else { Err(NotANonce) }
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The statement that evidence binds, in its exact bytes.
#[must_use]
pub fn statement(keyset_digest: &str, nonce: Option<&Nonce>) -> String {
    let nonce = nonce.map_or_else(|| "null".to_owned(), |nonce| format!("\"{nonce}\""));
    format!(r#"{{"keyset_digest":"{keyset_digest}","nonce":{nonce},"purpose":"{PURPOSE}"}}"#)
}

/// The hash of the statement: the first half of a quote's report data, whose second half is zero.
#[must_use]
pub fn report_data(keyset_digest: &str, nonce: Option<&Nonce>) -> [u8; 32] {
    Sha256::digest(statement(keyset_digest, nonce)).into()
}

/// Why a report binds nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// Not a report.
    #[error("the report cannot be read")]
    Malformed(#[from] CanonicalError),
    /// A member is missing or of another type.
    #[error("the report cannot be read")]
    Shape(#[from] serde_json::Error),
    /// Another version of the protocol.
    #[error("the report is of version {0:?}, not {API_VERSION}")]
    Version(String),
    /// The digest is not that of the keyset.
    #[error("the report names the digest {named} of a keyset whose digest is {computed}")]
    Digest {
        /// What the report says.
        named: String,
        /// What the keyset hashes to.
        computed: String,
    },
    /// The report data are not the statement about this keyset and nonce.
    #[error("the report data are not bound to this keyset and nonce")]
    ReportData,
}

#[derive(Deserialize)]
struct Wire {
    api_version: String,
    workload_keyset_digest: String,
    attestation: WireAttestation,
}

#[derive(Deserialize)]
struct WireAttestation {
    workload_keyset: Value,
    report_data: String,
}

/// A report whose parts belong together. What its evidence is worth is for a verifier of evidence to say: it has
/// to carry [`Bound::report_data`] and 32 zero bytes.
#[derive(Debug, Clone)]
pub struct Bound {
    /// The keys.
    pub keyset: Keyset,
    /// Their digest, over the keyset as it was sent.
    pub digest: String,
    /// What the evidence has to carry.
    pub report_data: [u8; 32],
}

/// Follows the chain from a report's keyset to what its evidence has to carry.
///
/// Fails when the digest is not that of the keyset, or the report data are not the statement about it and the
/// nonce that was sent.
pub fn bound(report: &Value, nonce: Option<&Nonce>) -> Result<Bound, ReportError> {
    let wire = Wire::deserialize(report)?;
    if wire.api_version != API_VERSION {
        return Err(ReportError::Version(wire.api_version));
    }
    let computed = sha256(&canonical(&wire.attestation.workload_keyset)?);
    if computed != wire.workload_keyset_digest {
        return Err(ReportError::Digest { named: wire.workload_keyset_digest, computed });
    }
    let report_data = report_data(&computed, nonce);
    if wire.attestation.report_data != hex::encode(report_data) {
        return Err(ReportError::ReportData);
    }
    Ok(Bound {
        keyset: Keyset::deserialize(&wire.attestation.workload_keyset)?,
        digest: computed,
        report_data,
    })
}
