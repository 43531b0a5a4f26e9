//! Whether each member of each object stands there once. Of two that have the same name, readers take either: what the
//! gateway counts and hashes must not be another than what the upstream answers.

use std::borrow::Cow;

use super::depth::end_of_string;
use crate::error::shown;

/// Most members of one object.
const MAX_MEMBERS: usize = 4096;
/// What is looked at of a name that is told, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// What is wrong with the members of an object, in words; `None` where each stands there once. Of a text that is not JSON it
/// says anything; the parser refuses that. Values are not read: what upstreams take, but no reader here could hold, passes.
pub(super) fn repeated(json: &[u8]) -> Option<String> {
    // The names of each object that is open; arrays have none.
    let mut open: Vec<Option<Vec<Cow<'_, [u8]>>>> = Vec::new();
    let mut at = 0;
    while let Some(byte) = json.get(at) {
        at += 1;
        match byte {
            b'{' => open.push(Some(Vec::new())),
            b'[' => open.push(None),
            b'}' | b']' => {
                if let Some(name) = open.pop().flatten().and_then(twice) {
                    // Of a long name the beginning is enough to find it.
                    let name = name.get(..MAX_NAME_BYTES).unwrap_or(&name);
                    return Some(format!(
                        "the member {:?} appears twice",
                        shown(&String::from_utf8_lossy(name))
                    ));
                }
            }
            b'"' => {
                let end = end_of_string(json, at);
                let after = json.get(end..).unwrap_or_default().trim_ascii_start();
                if let (Some(b':'), Some(Some(names))) = (after.first(), open.last_mut()) {
                    if names.len() >= MAX_MEMBERS {
                        return Some(format!("more than {MAX_MEMBERS} members"));
                    }
                    names.push(name(json.get(at - 1..end).unwrap_or_default()));
                }
                at = end;
            }
            _ => {}
        }
    }
    None
}

/// What a name means, from quote to quote: it can be written in several ways.
fn name(quoted: &[u8]) -> Cow<'_, [u8]> {
    if quoted.contains(&b'\\')
        && let Ok(name) = serde_json::from_slice::<String>(quoted)
    {
        return Cow::Owned(name.into_bytes());
    }
    Cow::Borrowed(quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default())
}

/// A name that is there more than once.
fn twice(mut names: Vec<Cow<'_, [u8]>>) -> Option<Cow<'_, [u8]>> {
    names.sort_unstable();
    let place = names.windows(2).position(|pair| pair.first() == pair.last())?;
    Some(names.swap_remove(place))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_member_that_stands_there_twice_is_found_at_any_depth() {
        for json in [
            r#"{"a":1,"a":1}"#,
            r#"{"a" : 1, "b":[], "a" : 1}"#,
            r#"[{"b":{"a":1,"c":[],"\u0061":2}}]"#,
            r#"{"messages":[{"role":"user","content":"","content":"long"}]}"#,
            r#"{"messages":[{"content":[{"type":"text","text":"","text":"long"}]}]}"#,
        ] {
            let error = repeated(json.as_bytes()).unwrap();
            assert!(error.contains("appears twice"), "{json}: {error}");
        }
        for json in [
            r#"[{"a":1},{"a":1}]"#,
            r#"{"a":{"a":{"a":"\u0061"}}}"#,
            r#"{"a":"b","b":"a","c":["a","a"],"d":"\",\"a\":1"}"#,
            // What no reader here could hold is for the upstream to judge.
            r#"{"half":"\ud83d","large":1e400}"#,
            "12345678901234567890123",
        ] {
            assert_eq!(repeated(json.as_bytes()), None, "{json}");
        }
        let wide: Vec<String> = (0..=MAX_MEMBERS).map(|number| format!("\"{number}\":0")).collect();
        assert!(repeated(format!("{{{}}}", wide.join(",")).as_bytes()).unwrap().contains("4096 members"));
        assert_eq!(repeated(format!("{{{}}}", wide[1..].join(",")).as_bytes()), None);
    }

    proptest! {
        /// Whatever a document is, as it is written by a library it has each member once; with one more it has not.
        #[test]
        fn documents_pass(names in prop::collection::hash_map("\\PC{0,3}", "\\PC{0,3}", 1..9)) {
            let document = serde_json::to_string(&serde_json::json!([{"a": names, "b": [names]}, names])).unwrap();
            prop_assert_eq!(repeated(document.as_bytes()), None);
            let (name, value) = names.iter().next().unwrap();
            let [name, value] = [name, value].map(|text| serde_json::to_string(text).unwrap());
            let object = serde_json::to_string(&names).unwrap();
            let again = format!("[{{\"x\":{},{name}:{value}}}]}}]", &object[..object.len() - 1]);
            prop_assert!(repeated(again.as_bytes()).is_some(), "{}", again);
        }

        /// Nothing makes it panic.
        #[test]
        fn anything_may_come(text in "[\\[\\]{}\",:a0\\\\]{0,40}") {
            drop(repeated(text.as_bytes()));
        }
    }
}
