//! Changing a CVM: what is said before, what is asked of the server, and what is made of its answers.

use serde_json::{Value, json};

use crate::change::{self, OPERATION, id, new_hash, present_hash};
use crate::support::{Fake, state};

/// A server with the CVM `hello`, which changes it.
fn server(hash: &str) -> Fake {
    let accepted = json!({ "status": "in_progress", "message": "", "correlation_id": OPERATION });
    let events =
        [state("state", "updating", true, &json!({})), state("complete", "running", false, &json!({}))];
    change::server(hash, 202, accepted).on(&format!("GET /cvms/{}/state", id()), 200, json!(events.concat()))
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
    fake.on(&format!("GET /cvms/{}/operations", id()), 200, operation(status, reason))
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
