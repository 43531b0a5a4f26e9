//! What differs between two configurations of a CVM, for people and for programs.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use cloister_app_compose::ComposeHash;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use similar::TextDiff;
use utoipa::ToSchema;

/// Members of the document that are programs: their differences are shown line by line.
const TEXTS: [&str; 4] = ["docker_compose_file", "bash_script", "init_script", "pre_launch_script"];
/// The member with the names of variables, whose order means nothing to people.
const NAMES: &str = "allowed_envs";
/// Lines around a difference that are shown with it.
const CONTEXT_LINES: usize = 3;
/// Most lines of two programs together that are compared line by line: the effort grows with their product.
const MAX_COMPARED_LINES: usize = 8_000;

/// One side of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct Compared<'a> {
    /// Hash of the compose document.
    pub compose_hash: ComposeHash,
    /// The compose document.
    pub document: &'a Map<String, Value>,
    /// The sealed environment, which is only compared.
    pub encrypted_env: Option<&'a str>,
    /// Everything beside the document, by its name for people: size, image, unmeasured configuration.
    pub other: &'a [(&'a str, Option<String>)],
}

/// Everything that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigurationDiff {
    /// Hash of the compose document before and after.
    pub compose_hash: BeforeAfter,
    /// The differences, in a fixed order; none when both are the same.
    pub changes: Vec<ConfigurationChange>,
}

/// A hash before and after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BeforeAfter {
    /// Before.
    #[schema(value_type = String)]
    pub before: ComposeHash,
    /// After.
    #[schema(value_type = String)]
    pub after: ComposeHash,
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ConfigurationChange {
    /// A program or script has other lines.
    Text {
        /// Its name in the document.
        member: String,
        /// Unified diff of its lines.
        unified_diff: String,
    },
    /// The application takes other variables from its sealed environment.
    Names {
        /// Its name in the document.
        member: String,
        /// Names that are new.
        added: Vec<String>,
        /// Names that are gone.
        removed: Vec<String>,
    },
    /// A value is another one, or is there on one side only.
    Value {
        /// Its name.
        member: String,
        /// Before; absent when it was not there.
        #[serde(skip_serializing_if = "Option::is_none")]
        before: Option<Value>,
        /// After; absent when it is not there any more.
        #[serde(skip_serializing_if = "Option::is_none")]
        after: Option<Value>,
    },
    /// Something that only the guest can read is replaced.
    Replaced {
        /// Its name.
        member: String,
    },
}

impl ConfigurationDiff {
    /// Compares two configurations.
    #[must_use]
    pub fn between(before: &Compared<'_>, after: &Compared<'_>) -> Self {
        let names: BTreeSet<&String> = before.document.keys().chain(after.document.keys()).collect();
        let mut changes: Vec<_> = names
            .into_iter()
            .filter_map(|name| member(name, before.document.get(name), after.document.get(name)))
            .collect();
        if before.encrypted_env != after.encrypted_env {
            changes.push(ConfigurationChange::Replaced { member: "encrypted_env".to_owned() });
        }
        let labels: BTreeSet<&str> =
            before.other.iter().chain(after.other).map(|(label, _)| *label).collect();
        let value = |side: &Compared<'_>, label: &str| {
            side.other.iter().find(|(name, _)| *name == label).and_then(|(_, value)| value.clone())
        };
        changes.extend(labels.into_iter().filter_map(|label| {
            let (old, new) = (value(before, label), value(after, label));
            (old != new).then(|| ConfigurationChange::Value {
                member: label.to_owned(),
                before: old.map(Value::String),
                after: new.map(Value::String),
            })
        }));
        let compose_hash = BeforeAfter { before: before.compose_hash, after: after.compose_hash };
        Self { compose_hash, changes }
    }

    /// Whether both are the same for everybody: also the bytes of the document.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.compose_hash.before == self.compose_hash.after
    }

    /// The differences in plain words, a line or more each, with the hashes at the end.
    #[must_use]
    pub fn to_words(&self) -> String {
        let mut words: String = self.changes.iter().map(ConfigurationChange::to_words).collect();
        let BeforeAfter { before, after } = self.compose_hash;
        let _ = if before == after {
            writeln!(words, "The compose hash stays {before}.")
        } else {
            writeln!(words, "The compose hash changes:\n  from {before}\n  to   {after}")
        };
        words
    }
}

impl ConfigurationChange {
    fn to_words(&self) -> String {
        match self {
            Self::Text { member, unified_diff } => format!("{member} changes:\n{}", indented(unified_diff)),
            Self::Names { member, added, removed } => {
                let list = |names: &[String], verb| {
                    (!names.is_empty()).then(|| format!("{verb} {}", names.join(", ")))
                };
                let parts = [list(added, "adds"), list(removed, "drops")];
                format!("{member} {}.\n", parts.into_iter().flatten().collect::<Vec<_>>().join(" and "))
            }
            Self::Value { member, before: None, after: Some(new) } => {
                format!("{member} is new: {}.\n", shown(new))
            }
            Self::Value { member, before: Some(_), after: None } => format!("{member} is removed.\n"),
            Self::Value { member, before, after } => {
                let [old, new] = [before, after].map(|value| value.as_ref().map(shown).unwrap_or_default());
                format!("{member} changes from {old} to {new}.\n")
            }
            Self::Replaced { member } => format!("{member} is replaced; only the guest can read it.\n"),
        }
    }
}

