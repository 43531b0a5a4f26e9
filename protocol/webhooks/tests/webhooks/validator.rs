//! As much of JSON Schema as the catalogue uses. A keyword that is not known here fails the test, so that none is
//! skipped in silence.

use serde_json::Value;

/// Keywords that say nothing about whether a value is valid.
const WORDS: [&str; 6] = ["$schema", "$defs", "title", "description", "format", "minimum"];

/// What is wrong with a value, with its place.
pub(crate) fn faults(root: &Value, schema: &Value, value: &Value, place: &str) -> Vec<String> {
    let mut found = Vec::new();
    let members = schema.as_object().expect("a schema is an object");
    for (keyword, wanted) in members {
        match keyword.as_str() {
            "type" => {
                found.extend((!types(wanted, value)).then(|| format!("{place}: type")));
            }
            "const" => found.extend((wanted != value).then(|| format!("{place}: const"))),
            "required" => {
                let names = wanted.as_array().unwrap().iter().map(|name| name.as_str().unwrap());
                let missing = names.filter(|name| value.is_object() && value.get(name).is_none());
                found.extend(missing.map(|name| format!("{place}.{name}: missing")));
            }
            "properties" => {
                for (name, part) in wanted.as_object().unwrap() {
                    let below =
                        value.get(name).map(|value| faults(root, part, value, &format!("{place}.{name}")));
                    found.extend(below.into_iter().flatten());
                }
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    found.extend(faults(root, wanted, item, &format!("{place}[{index}]")));
                }
            }
            "pattern" => {
                let wanted = wanted.as_str().unwrap();
                found.extend(
                    value.as_str().filter(|text| !matches(wanted, text)).map(|_| format!("{place}: pattern")),
                );
            }
            "oneOf" => {
                let fitting = wanted
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter(|part| faults(root, part, value, place).is_empty());
                found.extend((fitting.count() != 1).then(|| format!("{place}: oneOf")));
            }
            "$ref" => {
                let name =
                    wanted.as_str().unwrap().strip_prefix("#/$defs/").expect("only its own definitions");
                found.extend(faults(root, &root["$defs"][name], value, place));
            }
            word => assert!(WORDS.contains(&word), "{place}: the keyword {word} is not known here"),
        }
    }
    found
}

fn types(wanted: &Value, value: &Value) -> bool {
    let is = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("no type: {other}"),
    };
    match wanted {
        Value::String(name) => is(name),
        Value::Array(names) => names.iter().any(|name| is(name.as_str().unwrap())),
        other => panic!("no type: {other}"),
    }
}

/// Patterns of the catalogue, each checked by the library that the property tests use to make texts would be a
/// circle; so by hand.
fn matches(pattern: &str, text: &str) -> bool {
    let hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    let hex_of = |text: &str, digits: usize| text.len() == digits && hex(text);
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match pattern {
        "^evt_[0-9a-f]{16}$" => text.strip_prefix("evt_").is_some_and(|rest| hex_of(rest, 16)),
        "^0x[0-9a-f]{40}$" => text.strip_prefix("0x").is_some_and(|rest| hex_of(rest, 40)),
        "^0x[0-9a-f]*$" => text.strip_prefix("0x").is_some_and(hex),
        "^[0-9a-f]{64}$" => hex_of(text, 64),
        "^([0-9a-f]{64})?$" => text.is_empty() || hex_of(text, 64),
        "^usr_" => text.starts_with("usr_"),
        "^[0-9]{4}-[0-9]{2}$" => text.len() == 7 && text.split('-').all(number) && text.as_bytes()[4] == b'-',
        "^[0-9]+(\\.[0-9]+)?$" => text.split('.').count() <= 2 && text.split('.').all(number),
        other => panic!("the pattern {other} is not known here"),
    }
}
