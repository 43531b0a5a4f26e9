//! Texts of one JSON document on whose bytes everybody agrees.

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{PrettyFormatter, Serializer};

/// The compact form: members sorted by the UTF-16 code units of their names, no white space, text not
/// ASCII-escaped. The form of guest SDKs, and of every document that the service writes itself.
#[must_use]
pub fn compact(document: &Value) -> Vec<u8> {
    sorted(document).to_string().into_bytes()
}

/// The indented form of the JavaScript SDK: four spaces, then every `": ` of the whole text, inside
/// values too, becomes `":`. For comparison only: it is not valid for every document.
#[must_use]
pub fn indented(document: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, PrettyFormatter::with_indent(b"    "));
    let written = sorted(document).serialize(&mut serializer);
    debug_assert!(written.is_ok(), "a JSON value in memory always serialises");
    String::from_utf8_lossy(&bytes).replace("\": ", "\":").into_bytes()
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> =
                members.iter().map(|(name, value)| (name.clone(), sorted(value))).collect();
            members.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            Value::Object(members.into_iter().collect())
        }
        Value::Array(values) => Value::Array(values.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ComposeHash;

    fn vector() -> Value {
        json!({
            "runner": "docker-compose", "name": "demo-app", "manifest_version": 2,
            "allowed_envs": ["API_KEY"],
            "docker_compose_file": "services:\n  web:\n    image: nginx:stable\n",
            "features": ["kms", "tproxy-net"], "gateway_enabled": true, "kms_enabled": true,
            "no_instance_id": false, "public_logs": true, "public_sysinfo": true,
            "public_tcbinfo": true, "secure_time": false,
        })
    }

    #[test]
    fn both_forms_match_the_published_hashes() {
        for (bytes, length, hash) in [
            (indented(&vector()), 445, "d44e06094ab28361f886bacdb702e23d6f35b9e46aa3d34617f7a0229eb9922e"),
            (compact(&vector()), 342, "e14ea3f94504ead2613eda46ed3dc3f29747a2007a7fa6fd560725d6a123f87b"),
        ] {
            assert_eq!(bytes.len(), length);
            assert_eq!(ComposeHash::of(&bytes).to_string(), hash);
        }
    }

    #[test]
    fn indented_form_also_rewrites_values() {
        let text = String::from_utf8(indented(&json!({"docker_compose_file": "x: \"a\": 1"}))).unwrap();
        assert_eq!(text, "{\n    \"docker_compose_file\":\"x: \\\"a\\\":1\"\n}");
    }

    #[test]
    fn text_outside_ascii_stays_and_names_sort_as_in_javascript() {
        let document = json!({
            "runner": "docker-compose", "name": "a", "manifest_version": 2,
            "docker_compose_file": "services: {}\n", "allowed_envs": ["ä"],
        });
        assert_eq!(
            ComposeHash::of(&compact(&document)).to_string(),
            "45d4d6e768b6d27532120cc603c7dfa7eacef18671546726c7490fb2074e3a0d"
        );
        // U+1D306 is two surrogates, which sort before U+FF00 although its code point is higher.
        let document = json!({"\u{ff00}": 1, "\u{1d306}": 2});
        assert_eq!(compact(&document), "{\"\u{1d306}\":2,\"\u{ff00}\":1}".as_bytes());
    }
}
