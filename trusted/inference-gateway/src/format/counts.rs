//! What is kept of a usage: its numbers. It goes to disk and to a control plane, where no text of a conversation may go,
//! whatever an upstream puts beside its counts.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::body::Name;

/// Longest name of a count, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// The numbers of a usage, under their names, in objects as they came; all that is anything else is left out.
pub(crate) fn only(usage: &RawValue) -> Box<RawValue> {
    if serde_json::from_str::<Counts>(usage.get()).is_ok() {
        return usage.to_owned();
    }
    let mut value = serde_json::from_str(usage.get()).unwrap_or_default();
    if !keep(&mut value) {
        value = Value::Object(Map::new());
    }
    serde_json::value::to_raw_value(&value).unwrap_or_default()
}

/// Leaves out what is no count; false for what has none.
fn keep(value: &mut Value) -> bool {
    match value {
        Value::Number(_) => true,
        Value::Object(members) => {
            members.retain(|name, value| is_name(name) && keep(value));
            !members.is_empty()
        }
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) => false,
    }
}

/// Names are words of lower case: whatever else is one was not chosen by a programmer.
fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME_BYTES && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
}

/// Nothing but counts, which is what most usages are: they are not written again.
struct Counts;

impl<'de> Deserialize<'de> for Counts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Counts {
    type Value = Self;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("counts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        while let Some((Name(name), Self)) = map.next_entry::<Name<'de>, Self>()? {
            if !is_name(&name) {
                return Err(A::Error::custom("no name of a count"));
            }
        }
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kept(usage: &str) -> String {
        only(&RawValue::from_string(usage.to_owned()).unwrap()).get().to_owned()
    }

    #[test]
    fn counts_stay_as_they_came() {
        for usage in [
            r#"{"prompt_tokens": 10,"completion_tokens":1.50}"#,
            r#"{"input_tokens":1,"cache_creation":{"ephemeral_5m_input_tokens":0,"more":{"deep":-1}}}"#,
            "{}",
        ] {
            assert_eq!(kept(usage), usage);
        }
    }

    #[test]
    fn no_text_is_kept() {
        let usage = r#"{"prompt_tokens":1,"debug":"a secret prompt","a secret prompt":2,"details":{"text":"a secret"},"more":{"x":[1],"n":3},"on":true,"no":null}"#;
        assert_eq!(kept(usage), r#"{"prompt_tokens":1,"more":{"n":3}}"#);
        assert_eq!(kept(r#"["a secret prompt"]"#), "{}");
    }

    proptest! {
        /// Whatever comes, what is kept is counts.
        #[test]
        fn only_counts_are_kept(text in "\\{\"[a-zA-Z ]{0,4}\":(1|\"x\"|true|null|\\[1\\]|\\{\"a\":(\"x\"|2)\\})\\}") {
            prop_assert!(serde_json::from_str::<Counts>(&kept(&text)).is_ok(), "{}", kept(&text));
        }
    }
}
