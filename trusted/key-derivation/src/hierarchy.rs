//! The two ways from a secret to a further one. Their salt and contexts are those of public clients: contexts
//! are put together without lengths, which is unambiguous as long as all but one have fixed lengths.

use hkdf::Hkdf;
use p256::pkcs8::EncodePrivateKey as _;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::InvalidKey;

/// A secret of 32 bytes.
pub(crate) type Secret = Zeroizing<[u8; 32]>;

const SALT: &[u8] = b"RATLS";
const P256: &str = "P-256";

/// HKDF-SHA256 to 32 bytes.
pub(crate) fn derive(secret: &[u8; 32], contexts: &[&[u8]]) -> Secret {
    let mut derived = Zeroizing::new([0; 32]);
    // Fails only for outputs above 8160 bytes.
    let _ = Hkdf::<Sha256>::new(Some(SALT), secret).expand_multi_info(contexts, derived.as_mut_slice());
    derived
}

/// The P-256 key whose scalar is derived.
pub(crate) fn derive_p256(secret: &[u8; 32], contexts: &[&[u8]]) -> Result<p256::SecretKey, InvalidKey> {
    p256_key(&derive(secret, contexts))
}

/// The secret that public clients get of a P-256 key which is derived: SHA-256 over its PKCS#8 form.
pub(crate) fn derive_through_p256(secret: &[u8; 32], contexts: &[&[u8]]) -> Result<Secret, InvalidKey> {
    let der = pkcs8(&derive_p256(secret, contexts)?)?;
    let mut derived = Zeroizing::new([0; 32]);
    derived.copy_from_slice(&Sha256::digest(der.as_slice()));
    Ok(derived)
}

/// The P-256 key of a scalar, big-endian.
pub(crate) fn p256_key(scalar: &[u8; 32]) -> Result<p256::SecretKey, InvalidKey> {
    p256::SecretKey::from_slice(scalar).map_err(|_| InvalidKey(P256))
}

/// PKCS#8, DER, with the public key in it: 138 bytes.
pub(crate) fn pkcs8(key: &p256::SecretKey) -> Result<Zeroizing<Vec<u8>>, InvalidKey> {
    key.to_pkcs8_der().map(|der| der.to_bytes()).map_err(|_| InvalidKey(P256))
}
