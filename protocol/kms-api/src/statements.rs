//! What the roots and application keys sign, and how a client verifies it (platform reference, sections 3, 6,
//! 7.3 and 10.3).
//!
//! All signatures are ECDSA over secp256k1 of a Keccak-256 digest with the recovery id behind them: `r ‖ s ‖ v`,
//! 65 bytes. A verifier recovers the signer and compares it with the key it trusts. The texts in front keep
//! one statement from being taken for another; those of public clients are fixed, those that are ours
//! ([`successor_digest`], [`app_owners_digest`]) also have a length before every part.

use cloister_app_compose::AppId;
use k256::ecdsa::{RecoveryId, Signature, VerifyingKey};
use sha3::{Digest as _, Keccak256};

use crate::approvals::Owners;
use crate::{AppOwnersResponse, EnvPublicKeyResponse, RootInfo};

/// Length of a recoverable signature: `r ‖ s ‖ v`.
pub const SIGNATURE_BYTES: usize = 65;

/// How old a signed environment key, or another statement of the moment, may be, in seconds.
pub const ENV_KEY_MAX_AGE_SECONDS: u64 = 300;

/// How far in the future it may be, in seconds: clocks differ.
pub const ENV_KEY_MAX_AHEAD_SECONDS: u64 = 60;

/// Most versions of a root that are followed.
pub const MAX_ROOTS: usize = 4096;

const ENV_KEY: &[u8] = b"dstack-env-encrypt-pubkey";
const APP_KEY: &[u8] = b"dstack-kms-issued";
/// The misspelling is what everybody hashes.
const BOOTSTRAP: &[u8] = b"dstack-kms-genereted-keys-v1:";
const SUCCESSOR: &[u8] = b"cloister-kms-root-successor-v1";
const APP_OWNERS: &[u8] = b"cloister-kms-app-owners-v1";

/// A Keccak-256 digest, 32 bytes.
pub type StatementDigest = [u8; 32];

/// A secp256k1 public key, compressed.
pub type K256Public = [u8; 33];

/// Why a statement does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatementError {
    /// Not 65 bytes.
    #[error("a signature has {SIGNATURE_BYTES} bytes, not {0}")]
    SignatureLength(usize),
    /// Values that no signer makes.
    #[error("no key makes this signature")]
    Signature,
    /// A good signature of somebody else, or over something else.
    #[error("signed by {}, not by {}", hex::encode(.signer), hex::encode(.expected))]
    OtherSigner {
        /// Who signed, if the statement is what was signed.
        signer: K256Public,
        /// Who should have.
        expected: K256Public,
    },
    /// Older than allowed.
    #[error("signed {age} seconds ago, and at most {max_age} are accepted")]
    TooOld {
        /// Age in seconds.
        age: u64,
        /// Limit in seconds.
        max_age: u64,
    },
    /// From the future.
    #[error("signed {0} seconds in the future; check the clock")]
    FromFuture(u64),
    /// A key of another length.
    #[error("{what} has {expected} bytes, not {length}")]
    KeyLength {
        /// Which key.
        what: &'static str,
        /// Its length, in bytes.
        length: usize,
        /// What it should be.
        expected: usize,
    },
    /// Not two signatures.
    #[error("a signature chain has 2 signatures, not {0}")]
    ChainLength(usize),
    /// None of the roots is the one that the caller trusts.
    #[error("none of the roots is the trusted one, {}", hex::encode(.0))]
    UnknownRoot(K256Public),
    /// A good answer to another question.
    #[error("the answer is about application {0}")]
    OtherApplication(AppId),
    /// A gap, or too many.
    #[error("the versions of the roots do not count up from one to the next")]
    RootVersions,
    /// A root that no predecessor signed.
    #[error("root {0} is not signed by its predecessor")]
    NoPredecessor(u32),
}

/// Digest of an application's environment key, without a time.
#[must_use]
pub fn env_key_digest(app_id: &AppId, public_key: &[u8; 32]) -> StatementDigest {
    keccak(&[ENV_KEY, b":", app_id.as_bytes(), public_key])
}

/// Digest of an application's environment key at a Unix time in seconds.
#[must_use]
pub fn env_key_digest_at(app_id: &AppId, public_key: &[u8; 32], timestamp: u64) -> StatementDigest {
    keccak(&[ENV_KEY, b":", app_id.as_bytes(), &timestamp.to_be_bytes(), public_key])
}

/// Digest of an application's secp256k1 key, which the root signs.
#[must_use]
pub fn app_key_digest(app_id: &AppId, public_key: &K256Public) -> StatementDigest {
    keccak(&[APP_KEY, b":", app_id.as_bytes(), public_key])
}

