//! Tables, documents and changes of CVMs, operations, nodes and images.

use cloister_management_api::CvmId;
use serde_json::{Value, json};

use crate::support::{Fake, cvm, state, state_of_hello, vm};

fn page(items: &[Value]) -> Value {
    json!({ "items": items, "total": items.len(), "page": 1, "page_size": 100, "pages": 1 })
}

#[test]
fn cvms_are_listed_and_shown() {
    let mut stopped = cvm("worker-01", "stopped");
    stopped["endpoints"] = json!([]);
    let fake = Fake::start()
        .on("GET /cvms/paginated", 200, page(&[cvm("hello", "running"), stopped]))
        .on("GET /cvms/hello", 200, cvm("hello", "running"))
        .on("GET /cvms/cvm_RMer/state", 200, state_of_hello("running", false, &json!({})));
    insta::assert_snapshot!([fake.run("cvms list"), fake.run("cvms get hello")].concat());
}

#[test]
fn a_cvm_is_shown_with_how_it_does() {
    let shown = [
        ("running", false, json!({ "uptime": "1h 2m 3s", "health": "healthy", "boot_progress": "done" })),
        (
            "running",
            false,
            json!({ "uptime": "9s", "health": "unhealthy", "health_detail": "web: exited with \u{1b}[31m1\nStatus fine" }),
        ),
        ("starting", true, json!({ "boot_progress": "requesting app keys", "boot_error": "of before" })),
        (
            "stopped",
            false,
            json!({ "exited_at": "2026-11-21T04:38:00Z",
                "exit_reason": "the guest's kernel panicked or restarted", "health": "healthy" }),
        ),
        ("error", false, json!({ "uptime": "3m", "health": "healthy", "boot_error": "its node is gone" })),
    ]
    .map(|(status, in_progress, more)| {
        let fake = Fake::start().on("GET /cvms/hello", 200, cvm("hello", status)).on(
            "GET /cvms/cvm_RMer/state",
            200,
            state_of_hello(status, in_progress, &more),
        );
        fake.run("cvms get hello")
    });
    // What is known is shown, and that something is not.
    let half = Fake::start().on("GET /cvms/hello", 200, cvm("hello", "running")).run("cvms get hello");
    insta::assert_snapshot!([shown.concat(), half].concat());
}

#[test]
fn an_empty_list_says_what_to_do() {
    let fake = Fake::start().on("GET /cvms/paginated", 200, page(&[]));
    insta::assert_snapshot!(fake.run("cvms list"));
}

#[test]
fn json_is_the_document_of_the_api() {
    let document = page(&[cvm("hello", "running")]);
    let fake = Fake::start().on("GET /cvms/paginated", 200, document.clone());
    let output = fake.command("cvms list --json").output().unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap(), document);
    assert!(output.stderr.is_empty());
}

#[test]
fn a_start_is_followed_phase_by_phase() {
    let stream = [
        state("state", "starting", true, &json!({})),
        ": keep-alive\n\n".to_owned(),
        state("state", "starting", true, &json!({ "boot_progress": "mounting data disk" })),
        state("state", "starting", true, &json!({ "boot_progress": "starting containers" })),
        state("state", "running", false, &json!({ "boot_progress": "done" })),
        state("complete", "running", false, &json!({ "boot_progress": "done" })),
    ];
    let fake = Fake::start()
        .on("POST /cvms/hello/start", 200, vm("hello", "starting"))
        .on("GET /cvms/hello/state", 200, json!(stream.concat()))
        .on("GET /cvms/hello", 200, cvm("hello", "running"));
    insta::assert_snapshot!(fake.run("cvms start hello"));
}

#[test]
fn a_stream_that_breaks_off_is_opened_again() {
    let fake = Fake::start()
        .on("POST /cvms/hello/shutdown", 200, vm("hello", "shutting_down"))
        .on("GET /cvms/hello/state", 200, json!(state("state", "shutting_down", true, &json!({}))))
        .on("GET /cvms/hello/state", 503, json!({ "detail": "restarting" }))
        .on("GET /cvms/hello/state", 200, json!(state("complete", "stopped", false, &json!({}))))
        .on("GET /cvms/hello", 200, cvm("hello", "stopped"));
    insta::assert_snapshot!(fake.run("cvms shutdown hello"));
}

#[test]
fn a_failed_start_says_why_and_where_to_look() {
    let operation = json!({
        "correlation_id": "0b9f6b0e-3a52-4f0a-9a43-0c9a4a6f2b11", "operation_type": "power_on",
        "target_state": "running", "triggered_by": 1, "triggered_by_username": "admin", "triggered_by_email": null,
        "started_at": "2026-11-21T04:38:34Z", "completed_at": "2026-11-21T04:38:40Z", "duration_ms": 6250,
        "status": "failed", "error_message": "image docker.io/library/nothing:1 was not found; push it",
        "sub_operations": [], "events": [], "instance_name": "hello", "compose_hash": null,
    });
    let operations = json!({ "items": [operation], "next_cursor": null, "total": 1 });
    let fake = Fake::start()
        .on("POST /cvms/hello/restart", 200, vm("hello", "restarting"))
        .on("GET /cvms/hello/state", 200, json!(state("state", "error", false, &json!({}))))
        .on("GET /cvms/hello/operations", 200, operations);
    insta::assert_snapshot!(
        [fake.run("cvms restart hello --force"), fake.run("operations list hello")].concat()
    );
    assert_eq!(fake.seen()[0].body, json!({ "force": true }));
}

