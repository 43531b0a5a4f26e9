//! Request bodies, read no deeper than needed: members that the gateway does not look at pass as the bytes that
//! they are, so that nothing is changed by being read and written again.

mod depth;
mod once;
mod provider;
mod raw;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{DeserializeOwned, Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::{GatewayError, Kind, shown};

pub use provider::{Constraints, DataCollection, MaxPrice, Sort};
pub(crate) use raw::members;
pub use raw::{Few, Raw, object, raw_text, to_json};

/// Deepest nesting of a body.
pub const MAX_DEPTH: usize = 64;

/// Whether JSON is nested deeper than [`MAX_DEPTH`].
#[must_use]
pub fn is_too_deep(json: &[u8]) -> bool {
    depth::exceeds(json, MAX_DEPTH)
}

/// How many values JSON has, at most.
pub(crate) fn most_values(json: &[u8]) -> usize {
    depth::most_values(json)
}

/// The members of a JSON object, each once, in their order.
#[derive(Debug)]
pub struct Body<'a> {
    members: Vec<(Cow<'a, str>, &'a RawValue)>,
}

/// What becomes of a member on the way to the upstream.
#[derive(Debug, Clone)]
pub enum Change {
    /// It does not go out.
    Remove,
    /// It goes out with this value, JSON; it is added where there is none.
    Set(Box<RawValue>),
}

impl Change {
    /// The value that goes out.
    #[must_use]
    pub fn value(&self) -> Option<&RawValue> {
        match self {
            Self::Remove => None,
            Self::Set(value) => Some(value),
        }
    }

    /// A value.
    pub fn set(value: &impl Serialize) -> Result<Self, GatewayError> {
        serde_json::value::to_raw_value(value)
            .map(Self::Set)
            .map_err(|_| GatewayError::new(Kind::Internal, "The request could not be prepared"))
    }
}

