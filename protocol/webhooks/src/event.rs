//! What is told of every event, whatever its kind.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::EventKind;

/// The version of the body.
pub const BODY_VERSION: &str = "1";
const ID_PREFIX: &str = "evt_";
const ID_DIGITS: usize = 16;

/// A text that is not the id of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the id of an event: expected evt_ and 16 hexadecimal digits in lower case")]
pub struct InvalidEventId;

/// Identity of an event: `evt_` and 16 hexadecimal digits. What is sent again, by a retry or a replay, has it again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(String);

impl EventId {
    /// The id that random bytes give.
    #[must_use]
    pub fn new(random: [u8; 8]) -> Self {
        Self(format!("{ID_PREFIX}{}", hex::encode(random)))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for EventId {
    type Err = InvalidEventId;

    fn from_str(text: &str) -> Result<Self, InvalidEventId> {
        let digits = text.strip_prefix(ID_PREFIX).ok_or(InvalidEventId)?;
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if digits.len() == ID_DIGITS && digits.bytes().all(is_digit) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidEventId)
        }
    }
}

impl Serialize for EventId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for EventId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The workspace that an event is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceRef {
    /// Its name in URLs.
    pub id: String,
    /// Its name for people.
    pub name: String,
}

/// The body of a request to a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// Identity of the event: a receiver that has seen it before has nothing to do.
    pub id: EventId,
    /// What happened.
    pub event: EventKind,
    /// Version of the body.
    pub version: String,
    /// When it happened.
    pub created_at: Timestamp,
    /// Where it happened.
    pub workspace: WorkspaceRef,
    /// What is told of this kind of event; see [`crate::schema()`].
    pub data: Value,
}

impl Envelope {
    /// The envelope around the data of an event.
    #[must_use]
    pub fn new(
        id: EventId,
        event: EventKind,
        created_at: Timestamp,
        workspace: WorkspaceRef,
        data: Value,
    ) -> Self {
        Self { id, event, version: BODY_VERSION.to_owned(), created_at, workspace, data }
    }

    /// The bytes that are sent and signed: compact JSON.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // Every map of it has texts as keys and every number is finite, so writing it cannot fail.
        serde_json::to_vec(self).unwrap_or_default()
    }
}
