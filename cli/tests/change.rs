//! The CVM `hello` whose compose file is to be another one: what tests of changes have in common.

use std::fs;

use cloister_app_compose::{AppCompose, ComposeHash, Revision};
use serde_json::{Value, json};

use crate::support::{Fake, cvm};

/// The operation that makes the change.
pub(crate) const OPERATION: &str = "00000000-0000-4000-8000-000000000007";
const BEFORE: &str = "services:\n  web:\n    image: app:1\n";
const AFTER: &str = "services:\n  web:\n    image: app:2\n";

/// The document that it has.
pub(crate) fn document() -> String {
    json!({ "name": "hello", "runner": "docker-compose", "manifest_version": 2,
        "docker_compose_file": BEFORE, "allowed_envs": [] })
    .to_string()
}

/// Hash of that.
pub(crate) fn present_hash() -> String {
    ComposeHash::of(document().as_bytes()).to_string()
}

/// Hash of the document that it gets.
pub(crate) fn new_hash() -> ComposeHash {
    let revision = Revision { docker_compose_file: Some(AFTER.to_owned()), ..Revision::default() };
    AppCompose::parse(document().as_bytes()).unwrap().revised(&revision).unwrap().compose_hash()
}

/// Its id in paths.
pub(crate) fn id() -> String {
    cvm("hello", "running")["id"].as_str().unwrap().to_owned()
}

/// A server with the CVM, which is said to have a document with this hash and answers the change so; the new compose
/// file is `new.yaml` in the home directory.
pub(crate) fn server(hash: &str, status: u16, answer: Value) -> Fake {
    let mut detail = cvm("hello", "running");
    detail["compose_hash"] = json!(hash);
    let id = id();
    let fake = Fake::start()
        .on("GET /cvms/hello", 200, detail.clone())
        .on(&format!("GET /cvms/{id}"), 200, detail)
        .on(&format!("GET /cvms/{id}/compose_file"), 200, json!(document()))
        .on(&format!("PATCH /cvms/{id}"), status, answer);
    fs::write(fake.home.path().join("new.yaml"), AFTER).unwrap();
    fake
}
