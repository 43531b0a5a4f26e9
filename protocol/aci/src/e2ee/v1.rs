//! Version 1: the same values, bound to no place, for clients that know nothing newer. A value may be taken from one
//! request and put into another: whoever can, uses version 2.
//!
//! Clients name keys of signatures here. Those of Ed25519 become keys of X25519 by the map between the two curves.

use ed25519_dalek::{SigningKey, VerifyingKey};
use ring::aead::{Aad, NONCE_LEN};
use zeroize::Zeroizing;

use super::{E2eeError, SecretKey, Suite, open_with, seal_with};

/// The version of the `X-E2EE-Version` header, which may be absent.
pub const VERSION: &str = "1";

const fn info(suite: Suite) -> &'static [u8] {
    match suite {
        Suite::X25519 => b"ed25519_encryption",
        Suite::Secp256k1 => b"ecdsa_encryption",
    }
}

/// The secret that opens what was encrypted to an Ed25519 key.
pub fn secret_of_ed25519(key: &SigningKey) -> Result<SecretKey, E2eeError> {
    SecretKey::new(Suite::X25519, &Zeroizing::new(key.to_scalar_bytes()))
}

/// The key to encrypt to for who has an Ed25519 key, 32 bytes.
pub fn public_of_ed25519(key: &[u8]) -> Result<Vec<u8>, E2eeError> {
    let bytes = key.try_into().map_err(|_| E2eeError::PublicKey)?;
    let key = VerifyingKey::from_bytes(bytes).map_err(|_| E2eeError::PublicKey)?;
    Ok(key.to_montgomery().to_bytes().to_vec())
}

/// Encrypts a text to a public key, as [`super::seal`] does.
pub fn seal(
    public_key: &[u8],
    ephemeral: &SecretKey,
    nonce: [u8; NONCE_LEN],
    text: &[u8],
) -> Result<String, E2eeError> {
    let cipher = ephemeral.cipher(public_key, info(ephemeral.suite()))?;
    seal_with(&cipher, ephemeral, nonce, Aad::from(Vec::new()), text)
}

/// Decrypts a value that was encrypted to this key.
pub fn open(secret: &SecretKey, value: &str) -> Result<Zeroizing<Vec<u8>>, E2eeError> {
    open_with(secret, info(secret.suite()), Aad::from(Vec::new()), value)
}
