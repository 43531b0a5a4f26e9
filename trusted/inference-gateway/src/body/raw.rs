//! JSON values that are passed on as the bytes that they are, and lists with a limit: with both, the type of an object
//! is the list of the members that survive.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

/// A member's value, or nothing where the member is absent. `null` is a value.
#[derive(Debug, Clone, Copy, Default)]
pub struct Raw<'a>(Option<&'a RawValue>);

impl<'a> Raw<'a> {
    /// No value.
    pub const ABSENT: Self = Self(None);

    /// This value.
    #[must_use]
    pub const fn of(value: &'a RawValue) -> Self {
        Self(Some(value))
    }

    /// The JSON text; `None` where the member is absent or `null`.
    #[must_use]
    pub fn text(self) -> Option<&'a str> {
        self.value().map(RawValue::get)
    }

    /// The value; `None` where the member is absent or `null`.
    #[must_use]
    pub fn value(self) -> Option<&'a RawValue> {
        self.0.filter(|value| value.get() != "null")
    }

    /// The value as a type; `None` where it is absent, `null` or of another type.
    #[must_use]
    pub fn read<T: Deserialize<'a>>(self) -> Option<T> {
        serde_json::from_str(self.text()?).ok()
    }

    /// Whether the member is absent.
    #[must_use]
    pub const fn is_absent(&self) -> bool {
        self.0.is_none()
    }

    /// Whether it is an empty list, however it is written.
    #[must_use]
    pub fn is_empty_list(self) -> bool {
        self.text().and_then(|text| text.strip_prefix('[')).is_some_and(|rest| rest.trim_start() == "]")
    }

    /// Whether it says anything: no empty text, list or object.
    #[must_use]
    pub fn says_something(self) -> bool {
        self.text().is_some_and(|text| !matches!(text, "\"\"" | "[]" | "{}"))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Raw<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&'a RawValue>::deserialize(deserializer).map(Self::of)
    }
}

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// A list of at most `MOST` entries; a longer one is refused before it takes memory.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Few<T, const MOST: usize>(pub Vec<T>);

impl<T, const MOST: usize> Default for Few<T, MOST> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for Few<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(FewVisitor(PhantomData))
    }
}

struct FewVisitor<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for FewVisitor<T, MOST> {
    type Value = Few<T, MOST>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a list of at most {MOST} entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = list.next_element()? {
            if entries.len() >= MOST {
                return Err(A::Error::custom(format_args!("more than {MOST} entries")));
            }
            entries.push(entry);
        }
        Ok(Few(entries))
    }
}

/// An object of which the named members survive, as they are, in this order. One that appears twice is refused.
macro_rules! members {
    ($($(#[$about:meta])* $visibility:vis struct $name:ident { $($member:ident $(as $wire:literal)?),* $(,)? })*) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, Default, ::serde::Deserialize, ::serde::Serialize)]
        #[serde(default)]
        $visibility struct $name<'a> {$(
            #[doc = concat!("The member `", stringify!($member), "`, as it came.")]
            #[serde(borrow, $(rename = $wire,)? skip_serializing_if = "crate::body::Raw::is_absent")]
            $visibility $member: crate::body::Raw<'a>,
        )*}
    )*};
}

pub(crate) use members;

/// Reads an object, and nothing else: the reader would take a list for the members in their order.
#[must_use]
pub fn object<'a, T: Deserialize<'a>>(json: &'a str) -> Option<T> {
    json.trim_start().starts_with('{').then(|| serde_json::from_str(json).ok())?
}

/// Room for a short answer, in bytes.
const USUAL_JSON_BYTES: usize = 512;

/// JSON text of what is made of texts, numbers and raw values only: this cannot fail.
#[must_use]
pub fn to_json(value: &impl Serialize) -> Vec<u8> {
    let mut json = Vec::with_capacity(USUAL_JSON_BYTES);
    match serde_json::to_writer(&mut json, value) {
        Ok(()) => json,
        Err(_) => Vec::new(),
    }
}

/// A text as a JSON value.
#[must_use]
pub fn raw_text(text: &str) -> Box<RawValue> {
    serde_json::value::to_raw_value(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    members! {
        struct Pair { first, kind as "type" }
    }

    #[test]
    fn named_members_survive_as_they_are() {
        let pair: Pair<'_> = serde_json::from_str(r#"{"x":1,"type": 1.50 ,"first":null}"#).unwrap();
        assert_eq!(to_json(&pair), br#"{"first":null,"type":1.50}"#);
        assert_eq!((pair.first.text(), pair.kind.text()), (None, Some("1.50")));
        assert!(!pair.first.is_absent() && !pair.first.says_something() && pair.kind.says_something());
        assert!(serde_json::from_str::<Pair<'_>>(r#"{"type":1,"typ\u0065":2}"#).is_err());
    }

    #[test]
    fn lists_have_a_limit() {
        assert_eq!(serde_json::from_str::<Few<u8, 2>>("[1,2]").unwrap().0, [1, 2]);
        assert!(serde_json::from_str::<Few<u8, 2>>("[1,2,3]").is_err());
    }
}
