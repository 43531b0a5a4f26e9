//! Fields of requests and answers, encrypted between client and gateway on top of TLS (version 2; [`v1`] is the one
//! before it).
//!
//! A value is lower-case hex of `ephemeral public key ‖ nonce (12) ‖ ciphertext ‖ tag (16)`. The AES key is
//! HKDF-SHA256 without salt over the shared secret (for secp256k1 its x-coordinate); what is authenticated
//! beside the text is the canonical form of [`Context`], so that a value opens in its own place only.

use std::fmt;

use hkdf::Hkdf;
use k256::elliptic_curve::sec1::ToSec1Point;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde::Serialize;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::{E2EE_SECP256K1, E2EE_X25519};

#[cfg(test)]
mod tests;
pub mod v1;

/// The version of the `X-E2EE-Version` header.
pub const VERSION: &str = "2";
const TAG_LEN: usize = 16;

/// How a shared secret comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Suite {
    /// Over curve25519; public keys have 32 bytes.
    X25519,
    /// Over secp256k1; public keys have 65 bytes, the first is 4.
    Secp256k1,
}

impl Suite {
    /// Its name in keysets and headers.
    #[must_use]
    pub const fn algo(self) -> &'static str {
        match self {
            Self::X25519 => E2EE_X25519,
            Self::Secp256k1 => E2EE_SECP256K1,
        }
    }

    const fn info(self) -> &'static [u8] {
        match self {
            Self::X25519 => b"aci.e2ee.v2.x25519",
            Self::Secp256k1 => b"aci.e2ee.v2.secp256k1",
        }
    }

    /// Bytes of a public key.
    #[must_use]
    pub const fn public_key_len(self) -> usize {
        match self {
            Self::X25519 => 32,
            Self::Secp256k1 => 65,
        }
    }
}

/// Which way a value goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Purpose {
    /// From the client.
    #[serde(rename = "aci.e2ee.request.v2")]
    Request,
    /// To the client.
    #[serde(rename = "aci.e2ee.response.v2")]
    Response,
}

/// Where a value belongs. Members stand in canonical order.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Context<'a> {
    /// Name of the suite.
    pub algo: &'static str,
    /// Place in the body, such as `messages.0.content`.
    pub field: &'a str,
    /// Id of the answer, or an empty text; in answers only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<&'a str>,
    /// The model of the request, byte for byte, in answers, too.
    pub model: &'a str,
    /// The nonce of the request, as it was sent.
    pub nonce: &'a str,
    /// Which way it goes.
    pub purpose: Purpose,
    /// The time of the request, in seconds since the Unix epoch.
    pub ts: i64,
}

/// A value that does not open, or a key that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum E2eeError {
    /// Not a public key of the suite, or one that leads to a secret that everybody knows.
    #[error("not a public key of this suite")]
    PublicKey,
    /// Not hex, too short, or not made for this key and place.
    #[error("the value cannot be decrypted")]
    Decrypt,
    /// The library refused.
    #[error("the value cannot be encrypted")]
    Encrypt,
}

/// A secret key of a suite, from 32 bytes. It has no readable form.
pub struct SecretKey(Inner);

enum Inner {
    X25519(x25519_dalek::StaticSecret),
    Secp256k1(k256::SecretKey),
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("SecretKey").field(&self.suite()).finish()
    }
}

impl SecretKey {
    /// The key of 32 secret bytes. Fails for the few that are no scalar of secp256k1.
    pub fn new(suite: Suite, bytes: &[u8; 32]) -> Result<Self, E2eeError> {
        Ok(Self(match suite {
            Suite::X25519 => Inner::X25519((*bytes).into()),
            Suite::Secp256k1 => {
                Inner::Secp256k1(k256::SecretKey::from_slice(bytes).map_err(|_| E2eeError::PublicKey)?)
            }
        }))
    }

    /// Its suite.
    #[must_use]
    pub const fn suite(&self) -> Suite {
        match self.0 {
            Inner::X25519(_) => Suite::X25519,
            Inner::Secp256k1(_) => Suite::Secp256k1,
        }
    }

    /// The public key, as values and keysets have it.
    #[must_use]
    pub fn public_key(&self) -> Vec<u8> {
        match &self.0 {
            Inner::X25519(secret) => x25519_dalek::PublicKey::from(secret).as_bytes().to_vec(),
            Inner::Secp256k1(secret) => secret.public_key().to_sec1_point(false).as_bytes().to_vec(),
        }
    }

