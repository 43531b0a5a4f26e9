use std::fmt;

use cloister_evidence::report_data::{self, ReportData};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData as _};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use zeroize::Zeroizing;

use crate::RaTlsError;

/// An ECDSA P-256 key that evidence is made over.
pub struct AttestedKey {
    pair: KeyPair,
    public_key: Vec<u8>,
}

impl AttestedKey {
    /// Makes a fresh key, from the system's randomness.
    pub fn generate() -> Result<Self, RaTlsError> {
        Ok(Self::from_pair(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?))
    }

    /// Reads a key as [`AttestedKey::private_key_pem`] writes it.
    pub fn from_pem(pkcs8: &str) -> Result<Self, RaTlsError> {
        Ok(Self::from_pair(KeyPair::from_pkcs8_pem_and_sign_algo(pkcs8, &PKCS_ECDSA_P256_SHA256)?))
    }

    fn from_pair(pair: KeyPair) -> Self {
        let public_key = pair.subject_public_key_info();
        Self { pair, public_key }
    }

    /// `SubjectPublicKeyInfo`, DER.
    #[must_use]
    pub fn public_key(&self) -> &[u8] {
        &self.public_key
    }

    /// What evidence for this key is made over: SHA-512("ratls-cert:" ‖ [`AttestedKey::public_key`]).
    #[must_use]
    pub fn report_data(&self) -> ReportData {
        report_data::of_tls_key(&self.public_key)
    }

    /// The private key, PKCS#8 PEM.
    #[must_use]
    pub fn private_key_pem(&self) -> Zeroizing<String> {
        Zeroizing::new(self.pair.serialize_pem())
    }

    pub(crate) fn private_key_der(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.pair.serialize_der()))
    }

    pub(crate) const fn pair(&self) -> &KeyPair {
        &self.pair
    }
}

impl fmt::Debug for AttestedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttestedKey")
            .field("public_key", &hex::encode(&self.public_key))
            .finish_non_exhaustive()
    }
}
