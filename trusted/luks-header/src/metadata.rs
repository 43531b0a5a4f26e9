//! The JSON part of a header: what we make, as cryptsetup writes it, and what varies in that.

use std::ops::Range;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::cryptsetup::{CIPHER, HASH, ITERATIONS, KEY_BYTES, SECTOR_BYTES};
use crate::{COPY_BYTES, KEY_AREA_BYTES, KEY_AREAS, PAYLOAD_OFFSET};

const SALT_BYTES: usize = 32;
const DIGEST_BYTES: usize = 64;
const JSON_BYTES: usize = COPY_BYTES - 4096;
/// What LUKS splits a key into, so that no single lost sector keeps it.
const STRIPES: u32 = 4000;

/// What varies in the JSON of headers of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Metadata {
    /// Where the key area in use begins.
    key_area: usize,
    slot_salt: [u8; SALT_BYTES],
    digest_salt: [u8; SALT_BYTES],
    digest: [u8; DIGEST_BYTES],
}

impl Metadata {
    /// Takes what varies from a text, makes the text anew, and compares byte by byte: whoever reads the text
    /// after us, by whatever rules of JSON, reads what we have judged.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        let found: Value = serde_json::from_slice(text).map_err(|_| "its JSON is none")?;
        let offset = found.pointer("/keyslots/0/area/offset").and_then(Value::as_str).unwrap_or_default();
        let metadata = Self {
            key_area: if offset == KEY_AREAS[1].to_string() { KEY_AREAS[1] } else { KEY_AREAS[0] },
            slot_salt: bytes(&found, "/keyslots/0/kdf/salt")?,
            digest_salt: bytes(&found, "/digests/0/salt")?,
            digest: bytes(&found, "/digests/0/digest")?,
        };
        if let Some(path) = difference(&metadata.json(), &found) {
            return Err(format!("its JSON differs at {path}"));
        }
        if metadata.text() != text {
            return Err("its JSON is written in another way".to_owned());
        }
        Ok(metadata)
    }

    /// Where on the disk the key area in use lies.
    pub(crate) fn key_area(&self) -> Range<usize> {
        self.key_area..self.key_area + KEY_AREA_BYTES
    }

    /// The text, without a NUL.
    pub(crate) fn text(&self) -> Vec<u8> {
        self.json().to_string().into_bytes()
    }

    /// Members stand in the order in which cryptsetup writes them.
    fn json(&self) -> Value {
        let area = self.key_area();
        json!({
            "keyslots": {"0": {
                "type": "luks2",
                "key_size": KEY_BYTES,
                "af": {"type": "luks1", "stripes": STRIPES, "hash": HASH},
                "area": {
                    "type": "raw",
                    "offset": area.start.to_string(),
                    "size": KEY_AREA_BYTES.to_string(),
                    "encryption": CIPHER,
                    "key_size": KEY_BYTES,
                },
                "kdf": {
                    "type": "pbkdf2",
                    "hash": HASH,
                    "iterations": ITERATIONS,
                    "salt": BASE64_STANDARD.encode(self.slot_salt),
                },
            }},
            "tokens": {},
            "segments": {"0": {
                "type": "crypt",
                "offset": PAYLOAD_OFFSET.to_string(),
                "size": "dynamic",
                "iv_tweak": "0",
                "encryption": CIPHER,
                "sector_size": SECTOR_BYTES,
            }},
            "digests": {"0": {
                "type": "pbkdf2",
                "keyslots": ["0"],
                "segments": ["0"],
                "hash": HASH,
                "iterations": ITERATIONS,
                "salt": BASE64_STANDARD.encode(self.digest_salt),
                "digest": BASE64_STANDARD.encode(self.digest),
            }},
            "config": {
                "json_size": JSON_BYTES.to_string(),
                "keyslots_size": (2 * KEY_AREA_BYTES).to_string(),
            },
        })
    }
}

/// Bytes that a document holds as Base64.
fn bytes<const N: usize>(document: &Value, pointer: &str) -> Result<[u8; N], String> {
    let text = document.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let bytes = BASE64_STANDARD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| format!("its JSON differs at {pointer}"))
}

/// Where two documents first differ, as a JSON pointer of names that are ours.
fn difference(expected: &Value, found: &Value) -> Option<String> {
    let (Value::Object(members), Value::Object(others)) = (expected, found) else {
        return (expected != found).then(String::new);
    };
    let differing = members.iter().find_map(|(name, value)| {
        let path = match others.get(name) {
            Some(other) => difference(value, other)?,
            None => String::new(),
        };
        Some(format!("/{name}{path}"))
    });
    differing.or_else(|| (members.len() != others.len()).then(|| "/ (a further member)".to_owned()))
}