    /// What this key and a public key of the same suite share: the key of the cipher.
    fn cipher(&self, public_key: &[u8], info: &[u8]) -> Result<LessSafeKey, E2eeError> {
        let derived = match &self.0 {
            Inner::X25519(secret) => {
                let public: [u8; 32] = public_key.try_into().map_err(|_| E2eeError::PublicKey)?;
                let shared = secret.diffie_hellman(&public.into());
                if !shared.was_contributory() {
                    return Err(E2eeError::PublicKey);
                }
                derive(shared.as_bytes(), info)?
            }
            Inner::Secp256k1(secret) => {
                let public =
                    k256::PublicKey::from_sec1_bytes(public_key).map_err(|_| E2eeError::PublicKey)?;
                let shared = k256::ecdh::diffie_hellman(secret.to_nonzero_scalar(), public.as_affine());
                derive(shared.raw_secret_bytes(), info)?
            }
        };
        let key = UnboundKey::new(&AES_256_GCM, derived.as_slice()).map_err(|_| E2eeError::Encrypt)?;
        Ok(LessSafeKey::new(key))
    }
}

fn derive(shared: &[u8], info: &[u8]) -> Result<Zeroizing<[u8; 32]>, E2eeError> {
    let mut key = Zeroizing::new([0; 32]);
    Hkdf::<Sha256>::new(None, shared).expand(info, key.as_mut_slice()).map_err(|_| E2eeError::Encrypt)?;
    Ok(key)
}

/// A public key as headers have it: hex with or without `0x`; one of secp256k1 may lack its first byte.
pub fn public_key(suite: Suite, text: &str) -> Result<Vec<u8>, E2eeError> {
    let mut key = hex::decode(text.strip_prefix("0x").unwrap_or(text)).map_err(|_| E2eeError::PublicKey)?;
    if suite == Suite::Secp256k1 && key.len() == 64 {
        key.insert(0, 4);
    }
    if key.len() == suite.public_key_len() { Ok(key) } else { Err(E2eeError::PublicKey) }
}

/// Encrypts a text to a public key. The ephemeral key and the nonce are random, and never used again.
pub fn seal(
    public_key: &[u8],
    ephemeral: &SecretKey,
    nonce: [u8; NONCE_LEN],
    context: &Context<'_>,
    text: &[u8],
) -> Result<String, E2eeError> {
    let cipher = ephemeral.cipher(public_key, ephemeral.suite().info())?;
    seal_with(&cipher, ephemeral, nonce, context.authenticated()?, text)
}

fn seal_with(
    cipher: &LessSafeKey,
    ephemeral: &SecretKey,
    nonce: [u8; NONCE_LEN],
    authenticated: Aad<Vec<u8>>,
    text: &[u8],
) -> Result<String, E2eeError> {
    let mut sealed = text.to_vec();
    cipher
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), authenticated, &mut sealed)
        .map_err(|_| E2eeError::Encrypt)?;
    Ok([hex::encode(ephemeral.public_key()), hex::encode(nonce), hex::encode(sealed)].concat())
}

/// Decrypts a value that was encrypted to this key for this place.
pub fn open(secret: &SecretKey, context: &Context<'_>, value: &str) -> Result<Zeroizing<Vec<u8>>, E2eeError> {
    open_with(secret, secret.suite().info(), context.authenticated()?, value)
}

fn open_with(
    secret: &SecretKey,
    info: &[u8],
    authenticated: Aad<Vec<u8>>,
    value: &str,
) -> Result<Zeroizing<Vec<u8>>, E2eeError> {
    let bytes = hex::decode(value).map_err(|_| E2eeError::Decrypt)?;
    let (public_key, rest) =
        bytes.split_at_checked(secret.suite().public_key_len()).ok_or(E2eeError::Decrypt)?;
    let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>().ok_or(E2eeError::Decrypt)?;
    if sealed.len() < TAG_LEN {
        return Err(E2eeError::Decrypt);
    }
    let mut sealed = Zeroizing::new(sealed.to_vec());
    let cipher = secret.cipher(public_key, info).map_err(|_| E2eeError::Decrypt)?;
    let opened = cipher
        .open_in_place(Nonce::assume_unique_for_key(*nonce), authenticated, &mut sealed)
        .map_err(|_| E2eeError::Decrypt)?
        .len();
    sealed.truncate(opened);
    Ok(sealed)
}

impl Context<'_> {
    fn authenticated(&self) -> Result<Aad<Vec<u8>>, E2eeError> {
        serde_json::to_vec(self).map(Aad::from).map_err(|_| E2eeError::Encrypt)
    }
}
