//! Webhooks as people manage them, and events as a program on this machine gets them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::mpsc;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use cloister_management_api::{WebhookCursor, WebhookId};
use cloister_webhooks::{EventKind, Secret, sample, verify_public, verify_standard};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::support::Fake;

fn webhook(secret: &str) -> Value {
    json!({
        "id": WebhookId(7), "url": "https://hooks.example.org/cloister", "secret": secret,
        "events": ["cvm.created", "cvm.deleted"], "name": "ops", "enabled": true, "disabled_reason": null,
        "previous_secret_until": null, "created_at": "2026-11-21T04:38:34Z", "updated_at": "2026-11-21T04:38:34Z",
    })
}

fn delivery(status: &str, response_status: u16, error_message: &str) -> Value {
    json!({
        "snowflake_id": 1_234, "event_id": "evt_0123456789abcdef", "event_type": "cvm.created", "status": status,
        "attempts": 1, "request_url": "https://hooks.example.org/cloister", "response_status": response_status,
        "error_message": error_message, "created_at": "2026-11-21T04:38:34Z", "duration_ms": 12,
        "delivered_at": null, "original_event_id": "",
    })
}

fn attempt(outcome: &str, response_status: u16, error_message: &str) -> Value {
    json!([{
        "number": 1, "outcome": outcome, "began_at": "2026-11-21T04:38:34Z", "ended_at": "2026-11-21T04:38:35Z",
        "duration_ms": 12, "response_status": response_status, "error_message": error_message,
    }])
}

fn path(rest: &str) -> String {
    format!("/workspace/webhooks/{}{rest}", WebhookId(7))
}

#[test]
fn webhooks_are_listed_shown_and_looked_into() {
    let mut disabled = webhook("whsec_****…abcd");
    disabled["enabled"] = json!(false);
    disabled["disabled_reason"] = json!("the receiver answered 410: nobody wants to hear any more");
    disabled["previous_secret_until"] = json!("2026-11-22T04:38:34Z");
    let id = WebhookId(7);
    let fake = Fake::start()
        .on("GET /workspace/webhooks", 200, json!([webhook("whsec_****…abcd")]))
        .on("GET /workspace/webhooks/wh_none", 404, json!({ "detail": "Webhook not found" }))
        .on(&format!("GET {}", path("")), 200, disabled)
        .on(
            &format!("GET {}", path("/deliveries")),
            200,
            json!([delivery("success", 204, ""), delivery("pending", 0, "timed out: no answer in time")]),
        )
        .on(
            &format!("GET {}", path("/deliveries/evt_0123456789abcdef/attempts")),
            200,
            attempt("failed", 500, "the receiver answered 500"),
        )
        .on(
            &format!("GET {}", path("/stats")),
            200,
            json!({ "total": 3, "success_count": 2, "failed_count": 1, "success_rate": 66.66, "avg_duration_ms": 20,
                "max_duration_ms": 51, "last_delivery_at": "2026-11-21T04:38:34Z" }),
        )
        .on(
            "GET /workspace/webhooks/event-types",
            200,
            json!([{ "event": "cvm.created", "description": "A CVM was created.", "schema": {}, "example": {} }]),
        );
    let lines = [
        "webhooks list".to_owned(),
        format!("webhooks show {id}"),
        format!("webhooks deliveries {id} --limit 2"),
        format!("webhooks attempts {id} evt_0123456789abcdef"),
        format!("webhooks stats {id}"),
        "webhooks event-types".to_owned(),
        "webhooks show wh_none".to_owned(),
    ];
    let text: String = lines.iter().map(|line| fake.run(line)).collect();
    insta::assert_snapshot!(text);
    let queries: Vec<_> = fake.seen().into_iter().map(|seen| seen.line).collect();
    assert!(queries.contains(&format!("GET {}?limit=2&offset=0", path("/deliveries"))), "{queries:?}");
}

