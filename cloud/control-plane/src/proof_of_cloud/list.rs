//! The list: its document, its signature, and what it says.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use minisign_verify::{PublicKey, Signature};
use serde::Deserialize;

/// The only format that is understood.
const FORMAT: &str = "cloister-platforms/1";
/// Most platforms of a list.
const MAX_PLATFORMS: usize = 100_000;
/// Longest name of a provider, in bytes.
const MAX_PROVIDER: usize = 100;
/// Levels of assurance: a person saw it, it was proved automatically, it is proved continuously.
const LEVELS: std::ops::RangeInclusive<u8> = 1..=3;

/// Who signs lists: a minisign public key.
#[derive(Clone)]
pub struct ListSigner {
    text: String,
    key: PublicKey,
}

/// A text that is no minisign public key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a minisign public key: give the second line of the .pub file, such as RWRHjptH…")]
pub struct InvalidKey;

impl FromStr for ListSigner {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        let key = PublicKey::from_base64(text).map_err(|_| InvalidKey)?;
        Ok(Self { text: text.to_owned(), key })
    }
}

impl fmt::Display for ListSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for ListSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ListSigner({})", self.text)
    }
}

/// A platform: `intel:tdx:ppid:<32 hex digits>` or `amd:snp:chipid:<128 hex digits>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct PlatformKey(String);

/// A text that names no platform.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a platform: use intel:tdx:ppid:<32 hex digits> or amd:snp:chipid:<128 hex digits>")]
pub struct InvalidPlatform;

const KINDS: [(&str, usize); 2] = [("intel:tdx:ppid:", 32), ("amd:snp:chipid:", 128)];

impl PlatformKey {
    /// The platform with an Intel PPID.
    #[must_use]
    pub fn intel(ppid: &[u8; 16]) -> Self {
        Self(format!("intel:tdx:ppid:{}", hex::encode(ppid)))
    }
}

impl FromStr for PlatformKey {
    type Err = InvalidPlatform;

    fn from_str(text: &str) -> Result<Self, InvalidPlatform> {
        let is_platform = KINDS.iter().any(|(kind, digits)| {
            text.strip_prefix(kind).is_some_and(|id| {
                id.len() == *digits && id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
            })
        });
        is_platform.then(|| Self(text.to_owned())).ok_or(InvalidPlatform)
    }
}

impl TryFrom<String> for PlatformKey {
    type Error = InvalidPlatform;

    fn try_from(text: String) -> Result<Self, InvalidPlatform> {
        text.parse()
    }
}

/// What a list says about a platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// Who runs the facility.
    pub provider: String,
    /// 1 seen by a person, 2 proved automatically, 3 proved continuously.
    pub level: u8,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: String,
    serial: i64,
    issued_at: Timestamp,
    expires_at: Timestamp,
    platforms: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    platform: PlatformKey,
    provider: String,
    level: u8,
    added_at: Timestamp,
    #[serde(default)]
    revoked_at: Option<Timestamp>,
}

/// Why a list is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum ListError {
    #[error("the signature of the list cannot be read")]
    Signature,
    #[error("the list was not signed by the configured key")]
    Signer,
    #[error("the list is not a document of the format {FORMAT}")]
    Document(#[source] serde_json::Error),
    #[error("the list cannot be used: {0}")]
    Content(String),
}

/// A list whose signature holds.
#[derive(Debug)]
pub(super) struct PlatformList {
    serial: i64,
    issued_at: Timestamp,
    expires_at: Timestamp,
    platforms: BTreeMap<PlatformKey, Entry>,
}

impl PlatformList {
    /// Checks the signature, then reads the document.
    pub(super) fn verified(document: &[u8], signature: &str, signer: &ListSigner) -> Result<Self, ListError> {
        let signature = Signature::decode(signature).map_err(|_| ListError::Signature)?;
        signer.key.verify(document, &signature, false).map_err(|_| ListError::Signer)?;
        Self::parse(document)
    }

