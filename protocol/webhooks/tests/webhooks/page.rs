//! docs/webhooks.md: its catalogue is printed from the code, its words are not.

use std::path::PathBuf;

use cloister_webhooks::{EventKind, sample_data, schema};
use serde_json::Value;

/// Where the page is.
pub(crate) fn path() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/webhooks.md"))
}

/// A member of a kind's data: name, type, meaning.
type Member = (String, String, String);

/// The members of a kind's data.
fn members(schema: &Value) -> Vec<Member> {
    let data = &schema["data"];
    let required = data["required"].as_array().unwrap();
    let mut members = Vec::new();
    for (name, part) in data["properties"].as_object().unwrap() {
        let is_required = required.iter().any(|required| required == name);
        let words = words(schema, part);
        let described = part.get("oneOf").map_or(part, |forms| &forms[0]);
        let meaning = described["description"].as_str().unwrap().replace('\n', " ");
        members.push((
            name.clone(),
            if is_required { words } else { format!("{words}, may be absent") },
            meaning,
        ));
    }
    members
}

/// The type of a member, as people say it.
fn words(schema: &Value, part: &Value) -> String {
    let reference = |part: &Value| {
        let name = part["$ref"].as_str().unwrap().strip_prefix("#/$defs/").unwrap().to_owned();
        let members = schema["$defs"][&name]["properties"].as_object().unwrap();
        let names: Vec<_> = members.keys().map(|name| format!("`{name}`")).collect();
        format!("object of {}", names.join(", "))
    };
    if part.get("$ref").is_some() {
        return reference(part);
    }
    if let Some(forms) = part["oneOf"].as_array() {
        let forms: Vec<_> = forms.iter().map(|form| words(schema, form)).collect();
        return forms.join(" or ");
    }
    match &part["type"] {
        Value::String(name) if name == "array" => format!("list of {}", words(schema, &part["items"])),
        Value::String(name) => name.clone(),
        Value::Array(names) => {
            names.iter().map(|name| name.as_str().unwrap()).collect::<Vec<_>>().join(" or ")
        }
        other => panic!("no type: {other}"),
    }
}

fn catalogue() -> String {
    let mut text = String::from("| Kind | Told when |\n|---|---|\n");
    for kind in EventKind::ALL {
        text += &format!("| `{kind}` | {} |\n", kind.description());
    }
    // Kinds that tell the same are told of together.
    let mut groups: Vec<(Vec<EventKind>, Vec<Member>)> = Vec::new();
    for kind in EventKind::ALL {
        let schema = schema(*kind);
        let mut whole = schema["properties"].clone();
        whole["$defs"] = schema["$defs"].clone();
        let members = members(&whole);
        match groups.iter_mut().find(|(_, known)| *known == members) {
            Some((kinds, _)) => kinds.push(*kind),
            None => groups.push((vec![*kind], members)),
        }
    }
    for (kinds, members) in groups {
        let names: Vec<_> = kinds.iter().map(|kind| format!("`{kind}`")).collect();
        text += &format!("\n`data` of {}:\n\n| Member | Type | Holds |\n|---|---|---|\n", names.join(", "));
        for (name, kind, meaning) in members {
            text += &format!("| `{name}` | {kind} | {meaning} |\n");
        }
        let sample = serde_json::to_string_pretty(&sample_data(kinds[0])).unwrap();
        text += &format!("\n```json\n{sample}\n```\n");
    }
    text
}

#[test]
fn the_page_shows_the_code() {
    let page = std::fs::read_to_string(path()).unwrap();
    let (begin, end) = ("<!-- events: from the code -->\n", "<!-- end of events -->");
    let (before, rest) = page.split_once(begin).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    let current = format!("{before}{begin}{}{end}{after}", catalogue());
    if std::env::var_os("INSTA_UPDATE").is_some_and(|value| value == "always") {
        std::fs::write(path(), &current).unwrap();
    }
    assert!(
        page == current || std::env::var_os("INSTA_UPDATE").is_some(),
        "write it with INSTA_UPDATE=always"
    );
}