impl<'a> Body<'a> {
    /// Reads an object. Fails with `invalid json: …` for what is not JSON, is no object, has a member twice, or is
    /// nested deeper than [`MAX_DEPTH`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, GatewayError> {
        if depth::exceeds(bytes, MAX_DEPTH) {
            let message = format!("invalid json: nested deeper than {MAX_DEPTH} levels");
            return Err(GatewayError::new(Kind::InvalidRequest, message));
        }
        Self::parse_deep(bytes)
    }

    /// The same however deep it is nested: upstreams put what they were sent into something larger.
    pub fn parse_deep(bytes: &'a [u8]) -> Result<Self, GatewayError> {
        // The reader's own words quote what is no object.
        if bytes.trim_ascii_start().first() != Some(&b'{') {
            return Err(GatewayError::new(Kind::InvalidRequest, "invalid json: it has to be an object"));
        }
        serde_json::from_slice::<Members<'a>>(bytes)
            .map(|Members(members)| Self { members })
            .map_err(|error| GatewayError::new(Kind::InvalidRequest, format!("invalid json: {error}")))
    }

    /// The same of all that a client sends: no object in it has a member twice, however deep it lies.
    pub fn parse_whole(bytes: &'a [u8]) -> Result<Self, GatewayError> {
        let body = Self::parse(bytes)?;
        refuse_repeated(bytes)?;
        Ok(body)
    }

    /// A member as it was sent. One that is `null` is as good as absent.
    #[must_use]
    pub fn raw(&self, name: &str) -> Option<&'a RawValue> {
        let (_, value) = self.members.iter().find(|(member, _)| member == name)?;
        (value.get() != "null").then_some(*value)
    }

    /// Whether a member is there at all, be it `null`.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.members.iter().any(|(member, _)| member == name)
    }

    /// Where the value of a member lies in the bytes that the object was read from; an empty range where there is
    /// none.
    #[must_use]
    pub fn place(&self, bytes: &[u8], name: &str) -> Range<usize> {
        let value = self.members.iter().find(|(member, _)| member == name).map(|(_, value)| value.get());
        value.map_or(0..0, |value| {
            let start = value.as_ptr().addr().saturating_sub(bytes.as_ptr().addr());
            start..start + value.len()
        })
    }

    /// A member of a type. Fails, naming the member, when it is of another.
    pub fn get<T: DeserializeOwned>(&self, name: &str, expected: &str) -> Result<Option<T>, GatewayError> {
        let Some(value) = self.raw(name) else { return Ok(None) };
        serde_json::from_str(value.get())
            .map(Some)
            .map_err(|_| GatewayError::parameter(name, format!("'{name}' must be {expected}")))
    }

    /// The names of all members that are not `null`, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().filter(|(_, value)| value.get() != "null").map(|(name, _)| name.as_ref())
    }

    /// All members, in their order.
    pub fn members(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.members.iter().map(|(name, value)| (name.as_ref(), *value))
    }

    /// The object with changes. Members that nobody changes are written as they came.
    #[must_use]
    pub fn rewrite(&self, changes: &[(&str, Change)]) -> Vec<u8> {
        self.rewrite_and_find(changes, "").0
    }

    /// The same, and where the value of one of the members lies in it; an empty range where it has none.
    #[must_use]
    pub fn rewrite_and_find(&self, changes: &[(&str, Change)], wanted: &str) -> (Vec<u8>, Range<usize>) {
        let change_of = |name: &str| changes.iter().find(|(changed, _)| *changed == name);
        let kept = self.members.iter().filter_map(|(name, value)| match change_of(name) {
            None => Some((name.as_ref(), value.get())),
            Some((_, Change::Remove)) => None,
            Some((_, Change::Set(value))) => Some((name.as_ref(), value.get())),
        });
        let added = changes.iter().filter_map(|(name, change)| match change {
            Change::Set(value) if !self.members.iter().any(|(member, _)| member == name) => {
                Some((*name, value.get()))
            }
            Change::Set(_) | Change::Remove => None,
        });
        let length =
            self.members.iter().map(|(name, value)| name.len() + value.get().len() + 4).sum::<usize>();
        let mut bytes = Vec::with_capacity(length + 128);
        let mut found = 0..0;
        bytes.push(b'{');
        for (name, value) in kept.chain(added) {
            if bytes.len() > 1 {
                bytes.push(b',');
            }
            // A text into a vector: this cannot fail.
            if serde_json::to_writer(&mut bytes, name).is_ok() {
                bytes.push(b':');
                let start = bytes.len();
                bytes.extend_from_slice(value.as_bytes());
                if name == wanted {
                    found = start..bytes.len();
                }
            }
        }
        bytes.push(b'}');
        (bytes, found)
    }
}

/// Refuses JSON that has a member twice in any of its objects.
pub fn refuse_repeated(json: &[u8]) -> Result<(), GatewayError> {
    match once::repeated(json) {
        None => Ok(()),
        Some(what) => Err(GatewayError::new(Kind::InvalidRequest, format!("invalid json: {what}"))),
    }
}

struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

/// A name, borrowed where it has no escapes.
#[derive(Deserialize)]
pub(crate) struct Name<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let mut members: Vec<(Cow<'de, str>, &'de RawValue)> = Vec::with_capacity(16);
        while let Some((Name(name), value)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
            // Few members: a search costs less than a table. Many are no request that anybody means.
            if members.len() >= MAX_MEMBERS {
                return Err(A::Error::custom(format_args!("more than {MAX_MEMBERS} members")));
            }
            if members.iter().any(|(member, _)| *member == name) {
                return Err(A::Error::custom(format_args!("the member {:?} appears twice", shown(&name))));
            }
            members.push((name, value));
        }
        Ok(Members(members))
    }
}

