//! Exit codes and texts of failures.

use std::net::TcpListener;

use serde_json::json;

use crate::support::{Fake, KEY, bare, transcript};

#[test]
fn every_kind_of_failure_has_its_code() {
    let busy = json!({ "detail": "Another operation is in progress" });
    let foreign = json!({ "error_code": "ERR-03-004", "message": "CVM not found", "request_id": "req-2" });
    let fake = Fake::start()
        .on("GET /cvms/foreign", 403, foreign)
        .on("POST /cvms/busy-one/start", 409, busy)
        .on("GET /cvms/broken", 500, json!({ "detail": "Internal error" }))
        .on("GET /cvms/strange", 200, json!({ "id": 1 }))
        .on("GET /cvms/slow-one/state", 200, json!(": nothing yet\n\n"))
        .on("POST /cvms/slow-one/stop", 200, crate::support::vm("slow-one", "stopping"));
    let lines = [
        "cvms get missing",
        "cvms get foreign",
        "cvms start busy-one",
        "cvms get broken",
        "cvms get strange",
        "cvms stop slow-one --timeout 1",
        "cvms get missing --json",
        "cvms get ..",
        "cvms get",
    ];
    insta::assert_snapshot!(lines.map(|line| fake.run(line)).concat());
}

#[test]
fn a_server_that_is_not_there_is_told_apart() {
    let home = tempfile::tempdir().unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = bare(&home, "cvms list")
        .env("CLOISTER_API_URL", format!("http://{closed}"))
        .env("CLOISTER_API_KEY", KEY)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7));
    let text = transcript("cvms list", &output).replace(&closed.to_string(), "SERVER");
    assert!(text.contains("error: http://SERVER cannot be reached"), "{text}");
    assert!(text.contains("is `cloister up` running?"), "{text}");
}

#[test]
fn up_without_a_guest_image_says_how_to_get_one() {
    let home = tempfile::tempdir().unwrap();
    let output = bare(&home, "up").output().unwrap();
    let text = transcript("up", &output).replace(home.path().to_str().unwrap(), "HOME");
    insta::assert_snapshot!(text);
}
