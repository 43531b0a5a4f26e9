use std::fmt;
use std::str::FromStr;

use cloister_kms_api::statements::{K256Public, SIGNATURE_BYTES, StatementDigest};
use k256::ecdsa::signature::hazmat::PrehashVerifier as _;
use k256::ecdsa::{Signature, SigningKey, VerifyingKey};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::InvalidKey;
use crate::hierarchy::Secret;

/// A secp256k1 key.
#[derive(Clone)]
pub(crate) struct K256 {
    key: SigningKey,
    secret: Secret,
}

impl fmt::Debug for K256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("K256").field(&self.public()).finish()
    }
}

impl K256 {
    pub(crate) fn from_bytes(secret: &[u8; 32]) -> Result<Self, InvalidKey> {
        let key = SigningKey::from_slice(secret).map_err(|_| InvalidKey("secp256k1"))?;
        Ok(Self { key, secret: Zeroizing::new(*secret) })
    }

    pub(crate) fn secret(&self) -> &[u8; 32] {
        &self.secret
    }

    pub(crate) fn public(&self) -> K256Public {
        let mut public = [0; 33];
        let point = self.key.verifying_key().to_sec1_point(true);
        public.iter_mut().zip(point.as_bytes()).for_each(|(to, from)| *to = *from);
        public
    }

    /// `r ‖ s ‖ v` with the smaller `s`; deterministic (RFC 6979).
    pub(crate) fn sign(&self, digest: &StatementDigest) -> [u8; SIGNATURE_BYTES] {
        let (signature, recovery_id) = self.key.sign_prehash_recoverable(digest);
        let mut bytes = [0; SIGNATURE_BYTES];
        let all = signature.to_bytes().into_iter().chain([recovery_id.to_byte()]);
        bytes.iter_mut().zip(all).for_each(|(to, from)| *to = from);
        bytes
    }
}

/// What a derived key is used with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// ECDSA over secp256k1; `Sign` takes SHA-256 of the data.
    Secp256k1,
    /// The same over a digest of 32 bytes that the caller made.
    Secp256k1Prehashed,
    /// Ed25519.
    Ed25519,
}

/// A name of no algorithm, cut.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Unsupported algorithm: {0}")]
pub struct UnknownAlgorithm(String);

impl UnknownAlgorithm {
    /// Tells what was asked for, cut at 32 characters.
    #[must_use]
    pub fn of(name: &str) -> Self {
        Self(name.chars().take(32).collect())
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    /// By the names of the guest agent's interface.
    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        match name {
            "secp256k1" | "k256" => Ok(Self::Secp256k1),
            "secp256k1_prehashed" => Ok(Self::Secp256k1Prehashed),
            "ed25519" => Ok(Self::Ed25519),
            other => Err(UnknownAlgorithm::of(other)),
        }
    }
}

/// A request that cannot be checked, or signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// A digest of another length than 32 bytes.
    #[error("Digest must be 32 bytes")]
    Digest,
    /// Not a public key of the algorithm.
    #[error("public_key is not a key of this algorithm")]
    PublicKey,
    /// The derived bytes are no key of the algorithm.
    #[error(transparent)]
    Key(#[from] InvalidKey),
}

/// 32 bytes that an application derived.
#[derive(Clone, PartialEq, Eq)]
pub struct DerivedKey(Secret);

impl fmt::Debug for DerivedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DerivedKey([32 secret bytes])")
    }
}

impl DerivedKey {
    pub(crate) const fn new(secret: Secret) -> Self {
        Self(secret)
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The public side: 33 bytes (compressed) for secp256k1, 32 for Ed25519.
    pub fn public_key(&self, algorithm: Algorithm) -> Result<Vec<u8>, InvalidKey> {
        match algorithm {
            Algorithm::Secp256k1 | Algorithm::Secp256k1Prehashed => {
                Ok(K256::from_bytes(&self.0)?.public().to_vec())
            }
            Algorithm::Ed25519 => Ok(self.ed25519()?.public_key().as_ref().to_vec()),
        }
    }

    /// Signs data: 64 bytes, `r ‖ s` for secp256k1.
    pub fn sign(&self, algorithm: Algorithm, data: &[u8]) -> Result<Vec<u8>, VerifyError> {
        if algorithm == Algorithm::Ed25519 {
            return Ok(self.ed25519()?.sign(data).as_ref().to_vec());
        }
        let [scalars @ .., _] = K256::from_bytes(&self.0)?.sign(&digest(algorithm, data)?);
        Ok(scalars.to_vec())
    }

    fn ed25519(&self) -> Result<Ed25519KeyPair, InvalidKey> {
        Ed25519KeyPair::from_seed_unchecked(self.0.as_slice()).map_err(|_| InvalidKey("Ed25519"))
    }
}

/// Whether `public_key` made a signature over data. What cannot be a signature is none.
pub fn verify(
    algorithm: Algorithm,
    data: &[u8],
    signature: &[u8],
    public_key: &[u8],
) -> Result<bool, VerifyError> {
    if algorithm == Algorithm::Ed25519 {
        if public_key.len() != 32 {
            return Err(VerifyError::PublicKey);
        }
        return Ok(UnparsedPublicKey::new(&ED25519, public_key).verify(data, signature).is_ok());
    }
    let digest = digest(algorithm, data)?;
    let key = VerifyingKey::from_sec1_bytes(public_key).map_err(|_| VerifyError::PublicKey)?;
    let signature = Signature::from_slice(signature);
    Ok(signature.is_ok_and(|signature| key.verify_prehash(&digest, &signature).is_ok()))
}

fn digest(algorithm: Algorithm, data: &[u8]) -> Result<[u8; 32], VerifyError> {
    match algorithm {
        Algorithm::Secp256k1Prehashed => data.try_into().map_err(|_| VerifyError::Digest),
        Algorithm::Secp256k1 | Algorithm::Ed25519 => Ok(Sha256::digest(data).into()),
    }
}
