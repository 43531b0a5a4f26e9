use std::fmt;

use cloister_kms_api::statements::{K256Public, SIGNATURE_BYTES, purpose_digest};
use zeroize::Zeroizing;

use crate::derived::K256;
use crate::hierarchy;
use crate::{DerivedKey, InvalidKey};

/// The secp256k1 key of an application, which the KMS gives to its CVMs. Everything that the application asks
/// for by a path comes from it.
#[derive(Clone)]
pub struct AppKey(K256);

impl fmt::Debug for AppKey {
    /// The public side only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AppKey").field(&self.0).finish()
    }
}

impl AppKey {
    /// From its secret.
    pub fn from_bytes(secret: &[u8; 32]) -> Result<Self, InvalidKey> {
        K256::from_bytes(secret).map(Self)
    }

    /// The secret.
    #[must_use]
    pub fn secret(&self) -> &[u8; 32] {
        self.0.secret()
    }

    /// secp256k1 key, compressed.
    #[must_use]
    pub fn public_key(&self) -> K256Public {
        self.0.public()
    }

    /// The key at a path: `getKey(name)` of the KMS, and `GetKey` of the guest agent. The same bytes serve
    /// every algorithm, as public clients expect.
    #[must_use]
    pub fn derive(&self, path: &str) -> DerivedKey {
        DerivedKey::new(hierarchy::derive(self.0.secret(), &[path.as_bytes()]))
    }

    /// The P-256 key at a path, PKCS#8 DER: the legacy `DeriveKey` of the guest agent.
    pub fn derive_p256(&self, path: &str) -> Result<Zeroizing<Vec<u8>>, InvalidKey> {
        hierarchy::pkcs8(&hierarchy::derive_p256(self.0.secret(), &[path.as_bytes()])?)
    }

    /// Vouches for a key that was derived for a purpose: a compressed secp256k1 key (33 bytes) or an Ed25519 key
    /// (32 bytes).
    #[must_use]
    pub fn chain(&self, purpose: &str, public_key: &[u8]) -> [u8; SIGNATURE_BYTES] {
        self.0.sign(&purpose_digest(purpose, public_key))
    }
}