/// Digest of a key that an application derived for a purpose, which the application's key signs. The public
/// key is a compressed secp256k1 key (33 bytes) or an Ed25519 key (32 bytes).
#[must_use]
pub fn purpose_digest(purpose: &str, public_key: &[u8]) -> StatementDigest {
    keccak(&[purpose.as_bytes(), b":", hex::encode(public_key).as_bytes()])
}

/// Digest of a new version of the root, which its predecessor signs. `ca_pubkey` is the
/// `SubjectPublicKeyInfo` of its certificate authority, DER.
#[must_use]
pub fn successor_digest(version: u32, ca_pubkey: &[u8], k256_pubkey: &K256Public) -> StatementDigest {
    keccak_of_parts(&[SUCCESSOR, &version.to_be_bytes(), ca_pubkey, k256_pubkey])
}

/// Digest of what a KMS says about the owners of an application, without the signature itself. An application
/// without owners has an empty digest of them.
#[must_use]
pub fn app_owners_digest(answer: &AppOwnersResponse) -> StatementDigest {
    let owners = answer.owners.as_ref().map(Owners::digest);
    keccak_of_parts(&[
        APP_OWNERS,
        answer.app_id.as_bytes(),
        owners.as_ref().map_or(&[], |digest| digest.as_bytes().as_slice()),
        &answer.serial.to_be_bytes(),
        &answer.allowed_documents.to_be_bytes(),
        &answer.timestamp.to_be_bytes(),
        &answer.root_version.to_be_bytes(),
    ])
}

/// What the evidence of a KMS that made its first root is about: both public keys, 64 bytes. `ca_pubkey` is
/// `SubjectPublicKeyInfo` in DER.
#[must_use]
pub fn bootstrap_report_data(ca_pubkey: &[u8], k256_pubkey: &K256Public) -> [u8; 64] {
    let (ca, k256) = (hex::encode(ca_pubkey), hex::encode(k256_pubkey));
    let digest = keccak(&[BOOTSTRAP, ca.as_bytes(), b";", k256.as_bytes(), b";"]);
    let mut report_data = [0; 64];
    report_data.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
    report_data
}

/// Who signed a digest. The last byte of the signature is 0 or 1, or 27 or 28 as Ethereum counts. Of the two
/// forms of one signature only that with the smaller `s` is taken.
pub fn recover(digest: &StatementDigest, signature: &[u8]) -> Result<K256Public, StatementError> {
    let whole: &[u8; SIGNATURE_BYTES] =
        signature.try_into().map_err(|_| StatementError::SignatureLength(signature.len()))?;
    let [scalars @ .., v] = whole;
    let recovery_id = match v {
        0 | 27 => RecoveryId::new(false, false),
        1 | 28 => RecoveryId::new(true, false),
        _ => return Err(StatementError::Signature),
    };
    let scalars = Signature::from_slice(scalars).map_err(|_| StatementError::Signature)?;
    if scalars.normalize_s() != scalars {
        return Err(StatementError::Signature);
    }
    let key = VerifyingKey::recover_from_prehash(digest, &scalars, recovery_id)
        .map_err(|_| StatementError::Signature)?;
    compressed(key.to_sec1_point(true).as_bytes()).ok_or(StatementError::Signature)
}

/// That `signer` signed a digest.
pub fn verify(digest: &StatementDigest, signature: &[u8], signer: &K256Public) -> Result<(), StatementError> {
    match recover(digest, signature)? {
        found if found == *signer => Ok(()),
        found => Err(StatementError::OtherSigner { signer: found, expected: *signer }),
    }
}

/// That `root` vouches for an application's environment key, at any time: the form of older clients.
pub fn verify_env_key(
    app_id: &AppId,
    public_key: &[u8; 32],
    signature: &[u8],
    root: &K256Public,
) -> Result<(), StatementError> {
    verify(&env_key_digest(app_id, public_key), signature, root)
}

/// That `root` vouched for an application's environment key not long before `now`, Unix time in seconds.
pub fn verify_env_key_at(
    app_id: &AppId,
    public_key: &[u8; 32],
    timestamp: u64,
    signature: &[u8],
    now: u64,
    root: &K256Public,
) -> Result<(), StatementError> {
    verify_fresh(timestamp, now)?;
    verify(&env_key_digest_at(app_id, public_key, timestamp), signature, root)
}

