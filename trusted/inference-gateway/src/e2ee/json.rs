//! JSON can be far larger in memory than it is written: what is changed is read with a limit, and the rest goes through
//! as it comes.

use std::io::{self, Write};

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::body::most_values;
use crate::error::{GatewayError, Kind};

/// Most values of the members that can be encrypted, decrypted ones among them.
const MAX_VALUES: usize = 1 << 16;
/// What JSON in its one form may be longer than twice what came, in bytes.
const SLACK: usize = 1 << 16;

/// What is not JSON, in the words of [`crate::body::Body::parse`].
fn unreadable(error: &serde_json::Error) -> GatewayError {
    GatewayError::new(Kind::InvalidRequest, format!("invalid json: {error}"))
}

/// Values that may yet be read.
#[derive(Debug)]
pub(super) struct Values {
    left: usize,
}

impl Values {
    pub(super) const fn new() -> Self {
        Self { left: MAX_VALUES }
    }

    /// Counts what a text holds, before anybody reads it.
    pub(super) fn take(&mut self, json: &str) -> Result<(), GatewayError> {
        let left = self.left.checked_sub(most_values(json.as_bytes())).ok_or_else(|| {
            let message =
                format!("An encrypted request may have at most {MAX_VALUES} values in what can be encrypted");
            GatewayError::new(Kind::InvalidRequest, message)
        })?;
        self.left = left;
        Ok(())
    }

    pub(super) fn read(&mut self, json: &str) -> Result<Value, GatewayError> {
        self.take(json)?;
        serde_json::from_str(json).map_err(|error| unreadable(&error))
    }
}

/// A value in its one form: without spaces, each text and number written in one way.
pub(super) fn compact(value: &RawValue) -> Result<Vec<u8>, serde_json::Error> {
    let mut written = Bounded::of(value.get().len());
    written.through(value)?;
    Ok(written.bytes)
}

/// An object in that form.
#[derive(Debug)]
pub(super) struct Compact(Bounded);

impl Compact {
    /// For what came as so many bytes.
    pub(super) fn of(length: usize) -> Self {
        Self(Bounded::of(length))
    }

    /// A member that was read.
    pub(super) fn value(&mut self, name: &str, value: &Value) -> Result<(), GatewayError> {
        let written = self.name(name).and_then(|()| serde_json::to_writer(&mut self.0, value));
        written.map_err(|error| self.failed(&error))
    }

    /// A member as it came. It is written as it would be if it were read.
    pub(super) fn raw(&mut self, name: &str, value: &RawValue) -> Result<(), GatewayError> {
        let written = self.name(name).and_then(|()| self.0.through(value));
        written.map_err(|error| self.failed(&error))
    }

    fn name(&mut self, name: &str) -> Result<(), serde_json::Error> {
        let before = if self.0.bytes.is_empty() { "{" } else { "," };
        self.0.push(before)?;
        serde_json::to_writer(&mut self.0, name)?;
        self.0.push(":")
    }

    fn failed(&self, error: &serde_json::Error) -> GatewayError {
        if self.0.is_full {
            GatewayError::new(Kind::TooLarge, "The request is too large when it is decrypted")
        } else {
            unreadable(error)
        }
    }

    /// The object, of which there is at least one member.
    pub(super) fn done(self) -> Vec<u8> {
        let mut bytes = self.0.bytes;
        bytes.push(b'}');
        bytes
    }
}

/// Bytes up to a limit.
#[derive(Debug)]
struct Bounded {
    bytes: Vec<u8>,
    most: usize,
    is_full: bool,
}

impl Bounded {
    /// For what came as so many bytes.
    fn of(length: usize) -> Self {
        let most = length.saturating_mul(2).saturating_add(SLACK);
        Self { bytes: Vec::with_capacity(length), most, is_full: false }
    }

    /// Writes a value while it is read, without keeping any of it.
    fn through(&mut self, value: &RawValue) -> Result<(), serde_json::Error> {
        let mut read = serde_json::Deserializer::from_str(value.get());
        serde_transcode::transcode(&mut read, &mut serde_json::Serializer::new(self))
    }

    fn push(&mut self, text: &str) -> Result<(), serde_json::Error> {
        self.write_all(text.as_bytes()).map_err(serde_json::Error::io)
    }
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.is_full |= self.bytes.len().saturating_add(bytes.len()) > self.most;
        if self.is_full {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A part of a content, of which nothing is kept.
#[derive(Deserialize)]
struct Part {}

/// Whether a text is a list of objects.
pub(super) fn is_parts(json: &str) -> bool {
    // Entries without a size: the list takes no memory.
    serde_json::from_str::<Vec<Part>>(json).is_ok_and(|parts| !parts.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn through(json: &str) -> Result<Vec<u8>, GatewayError> {
        let value: Box<RawValue> = serde_json::from_str(json).unwrap();
        let mut object = Compact::of(json.len());
        object.raw("x", &value)?;
        Ok(object.done())
    }

    #[test]
    fn what_goes_through_is_written_as_if_it_were_read() {
        for json in [
            r#" { "a" : [ 1.50 , -0, 1e2, 12345678901234567890, -7, 1e-7 ] , "\u00e9\n" : "\u00e9\u001f\/\"" }"#,
            "[]",
            "{}",
            "[[], {}, [null, true, false]]",
            "123456789012345678901234567890",
            "1.7976931348623157e308",
        ] {
            let read: Value = serde_json::from_str(json).unwrap();
            assert_eq!(through(json).unwrap(), serde_json::to_vec(&json!({ "x": read })).unwrap(), "{json}");
        }
        for json in ["1e400", r#""\ud83d""#] {
            assert!(through(json).unwrap_err().message.starts_with("invalid json: "), "{json}");
        }
    }

    #[test]
    fn what_grows_when_it_is_written_is_refused() {
        let json = format!("[{}1]", "1e15,".repeat(SLACK));
        let error = through(&json).unwrap_err();
        assert_eq!((error.kind, error.status().as_u16()), (Kind::TooLarge, 413));
    }

    proptest! {
        /// Whatever a value is, and however it is spaced.
        #[test]
        fn any_value(names in prop::collection::vec("\\PC{0,4}", 0..6), number: f64, integer: i64, is_wide: bool) {
            let inner: serde_json::Map<String, Value> = names.iter().map(|name| (name.clone(), json!(names))).collect();
            let value = json!([inner, number, integer, names]);
            let written = if is_wide { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let read: Value = serde_json::from_str(written.as_ref().unwrap()).unwrap();
            prop_assert_eq!(through(&written.unwrap()).unwrap(), serde_json::to_vec(&json!({ "x": read })).unwrap());
        }
    }
}
