//! JSON objects and lists written member by member, of values that are JSON already.

use serde_json::value::RawValue;

use crate::body::raw_text;

/// An object under construction.
#[derive(Debug, Clone)]
pub(super) struct Object(String);

impl Object {
    pub(super) fn new() -> Self {
        Self("{".to_owned())
    }

    /// One with its type.
    pub(super) fn of_type(kind: &str) -> Self {
        Self::new().text("type", kind)
    }

    /// A member whose value is JSON. Names need no escapes.
    pub(super) fn json(mut self, name: &str, json: &str) -> Self {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push('"');
        self.0.push_str(name);
        self.0.push_str("\":");
        self.0.push_str(json);
        self
    }

    /// A member that may be absent.
    pub(super) fn maybe(self, name: &str, json: Option<&str>) -> Self {
        match json {
            Some(json) => self.json(name, json),
            None => self,
        }
    }

    /// A member that is a text.
    pub(super) fn text(self, name: &str, text: &str) -> Self {
        self.json(name, raw_text(text).get())
    }

    /// The JSON.
    pub(super) fn done(mut self) -> String {
        self.0.push('}');
        self.0
    }

    /// The JSON, as bytes.
    pub(super) fn bytes(self) -> Vec<u8> {
        self.done().into_bytes()
    }
}

/// A list of JSON values.
pub(super) fn list(entries: &[String]) -> String {
    format!("[{}]", entries.join(","))
}

/// The inside of a JSON text, as it is written; `None` for what is no text.
pub(super) fn inside(json: &str) -> Option<&str> {
    json.strip_prefix('"')?.strip_suffix('"')
}

/// A text that holds an object, as tools get their arguments; an empty one holds an empty object. `None` for any other
/// text, and for one that is nested without end.
pub(super) fn object_in(text: &str) -> Option<&str> {
    let text = match text.trim() {
        "" => "{}",
        text => text,
    };
    let is_object = text.starts_with('{')
        && !crate::body::is_too_deep(text.as_bytes())
        && serde_json::from_str::<&RawValue>(text).is_ok();
    is_object.then_some(text)
}
