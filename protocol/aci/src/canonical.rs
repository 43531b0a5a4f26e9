//! The one form in which documents are hashed and signed.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use sha2::{Digest, Sha256};

/// Largest integer that every reader of JSON tells from its neighbours.
const MAX_INTEGER: u64 = 1 << 53;

/// A document that has no canonical form here, or cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CanonicalError {
    /// Not JSON, or a member appears twice.
    #[error("not a JSON document")]
    Json(#[from] serde_json::Error),
    /// A number that readers may understand differently.
    #[error("the number {0} is not an integer that every reader understands")]
    Number(Number),
}

/// The canonical bytes of a document (RFC 8785). Numbers are integers up to 2^53: no legal content has others.
pub fn canonical(document: &Value) -> Result<Vec<u8>, CanonicalError> {
    refuse_numbers(document)?;
    Ok(serde_json_canonicalizer::to_vec(document)?)
}

/// How the hash of some bytes is written: see [`digest_text`].
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    digest_text(&Sha256::digest(bytes).into())
}

/// `sha256:` and the hash in lower-case hex: how digests are written in all documents but session ids.
#[must_use]
pub fn digest_text(hash: &[u8; 32]) -> String {
    const PREFIX: &[u8] = b"sha256:";
    let mut text = [0; PREFIX.len() + 64];
    let (prefix, digits) = text.split_at_mut(PREFIX.len());
    prefix.copy_from_slice(PREFIX);
    // Two digits for each byte have room: this cannot fail.
    let _ = hex::encode_to_slice(hash, digits);
    // All of it is ASCII: this cannot fail, either.
    String::from_utf8(text.into()).unwrap_or_default()
}

/// Reads a document. One that has a member twice is refused: two readers could see two documents under one
/// signature.
pub fn parse(bytes: &[u8]) -> Result<Value, CanonicalError> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = Strict.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

fn refuse_numbers(value: &Value) -> Result<(), CanonicalError> {
    match value {
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(integer), _) if integer <= MAX_INTEGER => Ok(()),
            (None, Some(integer)) if integer.unsigned_abs() <= MAX_INTEGER => Ok(()),
            _ => Err(CanonicalError::Number(number.clone())),
        },
        Value::Array(items) => items.iter().try_for_each(refuse_numbers),
        Value::Object(members) => members.values().try_for_each(refuse_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
    }
}

/// Reads any value, each member once.
#[derive(Clone, Copy)]
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = members.next_key_seed(Name)? {
            let value = members.next_value_seed(self)?;
            if object.contains_key(&name) {
                return Err(A::Error::custom(format_args!("the member {name:?} appears twice")));
            }
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        String::deserialize(deserializer)
    }
}
