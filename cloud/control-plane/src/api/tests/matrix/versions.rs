//! What differs between the dated versions: of each operation, which versions answer in the same form.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use cloister_management_api::{ApiVersion, VERSION_HEADER};
use serde_json::Value;

use super::world::{Id, World};
use super::{Key, subjects};

/// The form of a document: names and types of members, without values. Of a list the forms that are in it.
fn form(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "truth".to_owned(),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "text".to_owned(),
        Value::Array(items) => {
            let forms: BTreeSet<_> = items.iter().map(form).collect();
            format!("[{}]", forms.into_iter().collect::<Vec<_>>().join("|"))
        }
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| format!("{name}:{}", form(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
    }
}

#[tokio::test]
async fn what_differs_between_versions_is_the_reviewed_table() {
    let template = World::new().await.at_rest().await;
    let shared = template.copy().await;
    let mut table = format!("operation | {}\n", ApiVersion::ALL.map(ApiVersion::as_str).join(" | "));
    for subject in subjects(&template) {
        let mut forms = Vec::new();
        for version in ApiVersion::ALL {
            let copied = match subject.rule.changes {
                Some(_) => Some(template.copy().await),
                None => None,
            };
            let world = copied.as_ref().unwrap_or(&shared);
            let headers = [(VERSION_HEADER, version.as_str())];
            let reply = subject.send_with(world, Key::Right, Id::There, subject.right(), &headers).await;
            if let Some(named) = reply.version {
                assert_eq!(named, version.as_str(), "{}", subject.rule.operation);
            }
            let body = serde_json::from_str(&reply.text).map_or("no JSON".to_owned(), |body| form(&body));
            forms.push(format!("{} {body}", reply.summary));
        }
        if forms.iter().all(|form| *form == forms[0]) {
            continue;
        }
        let letter = |form: &String| forms.iter().position(|other| other == form).unwrap();
        let letters = forms.iter().map(|form| char::from(b'a' + u8::try_from(letter(form)).unwrap()));
        let letters: Vec<_> = letters.map(String::from).collect();
        writeln!(table, "{} {} | {}", subject.rule.method, subject.rule.operation, letters.join(" | "))
            .unwrap();
    }
    insta::assert_snapshot!(table);
}
