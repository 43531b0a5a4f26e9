//! The checked-in document is the generated one.

use crate::api::document;

#[test]
fn the_checked_in_document_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
    let current = document().to_pretty_json().unwrap() + "\n";
    if std::env::var_os("INSTA_UPDATE").is_some_and(|value| value == "always") {
        std::fs::write(path, &current).unwrap();
    }
    assert!(std::fs::read_to_string(path).unwrap() == current, "write it with INSTA_UPDATE=always");
}

#[test]
fn every_operation_has_a_name_a_summary_and_a_success() {
    let document = serde_json::to_value(document()).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let mut names = std::collections::BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        assert!(path.starts_with("/api/v1/"), "{path}");
        for (method, operation) in item.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap();
            assert!(names.insert(name.to_owned()), "{name} twice");
            assert!(operation["summary"].is_string(), "{method} {path}");
            let statuses = operation["responses"].as_object().unwrap();
            assert!(statuses.keys().any(|status| status.starts_with('2')), "{method} {path}");
            for (status, response) in statuses.iter().filter(|(status, _)| status.as_str() >= "4") {
                let schema = &response["content"]["application/json"]["schema"];
                assert!(schema.is_object(), "{method} {path}: the body of a {status} has a form");
            }
        }
    }
}

#[test]
fn every_reference_leads_somewhere() {
    let text = document().to_json().unwrap();
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    for part in text.split("\"$ref\":\"#").skip(1) {
        let pointer = part.split('"').next().unwrap();
        assert!(document.pointer(pointer).is_some(), "{pointer}");
    }
}
