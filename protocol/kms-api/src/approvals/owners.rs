//! Keys of people, and how many of them must agree.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};
use ssh_key::public::KeyData;
use ssh_key::{EcdsaCurve, HashAlg, PublicKey};

/// Most owners of an application.
pub const MAX_OWNERS: usize = 32;
/// Longest text of a key, comment included, in bytes.
const MAX_KEY_BYTES: usize = 1024;
/// First byte of a point with both its coordinates (SEC 1).
const UNCOMPRESSED: u8 = 4;
/// First line of the text that a digest of owners is over.
const TITLE: &str = "cloister owners v1";

/// A person's public key: Ed25519 or ECDSA P-256, in a file or in a hardware key (`sk-…`). As text it is what
/// OpenSSH writes, without the comment.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerKey {
    text: String,
    data: KeyData,
}

/// Why a text is no owner's key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOwnerKey {
    /// Not a key.
    #[error(
        "this is no public key in the form of OpenSSH; give the line of a .pub file, such as ssh-ed25519 AAAA…"
    )]
    Form,
    /// A key of another kind.
    #[error(
        "keys of type {0} cannot approve; use ssh-ed25519, ecdsa-sha2-nistp256, or a hardware key \
         (sk-ssh-ed25519@openssh.com, sk-ecdsa-sha2-nistp256@openssh.com)"
    )]
    Kind(String),
    /// A point that is none, or for which anybody can sign, or that is not written as OpenSSH does.
    #[error("nobody, or everybody, can sign for this key, or OpenSSH would write it in another form")]
    Weak,
}

impl OwnerKey {
    /// `SHA256:…`, as OpenSSH shows it.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        self.data.fingerprint(HashAlg::Sha256).to_string()
    }

    pub(super) const fn data(&self) -> &KeyData {
        &self.data
    }
}

impl FromStr for OwnerKey {
    type Err = InvalidOwnerKey;

    /// Reads the line of a `.pub` file; the comment is dropped.
    fn from_str(line: &str) -> Result<Self, InvalidOwnerKey> {
        let line = line.trim();
        if line.len() > MAX_KEY_BYTES || line.contains(['\n', '\r']) {
            return Err(InvalidOwnerKey::Form);
        }
        let key = PublicKey::from_openssh(line).map_err(|_| InvalidOwnerKey::Form)?;
        let data = key.key_data().clone();
        check(&data)?;
        let text = PublicKey::new(data.clone(), "").to_openssh().map_err(|_| InvalidOwnerKey::Form)?;
        Ok(Self { text: text.trim_end().to_owned(), data })
    }
}

fn check(data: &KeyData) -> Result<(), InvalidOwnerKey> {
    let sound = match data {
        KeyData::Ed25519(key) => sound_ed25519(&key.0),
        KeyData::SkEd25519(key) => sound_ed25519(&key.public_key().0),
        KeyData::Ecdsa(key) if key.curve() == EcdsaCurve::NistP256 => sound_p256(key.as_sec1_bytes()),
        KeyData::SkEcdsaSha2NistP256(key) => sound_p256(key.ec_point().as_bytes()),
        other => return Err(InvalidOwnerKey::Kind(other.algorithm().as_str().chars().take(64).collect())),
    };
    if sound { Ok(()) } else { Err(InvalidOwnerKey::Weak) }
}

fn sound_ed25519(bytes: &[u8; 32]) -> bool {
    ed25519_dalek::VerifyingKey::from_bytes(bytes).is_ok_and(|key| !key.is_weak())
}

/// In the form that OpenSSH writes only: in two forms one key would be two owners.
fn sound_p256(point: &[u8]) -> bool {
    point.first() == Some(&UNCOMPRESSED) && p256::ecdsa::VerifyingKey::from_sec1_bytes(point).is_ok()
}

impl fmt::Display for OwnerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for OwnerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnerKey({})", self.text)
    }
}

impl Serialize for OwnerKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for OwnerKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Who owns an application: `threshold` of the `keys` approve a change. Keys are distinct and sorted by their
/// text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Owners {
    threshold: u32,
    keys: Vec<OwnerKey>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    threshold: u32,
    keys: Vec<OwnerKey>,
}

/// Why keys and a threshold are no owners.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOwners {
    /// None, or too many.
    #[error("an application has 1 to {MAX_OWNERS} owners, not {0}")]
    Count(usize),
    /// Nobody, or more than there are.
    #[error("{threshold} of {keys} owners cannot approve; the threshold is 1 to the number of owners")]
    Threshold {
        /// What was asked for.
        threshold: u32,
        /// How many owners there are.
        keys: usize,
    },
    /// One person twice.
    #[error("the key {0} is there twice; each owner has a key of his own")]
    Twice(String),
}

impl Owners {
    /// `threshold` of `keys`, in any order.
    pub fn new(threshold: u32, mut keys: Vec<OwnerKey>) -> Result<Self, InvalidOwners> {
        if keys.is_empty() || keys.len() > MAX_OWNERS {
            return Err(InvalidOwners::Count(keys.len()));
        }
        if threshold == 0 || usize::try_from(threshold).is_ok_and(|threshold| threshold > keys.len()) {
            return Err(InvalidOwners::Threshold { threshold, keys: keys.len() });
        }
        keys.sort_unstable();
        let twice = keys.iter().zip(keys.iter().skip(1)).find(|(one, next)| one == next);
        if let Some((key, _)) = twice {
            return Err(InvalidOwners::Twice(key.fingerprint()));
        }
        Ok(Self { threshold, keys })
    }

    /// How many must approve.
    #[must_use]
    pub const fn threshold(&self) -> u32 {
        self.threshold
    }

    /// Their keys, sorted.
    #[must_use]
    pub fn keys(&self) -> &[OwnerKey] {
        &self.keys
    }

    /// What a statement names them by: SHA-256 of their text (see [`Owners`]'s `Display`).
    #[must_use]
    pub fn digest(&self) -> OwnersDigest {
        OwnersDigest(Sha256::digest(self.to_string()).into())
    }
}

impl fmt::Display for Owners {
    /// The canonical text: a title, the threshold, and a line for each key, every line with its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{TITLE}\nthreshold: {}", self.threshold)?;
        self.keys.iter().try_for_each(|key| writeln!(f, "key: {key}"))
    }
}

impl TryFrom<Unchecked> for Owners {
    type Error = InvalidOwners;

    fn try_from(unchecked: Unchecked) -> Result<Self, InvalidOwners> {
        Self::new(unchecked.threshold, unchecked.keys)
    }
}

/// SHA-256 of the canonical text of [`Owners`]; lower-case hex as text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnersDigest([u8; 32]);

impl OwnersDigest {
    /// Wraps raw bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The raw bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for OwnersDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for OwnersDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnersDigest({self})")
    }
}
