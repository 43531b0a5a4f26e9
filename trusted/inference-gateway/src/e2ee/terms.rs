//! What the headers of a request ask for.

use cloister_aci::e2ee::{self, E2eeError, SecretKey, Suite, v1};
use http::{HeaderMap, HeaderName};
use sha2::{Digest as _, Sha256};

use super::refused;
use crate::error::GatewayError;
use crate::proof::{Keys, SigningAlgo};

const VERSION: HeaderName = HeaderName::from_static("x-e2ee-version");
const CLIENT_KEY: HeaderName = HeaderName::from_static("x-client-pub-key");
const MODEL_KEY: HeaderName = HeaderName::from_static("x-model-pub-key");
const NONCE: HeaderName = HeaderName::from_static("x-e2ee-nonce");
const TIMESTAMP: HeaderName = HeaderName::from_static("x-e2ee-timestamp");
/// Selects the older version.
const SIGNING_ALGO: HeaderName = HeaderName::from_static("x-signing-algo");

/// Seconds that the client's clock may differ from ours.
pub(super) const SKEW_S: u64 = 300;

/// Whether a request asks for encryption.
#[must_use]
pub fn is_asked(headers: &HeaderMap) -> bool {
    [VERSION, CLIENT_KEY, MODEL_KEY, NONCE, TIMESTAMP, SIGNING_ALGO]
        .iter()
        .any(|name| headers.contains_key(name))
}

/// A version with what it has beside keys.
#[derive(Debug, Clone)]
pub(super) enum Version {
    One(SigningAlgo),
    Two {
        /// As it was sent.
        nonce: String,
        ts: i64,
    },
}

/// What a client asks for.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    version: Version,
    suite: Suite,
    /// What answers are encrypted to.
    client_key: Vec<u8>,
    fingerprint: [u8; 32],
}

/// A secret of the gateway's own, or one that was made from another.
pub(super) enum Secret<'a> {
    Own(&'a SecretKey),
    Made(SecretKey),
}

impl std::ops::Deref for Secret<'_> {
    type Target = SecretKey;

    fn deref(&self) -> &SecretKey {
        match self {
            Self::Own(key) => key,
            Self::Made(key) => key,
        }
    }
}

impl Terms {
    /// Reads the headers, for a gateway with these keys.
    pub(super) fn read(headers: &HeaderMap, keys: &Keys, now: u64) -> Result<Self, GatewayError> {
        if headers.contains_key(SIGNING_ALGO) {
            Self::older(headers, keys)
        } else {
            Self::newer(headers, keys, now)
        }
    }

    fn newer(headers: &HeaderMap, keys: &Keys, now: u64) -> Result<Self, GatewayError> {
        if headers.contains_key(VERSION) && only(headers, &VERSION)? != e2ee::VERSION {
            return Err(invalid_version("X-E2EE-Version must be 2"));
        }
        let [_, client_key, model_key, nonce, timestamp] = [
            only(headers, &VERSION)?,
            only(headers, &CLIENT_KEY)?,
            only(headers, &MODEL_KEY)?,
            only(headers, &NONCE)?,
            only(headers, &TIMESTAMP)?,
        ];
        let own = [&keys.x25519, &keys.secp256k1];
        let is_key = |suite| e2ee::public_key(suite, model_key).is_ok();
        if ![Suite::X25519, Suite::Secp256k1].into_iter().any(is_key) {
            return Err(invalid_key("X-Model-Pub-Key is not a public key"));
        }
        let suite = own
            .iter()
            .find(|key| e2ee::public_key(key.suite(), model_key).is_ok_and(|named| named == key.public_key()))
            .map(|key| key.suite())
            .ok_or_else(other_key)?;
        let client_key = e2ee::public_key(suite, client_key).map_err(|_| bad_client_key())?;
        let challenge = hex::decode(nonce).ok().filter(|bytes| bytes.len() == 32);
        let challenge =
            challenge.ok_or_else(|| refused("e2ee_invalid_nonce", "X-E2EE-Nonce must be 64 hex digits"))?;
        let ts = accepted(timestamp, now)?;
        // Without the client's key, which nothing binds to what is encrypted: who ends TLS could send it again beside
        // another one, or beside another spelling of the same.
        let fingerprint =
            Sha256::new().chain_update(service_key(keys, suite)).chain_update(challenge).finalize().into();
        let version = Version::Two { nonce: nonce.to_owned(), ts };
        Self { version, suite, client_key, fingerprint }.usable()
    }

