//! The KMS that an application has its keys from, as documents and evidence name it.

use std::fmt;
use std::str::FromStr;

/// First byte of every `SubjectPublicKeyInfo`: a sequence, in DER.
const SEQUENCE: u8 = 0x30;

/// `SubjectPublicKeyInfo` (DER) of the certificate authority of a KMS's root, as `key_provider_id` of an app-compose
/// document has it (platform reference, section 1). Written as hex digits.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct KeyProviderId(Vec<u8>);

/// A text that names no KMS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not the authority of a KMS's root, which is a public key in DER as hex digits and begins with 30: \
     \"Root authority\" of `cloister kms status`"
)]
pub(crate) struct InvalidKeyProvider;

impl KeyProviderId {
    /// In DER.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl FromStr for KeyProviderId {
    type Err = InvalidKeyProvider;

    fn from_str(text: &str) -> Result<Self, InvalidKeyProvider> {
        let bytes = hex::decode(text.strip_prefix("0x").unwrap_or(text)).map_err(|_| InvalidKeyProvider)?;
        if bytes.first() == Some(&SEQUENCE) { Ok(Self(bytes)) } else { Err(InvalidKeyProvider) }
    }
}

impl fmt::Display for KeyProviderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for KeyProviderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyProviderId({self})")
    }
}
