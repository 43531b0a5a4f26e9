use std::fmt;

use cloister_app_compose::{AppId, InstanceId};
use cloister_kms_api::AppOwnersResponse;
use cloister_kms_api::statements::{
    K256Public, SIGNATURE_BYTES, app_key_digest, app_owners_digest, env_key_digest, env_key_digest_at,
    successor_digest,
};
use p256::pkcs8::EncodePublicKey as _;
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::Zeroizing;

use crate::derived::K256;
use crate::hierarchy::{self, Secret};
use crate::{AppKey, InvalidKey};

/// Attempts to find a scalar below the curve's order; each fails with less than 2^-31.
const MAX_ATTEMPTS: usize = 16;

/// Why there is no new root.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GenerateError<E> {
    /// The source of randomness failed.
    #[error("no randomness for a new root")]
    Randomness(#[source] E),
    /// What came is no key, again and again.
    #[error("the source of randomness gives no usable keys")]
    NotRandom(#[source] InvalidKey),
}

/// The public side of a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootPublic {
    /// `SubjectPublicKeyInfo` of the certificate authority's key, DER.
    pub ca_pubkey: Vec<u8>,
    /// secp256k1 key, compressed.
    pub k256_pubkey: K256Public,
}

/// One version of the root: the P-256 key of the certificate authority, from which disk and environment keys
/// come too, and the secp256k1 key, from which the applications' own keys come.
#[derive(Clone)]
pub struct RootSecrets {
    ca: p256::SecretKey,
    ca_scalar: Secret,
    k256: K256,
    public: RootPublic,
}

impl fmt::Debug for RootSecrets {
    /// The public side only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RootSecrets").field("public", &self.public).finish_non_exhaustive()
    }
}

impl RootSecrets {
    /// From the P-256 scalar and the secp256k1 secret, 32 bytes each.
    pub fn from_bytes(ca_scalar: &[u8; 32], k256: &[u8; 32]) -> Result<Self, InvalidKey> {
        let ca = hierarchy::p256_key(ca_scalar)?;
        let k256 = K256::from_bytes(k256)?;
        let spki = ca.public_key().to_public_key_der().map_err(|_| InvalidKey("P-256"))?;
        let public = RootPublic { ca_pubkey: spki.as_bytes().to_vec(), k256_pubkey: k256.public() };
        Ok(Self { ca, ca_scalar: Zeroizing::new(*ca_scalar), k256, public })
    }

    /// A new one. `random` fills 32 bytes from a cryptographic source at each call.
    pub fn generate<E>(random: &mut dyn FnMut(&mut [u8]) -> Result<(), E>) -> Result<Self, GenerateError<E>> {
        let mut attempt = || {
            let (mut ca, mut k256) = (Zeroizing::new([0; 32]), Zeroizing::new([0; 32]));
            random(ca.as_mut_slice()).map_err(GenerateError::Randomness)?;
            random(k256.as_mut_slice()).map_err(GenerateError::Randomness)?;
            Self::from_bytes(&ca, &k256).map_err(GenerateError::NotRandom)
        };
        for _ in 1..MAX_ATTEMPTS {
            match attempt() {
                Err(GenerateError::NotRandom(_)) => {}
                made => return made,
            }
        }
        attempt()
    }

    /// The public side.
    #[must_use]
    pub fn public(&self) -> &RootPublic {
        &self.public
    }

    /// `SubjectPublicKeyInfo` of the certificate authority's key, DER.
    #[must_use]
    pub fn ca_public_key_der(&self) -> &[u8] {
        &self.public.ca_pubkey
    }

    /// The certificate authority's key, PKCS#8 DER, to issue certificates with.
    pub fn ca_key_pkcs8(&self) -> Result<Zeroizing<Vec<u8>>, InvalidKey> {
        hierarchy::pkcs8(&self.ca)
    }

    /// The certificate authority's scalar, to seal the state with.
    #[must_use]
    pub fn ca_scalar(&self) -> &[u8; 32] {
        &self.ca_scalar
    }

