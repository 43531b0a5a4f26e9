//! Changing a CVM: what is said before, what is asked of the server, and what is made of its answers.

use std::fs;

use cloister_app_compose::{AppCompose, ComposeHash, Revision};
use serde_json::{Value, json};

use crate::support::{Fake, cvm, state};

const BEFORE: &str = "services:\n  web:\n    image: app:1\n";
const AFTER: &str = "services:\n  web:\n    image: app:2\n";
const OPERATION: &str = "00000000-0000-4000-8000-000000000007";

fn document() -> String {
    json!({ "name": "hello", "runner": "docker-compose", "manifest_version": 2,
        "docker_compose_file": BEFORE, "allowed_envs": [] })
    .to_string()
}

fn new_hash() -> ComposeHash {
    let revision = Revision { docker_compose_file: Some(AFTER.to_owned()), ..Revision::default() };
    AppCompose::parse(document().as_bytes()).unwrap().revised(&revision).unwrap().compose_hash()
}

/// A server with the CVM `hello`, and the new compose file in the home directory.
fn server(hash: &str) -> Fake {
    let mut detail = cvm("hello", "running");
    detail["compose_hash"] = json!(hash);
    let id = detail["id"].as_str().unwrap().to_owned();
    let fake = Fake::start()
        .on("GET /cvms/hello", 200, detail.clone())
        .on(&format!("GET /cvms/{id}"), 200, detail)
        .on(&format!("GET /cvms/{id}/compose_file"), 200, json!(document()))
        .on(
            &format!("PATCH /cvms/{id}"),
            202,
            json!({ "status": "in_progress", "message": "", "correlation_id": OPERATION }),
        )
        .on(
            &format!("GET /cvms/{id}/state"),
            200,
            json!(
                [
                    state("state", "updating", true, &json!({})),
                    state("complete", "running", false, &json!({}))
                ]
                .concat()
            ),
        );
    fs::write(fake.home.path().join("new.yaml"), AFTER).unwrap();
    fake
}

fn present_hash() -> String {
    ComposeHash::of(document().as_bytes()).to_string()
}

fn operation(status: &str, reason: Option<&str>) -> Value {
    json!({ "items": [{
        "correlation_id": OPERATION, "operation_type": "compose_update", "target_state": "running",
        "triggered_by": 1, "triggered_by_username": "ada", "triggered_by_email": null,
        "started_at": "2026-11-21T04:38:00Z", "completed_at": "2026-11-21T04:39:00Z", "duration_ms": 60000,
        "status": status, "error_message": reason, "sub_operations": [], "events": [],
        "instance_name": "hello", "compose_hash": null,
    }], "next_cursor": null, "total": 1 })
}

fn history(fake: Fake, status: &str, reason: Option<&str>) -> Fake {
    let id = cvm("hello", "running")["id"].as_str().unwrap().to_owned();
    fake.on(&format!("GET /cvms/{id}/operations"), 200, operation(status, reason))
}

#[test]
fn a_difference_is_told_and_nothing_is_changed() {
    let fake = server(&present_hash());
    insta::assert_snapshot!([fake.run("diff hello -c new.yaml"), fake.run("diff hello")].concat());
    assert!(fake.seen().iter().all(|seen| seen.line.starts_with("GET ")));
}

#[test]
fn the_server_is_told_which_hash_is_expected() {
    let fake = history(server(&present_hash()), "completed", None);
    let transcript = fake.run("update hello -c new.yaml --rollback false");
    insta::assert_snapshot!(transcript);
    let change = fake.seen().into_iter().find(|seen| seen.line.starts_with("PATCH ")).unwrap();
    assert_eq!(change.compose_hash, Some(new_hash().to_string()));
    insta::assert_json_snapshot!(change.body);
}

#[test]
fn a_change_that_was_taken_back_is_a_failure() {
    let reason = "the application is not healthy: web ended with status 1";
    let fake = history(server(&present_hash()), "failed", Some(reason));
    insta::assert_snapshot!(fake.run("update hello -c new.yaml"));
}

#[test]
fn nothing_is_built_upon_a_document_that_has_another_hash() {
    let fake = server(&"ab".repeat(32));
    insta::assert_snapshot!(fake.run("update hello -c new.yaml"));
    assert!(!fake.seen().iter().any(|seen| seen.line.starts_with("PATCH ")));
}

#[test]
fn a_change_of_nothing_is_no_change() {
    insta::assert_snapshot!(server(&present_hash()).run("update hello"));
}