fn member(name: &str, before: Option<&Value>, after: Option<&Value>) -> Option<ConfigurationChange> {
    if before == after {
        return None;
    }
    let member = name.to_owned();
    let text = |value: Option<&Value>| match value {
        None => Some(String::new()),
        Some(Value::String(text)) => Some(text.clone()),
        Some(_) => None,
    };
    if TEXTS.contains(&name)
        && let (Some(old), Some(new)) = (text(before), text(after))
        && old.lines().count() + new.lines().count() <= MAX_COMPARED_LINES
    {
        let diff = TextDiff::from_lines(&old, &new);
        let unified_diff = diff.unified_diff().context_radius(CONTEXT_LINES).to_string();
        if !unified_diff.is_empty() {
            return Some(ConfigurationChange::Text { member, unified_diff });
        }
    }
    let names = |value: Option<&Value>| -> Option<BTreeSet<String>> {
        value.map_or(Some(BTreeSet::new()), |value| serde_json::from_value(value.clone()).ok())
    };
    if name == NAMES
        && let (Some(old), Some(new)) = (names(before), names(after))
        && old != new
    {
        let only =
            |one: &BTreeSet<String>, other: &BTreeSet<String>| one.difference(other).cloned().collect();
        return Some(ConfigurationChange::Names {
            member,
            added: only(&new, &old),
            removed: only(&old, &new),
        });
    }
    Some(ConfigurationChange::Value { member, before: before.cloned(), after: after.cloned() })
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn indented(text: &str) -> String {
    text.lines().flat_map(|line| ["  ", line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn hash(document: &Map<String, Value>) -> ComposeHash {
        ComposeHash::of(&cloister_app_compose::canonical::compact(&Value::Object(document.clone())))
    }

    fn diff(before: &Map<String, Value>, after: &Map<String, Value>) -> ConfigurationDiff {
        let side =
            |document| Compared { compose_hash: hash(document), document, encrypted_env: None, other: &[] };
        ConfigurationDiff::between(&side(before), &side(after))
    }

    fn members(value: &Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn people_read_what_changes() {
        let before = members(&json!({
            "docker_compose_file": "services:\n  web:\n    image: app:1\n", "allowed_envs": ["A", "B"],
            "public_logs": false, "salt": "x", "pre_launch_script": "true\n",
        }));
        let after = members(&json!({
            "docker_compose_file": "services:\n  web:\n    image: app:2\n", "allowed_envs": ["C", "B"],
            "public_logs": true, "secure_time": true,
        }));
        let old = [("memory", Some("2048 MB".to_owned())), ("image", Some("cloister-1".to_owned()))];
        let new = [("memory", Some("4096 MB".to_owned())), ("image", Some("cloister-1".to_owned()))];
        let diff = ConfigurationDiff::between(
            &Compared {
                compose_hash: ComposeHash::from_bytes([1; 32]),
                document: &before,
                encrypted_env: Some("00"),
                other: &old,
            },
            &Compared {
                compose_hash: ComposeHash::from_bytes([2; 32]),
                document: &after,
                encrypted_env: Some("01"),
                other: &new,
            },
        );
        insta::assert_snapshot!(diff.to_words());
        insta::assert_json_snapshot!(diff);
    }

    #[test]
    fn very_long_programs_are_not_compared_line_by_line() {
        let script = |line: &str| members(&json!({"bash_script": line.repeat(MAX_COMPARED_LINES)}));
        let diff = diff(&script("a\n"), &script("b\n"));
        assert!(matches!(diff.changes.as_slice(), [ConfigurationChange::Value { .. }]));
    }

    #[test]
    fn another_order_of_names_is_a_change_of_the_document_that_is_told() {
        let diff = diff(
            &members(&json!({"allowed_envs": ["A", "B"]})),
            &members(&json!({"allowed_envs": ["B", "A"]})),
        );
        assert!(matches!(diff.changes.as_slice(), [ConfigurationChange::Value { .. }]), "{diff:?}");
    }

    fn document() -> impl Strategy<Value = Map<String, Value>> {
        let name = prop_oneof![
            Just("docker_compose_file"),
            Just("pre_launch_script"),
            Just("allowed_envs"),
            Just("x-other")
        ];
        let value = prop_oneof![
            any::<bool>().prop_map(Value::Bool),
            "[a-c\r\n]{0,12}".prop_map(Value::String),
            proptest::collection::vec("[A-C]", 0..3).prop_map(|names| json!(names)),
            Just(Value::Null),
        ];
        proptest::collection::btree_map(name, value, 0..4)
            .prop_map(|members| members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    fn told(change: &ConfigurationChange) -> &str {
        match change {
            ConfigurationChange::Text { member, .. }
            | ConfigurationChange::Names { member, .. }
            | ConfigurationChange::Value { member, .. }
            | ConfigurationChange::Replaced { member } => member,
        }
    }

    proptest! {
        #[test]
        fn exactly_the_members_that_differ_are_told(before in document(), after in document()) {
            let diff = diff(&before, &after);
            let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
            let differing: Vec<_> = names.into_iter().filter(|name| before.get(*name) != after.get(*name)).collect();
            prop_assert_eq!(diff.changes.iter().map(told).collect::<Vec<_>>(), differing);
            prop_assert_eq!(diff.is_empty(), before == after);
            prop_assert!(!diff.to_words().is_empty());
        }
    }
}
