//! Signatures of ID tokens (RFC 7515), checked by ring: what there is no entry for here is accepted nowhere.

use std::sync::Once;

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind, new_error};
use jsonwebtoken::signature::{Error as SignatureError, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
    VerificationAlgorithm,
};

/// How tokens may be signed: with keys of the provider, never with the client secret, and never not at all.
pub(super) const ALGORITHMS: [Algorithm; 3] = [Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA];

static PROVIDER: CryptoProvider = CryptoProvider {
    // Nothing is signed here.
    signer_factory: |_, _| Err(new_error(ErrorKind::UnsupportedAlgorithm)),
    verifier_factory: |algorithm, key| verifier(*algorithm, key),
    key_utils: KeyUtils::new_unimplemented(),
};

/// Lets the library use ring. Without it there is no algorithm at all.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Nothing else in this process installs one.
        let _ = PROVIDER.install_default();
    });
}

fn verifier(algorithm: Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    if !ALGORITHMS.contains(&algorithm) || key.family() != algorithm.family() {
        return Err(new_error(ErrorKind::UnsupportedAlgorithm));
    }
    Ok(Box::new(Key { algorithm, key: key.clone() }))
}

struct Key {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl JwtVerifier for Key {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for Key {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), SignatureError> {
        let on_curve = |algorithm: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(algorithm, key).verify(message, signature)
        };
        let verified = match (self.algorithm.family(), self.key.kind()) {
            (AlgorithmFamily::Rsa, DecodingKeyKind::RsaModulusExponent { n, e }) => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            (AlgorithmFamily::Ec, DecodingKeyKind::SecretOrDer(key)) => {
                on_curve(&ECDSA_P256_SHA256_FIXED, key)
            }
            (AlgorithmFamily::Ed, DecodingKeyKind::SecretOrDer(key)) => on_curve(&ED25519, key),
            _ => return Err(SignatureError::new()),
        };
        verified.map_err(|_| SignatureError::new())
    }
}