/// The environment key in an answer of a KMS, after both its signatures were verified against `root`. `now` is
/// Unix time in seconds.
pub fn verify_env_answer(
    app_id: &AppId,
    answer: &EnvPublicKeyResponse,
    now: u64,
    root: &K256Public,
) -> Result<[u8; 32], StatementError> {
    let public_key = answer.public_key.as_ref();
    let public_key: [u8; 32] = public_key.try_into().map_err(|_| StatementError::KeyLength {
        what: "an environment key",
        length: public_key.len(),
        expected: 32,
    })?;
    verify_env_key(app_id, &public_key, answer.signature.as_ref(), root)?;
    verify_env_key_at(app_id, &public_key, answer.timestamp, answer.signature_v1.as_ref(), now, root)?;
    Ok(public_key)
}

/// That `root` said not long before `now`, Unix time in seconds, who owns an application. What the owners are is
/// for the caller to compare.
pub fn verify_app_owners(
    app_id: &AppId,
    answer: &AppOwnersResponse,
    now: u64,
    root: &K256Public,
) -> Result<(), StatementError> {
    if answer.app_id != *app_id {
        return Err(StatementError::OtherApplication(answer.app_id));
    }
    verify_fresh(answer.timestamp, now)?;
    verify(&app_owners_digest(answer), answer.signature.as_ref(), root)
}

fn verify_fresh(timestamp: u64, now: u64) -> Result<(), StatementError> {
    let age = now.saturating_sub(timestamp);
    if age > ENV_KEY_MAX_AGE_SECONDS {
        return Err(StatementError::TooOld { age, max_age: ENV_KEY_MAX_AGE_SECONDS });
    }
    let ahead = timestamp.saturating_sub(now);
    if ahead > ENV_KEY_MAX_AHEAD_SECONDS {
        return Err(StatementError::FromFuture(ahead));
    }
    Ok(())
}

/// That `root` vouches for an application's secp256k1 key.
pub fn verify_app_key(
    app_id: &AppId,
    public_key: &K256Public,
    signature: &[u8],
    root: &K256Public,
) -> Result<(), StatementError> {
    verify(&app_key_digest(app_id, public_key), signature, root)
}

/// That a key was derived by an application for a purpose, under `root`: the two signatures of a guest agent's
/// `GetKey`. Returns the application's key.
pub fn verify_key_chain(
    app_id: &AppId,
    purpose: &str,
    public_key: &[u8],
    chain: &[impl AsRef<[u8]>],
    root: &K256Public,
) -> Result<K256Public, StatementError> {
    let [by_app, by_root] = chain else {
        return Err(StatementError::ChainLength(chain.len()));
    };
    let app_key = recover(&purpose_digest(purpose, public_key), by_app.as_ref())?;
    verify_app_key(app_id, &app_key, by_root.as_ref(), root)?;
    Ok(app_key)
}

/// That `predecessor` made a root its successor.
pub fn verify_successor(successor: &RootInfo, predecessor: &K256Public) -> Result<(), StatementError> {
    let signature =
        successor.predecessor_signature.as_ref().ok_or(StatementError::NoPredecessor(successor.version))?;
    let digest =
        successor_digest(successor.version, successor.ca_pubkey.as_ref(), &k256_public_of(successor)?);
    verify(&digest, signature.as_ref(), predecessor)
}

/// The current root, for a client that trusts one version of it: the trusted one or, by the signatures of one
/// over the next, a successor of it. `roots` are all versions, oldest first, as a KMS tells them. Roots before
/// the trusted one prove nothing, and are not looked at.
pub fn current_root<'a>(roots: &'a [RootInfo], trusted: &K256Public) -> Result<&'a RootInfo, StatementError> {
    if roots.len() > MAX_ROOTS {
        return Err(StatementError::RootVersions);
    }
    let mut from_trusted = roots.iter().skip_while(|root| root.k256_pubkey.as_ref() != trusted);
    let mut current = from_trusted.next().ok_or(StatementError::UnknownRoot(*trusted))?;
    for next in from_trusted {
        if current.version.checked_add(1) != Some(next.version) {
            return Err(StatementError::RootVersions);
        }
        verify_successor(next, &k256_public_of(current)?)?;
        current = next;
    }
    Ok(current)
}

fn k256_public_of(root: &RootInfo) -> Result<K256Public, StatementError> {
    let key = root.k256_pubkey.as_ref();
    compressed(key).ok_or(StatementError::KeyLength { what: "a root's key", length: key.len(), expected: 33 })
}

fn compressed(bytes: &[u8]) -> Option<K256Public> {
    bytes.try_into().ok()
}

/// With the length of each part before it: no part can be taken for another.
fn keccak_of_parts(parts: &[&[u8]]) -> StatementDigest {
    let mut hasher = Keccak256::new();
    for part in parts {
        hasher.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

fn keccak(parts: &[&[u8]]) -> StatementDigest {
    let mut hasher = Keccak256::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize().into()
}

#[cfg(test)]
mod tests;