    /// The secp256k1 secret, to seal the state with.
    #[must_use]
    pub fn k256_secret(&self) -> &[u8; 32] {
        self.k256.secret()
    }

    /// secp256k1 key, compressed.
    #[must_use]
    pub fn k256_public(&self) -> K256Public {
        self.public.k256_pubkey
    }

    /// Opens the data disk of one CVM. Without an identity of its own it shares the disk key of its
    /// application.
    pub fn disk_key(&self, app_id: &AppId, instance_id: Option<&InstanceId>) -> Result<Secret, InvalidKey> {
        let instance: &[u8] = instance_id.map_or(&[], |id| id.as_bytes());
        hierarchy::derive_through_p256(&self.ca_scalar, &[app_id.as_bytes(), instance, b"app-disk-crypt-key"])
    }

    /// X25519 secret that opens environments of an application.
    pub fn env_key(&self, app_id: &AppId) -> Result<Secret, InvalidKey> {
        hierarchy::derive_through_p256(&self.ca_scalar, &[app_id.as_bytes(), b"env-encrypt-key"])
    }

    /// X25519 key to which environments of an application are sealed.
    pub fn env_public_key(&self, app_id: &AppId) -> Result<[u8; 32], InvalidKey> {
        let secret = StaticSecret::from(*self.env_key(app_id)?);
        Ok(PublicKey::from(&secret).to_bytes())
    }

    /// P-256 key of an application's certificate authority, PKCS#8 DER.
    pub fn app_ca_key(&self, app_id: &AppId) -> Result<Zeroizing<Vec<u8>>, InvalidKey> {
        let key = hierarchy::derive_p256(&self.ca_scalar, &[app_id.as_bytes(), b"app-ca"])?;
        hierarchy::pkcs8(&key)
    }

    /// secp256k1 key of an application, from which its named keys come.
    pub fn app_key(&self, app_id: &AppId) -> Result<AppKey, InvalidKey> {
        AppKey::from_bytes(&self.app_key_bytes(app_id))
    }

    /// A key by name, as [`AppKey::derive`] gives it, without the work that only signatures need.
    #[must_use]
    pub fn named_key(&self, app_id: &AppId, name: &str) -> Secret {
        hierarchy::derive(&self.app_key_bytes(app_id), &[name.as_bytes()])
    }

    fn app_key_bytes(&self, app_id: &AppId) -> Secret {
        hierarchy::derive(self.k256.secret(), &[app_id.as_bytes(), b"app-key"])
    }

    /// Vouches for the key of an application.
    pub fn sign_app_key(&self, app_id: &AppId) -> Result<[u8; SIGNATURE_BYTES], InvalidKey> {
        let public = self.app_key(app_id)?.public_key();
        Ok(self.k256.sign(&app_key_digest(app_id, &public)))
    }

    /// Vouches for the environment key of an application; with a Unix time in seconds, or forever.
    #[must_use]
    pub fn sign_env_public_key(
        &self,
        app_id: &AppId,
        public_key: &[u8; 32],
        timestamp: Option<u64>,
    ) -> [u8; SIGNATURE_BYTES] {
        self.k256.sign(&match timestamp {
            None => env_key_digest(app_id, public_key),
            Some(timestamp) => env_key_digest_at(app_id, public_key, timestamp),
        })
    }

    /// Says who owns an application: everything of `answer` but its signature.
    #[must_use]
    pub fn sign_app_owners(&self, answer: &AppOwnersResponse) -> [u8; SIGNATURE_BYTES] {
        self.k256.sign(&app_owners_digest(answer))
    }

    /// Makes another root the successor of this one, as `version`.
    #[must_use]
    pub fn sign_successor(&self, version: u32, successor: &RootPublic) -> [u8; SIGNATURE_BYTES] {
        self.k256.sign(&successor_digest(version, &successor.ca_pubkey, &successor.k256_pubkey))
    }
}