    fn older(headers: &HeaderMap, keys: &Keys) -> Result<Self, GatewayError> {
        let algo: SigningAlgo = only(headers, &SIGNING_ALGO)?.parse().map_err(|()| {
            refused("e2ee_invalid_signing_algo", "X-Signing-Algo must be 'ecdsa' or 'ed25519'")
        })?;
        let is_older = !headers.contains_key(VERSION) || only(headers, &VERSION)? == v1::VERSION;
        if !is_older || headers.contains_key(NONCE) || headers.contains_key(TIMESTAMP) {
            return Err(invalid_version(
                "X-Signing-Algo belongs to version 1, which has no nonce and no timestamp",
            ));
        }
        let (client_key, model_key) = (only(headers, &CLIENT_KEY)?, only(headers, &MODEL_KEY)?);
        // Keys of Ed25519 have the form of those of X25519.
        let suite = match algo {
            SigningAlgo::Ecdsa => Suite::Secp256k1,
            SigningAlgo::Ed25519 => Suite::X25519,
        };
        let named = e2ee::public_key(suite, model_key)
            .map_err(|_| invalid_key("X-Model-Pub-Key is not a public key"))?;
        let own = match algo {
            SigningAlgo::Ecdsa => keys.secp256k1.public_key(),
            SigningAlgo::Ed25519 => keys.legacy.ed25519_public_key().to_vec(),
        };
        if named != own {
            return Err(other_key());
        }
        let client_key = e2ee::public_key(suite, client_key).map_err(|_| bad_client_key())?;
        let client_key = match algo {
            SigningAlgo::Ecdsa => client_key,
            SigningAlgo::Ed25519 => v1::public_of_ed25519(&client_key).map_err(|_| bad_client_key())?,
        };
        Self { version: Version::One(algo), suite, client_key, fingerprint: [0; 32] }.usable()
    }

    /// A key that answers cannot be encrypted to is found out before anybody is asked for an answer.
    fn usable(self) -> Result<Self, GatewayError> {
        match self.seal("", "", "", b"") {
            Err(E2eeError::PublicKey) => Err(bad_client_key()),
            _ => Ok(self),
        }
    }

    /// What opens the client's values.
    pub(super) fn secret<'a>(&self, keys: &'a Keys) -> Result<Secret<'a>, GatewayError> {
        Ok(match (&self.version, self.suite) {
            (Version::One(SigningAlgo::Ed25519), _) => Secret::Made(
                v1::secret_of_ed25519(&keys.legacy.ed25519)
                    .map_err(|_| refused("e2ee_decryption_failed", "A field cannot be decrypted"))?,
            ),
            (_, Suite::X25519) => Secret::Own(&keys.x25519),
            (_, Suite::Secp256k1) => Secret::Own(&keys.secp256k1),
        })
    }

    /// What may come once only, and until when it has to be remembered: for as long as its time is accepted.
    pub(super) fn challenge(&self) -> Option<([u8; 32], u64)> {
        let Version::Two { ts, .. } = self.version else { return None };
        Some((self.fingerprint, u64::try_from(ts).unwrap_or_default().saturating_add(SKEW_S + 1)))
    }

    /// Whether images and sounds are encrypted, too.
    pub(super) const fn opens_media(&self) -> bool {
        matches!(self.version, Version::Two { .. })
    }

    pub(super) const fn asked(&self) -> &Version {
        &self.version
    }

    pub(super) const fn suite(&self) -> Suite {
        self.suite
    }

    pub(super) fn client_key(&self) -> &[u8] {
        &self.client_key
    }

    /// As headers have it.
    pub(super) const fn version(&self) -> &'static str {
        match self.version {
            Version::One(_) => v1::VERSION,
            Version::Two { .. } => e2ee::VERSION,
        }
    }

    /// As headers have it.
    pub(super) const fn algo(&self) -> &'static str {
        match self.version {
            Version::One(algo) => algo.as_str(),
            Version::Two { .. } => self.suite.algo(),
        }
    }
}

fn service_key(keys: &Keys, suite: Suite) -> Vec<u8> {
    match suite {
        Suite::X25519 => keys.x25519.public_key(),
        Suite::Secp256k1 => keys.secp256k1.public_key(),
    }
}

/// A time that is near ours.
fn accepted(text: &str, now: u64) -> Result<i64, GatewayError> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let ts = text.parse::<u64>().ok().filter(|ts| is_number && ts.abs_diff(now) <= SKEW_S);
    ts.and_then(|ts| i64::try_from(ts).ok()).ok_or_else(|| {
        refused("e2ee_invalid_timestamp", "X-E2EE-Timestamp must be the current Unix time in seconds")
    })
}

/// The value of a header that stands there once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a str, GatewayError> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().filter(|_| values.next().is_none()).and_then(|value| value.to_str().ok());
    value.ok_or_else(|| refused("e2ee_header_missing", &format!("The header {name} is needed, once")))
}

fn invalid_version(message: &str) -> GatewayError {
    refused("e2ee_invalid_version", message)
}

fn invalid_key(message: &str) -> GatewayError {
    refused("e2ee_invalid_public_key", message)
}

fn bad_client_key() -> GatewayError {
    invalid_key("X-Client-Pub-Key is not a public key of this algorithm")
}

fn other_key() -> GatewayError {
    refused("e2ee_model_key_mismatch", "X-Model-Pub-Key is no key of this gateway")
}
