//! The surface as clients see it: real sockets, raw bytes.

mod keys;
mod published;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use cloister_evidence::{EventLog, Quote};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::*;
use crate::attestation::testing::booted;

struct Socket {
    path: PathBuf,
    _directory: tempfile::TempDir,
}

struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

impl Socket {
    async fn open() -> Self {
        Self::of(booted().await)
    }

    fn of(attestation: Arc<Attestation>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sub/agent.sock");
        listen_at(&path, attestation).unwrap();
        Self { path, _directory: directory }
    }

    async fn raw(&self, request: &[u8]) -> Reply {
        let mut stream = UnixStream::connect(&self.path).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head: head.to_owned(), body: body.to_owned() }
    }

    async fn get(&self, path: &str) -> Reply {
        self.raw(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes())
            .await
    }

    async fn send(&self, path: &str, headers: &str, body: &str) -> Reply {
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: dstack\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        );
        self.raw(request.as_bytes()).await
    }

    async fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(path, "Content-Type: application/json\r\n", &body.to_string()).await
    }
}

/// Long hex and certificates differ or say nothing to a reader.
fn short(value: &mut Value) {
    match value {
        Value::String(text) if text.starts_with("-----BEGIN") => *text = "[pem]".to_owned(),
        Value::String(text) if text.len() > 400 => {
            *text = format!("{}… ({} characters)", &text[..24], text.len());
        }
        Value::Array(list) => list.iter_mut().for_each(short),
        Value::Object(members) => members.values_mut().for_each(short),
        _ => {}
    }
}

#[tokio::test]
async fn answers_every_method() {
    let socket = Socket::open().await;
    let calls = [
        ("/GetQuote", json!({"report_data": "0x1234"})),
        ("/Attest", json!({"report_data": "1234"})),
        ("/EmitEvent", json!({"event": "my-event", "payload": "0102"})),
        ("/Version", json!({})),
        (
            "/GetTlsKey",
            json!({"subject": "app.example", "alt_names": ["app.example"], "usage_server_auth": true}),
        ),
        ("/GetTlsKey", json!({"usage_ra_tls": true, "usage_client_auth": true, "with_app_info": true})),
        ("/GetTlsKey", json!({"not_before": 7, "not_after": 7})),
        ("/GetKey", json!({"path": "storage/main", "purpose": "signing", "algorithm": ""})),
        ("/GetKey", json!({"algorithm": "rsa"})),
        ("/Sign", json!({"algorithm": "secp256k1", "data": "68656c6c6f"})),
        ("/Sign", json!({"algorithm": "secp256k1_prehashed", "data": "68"})),
        ("/Verify", json!({"algorithm": "secp256k1", "data": "68", "signature": "00", "public_key": "00"})),
        ("/prpc/Tappd.TdxQuote?json", json!({"report_data": "00"})),
        ("/prpc/TdxQuote?json", json!({"report_data": "00", "hash_algorithm": "sha384", "prefix": "x"})),
        ("/prpc/Tappd.TdxQuote?json", json!({"report_data": "00", "hash_algorithm": "raw"})),
        ("/prpc/Tappd.TdxQuote?json", json!({"report_data": "00", "hash_algorithm": "md5"})),
        ("/prpc/Tappd.RawQuote?json", json!({"report_data": "ab".repeat(64)})),
        ("/prpc/Tappd.DeriveKey?json", json!({"path": "/", "subject": "x"})),
        ("/prpc/Tappd.DeriveKey?json", json!({"path": "/", "subject": "x", "random_seed": true})),
        ("/GetAttestation", json!({"user_data": "00ff"})),
        ("/attestation", json!({"reportData": "0x01"})),
    ];
    let mut seen = Vec::new();
    for (path, body) in calls {
        let reply = socket.post(path, &body).await;
        let mut answer = reply.json();
        short(&mut answer);
        seen.push(json!({"call": path, "body": body, "status": reply.status, "answer": answer}));
    }
    insta::assert_json_snapshot!(seen);
}

