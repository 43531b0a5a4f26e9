//! The KMS that an application has its keys from, as its document names it.

use std::str::FromStr;

use serde_json::{Map, Value};
use x509_parser::prelude::FromDer as _;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

/// `SubjectPublicKeyInfo` (DER) of the certificate authority of a KMS's root in lower-case hex, as `key_provider_id` of an
/// app-compose document has it (platform reference, section 1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyProviderId(String);

/// A text that names no KMS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not the authority of a KMS's root, a public key in DER as hex digits: \"Root authority\" of `cloister kms status`"
)]
pub(crate) struct InvalidKeyProvider;

/// Whether an app-compose document names the KMS that its keys have to come from.
pub(crate) fn names_kms(document: &Map<String, Value>) -> bool {
    document.get("key_provider_id").and_then(Value::as_str).is_some_and(|id| !id.is_empty())
}

impl KeyProviderId {
    /// As hex digits.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for KeyProviderId {
    type Err = InvalidKeyProvider;

    fn from_str(text: &str) -> Result<Self, InvalidKeyProvider> {
        let der = hex::decode(text.strip_prefix("0x").unwrap_or(text)).map_err(|_| InvalidKeyProvider)?;
        let is_authority = match SubjectPublicKeyInfo::from_der(&der) {
            // Authorities of KMSes have keys on P-256.
            Ok(([], key)) => matches!(key.parsed(), Ok(PublicKey::EC(point)) if point.key_size() == 256),
            _ => false,
        };
        if is_authority { Ok(Self(hex::encode(der))) } else { Err(InvalidKeyProvider) }
    }
}
