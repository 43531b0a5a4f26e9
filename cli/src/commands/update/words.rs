//! What a change would change, for people and for programs.

use cloister_management_api::{Compared, ConfigurationDiff};
use serde_json::{Map, Value, json};

use super::change::Plan;

/// What the request names beside the document, with the words of people, as it is and as it is wanted.
const SIZES: [(&str, &str); 5] = [
    ("image", "guest image"),
    ("vcpu", "virtual CPUs"),
    ("memory", "memory in MB"),
    ("disk_size", "disk in GB"),
    ("user_config", "user configuration"),
];

/// The differences.
pub(super) fn diff(plan: &Plan) -> ConfigurationDiff {
    let present = present(plan);
    let after: Vec<_> = SIZES
        .iter()
        .map(|(member, label)| (*label, plan.members.get(*member).map(shown).or_else(|| present.get(label))))
        .collect();
    let before: Vec<_> = SIZES.iter().map(|(_, label)| (*label, present.get(label))).collect();
    // What is sealed anew is another text even when it says the same.
    let sealed = plan.environment.as_ref().map(|_| "");
    ConfigurationDiff::between(
        &Compared {
            compose_hash: plan.before.compose_hash(),
            document: plan.before.document(),
            encrypted_env: None,
            other: &before,
        },
        &Compared {
            compose_hash: plan.compose_hash(),
            document: plan.after.document(),
            encrypted_env: sealed,
            other: &after,
        },
    )
}

/// The differences as people read them.
pub(crate) fn describe(plan: &Plan) -> String {
    let diff = diff(plan);
    let mut words = if diff.changes.is_empty() { "Nothing changes.\n".to_owned() } else { String::new() };
    words += &diff.to_words();
    words
}

/// The differences as programs read them.
pub(super) fn document(plan: &Plan) -> Value {
    json!(diff(plan))
}

/// What the CVM has now, by the words of people.
struct Present(Map<String, Value>);

impl Present {
    fn get(&self, label: &str) -> Option<String> {
        self.0.get(label).filter(|value| !value.is_null()).map(shown)
    }
}

fn present(plan: &Plan) -> Present {
    let info = &plan.cvm.info;
    let size = &info.resource;
    let memory_mb = size.memory_in_gb.map(|gigabytes| (gigabytes * 1024.0).round());
    let values = [
        ("guest image", json!(info.os.as_ref().and_then(|os| os.name.clone()))),
        ("virtual CPUs", json!(size.vcpu)),
        ("memory in MB", memory_mb.map_or(Value::Null, |mb| Value::String(format!("{mb:.0}")))),
        ("disk in GB", json!(size.disk_in_gb)),
    ];
    Present(values.into_iter().map(|(label, value)| (label.to_owned(), value)).collect())
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
