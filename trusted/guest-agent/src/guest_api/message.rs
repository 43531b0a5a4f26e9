//! Requests, from a query or a body to typed members (platform reference, section 7.1).

use serde_json::{Map, Value};

/// Longest list that a request may hold.
const MAX_LIST: usize = 64;

/// The members of a request. All are optional, and unknown ones do not count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Message(Map<String, Value>);

/// A request that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MessageError {
    #[error("the body is not a JSON object")]
    NotAnObject,
    #[error("{0} must be a text")]
    Text(&'static str),
    #[error("{0} must be hex digits")]
    Hex(&'static str),
    #[error("{0} must be true or false")]
    Flag(&'static str),
    #[error("{0} must be a list of at most {MAX_LIST} texts")]
    List(&'static str),
    #[error("{0} must be a whole number, at least 0")]
    Number(&'static str),
}

impl Message {
    /// From an encoded query; a name that comes again makes a list.
    pub(crate) fn from_query(query: &str) -> Self {
        let mut members = Map::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let value = Value::String(value.into_owned());
            match members.get_mut(&*name) {
                None => drop(members.insert(name.into_owned(), value)),
                Some(Value::Array(list)) => list.push(value),
                Some(first) => *first = Value::Array(vec![first.take(), value]),
            }
        }
        Self(members)
    }

    /// From a body; an empty one has no members.
    pub(crate) fn from_json(body: &[u8]) -> Result<Self, MessageError> {
        if body.trim_ascii().is_empty() {
            return Ok(Self::default());
        }
        serde_json::from_slice(body).map(Self).map_err(|_| MessageError::NotAnObject)
    }

    fn get(&self, name: &str) -> &Value {
        self.0.get(name).unwrap_or(&Value::Null)
    }

    /// A text, empty when absent.
    pub(crate) fn text(&self, name: &'static str) -> Result<&str, MessageError> {
        match self.get(name) {
            Value::Null => Ok(""),
            Value::String(text) => Ok(text),
            _ => Err(MessageError::Text(name)),
        }
    }

    /// Bytes in hex, with or without `0x`; none when absent.
    pub(crate) fn bytes(&self, name: &'static str) -> Result<Vec<u8>, MessageError> {
        let text = self.text(name).map_err(|_| MessageError::Hex(name))?;
        hex::decode(text.strip_prefix("0x").unwrap_or(text)).map_err(|_| MessageError::Hex(name))
    }

    /// A flag, off when absent.
    pub(crate) fn flag(&self, name: &'static str) -> Result<bool, MessageError> {
        match self.get(name) {
            Value::Null => Ok(false),
            Value::Bool(flag) => Ok(*flag),
            Value::String(text) => match text.as_str() {
                "" | "false" | "0" => Ok(false),
                "true" | "1" => Ok(true),
                _ => Err(MessageError::Flag(name)),
            },
            _ => Err(MessageError::Flag(name)),
        }
    }

    /// A list of texts, empty when absent.
    pub(crate) fn list(&self, name: &'static str) -> Result<Vec<String>, MessageError> {
        let text = |value: &Value| value.as_str().map(str::to_owned).ok_or(MessageError::List(name));
        match self.get(name) {
            Value::Null => Ok(Vec::new()),
            Value::Array(list) if list.len() <= MAX_LIST => list.iter().map(text).collect(),
            single @ Value::String(_) => Ok(vec![text(single)?]),
            _ => Err(MessageError::List(name)),
        }
    }

    /// A number, if it is there.
    pub(crate) fn number(&self, name: &'static str) -> Result<Option<u64>, MessageError> {
        match self.get(name) {
            Value::Null => Ok(None),
            Value::Number(number) => number.as_u64().map(Some).ok_or(MessageError::Number(name)),
            Value::String(text) => text.parse().map(Some).map_err(|_| MessageError::Number(name)),
            _ => Err(MessageError::Number(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn queries_and_bodies_mean_the_same() {
        let query =
            Message::from_query("report_data=0x12fF&alt_names=a&alt_names=b&usage_ra_tls=true&not_after=7");
        let body = Message::from_json(
            br#"{"report_data":"12ff","alt_names":["a","b"],"usage_ra_tls":true,"not_after":7,"other":{}}"#,
        )
        .unwrap();
        for message in [query, body] {
            assert_eq!(message.bytes("report_data").unwrap(), [0x12, 0xFF]);
            assert_eq!(message.list("alt_names").unwrap(), ["a", "b"]);
            assert!(message.flag("usage_ra_tls").unwrap());
            assert_eq!(message.number("not_after").unwrap(), Some(7));
            assert_eq!(message.text("absent").unwrap(), "");
            assert_eq!(message.number("absent").unwrap(), None);
            assert!(!message.flag("absent").unwrap());
        }
    }

    #[test]
    fn says_what_is_wrong() {
        assert_eq!(Message::from_json(b"[]"), Err(MessageError::NotAnObject));
        assert_eq!(Message::from_json(b" \n"), Ok(Message::default()));
        let message = Message::from_json(br#"{"a":"0","b":7,"c":{},"d":-1}"#).unwrap();
        assert_eq!(message.bytes("a"), Err(MessageError::Hex("a")));
        assert_eq!(message.bytes("b"), Err(MessageError::Hex("b")));
        assert_eq!(message.flag("b"), Err(MessageError::Flag("b")));
        assert_eq!(message.list("c"), Err(MessageError::List("c")));
        assert_eq!(message.number("d"), Err(MessageError::Number("d")));
    }

    proptest! {
        #[test]
        fn never_panics(query: String, body: Vec<u8>, name in "[a-c]") {
            let name: &'static str = if name == "a" { "a" } else { "b" };
            for message in [Some(Message::from_query(&query)), Message::from_json(&body).ok()].into_iter().flatten() {
                let _ = (message.text(name), message.bytes(name), message.flag(name));
                let _ = (message.list(name), message.number(name));
            }
        }
    }
}
