use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

/// A one-time invitation: pins the installation's authority and carries a secret.
///
/// Text form: `cjt_<SHA-256 of the authority's certificate, 64 hex>_<secret, 64 hex>`.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    authority_fingerprint: [u8; 32],
    secret: [u8; 32],
}

/// A text that is not a join token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a join token; `cloister nodes invite` prints one")]
pub struct InvalidJoinToken;

impl JoinToken {
    /// A token for the authority with this DER certificate and fresh random bytes.
    #[must_use]
    pub fn new(authority_der: &[u8], secret: [u8; 32]) -> Self {
        Self { authority_fingerprint: Sha256::digest(authority_der).into(), secret }
    }

    /// Whether a DER certificate is the authority that this token pins.
    #[must_use]
    pub fn pins(&self, certificate_der: &[u8]) -> bool {
        <[u8; 32]>::from(Sha256::digest(certificate_der)) == self.authority_fingerprint
    }

    /// What the control plane keeps instead of the secret: its SHA-256 in hex.
    #[must_use]
    pub fn secret_hash(&self) -> String {
        hex::encode(Sha256::digest(self.secret))
    }
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cjt_{}_{}", hex::encode(self.authority_fingerprint), hex::encode(self.secret))
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinToken(…)")
    }
}

impl FromStr for JoinToken {
    type Err = InvalidJoinToken;

    fn from_str(text: &str) -> Result<Self, InvalidJoinToken> {
        let rest = text.trim().strip_prefix("cjt_").ok_or(InvalidJoinToken)?;
        let (fingerprint, secret) = rest.split_once('_').ok_or(InvalidJoinToken)?;
        let mut token = Self { authority_fingerprint: [0; 32], secret: [0; 32] };
        hex::decode_to_slice(fingerprint, &mut token.authority_fingerprint).map_err(|_| InvalidJoinToken)?;
        hex::decode_to_slice(secret, &mut token.secret).map_err(|_| InvalidJoinToken)?;
        Ok(token)
    }
}
