//! The public keys of a gateway.

use serde::{Deserialize, Serialize};

use crate::canonical::sha256;

/// Algorithm of keys that sign receipts.
pub const RECEIPT_ED25519: &str = "ed25519";
/// Algorithm of keys that clients encrypt fields to.
pub const E2EE_X25519: &str = "x25519-aes-256-gcm-hkdf-sha256";
/// The same over secp256k1.
pub const E2EE_SECP256K1: &str = "secp256k1-aes-256-gcm-hkdf-sha256";

/// A public key with its role's algorithm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicKey {
    /// What is done with it; readers pass over entries whose algorithm they do not know.
    pub algo: String,
    /// Its name, unique in the keyset.
    pub key_id: String,
    /// The key in lower-case hex.
    pub public_key: String,
}

/// A TLS key that the gateway answers with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsKey {
    /// The host name it is for; `None` is every name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// SHA-256 of the certificate's `SubjectPublicKeyInfo` in DER, 64 hex digits.
    pub spki_sha256: String,
}

/// The keys of a gateway. Members stand in canonical order, and all are ASCII names with string or integer
/// values, so that plain serialisation is the canonical form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keyset {
    /// Keys that clients encrypt fields to.
    pub e2ee_public_keys: Vec<PublicKey>,
    /// When the keyset ends, in seconds since the Unix epoch.
    pub not_after: u64,
    /// Keys that sign receipts.
    pub receipt_signing_keys: Vec<PublicKey>,
    /// Whose keyset it is, such as `app-id:0x…`; what evidence measures has to say the same.
    pub subject: Option<String>,
    /// TLS keys that the gateway answers with.
    pub tls_public_keys: Vec<TlsKey>,
}

impl Keyset {
    /// The canonical text.
    #[must_use]
    pub fn canonical(&self) -> String {
        // Strings and integers only: this cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// `sha256:` and the hash of the canonical text: the gateway's identity.
    #[must_use]
    pub fn digest(&self) -> String {
        sha256(self.canonical().as_bytes())
    }

    /// The receipt key with an id, if its algorithm is known.
    #[must_use]
    pub fn receipt_key(&self, key_id: &str) -> Option<&PublicKey> {
        self.receipt_signing_keys.iter().find(|key| key.key_id == key_id && key.algo == RECEIPT_ED25519)
    }

    /// The TLS keys that the gateway answers with by a host name: those for that name, and those for every name.
    pub fn tls_keys_of<'a>(&'a self, host: &'a str) -> impl Iterator<Item = &'a TlsKey> {
        let host = host.trim_end_matches('.');
        let is_for_it = move |key: &&TlsKey| {
            key.domain.as_deref().is_none_or(|name| name.trim_end_matches('.').eq_ignore_ascii_case(host))
        };
        self.tls_public_keys.iter().filter(is_for_it)
    }
}
