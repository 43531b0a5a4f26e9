//! Whether each member of each object stands there once. Of two that have the same name, readers take either: what the
//! gateway counts and hashes must not be another than what the upstream answers.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// Fails for JSON in which an object has a member twice, however that is written, or for what is no JSON. Of a text that
/// may be nested without end, ask [`is_too_deep`](super::is_too_deep) first.
pub(super) fn check(json: &[u8]) -> Result<(), serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    Once.deserialize(&mut reader)?;
    reader.end()
}

/// A name, borrowed where it has no escapes.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

struct Once;

impl<'de> DeserializeSeed<'de> for Once {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Once {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut names: Vec<Name<'de>> = Vec::new();
        while let Some(name) = map.next_key()? {
            names.push(name);
            map.next_value_seed(Self)?;
        }
        names.sort_unstable();
        match names.windows(2).find(|pair| pair.first() == pair.last()) {
            Some([Name(name), ..]) => {
                Err(A::Error::custom(format_args!("the member {name:?} appears twice")))
            }
            _ => Ok(()),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Self)?.is_some() {}
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_member_that_stands_there_twice_is_found_at_any_depth() {
        for json in [
            r#"{"a":1,"a":1}"#,
            r#"[{"b":{"a":1,"c":[],"\u0061":2}}]"#,
            r#"{"messages":[{"role":"user","content":"","content":"long"}]}"#,
            r#"{"messages":[{"content":[{"type":"text","text":"","text":"long"}]}]}"#,
        ] {
            let error = check(json.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("appears twice"), "{json}: {error}");
        }
        for json in
            [r#"[{"a":1},{"a":1}]"#, r#"{"a":{"a":{"a":"\u0061"}}}"#, "12345678901234567890123", "-1.5e300"]
        {
            check(json.as_bytes()).unwrap();
        }
        for json in ["", "{", "{} {}", "\"\u{1}\""] {
            check(json.as_bytes()).unwrap_err();
        }
    }

    proptest! {
        /// Whatever a document is, as it is written by a library it has each member once.
        #[test]
        fn documents_pass(names in prop::collection::hash_map("\\PC{0,3}", "\\PC{0,3}", 0..9)) {
            let document = serde_json::json!([{"a": names, "b": [names]}, names]);
            check(&serde_json::to_vec(&document).unwrap()).unwrap();
        }

        /// Nothing makes it panic, and what it takes is JSON.
        #[test]
        fn anything_may_come(text in "[\\[\\]{}\",:a0\\\\]{0,40}") {
            if check(text.as_bytes()).is_ok() {
                prop_assert!(serde_json::from_str::<Value>(&text).is_ok());
            }
        }
    }
}