#[tokio::test]
async fn info_has_what_sdks_require() {
    let socket = Socket::open().await;
    let mut info = socket.post("/Info", &json!({})).await.json();
    let tcb_info: Value = serde_json::from_str(info["tcb_info"].as_str().unwrap()).unwrap();
    assert_eq!(info, socket.get("/prpc/Tappd.Info").await.json());
    info["tcb_info"] = tcb_info;
    // The test's own machine.
    (info["cloud_vendor"], info["cloud_product"]) = ("".into(), "".into());
    short(&mut info);
    insta::assert_json_snapshot!(info);
}

#[tokio::test]
async fn a_plain_get_of_a_quote_is_the_short_form_and_json_the_long_one() {
    let socket = Socket::open().await;
    let short = socket.get("/GetQuote?report_data=0x1234").await.json();
    let quote = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, short["quote"].as_str().unwrap());
    let quote = quote.unwrap();
    assert!(short["quote"].as_str().unwrap().starts_with("BAAC"));
    let report = Quote::parse(&quote).unwrap();
    let registers = report.td_report().unwrap().registers();
    assert_eq!(short["rtmr0"], registers.rtmr0.to_string());
    assert_eq!(short["rtmr3"], registers.rtmr3.to_string());
    let long = socket.get("/GetQuote?report_data=0x1234&json").await.json();
    assert!(long["quote"].as_str().unwrap().starts_with("04000200"));
    assert_eq!(long["report_data"], format!("1234{}", "0".repeat(124)));
    assert_eq!(long.get("rtmr0"), None);
}