#[test]
fn deleting_asks_a_person_and_nobody_else() {
    let gone = json!({ "error_code": "ERR-03-001", "message": "CVM not found" });
    let fake = Fake::start()
        .on("GET /cvms/hello", 200, cvm("hello", "running"))
        .on(&format!("DELETE /cvms/{}", CvmId(7)), 204, Value::Null)
        .on(&format!("GET /cvms/{}", CvmId(7)), 200, cvm("hello", "deleting"))
        .on(&format!("GET /cvms/{}", CvmId(7)), 404, gone);
    insta::assert_snapshot!([fake.run("cvms delete hello"), fake.run("cvms delete hello --yes")].concat());
}

#[test]
fn logs_come_from_signed_addresses_without_the_key() {
    let fake = Fake::start();
    let log = |name: &str| format!("http://{}/logs/{name}?sig=1", fake.address);
    let container = |name: &str| {
        json!({ "id": format!("{name}0123456789"), "names": [format!("/{name}")], "image": "i", "image_id": "i",
            "command": null, "created": 1, "state": "running", "status": "Up", "log_endpoint": log(name) })
    };
    let composition = json!({ "is_online": true, "is_public": false, "error": null, "docker_compose_file": null,
        "manifest_version": 2, "version": null, "runner": null, "features": null,
        "containers": [container("web"), container("api")] });
    let fake = fake
        .on("GET /cvms/hello/composition", 200, composition)
        .on("GET /logs/web", 200, json!("web says \u{1b}[31mhi\nagain"))
        .on("GET /logs/api", 200, json!("api says hi\n"));
    insta::assert_snapshot!(
        [
            fake.run("cvms logs hello --container web --tail 5 --since 42m"),
            fake.run("cvms logs hello --container nothing"),
        ]
        .concat()
    );
    let both = fake.run("cvms logs hello");
    assert!(both.contains("web | again\n") && both.contains("api | api says hi\n"), "{both}");
    let lines: Vec<_> = fake.seen().into_iter().map(|seen| seen.line).collect();
    assert!(lines.contains(&"GET /logs/web?sig=1&tail=5&since=42m&text&bare".to_owned()), "{lines:?}");
}

#[test]
fn operators_see_invite_and_maintain_nodes() {
    let node = json!({ "id": 1, "name": "local", "status": "ONLINE", "listed": true, "region": "local",
        "version": "0.1.0", "platform": "emulation", "reported_at": null, "created_at": "2026-11-21T04:38:34Z",
        "cvm_count": 2, "images": ["cloister-0.1.0"] });
    let invitation = json!({ "join_token": "secret", "expires_at": "2026-11-21T05:38:34Z" });
    let fake = Fake::start()
        .on("GET /admin/nodes", 200, json!([node]))
        .on("POST /admin/nodes/invitations", 201, invitation)
        .on("POST /admin/nodes/local/maintenance", 200, node.clone())
        .on("DELETE /admin/nodes/local", 204, Value::Null);
    let lines = ["nodes list", "nodes invite", "nodes maintenance local on", "nodes remove local"];
    insta::assert_snapshot!(lines.map(|line| fake.run(line)).concat());
}

#[test]
fn images_are_pushed_and_listed() {
    let pushed = |error: Value| {
        json!({ "reference": "app:1", "nodes": [
            { "node_id": 1, "name": "local", "digest": "sha256:ab", "size": 2_750_000, "error": error }] })
    };
    let fake = Fake::start()
        .on("PUT /images/registry.example/team/app:1", 200, pushed(Value::Null))
        .on("PUT /images/broken", 200, pushed(json!("manifest.json is missing")))
        .on("GET /images", 200, json!([pushed(Value::Null)]));
    std::fs::write(fake.home.path().join("app.tar"), "not really an archive").unwrap();
    let lines = [
        "image push app.tar registry.example/team/app:1",
        "image push app.tar broken",
        "image push app.tar",
        "image push missing.tar app:1",
        "image list",
    ];
    insta::assert_snapshot!(lines.map(|line| fake.run(line)).concat());
}

#[test]
fn an_operation_is_cancelled_if_there_is_one() {
    let answer = |cancelled: bool| json!({ "cancelled": cancelled, "correlation_id": null });
    let fake = Fake::start().on("POST /cvms/hello/operations/cancel", 200, answer(true)).on(
        "POST /cvms/hello/operations/cancel",
        200,
        answer(false),
    );
    let line = "operations cancel hello";
    insta::assert_snapshot!([fake.run(line), fake.run(line)].concat());
}
