//! The one form of a JSON document that is hashed: no blanks, members sorted by name, text as UTF-8 with the escapes
//! that JSON demands and no others, numbers whole. RFC 8785 gives the same bytes for such documents.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// The canonical text of a document. Documents that are hashed here have whole numbers only.
#[must_use]
pub fn canonical_json(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write(item, text);
            }
            text.push(']');
        }
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by_key(|(name, _)| *name);
            text.push('{');
            for (index, (name, member)) in sorted.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                write(member, text);
            }
            text.push('}');
        }
        plain => text.push_str(&plain.to_string()),
    }
}

/// Hash of a resource's configuration, in hex.
#[must_use]
pub fn configuration_hash(configuration: &Value) -> String {
    hash(canonical_json(configuration).as_bytes())
}

/// Hash of a record, in hex: over all of its members but `hash`.
#[must_use]
pub fn record_hash(record: &Value) -> String {
    hash(canonical_json(&without(record, "hash")).as_bytes())
}

/// What the signature of a head is over: all of its members but `signature`, behind a line that says what it is.
#[must_use]
pub fn head_message(head: &Value) -> Vec<u8> {
    format!("cloister-audit-head\n{}", canonical_json(&without(head, "signature"))).into_bytes()
}

fn without(document: &Value, name: &str) -> Value {
    match document {
        Value::Object(members) => members
            .iter()
            .filter(|(member, _)| *member != name)
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect(),
        other => other.clone(),
    }
}

fn hash(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn members_are_sorted_at_every_depth_and_text_stays_text() {
        let value = json!({"b": [1, null, {"z": true, "a": "ä\"\\\n\u{1}/\u{7f}"}], "a": -3, "B": ""});
        assert_eq!(
            canonical_json(&value),
            "{\"B\":\"\",\"a\":-3,\"b\":[1,null,{\"a\":\"ä\\\"\\\\\\n\\u0001/\u{7f}\",\"z\":true}]}"
        );
    }

    #[test]
    fn a_known_hash() {
        // printf '{"a":1}' | sha256sum
        let expected = "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862";
        assert_eq!(configuration_hash(&json!({"a": 1})), expected);
        assert_eq!(record_hash(&json!({"hash": "x", "a": 1})), expected);
        assert_eq!(head_message(&json!({"signature": "x", "a": 1})), b"cloister-audit-head\n{\"a\":1}");
    }

    proptest! {
        #[test]
        fn the_order_of_members_does_not_matter(mut members in prop::collection::btree_map("[ -~äß]{0,6}", -9_i64..9, 0..6)
            .prop_map(|map| map.into_iter().collect::<Vec<_>>()), rotation in 0_usize..6) {
            let document = |members: &[(String, i64)]| -> Value {
                members.iter().map(|(name, value)| (name.clone(), Value::from(*value))).collect()
            };
            let first = canonical_json(&document(&members));
            let by = rotation.min(members.len());
            members.rotate_left(by);
            prop_assert_eq!(&first, &canonical_json(&document(&members)));
            prop_assert_eq!(serde_json::from_str::<Value>(&first).unwrap(), document(&members));
        }
    }
}
