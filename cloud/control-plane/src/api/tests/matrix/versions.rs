//! What differs between the dated versions: which operations answer in another form, and where it is another.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use cloister_management_api::{ApiVersion, VERSION_HEADER};
use serde_json::{Value, json};

use super::world::{Id, World};
use super::{Key, subjects};
use crate::api::tests::{kms::support::Cloud, report};

/// The form of an answer: its status, and the types that stand at each place of its document, without values.
#[derive(PartialEq, Eq)]
struct Form {
    summary: String,
    places: BTreeMap<String, BTreeSet<&'static str>>,
}

impl Form {
    fn of(summary: String, text: &str) -> Self {
        let mut form = Self { summary, places: BTreeMap::new() };
        if let Ok(document) = serde_json::from_str(text) {
            form.add("", &document);
        }
        form
    }

    fn add(&mut self, place: &str, value: &Value) {
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "truth",
            Value::Number(_) => "number",
            Value::String(_) => "text",
            Value::Array(items) => {
                for item in items {
                    self.add(&format!("{place}[]"), item);
                }
                "list"
            }
            Value::Object(members) => {
                for (name, value) in members {
                    self.add(&format!("{place}.{name}"), value);
                }
                "object"
            }
        };
        self.places.entry(place.to_owned()).or_default().insert(kind);
    }

    /// The outermost places that another form does not have.
    fn without(&self, other: &Self) -> Vec<&str> {
        let mut places: Vec<&str> = Vec::new();
        for place in self.places.keys().filter(|place| !other.places.contains_key(*place)) {
            let inner = places.last().and_then(|outer| place.strip_prefix(outer));
            if !inner.is_some_and(|inner| inner.starts_with(['.', '['])) {
                places.push(place);
            }
        }
        places
    }

    /// What is other here, in words.
    fn beside(&self, other: &Self) -> String {
        let types = |types: &BTreeSet<&str>| types.iter().copied().collect::<Vec<_>>().join(" or ");
        let changed = other.places.iter().filter_map(|(place, before)| {
            let now = self.places.get(place).filter(|now| *now != before)?;
            Some(format!("{place} {} for {}", types(now), types(before)))
        });
        let changed: Vec<_> = changed.collect();
        let parts = [
            ("no", other.without(self).join(" ")),
            ("new", self.without(other).join(" ")),
            ("other", changed.join(", ")),
        ];
        let parts = parts.iter().filter(|(_, places)| !places.is_empty());
        let parts: Vec<_> = parts.map(|(what, places)| format!("{what} {places}")).collect();
        parts.join("; ")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_differs_between_versions_is_the_reviewed_table() {
    let template = World::new().await.at_rest().await;
    let shared = template.copy().await;
    // Services for keys are there as well where they are looked at.
    let cloud = Cloud::new().await;
    let with_keys = World::around(cloud.installation, json!({"kms_id": "local"}));
    let mut table = format!("operation | {}\n", ApiVersion::ALL.map(ApiVersion::as_str).join(" | "));
    for subject in subjects(&template) {
        let is_about_keys =
            subject.rule.path.starts_with("/kms") || subject.rule.path.starts_with("/teepods");
        let mut forms = Vec::new();
        for version in ApiVersion::ALL {
            let copied = match subject.rule.changes {
                Some(_) => Some(template.copy().await),
                None => None,
            };
            if is_about_keys {
                // Its clock is the real one, by which a node is offline when it has been silent for a while.
                with_keys.installation.report(&report(65536, false)).await;
            }
            let world = if is_about_keys { &with_keys } else { copied.as_ref().unwrap_or(&shared) };
            let headers = [(VERSION_HEADER, version.as_str())];
            let reply = subject.send_with(world, Key::Right, Id::There, subject.right(), &headers).await;
            if let Some(named) = reply.version {
                assert_eq!(named, version.as_str(), "{}", subject.rule.operation);
            }
            forms.push(Form::of(reply.summary, &reply.text));
        }
        let firsts: Vec<_> =
            forms.iter().map(|form| forms.iter().position(|other| other == form).unwrap()).collect();
        if firsts.iter().all(|first| *first == 0) {
            continue;
        }
        let letter = |first: usize| char::from(b'a' + u8::try_from(first).unwrap());
        let letters: Vec<_> = firsts.iter().map(|first| letter(*first).to_string()).collect();
        writeln!(table, "{} {} | {}", subject.rule.method, subject.rule.operation, letters.join(" | "))
            .unwrap();
        for (at, first) in firsts.iter().enumerate().filter(|(at, first)| at == *first && *at > 0) {
            let before = &forms[firsts[at - 1]];
            let words = forms[at].beside(before);
            writeln!(table, "    {} {}: {words}", letter(*first), forms[at].summary).unwrap();
        }
    }
    insta::assert_snapshot!(table);
}