#[test]
fn webhooks_are_made_changed_tested_and_deleted() {
    let id = WebhookId(7);
    let made = webhook("whsec_dGVzdC1zZWNyZXQ");
    let fake = Fake::start()
        .on("POST /workspace/webhooks", 201, made.clone())
        .on(&format!("PUT {}", path("")), 200, webhook("whsec_****…yZXQ"))
        .on(&format!("POST {}", path("/reveal-secret")), 200, made.clone())
        .on(&format!("POST {}", path("/rotate-secret")), 200, made)
        .on(&format!("POST {}", path("/test")), 200, delivery("pending", 0, ""))
        .on(&format!("GET {}", path("/deliveries/evt_0123456789abcdef/attempts")), 200, json!([]))
        .on(
            &format!("GET {}", path("/deliveries/evt_0123456789abcdef/attempts")),
            200,
            attempt("pending", 0, ""),
        )
        .on(
            &format!("GET {}", path("/deliveries/evt_0123456789abcdef/attempts")),
            200,
            attempt("success", 204, ""),
        )
        .on(
            &format!("GET {}", path("/deliveries/evt_0123456789abcdef/attempts")),
            200,
            attempt("failed", 0, "the connection was refused: nothing listens at this port"),
        )
        .on(
            &format!("POST {}", path("/deliveries/evt_0123456789abcdef/resend")),
            200,
            delivery("pending", 0, ""),
        )
        .on(
            &format!("POST {}", path("/replay")),
            200,
            json!({ "count": 900, "next_after": WebhookCursor(5) }),
        )
        .on(&format!("POST {}", path("/replay")), 200, json!({ "count": 7, "next_after": null }))
        .on(&format!("DELETE {}", path("")), 204, Value::Null);
    let lines = [
        "webhooks create https://hooks.example.org/cloister --events cvm.created,cvm.deleted --name ops"
            .to_owned(),
        format!("webhooks update {id} --events cvm.deleted --enabled true"),
        format!("webhooks update {id}"),
        format!("webhooks reveal-secret {id}"),
        format!("webhooks rotate-secret {id}"),
        format!("webhooks test {id}"),
        format!("webhooks test {id}"),
        format!("webhooks resend {id} evt_0123456789abcdef"),
        format!(
            "webhooks replay {id} --since 2026-11-21T00:00:00Z --until 2026-11-22T00:00:00Z --only-failed"
        ),
        format!("webhooks replay {id} --since lately"),
        format!("webhooks delete {id}"),
    ];
    let text: String = lines.iter().map(|line| fake.run(line)).collect();
    insta::assert_snapshot!(text);
    let bodies: Vec<_> =
        fake.seen().into_iter().map(|seen| seen.body).filter(|body| !body.is_null()).collect();
    let replay =
        json!({ "since": "2026-11-21T00:00:00Z", "until": "2026-11-22T00:00:00Z", "only_failed": true });
    let mut on = replay.clone();
    on["after"] = json!(WebhookCursor(5));
    assert_eq!(
        bodies,
        [
            json!({ "url": "https://hooks.example.org/cloister", "events": ["cvm.created", "cvm.deleted"], "name": "ops" }),
            json!({ "events": ["cvm.deleted"], "enabled": true }),
            replay,
            on,
        ]
    );
}

#[test]
fn a_secret_comes_from_a_file_or_stdin_and_no_option_takes_one() {
    let fake = Fake::start().on("POST /workspace/webhooks", 201, webhook("a*secret*of*my*own"));
    let line = "webhooks create https://hooks.example.org/ --events cvm.created";
    std::fs::write(fake.home.path().join("secret"), "a*secret*of*my*own\n").unwrap();
    std::fs::write(fake.home.path().join("short"), "short\n").unwrap();
    assert!(fake.command(&format!("{line} --secret-file secret")).output().unwrap().status.success());
    let mut child = fake
        .command(&format!("{line} --secret-file -"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"a*secret*on*stdin\n").unwrap();
    assert!(child.wait().unwrap().success());
    let secrets: Vec<_> = fake.seen().into_iter().map(|seen| seen.body["secret"].clone()).collect();
    assert_eq!(secrets, ["a*secret*of*my*own", "a*secret*on*stdin"]);
    for (option, code) in
        [("--secret-file short", 2), ("--secret-file nowhere", 2), ("--secret a*secret*of*my*own", 2)]
    {
        let output = fake.command(&format!("{line} {option}")).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{option}");
        assert!(
            option.starts_with("--secret ") || !String::from_utf8_lossy(&output.stderr).contains("short\n")
        );
    }
    assert_eq!(fake.seen().len(), 2);
}

/// Headers and body.
type Request = (Vec<(String, String)>, Vec<u8>);

/// A program that is being written: it answers 200, and 500 to deletions.
fn program() -> (SocketAddr, mpsc::Receiver<Request>, tokio::runtime::Runtime) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (tell, requests) = mpsc::channel();
    let router = Router::new().fallback(move |headers: HeaderMap, body: Bytes| {
        let pairs =
            headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
        tell.send((pairs.collect(), body.to_vec())).unwrap();
        let is_deletion = headers["x-webhook-event"] == "cvm.deleted";
        std::future::ready(if is_deletion { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK })
    });
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move { axum::serve(listener, router).await.unwrap() });
    (address, requests, runtime)
}