    fn parse(document: &[u8]) -> Result<Self, ListError> {
        let content = |text: &str| ListError::Content(text.to_owned());
        let document: Document = serde_json::from_slice(document).map_err(ListError::Document)?;
        if document.format != FORMAT {
            return Err(content("its format is of another version"));
        }
        if document.serial < 0 || document.issued_at >= document.expires_at {
            return Err(content("its serial is negative, or it expires before it is issued"));
        }
        if document.platforms.len() > MAX_PLATFORMS {
            return Err(content("it has more than 100,000 platforms"));
        }
        let mut platforms = BTreeMap::new();
        for entry in document.platforms {
            let provider_fits = (1..=MAX_PROVIDER).contains(&entry.provider.len())
                && !entry.provider.chars().any(char::is_control);
            if !provider_fits || !LEVELS.contains(&entry.level) {
                return Err(ListError::Content(format!(
                    "{} needs a provider of up to {MAX_PROVIDER} characters and a level from 1 to 3",
                    entry.platform.0
                )));
            }
            if let Some(twice) = platforms.insert(entry.platform.clone(), entry) {
                return Err(ListError::Content(format!("{} is in it twice", twice.platform.0)));
            }
        }
        Ok(Self {
            serial: document.serial,
            issued_at: document.issued_at,
            expires_at: document.expires_at,
            platforms,
        })
    }

    pub(super) const fn serial(&self) -> i64 {
        self.serial
    }

    pub(super) const fn issued_at(&self) -> Timestamp {
        self.issued_at
    }

    pub(super) const fn expires_at(&self) -> Timestamp {
        self.expires_at
    }

    pub(super) fn len(&self) -> usize {
        self.platforms.len()
    }

    pub(super) fn is_current(&self, now: Timestamp) -> bool {
        self.issued_at <= now && now < self.expires_at
    }

    /// What the list says about a platform at a time.
    pub(super) fn registration(&self, platform: &PlatformKey, now: Timestamp) -> Option<Registration> {
        let entry = self.platforms.get(platform).filter(|_| self.is_current(now))?;
        let counts = entry.added_at <= now && entry.revoked_at.is_none_or(|revoked_at| now < revoked_at);
        counts.then(|| Registration { provider: entry.provider.clone(), level: entry.level })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn list(change: impl FnOnce(&mut Value)) -> Result<PlatformList, ListError> {
        let mut document = json!({
            "format": FORMAT, "serial": 1,
            "issued_at": "2025-01-01T00:00:00Z", "expires_at": "2026-01-01T00:00:00Z",
            "platforms": [{
                "platform": format!("intel:tdx:ppid:{}", "ab".repeat(16)), "provider": "x", "level": 1,
                "added_at": "2025-01-01T00:00:00Z",
            }],
        });
        change(&mut document);
        PlatformList::parse(document.to_string().as_bytes())
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        assert!(list(|_| {}).is_ok());
        for (at, value) in [
            ("/format", json!("cloister-platforms/2")),
            ("/serial", json!(-1)),
            ("/serial", json!("1")),
            ("/expires_at", json!("2025-01-01T00:00:00Z")),
            ("/platforms/0/level", json!(0)),
            ("/platforms/0/level", json!(4)),
            ("/platforms/0/provider", json!("")),
            ("/platforms/0/provider", json!("a\nb")),
            ("/platforms/0/platform", json!("intel:tdx:ppid:ab")),
            ("/platforms/0/platform", json!(format!("intel:tdx:ppid:{}", "AB".repeat(16)))),
            ("/platforms/0/added_at", json!("yesterday")),
        ] {
            let refused = list(|document| *document.pointer_mut(at).unwrap() = value.clone());
            assert!(refused.is_err(), "{at} = {value}");
        }
        let twice = list(|document| {
            let entry = document["platforms"][0].clone();
            document["platforms"].as_array_mut().unwrap().push(entry);
        });
        assert!(twice.unwrap_err().to_string().contains("twice"));
        assert!(list(|document| document["more"] = json!(1)).is_err(), "what is not understood may matter");
    }

    proptest! {
        #[test]
        fn no_document_and_no_signature_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), text in ".{0,300}") {
            let signer: ListSigner = include_str!("fixtures/signer.txt").trim().parse().unwrap();
            prop_assert!(PlatformList::verified(&bytes, &text, &signer).is_err());
            prop_assert!(PlatformList::parse(&bytes).is_err());
        }
    }
}
