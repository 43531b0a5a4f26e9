//! Who vouches for the secret keys of a keyset: the member `key_custody` of a report's evidence.

use serde::{Deserialize, Serialize};

/// Provider of keys that a key management service released to the measured application.
pub const KMS: &str = "dstack-kms";

/// The keys, and where they come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Custody {
    /// One entry for each key of the keyset, and those of older signatures.
    pub keys: Vec<CustodyKey>,
    /// Who has the root of the keys, such as [`KMS`].
    pub provider: String,
}

/// A key, and who vouches for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustodyKey {
    /// What is done with it, as in the keyset.
    pub algo: String,
    /// The public key that the chain vouches for, hex: of the same secret. It is `public_key` itself where the
    /// algorithm is Ed25519, and the compressed secp256k1 key elsewhere.
    pub kms_public_key: String,
    /// Its place below the application's key.
    pub path: String,
    /// The public key as the keyset has it, hex.
    pub public_key: String,
    /// What it is for: part of what the chain signs.
    pub purpose: String,
    /// `receipt`, `e2ee` or `legacy`.
    pub role: String,
    /// Signatures, `r ‖ s ‖ v` in hex: of the application's key over `<purpose>:<kms_public_key>`, of the root over
    /// the application's key.
    pub signature_chain: Vec<String>,
}