#[tokio::test]
async fn what_public_clients_send_is_understood() {
    let socket = Socket::open().await;
    // One that looks for the length in this spelling, and wants no chunks; another that sends its type
    // twice and the whole address.
    let twice = "content-type: application/json\r\ncontent-type: application/json\r\n";
    let reply = socket.send("http://dstack/EmitEvent", twice, r#"{"event":"a","payload":""}"#).await;
    assert_eq!((reply.status, reply.body.as_str()), (200, "null"));
    assert!(reply.head.contains("\r\nContent-Length: 4"), "{}", reply.head);
    assert!(!reply.head.to_ascii_lowercase().contains("transfer-encoding"));
    // The type of a form, as one program sends it by default.
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    assert_eq!(socket.send("/Version?json", form, "{}").await.status, 200);
    assert_eq!(socket.send("/Version?json=1", form, "").await.status, 200);
    assert_eq!(socket.send("/Version", "", "").await.status, 200);
    let binary = socket.send("/Version", "Content-Type: application/octet-stream\r\n", "\u{1}x").await;
    assert_eq!((binary.status, binary.body.contains("JSON only")), (400, true));
    for path in ["/DstackGuest.Version", "/prpc/DstackGuest.Version", "/v0/Version", "/prpc/Version?json"] {
        assert_eq!(socket.get(path).await.status, 200, "{path}");
    }
    let unknown = socket.get("/prpc/Foo").await;
    assert_eq!((unknown.status, unknown.body.as_str()), (400, r#"{"error":"Service not found: Foo"}"#));
    // The text of the compose document is not ASCII, the answer is.
    let info = socket.get("/Info").await;
    assert!(info.body.is_ascii() && info.body.contains("gr\\u00fc\\u00dfe"));
    let mode = fs::metadata(&socket.path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o777);
}

#[tokio::test]
async fn events_are_measured_in_order_and_those_of_the_platform_refused() {
    let socket = Socket::open().await;
    let emit = |name: String, bytes: usize| json!({"event": name, "payload": "00".repeat(bytes)});
    for (event, status) in [
        (emit("first".into(), 3), 200),
        (emit("compose-hash".into(), 32), 400),
        (emit("system-ready".into(), 0), 400),
        // The digest of these is also that of the platform's name with another payload.
        (emit("compose-hash:".into(), 32), 400),
        (emit("system-ready:x".into(), 0), 400),
        (emit("my:compose-hash".into(), 0), 200),
        (emit(String::new(), 0), 400),
        (emit("n".repeat(256), 16 << 10), 200),
        (emit("n".repeat(257), 0), 400),
        (emit("long".into(), (16 << 10) + 1), 400),
    ] {
        assert_eq!(socket.post("/EmitEvent", &event).await.status, status);
    }
    let answer = socket.post("/GetQuote", &json!({})).await.json();
    let quote = hex::decode(answer["quote"].as_str().unwrap()).unwrap();
    let log = EventLog::parse(answer["event_log"].as_str().unwrap()).unwrap();
    let registers = Quote::parse(&quote).unwrap().td_report().unwrap().registers();
    assert_eq!(log.builds(&registers).unwrap(), [true; 4]);
    let names: Vec<_> = log.entries().iter().map(|entry| entry.event.clone()).collect();
    assert_eq!(
        names[names.len() - 4..],
        ["system-ready".to_owned(), "first".into(), "my:compose-hash".into(), "n".repeat(256)]
    );
}

#[tokio::test]
async fn the_log_of_a_boot_has_an_end() {
    let socket = Socket::open().await;
    let event = json!({"event": "e", "payload": "00".repeat(16 << 10)});
    let mut statuses = Vec::new();
    for _ in 0..34 {
        statuses.push(socket.post("/EmitEvent", &event).await.status);
    }
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 31);
    assert_eq!(statuses.last(), Some(&400));
    assert_eq!(socket.post("/GetQuote", &json!({})).await.status, 200);
}

#[tokio::test]
async fn long_requests_are_few_at_a_time_and_slow_ones_given_up() {
    let socket = Socket::open().await;
    let announced =
        "POST /Version HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n";
    let mut held = Vec::new();
    for _ in 0..MAX_LONG_REQUESTS {
        let mut stream = UnixStream::connect(&socket.path).await.unwrap();
        stream.write_all(announced.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 100");
        held.push(stream);
    }
    assert_eq!(socket.raw(announced.as_bytes()).await.status, 503);
    assert_eq!(socket.send("/Version?json", "", "{}").await.status, 200);
    tokio::time::pause();
    for mut stream in held {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains("HTTP/1.1 400") && answer.contains("did not arrive"), "{answer}");
    }
    tokio::time::resume();
    let long = format!("{{\"unknown\":\"{}\"}}", "x".repeat(100_000));
    assert_eq!(socket.send("/Version?json", "", &long).await.status, 200);
}

#[tokio::test]
async fn signatures_are_checked() {
    let socket = Socket::open().await;
    let pair = ring::signature::Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let public_key = hex::encode(ring::signature::KeyPair::public_key(&pair));
    let signature = hex::encode(pair.sign(b"hello"));
    for (data, valid) in [("hello", true), ("hullo", false)] {
        let body = json!({
            "algorithm": "ed25519", "data": hex::encode(data), "signature": signature, "public_key": public_key,
        });
        assert_eq!(socket.post("/Verify", &body).await.json(), json!({ "valid": valid }));
    }
}

#[tokio::test]
async fn many_callers_at_once_get_answers_or_are_told_to_come_back() {
    let socket = Arc::new(Socket::open().await);
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..100_u8 {
        let socket = Arc::clone(&socket);
        calls.spawn(async move {
            let reply = socket.post("/GetQuote", &json!({"report_data": hex::encode([number])})).await;
            (number, reply.status, reply.json())
        });
    }
    while let Some(Ok((number, status, answer))) = calls.join_next().await {
        if status == 503 {
            assert!(answer["error"].as_str().unwrap().contains("busy"));
        } else {
            assert!(answer["report_data"].as_str().unwrap().starts_with(&hex::encode([number])));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn hostile_requests_get_an_answer(path in "/[ -~]{0,40}", method in 0usize..15, body: Vec<u8>, json in any::<bool>()) {
        let names = ["GetQuote", "EmitEvent", "GetTlsKey", "GetKey", "Sign", "Verify", "TdxQuote", "Info"];
        let path = names.get(method).map_or(path, |name| format!("/{name}?json"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let Ok(request) = Request::post(path).body(Full::new(Bytes::from(if json {
            serde_json::json!({ "report_data": String::from_utf8_lossy(&body), "event": body, "data": {} }).to_string().into_bytes()
        } else {
            body
        }))) else { return Ok(()) };
        let response = runtime.block_on(async { respond(&*booted().await, request).await });
        prop_assert!([200, 400].contains(&response.status().as_u16()));
    }
}