/// Most members of an object that the gateway reads.
const MAX_MEMBERS: usize = 256;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// Of megabytes that were sent no answer is made.
    #[test]
    fn no_message_repeats_much() {
        let long = "\u{7f}".repeat(1 << 20);
        let repeated = format!(r#"{{"a":{{"{long}":1,"{long}":2}}}}"#);
        for body in [format!("\"{long}\""), format!(r#"{{"{long}":1,"{long}":2}}"#), long.clone(), repeated] {
            let error = Body::parse_whole(body.as_bytes()).map(drop).unwrap_err();
            assert!(
                error.message.starts_with("invalid json: ") && error.message.len() < 200,
                "{}",
                error.message.len()
            );
        }
        let whole = GatewayError::new(Kind::InvalidRequest, "\u{e9}".repeat(1 << 20)).message;
        assert!((4095..=4096).contains(&whole.len()));
    }

    fn message(bytes: &[u8]) -> String {
        Body::parse(bytes).unwrap_err().message
    }

    #[test]
    fn what_is_no_object_is_refused_in_words() {
        for bytes in [
            &b""[..],
            b"[]",
            b"null",
            b"\"a\"",
            b"{",
            b"{} {}",
            b"{\"a\":1,}",
            b"{\"a\":NaN}",
            b"\xff{}",
            b"{\"a\":\"\xff\"}",
            b"{\"a\":1,\"a\":2}",
            b"{\"a\":1,\"\\u0061\":2}",
        ] {
            assert!(message(bytes).starts_with("invalid json: "), "{bytes:?}");
        }
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(64), "]".repeat(64));
        assert!(message(deep.as_bytes()).contains("nested deeper"));
        let wide = format!("{{{}}}", (0..300).map(|n| format!("\"{n}\":0")).collect::<Vec<_>>().join(","));
        assert!(message(wide.as_bytes()).contains("256 members"));
    }

    #[test]
    fn members_are_found_whatever_their_spelling() {
        let body = Body::parse(br#"{"mod\u0065l":"m","stream":null,"n":2}"#).unwrap();
        assert_eq!(body.get::<String>("model", "a string").unwrap().as_deref(), Some("m"));
        assert_eq!(body.get::<bool>("stream", "true or false").unwrap(), None);
        let error = body.get::<bool>("n", "true or false").unwrap_err();
        assert_eq!(
            (error.param.as_deref(), error.message.as_str()),
            (Some("n"), "'n' must be true or false")
        );
        assert_eq!(body.names().collect::<Vec<_>>(), ["model", "n"]);
    }

    #[test]
    fn what_nobody_changes_goes_out_as_it_came() {
        let body =
            Body::parse(br#"{ "model":"m", "x" : 1.50e3 , "provider":{}, "big":12345678901234567890123 }"#)
                .unwrap();
        let changes = [
            ("model", Change::set(&"up/m").unwrap()),
            ("provider", Change::Remove),
            ("absent", Change::Remove),
            ("stream", Change::set(&true).unwrap()),
        ];
        assert_eq!(
            String::from_utf8(body.rewrite(&changes)).unwrap(),
            r#"{"model":"up/m","x":1.50e3,"big":12345678901234567890123,"stream":true}"#
        );
        assert_eq!(Body::parse(b"{}").unwrap().rewrite(&[]), b"{}");
    }

    proptest! {
        /// Rewriting means what changing the parsed document means.
        #[test]
        fn rewriting_is_changing_the_document(
            names in prop::collection::btree_map("[a-d\"\\\\é]{0,2}", any::<Option<i32>>(), 0..8),
            changes in prop::collection::btree_map("[a-d\"\\\\é]{0,2}", any::<Option<String>>(), 0..8),
        ) {
            let document = json!(names);
            let bytes = serde_json::to_vec(&document).unwrap();
            let body = Body::parse(&bytes).unwrap();
            let list: Vec<(&str, Change)> = changes
                .iter()
                .map(|(name, value)| {
                    let change = value.as_ref().map_or(Change::Remove, |value| Change::set(value).unwrap());
                    (name.as_str(), change)
                })
                .collect();
            let mut expected = document.as_object().unwrap().clone();
            for (name, value) in &changes {
                match value {
                    Some(value) => drop(expected.insert(name.clone(), json!(value))),
                    None => drop(expected.shift_remove(name)),
                }
            }
            let rewritten: Value = serde_json::from_slice(&body.rewrite(&list)).unwrap();
            prop_assert_eq!(rewritten, Value::Object(expected));
        }

        /// Nothing makes it panic, and what it takes is what a strict reader takes.
        #[test]
        fn anything_may_come(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "[\\[\\]{}\",:a0\\\\]{0,40}") {
            let _ = Body::parse(&bytes);
            let strict = serde_json::from_str::<serde_json::Map<String, Value>>(&text);
            if Body::parse(text.as_bytes()).is_ok() {
                prop_assert!(strict.is_ok());
            }
        }
    }
}