fn event(place: i64, kind: EventKind) -> String {
    let body = String::from_utf8(sample(kind).to_bytes()).unwrap();
    format!("id: {}\nevent: {kind}\ndata: {body}\n\n", WebhookCursor(place))
}

#[test]
fn events_are_forwarded_signed_and_from_where_the_stream_broke_off() {
    let ready = format!("id: {}\nevent: ready\ndata: {{}}\n\n", WebhookCursor(1));
    let end = format!("id: {}\nevent: end\ndata: {{}}\n\n", WebhookCursor(9));
    let first = [ready, ": keep-alive\n\n".to_owned(), event(2, EventKind::CvmCreated)].concat();
    let second =
        [event(3, EventKind::CvmDeleted), "id: x\nevent: cvm.exploded\ndata: {}\n\n".to_owned(), end];
    let (address, requests, _runtime) = program();
    let stream = "GET /workspace/webhooks/events/stream";
    let fake = Fake::start()
        .on(stream, 200, json!(first))
        .on(stream, 503, json!({ "detail": "restarting" }))
        .on(stream, 200, json!(second.concat()))
        .on(stream, 401, json!({ "detail": "Invalid, expired or revoked API key" }));
    let line = format!("webhooks listen --forward-to http://{address}/hook --events cvm.created,cvm.deleted");
    let mut child = fake.command(&line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let words: Vec<_> = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap).collect();
    let lines: Vec<_> = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(4), "{words:?}");

    let secret = words.iter().find_map(|line| line.strip_prefix("Secret of this session: ")).unwrap();
    assert_eq!(words.iter().filter(|line| line.contains("whsec_")).count(), 1);
    assert!(words.iter().any(|line| line.contains("cvm.exploded")), "{words:?}");
    let secret = Secret::parse(secret).unwrap();
    for kind in [EventKind::CvmCreated, EventKind::CvmDeleted] {
        let (headers, body) = requests.recv().unwrap();
        assert_eq!(body, sample(kind).to_bytes());
        let sent = headers.iter().find(|(name, _)| name == "x-webhook-timestamp").unwrap().1.parse().unwrap();
        assert_eq!(verify_public(&secret, &headers, &body, sent), Ok(()));
        assert_eq!(verify_standard(&secret, &headers, &body, sent), Ok(()));
        assert!(Timestamp::from_second(sent).is_ok());
    }
    assert!(requests.try_recv().is_err());
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("cvm.created  200") && lines[1].contains("cvm.deleted  500"), "{lines:?}");
    let asked: Vec<_> = fake.seen().into_iter().map(|seen| seen.line).collect();
    let query = |after: Option<i64>| {
        let after = after.map(|place| format!("&after={}", WebhookCursor(place))).unwrap_or_default();
        format!("{stream}?events=cvm.created&events=cvm.deleted{after}")
    };
    assert_eq!(asked, [query(None), query(Some(2)), query(Some(2)), query(Some(9))]);
}

#[test]
fn what_cannot_be_forwarded_is_said_and_programs_read_lines() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = listener.local_addr().unwrap();
    drop(listener);
    let stream = "GET /workspace/webhooks/events/stream";
    let fake = Fake::start().on(stream, 200, json!(event(2, EventKind::CvmCreated))).on(
        stream,
        403,
        json!({ "detail": "This API key has the scope 'read'" }),
    );
    let line = format!("webhooks listen --forward-to http://{nobody}/ --json");
    let output = fake.command(&line).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines[0]["secret"].as_str().unwrap().starts_with("whsec_"));
    assert_eq!(lines[1]["event_type"], "cvm.created");
    assert_eq!(
        (&lines[1]["response_status"], &lines[1]["error_message"]),
        (&json!(0), &json!("nothing listens there"))
    );
    assert_eq!(lines.len(), 2);
    assert!(!String::from_utf8(output.stderr).unwrap().contains("whsec_"));
}
