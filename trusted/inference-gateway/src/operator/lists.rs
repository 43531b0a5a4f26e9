//! The lists of a configuration that may be replaced at run time: what is said of each in one table.

use serde_json::{Map, Value, json};

use super::settings::SettingsError;
use crate::config::ConfigError;

/// A list that may be replaced.
#[derive(Debug)]
pub struct List {
    /// Its member of the configuration, which paths, files and messages are named after.
    pub member: &'static str,
    /// What is answered to one that cannot be served: `error.type`.
    pub refusal: &'static str,
    /// Members of an entry that nobody is shown.
    secrets: &'static [&'static str],
    /// Members that say nothing of where an entry's secrets go.
    free: &'static [&'static str],
    /// Members that only the file may say, of the entry with the same `name`.
    of_the_file: &'static [&'static str],
}

/// Who answers. Who has the operator's token must not run programs beside the keys, tell those of the file something
/// else, or name files.
static UPSTREAMS: List = List {
    member: "upstreams",
    refusal: "invalid_upstream_config",
    secrets: &["bearer_token", "verifier_options"],
    free: &[
        "models",
        "pricing",
        "priority",
        "weight",
        "timeouts",
        "zdr",
        "stores_data",
        "quantization",
        "supported_parameters",
        "reasoning_dialect",
    ],
    of_the_file: &["ca_file", "verifier_command", "verifier_options", "verifier_scope"],
};

/// What is told about models, and what they cost.
static MODELS: List =
    List { member: "models", refusal: "invalid_model_config", secrets: &[], free: &[], of_the_file: &[] };

/// Every list that may be replaced.
pub(super) static ALL: [&List; 2] = [&UPSTREAMS, &MODELS];

/// A list that replaced that of the file, as it is kept: `{"replaces": …}` and the list under its own name.
#[derive(Debug)]
pub(super) struct Replaced {
    /// Digest of the one in the file.
    pub(super) replaces: String,
    pub(super) list: Value,
}

impl Replaced {
    pub(super) fn to_bytes(&self, list: &List) -> Vec<u8> {
        json!({ "replaces": self.replaces, list.member: self.list }).to_string().into_bytes()
    }

    /// `None` for what is none of this list.
    pub(super) fn parse(list: &List, bytes: &[u8]) -> Option<Self> {
        let mut members: Map<String, Value> = serde_json::from_slice(bytes).ok()?;
        let replaces = members.shift_remove("replaces")?.as_str()?.to_owned();
        let entries = members.shift_remove(list.member)?;
        members.is_empty().then_some(Self { replaces, list: entries })
    }
}

impl List {
    /// The file in the directory for state that keeps what replaced it.
    pub(super) fn file_name(&self) -> String {
        format!("{}.json", self.member)
    }

    /// The list of a configuration; null where there is none.
    pub(super) fn of<'a>(&self, members: &'a Map<String, Value>) -> &'a Value {
        members.get(self.member).unwrap_or(&Value::Null)
    }

    /// What tells one list from another.
    pub(super) fn digest(&self, list: &Value) -> Result<String, SettingsError> {
        let canonical = cloister_aci::canonical(list)
            .map_err(|_| self.refused("have a number that readers understand differently"))?;
        Ok(cloister_aci::sha256(&canonical))
    }

    pub(super) const fn refused(&self, rule: &'static str) -> SettingsError {
        SettingsError::List { list: self.member, rule }
    }

    /// Its entries without their secrets.
    pub(super) fn redacted(&self, list: &Value) -> Value {
        entries(list).iter().map(|entry| self.redacted_entry(entry)).collect()
    }

    /// Entries as they are shown say that a secret is there, and keep it by that: of the entry with their name, if they say the
    /// same of where it goes, and of what has to be proved there. Whoever has the operator's token must not have a secret sent to
    /// somebody else.
    pub(super) fn with_secrets(&self, mut list: Value, held: &Value) -> Result<Value, SettingsError> {
        let entries_mut = list.as_array_mut().map_or(&mut [][..], Vec::as_mut_slice);
        for (index, entry) in entries_mut.iter_mut().enumerate() {
            let Some(entry) = entry.as_object_mut() else { continue };
            for secret in self.secrets {
                let is_kept = match entry.shift_remove(&configured(secret)) {
                    None | Some(Value::Bool(false)) => false,
                    Some(Value::Bool(true)) => entry.get(*secret).is_none_or(is_default),
                    Some(_) => {
                        return Err(self.broken(index, &configured(secret), "has to be true or false"));
                    }
                };
                if !is_kept {
                    continue;
                }
                let of_name = entries(held).iter().find(|held| held.get("name") == entry.get("name"));
                let same = of_name.and_then(Value::as_object).filter(|held| self.goes_where(held, entry));
                let kept = same.and_then(|held| held.get(*secret)).filter(|kept| !is_default(kept)).cloned();
                let Some(kept) = kept else {
                    let rule = format!(
                        "there is none for an entry that says the same in all but {}: send {secret}",
                        self.free.join(", ")
                    );
                    return Err(self.broken(index, &configured(secret), &rule));
                };
                entry.insert((*secret).to_owned(), kept);
            }
        }
        Ok(list)
    }

    /// Whether two entries say the same in all that may decide where a secret goes.
    fn goes_where(&self, held: &Map<String, Value>, entry: &Map<String, Value>) -> bool {
        let said = |entry: &Map<String, Value>, name: &str| {
            entry.get(name).filter(|value| !is_default(value)).cloned()
        };
        let is_free = |name: &str| {
            let is_secret = |secret: &&str| name == *secret || name == configured(secret);
            self.free.contains(&name) || self.secrets.iter().any(is_secret)
        };
        let mut names = held.keys().chain(entry.keys()).map(String::as_str);
        names.all(|name| is_free(name) || said(held, name) == said(entry, name))
    }

    fn broken(&self, index: usize, member: &str, rule: &str) -> SettingsError {
        let at = format!("{}[{index}].{member}", self.member);
        SettingsError::Config(ConfigError::Rule { at, rule: rule.to_owned() })
    }

    fn redacted_entry(&self, entry: &Value) -> Value {
        let mut entry = entry.as_object().cloned().unwrap_or_default();
        for secret in self.secrets {
            let is_there = entry.shift_remove(*secret).is_some_and(|value| !is_default(&value));
            entry.insert(configured(secret), Value::Bool(is_there));
        }
        Value::Object(entry)
    }

    /// Whether entries say nothing that only the file may say, or all of it as the file does.
    pub(super) fn check(&self, list: &Value, own: &Value) -> Result<(), SettingsError> {
        for (index, entry) in entries(list).iter().enumerate() {
            let name = entry.get("name");
            let of_file = entries(own).iter().find(|own| name.is_some() && own.get("name") == name);
            let said = |entry: Option<&Value>, member| {
                entry.and_then(|entry| entry.get(member)).filter(|value| !is_default(value)).cloned()
            };
            let says_any = self.of_the_file.iter().any(|member| said(Some(entry), *member).is_some());
            let different =
                self.of_the_file.iter().find(|member| said(Some(entry), **member) != said(of_file, **member));
            if let Some(member) = different.filter(|_| says_any) {
                let rule = "may only be what the file says for the entry of this name";
                return Err(self.broken(index, member, rule));
            }
        }
        Ok(())
    }
}

/// What an entry says, as it is shown, of one of its secrets.
fn configured(secret: &str) -> String {
    format!("{secret}_configured")
}

fn entries(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// Whether a member says no more than if it were absent.
fn is_default(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}
