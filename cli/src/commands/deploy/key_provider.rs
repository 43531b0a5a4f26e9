//! The KMS that an application has its keys from, as its document names it.

use std::str::FromStr;

use x509_parser::prelude::FromDer as _;
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
        match SubjectPublicKeyInfo::from_der(&der) {
            Ok(([], _)) => Ok(Self(hex::encode(der))),
            _ => Err(InvalidKeyProvider),
        }
    }
}
