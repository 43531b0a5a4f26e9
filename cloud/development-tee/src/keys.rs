//! P-256 keys that sign in the fixed form (r ‖ s) of quotes and collateral.

use rcgen::KeyPair;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};

use crate::TeeError;

/// Length of an uncompressed P-256 point.
pub(crate) const POINT_BYTES: usize = 65;

/// A key that signs bytes. Has no readable form.
pub(crate) struct RawSigner {
    key: EcdsaKeyPair,
    point: [u8; POINT_BYTES],
    random: SystemRandom,
}

impl RawSigner {
    pub(crate) fn new(key: &KeyPair) -> Result<Self, TeeError> {
        let random = SystemRandom::new();
        let point = key.public_key_raw().try_into().map_err(|_| TeeError::Malformed("not a P-256 key"))?;
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.serialized_der(), &random)
            .map_err(|_| TeeError::Malformed("not a P-256 key"))?;
        Ok(Self { key, point, random })
    }

    /// ECDSA with SHA-256, r ‖ s.
    pub(crate) fn sign(&self, message: &[u8]) -> Result<[u8; 64], TeeError> {
        let signature = self.key.sign(&self.random, message)?;
        signature.as_ref().try_into().map_err(|_| TeeError::Provider)
    }

    /// The uncompressed public point: 4 ‖ x ‖ y.
    pub(crate) const fn point(&self) -> &[u8; POINT_BYTES] {
        &self.point
    }

    /// x ‖ y.
    pub(crate) fn coordinates(&self) -> &[u8] {
        self.point.split_first().map_or(&[], |(_, coordinates)| coordinates)
    }
}
