//! `cloister verify receipt`: the account of a streamed answer, by a gateway in a machine whose evidence is minted, over an
//! upstream that was verified.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use cloister_aci::{canonical, parse, sha256};
use cloister_development_tee::{HostProcess, HostProcessAgent, Platform, PlatformKey};
use ring::signature::Ed25519KeyPair;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio::sync::watch;

use crate::guest::{Guest, serve};
use crate::inference::{KEY, Part};
use crate::support::bare;

mod log;

const MODEL: &str = "m";
const NONCE: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
/// Code of evidence that was judged and refused.
pub(crate) const UNVERIFIED: i32 = 8;
const STREAM: [&str; 3] = [
    r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"hel"},"finish_reason":null}]}"#,
    r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":"stop"}]}"#,
    r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#,
];

/// Answers every request with the stream, over TLS. Its address, and the hash of its key.
fn upstream() -> (SocketAddr, String) {
    let events = STREAM.map(|event| format!("data: {event}\n\n")).concat();
    tls_server(format!("content-type: text/event-stream\r\n\r\n{events}data: [DONE]\n\n"))
}

/// Ends TLS with a key of its own, and answers every request with the same: headers and a body. Its address, and the hash of
/// its key.
pub(crate) fn tls_server(answer: String) -> (SocketAddr, String) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let pin = hex::encode(Sha256::digest(rcgen::PublicKeyData::subject_public_key_info(&made.signing_key)));
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // Whoever only looks at the key leaves early.
            let _ = stream.and_then(|stream| answer_with(&answer, stream, Arc::clone(&config)));
        }
    });
    (address, pin)
}

fn answer_with(answer: &str, stream: TcpStream, config: Arc<rustls::ServerConfig>) -> std::io::Result<()> {
    let connection = rustls::ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut stream = BufReader::new(rustls::StreamOwned::new(connection, stream));
    let mut length = 0;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? <= 2 {
            break;
        }
        if let Some(digits) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = digits.trim().parse().map_err(std::io::Error::other)?;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    let stream = stream.get_mut();
    write!(stream, "HTTP/1.1 200 OK\r\nconnection: close\r\n{answer}")?;
    stream.conn.send_close_notify();
    stream.flush()
}

/// A gateway as its clients see it.
struct Client {
    http: reqwest::Client,
    base: String,
}

impl Client {
    async fn text(&self, path: &str) -> String {
        let answer = self.http.get(format!("{}{path}", self.base)).bearer_auth(KEY).send().await.unwrap();
        answer.error_for_status().unwrap().text().await.unwrap()
    }

    async fn fetch(&self, path: &str) -> Value {
        parse(self.text(path).await.as_bytes()).unwrap()
    }

    /// Id of the receipt, and the answer.
    async fn ask(&self, request: &[u8]) -> (String, Vec<u8>) {
        let asked = self.http.post(format!("{}/v1/chat/completions", self.base)).bearer_auth(KEY);
        let answer = asked.body(request.to_vec()).send().await.unwrap().error_for_status().unwrap();
        let id = answer.headers()["x-receipt-id"].to_str().unwrap().to_owned();
        (id, answer.bytes().await.unwrap().to_vec())
    }
}

/// One answer with everything that belongs to it.
struct Lab {
    home: TempDir,
    request: Vec<u8>,
    response: Vec<u8>,
    receipt: Value,
    report: Value,
    session: Value,
    /// Secret of the key that signs receipts.
    seed: Vec<u8>,
    pccs: String,
    client: Client,
    _gateway: Part,
    _agent: HostProcessAgent,
}

/// What the command found.
struct Found {
    code: i32,
    document: Value,
    words: String,
}

impl Found {
    /// The checks that fail, but for the one that may.
    fn failing(&self) -> Vec<&str> {
        let checks = self.document["checks"].as_array().unwrap_or_else(|| panic!("{}", self.words)).iter();
        let failing = checks.filter(|check| check["outcome"] == "fails" && check["id"] != "unchanged");
        failing.map(|check| check["id"].as_str().unwrap()).collect()
    }

    /// What came of a check.
    fn outcome(&self, id: &str) -> &str {
        let checks = self.document["checks"].as_array().unwrap_or_else(|| panic!("{}", self.words));
        checks.iter().find(|check| check["id"] == id).unwrap()["outcome"].as_str().unwrap()
    }

    /// Refused for these checks alone, in these words.
    fn is_refused_for(&self, checks: &[&str], words: &str) {
        assert_eq!(self.failing(), checks, "{}", self.words);
        assert_eq!((self.code, &self.document["verified"]), (UNVERIFIED, &json!(false)), "{}", self.words);
        let text = self.document.to_string() + &self.words;
        assert!(text.contains(words), "{words}: {text}");
    }
}

impl Lab {
    async fn new() -> Self {
        // The client has no TLS to do, but wants a provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let home = tempfile::tempdir().unwrap();
        let guest = Arc::new(Guest::new());
        let pccs = format!("http://{}", serve(&guest, None));
        fs::write(home.path().join("root.pem"), guest.vendor.root_pem()).unwrap();
        let (agent, seed) = agent(&home, &guest);

        let (upstream, pin) = upstream();
        let origin = format!("https://{upstream}");
        let verified = json!({
            "result": "verified",
            "verifier_id": "test/v1",
            "attested_scope": "router",
            "channel_bindings": [{"type": "tls_spki_sha256", "origin": origin, "spki_sha256": pin}],
        });
        let script = format!("cat > /dev/null; cat <<'END'\n{verified}\nEND");
        let config = json!({
            "bind": "127.0.0.1:0",
            "state_dir": home.path().join("state"),
            "agent_socket": home.path().join("agent/agent.sock"),
            "keys": [{ "name": "test", "sha256": hex::encode(Sha256::digest(KEY)) }],
            "source": { "repo_url": "https://example.com/gateway", "repo_commit": "c".repeat(40) },
            "upstreams": [{
                "name": "verified",
                "base_url": origin,
                "models": { MODEL: MODEL },
                "verifier_command": ["/bin/sh", "-c", script],
            }],
        });
        fs::write(home.path().join("gateway.json"), config.to_string()).unwrap();
        let gateway = Part::start(&home, "serve inference-gateway --config gateway.json", "gateway.log");

        let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
        let client = Client { http, base: format!("http://{}", gateway.address) };
        let request = json!({
            "model": MODEL, "stream": true, "messages": [{ "role": "user", "content": "say hello" }],
            "provider": { "aci_verified": true },
        });
        let request = request.to_string().into_bytes();
        // The session is there before the request that is looked at.
        client.ask(&request).await;
        let (id, response) = client.ask(&request).await;
        let receipt = client.fetch(&format!("/v1/aci/receipts/{id}")).await;
        let events = receipt["event_log"].as_array().unwrap();
        let session = events.iter().find_map(|event| event["session_id"].as_str()).unwrap();
        let session = client.fetch(&format!("/v1/aci/sessions/{session}")).await;
        let report = client.fetch(&format!("/v1/aci/attestation?nonce={NONCE}")).await;
        Self {
            home,
            request,
            response,
            receipt,
            report,
            session,
            seed,
            pccs,
            client,
            _gateway: gateway,
            _agent: agent,
        }
    }

    /// Runs the command on what is at hand, with further options.
    fn verify(&self, receipt: &Value, more: &str) -> Found {
        self.write("receipt.json", receipt);
        self.run("receipt.json", more)
    }

    fn run(&self, receipt: &str, more: &str) -> Found {
        let of = |option: &str, file: &str| {
            if more.contains(option) { String::new() } else { format!("{option} {file} ") }
        };
        let mut line =
            format!("--json verify receipt {receipt} --report-nonce {NONCE} --development-root root.pem ");
        for (option, name, bytes) in [
            ("--report", "report.json", self.report.to_string().into_bytes()),
            ("--request", "request.json", self.request.clone()),
            ("--response", "answer.sse", self.response.clone()),
            ("--upstream-session", "session.json", self.session.to_string().into_bytes()),
        ] {
            fs::write(self.path(name), bytes).unwrap();
            line += &of(&format!("{option} "), name);
        }
        let line = format!("{line} --pccs {} {}", self.pccs, more.replace("--upstream-session none", ""));
        let output = bare(&self.home, &line).output().unwrap();
        Found {
            code: output.status.code().unwrap(),
            document: serde_json::from_slice(&output.stdout).unwrap_or_default(),
            words: String::from_utf8(output.stderr).unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn write(&self, name: &str, document: &Value) {
        fs::write(self.path(name), document.to_string()).unwrap();
    }

    /// A receipt that is signed anew.
    fn signed(mut receipt: Value, seed: &[u8]) -> Value {
        receipt.as_object_mut().unwrap().shift_remove("signature");
        let key = Ed25519KeyPair::from_seed_unchecked(seed).unwrap();
        receipt["signature"] = json!(hex::encode(key.sign(&canonical(&receipt).unwrap())));
        receipt
    }
}

/// The guest agent of a machine of this platform, and the secret of the key that a gateway there signs receipts with.
pub(crate) fn agent(home: &TempDir, guest: &Guest) -> (HostProcessAgent, Vec<u8>) {
    let key = PlatformKey::generate().unwrap();
    let chain = guest.vendor.issue_platform_certificate(key.ppid(), key.public_key(), guest.now).unwrap();
    let platform = Arc::new(Platform::new(key, &chain).unwrap());
    let program = home.path().join("program");
    fs::write(&program, "any bytes").unwrap();
    let machine = Arc::new(HostProcess::measure(home.path(), &program).unwrap());
    let seed = machine.sealing_key("aci/receipt-ed25519/v1", "aci.receipt.ed25519.v1").unwrap().to_vec();
    let (_, platform) = watch::channel(Some(platform));
    (HostProcessAgent::serve(&home.path().join("agent/agent.sock"), machine, platform).unwrap(), seed)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_account_of_a_streamed_answer_holds_and_no_other_one_does() {
    let lab = Lab::new().await;
    let found = lab.verify(&lab.receipt, "");
    assert_eq!((found.code, &found.document["verified"]), (0, &json!(true)), "{}", found.words);
    let outcomes = found.document["checks"].as_array().unwrap().iter();
    let held: Vec<_> = outcomes.filter(|check| check["outcome"] == "holds").collect();
    // All but the id, which nobody asked for, the log, which nobody named, and that the gateway changed nothing, which it
    // did.
    assert_eq!(held.len(), 10, "{}", found.document);
    assert_eq!(found.document["unproved_source"]["repo_url"], "https://example.com/gateway");

    // Its bodies.
    fs::write(lab.path("other"), b"other bytes").unwrap();
    lab.verify(&lab.receipt, "--request other").is_refused_for(&["request"], "the bytes have sha256:");
    lab.verify(&lab.receipt, "--response other").is_refused_for(&["response"], "the bytes have sha256:");
    fs::write(lab.path("cut"), &lab.response[..lab.response.len() - 1]).unwrap();
    lab.verify(&lab.receipt, "--response cut").is_refused_for(&["response"], "with every event");

    // Its signature, and a word that is changed under it.
    let forged = Lab::signed(lab.receipt.clone(), &[7; 32]);
    lab.verify(&forged, "").is_refused_for(&["signature"], "not of this key");
    let mut changed = lab.receipt.clone();
    changed["model"] = json!("another");
    lab.verify(&changed, "").is_refused_for(&["signature"], "over this document");
    assert_eq!(Lab::signed(lab.receipt.clone(), &lab.seed), lab.receipt, "the test has the gateway's key");

    // Its session.
    let missing = lab.verify(&lab.receipt, "--upstream-session none");
    missing.is_refused_for(&["session"], "the session's record is not at hand");
    assert!(missing.words.contains("--upstream-session FILE"), "{}", missing.words);
    let mut other = lab.session.clone();
    other["expires_at"] = json!(u32::MAX);
    lab.write("other-session", &other);
    lab.verify(&lab.receipt, "--upstream-session other-session").is_refused_for(&["session"], "not that of");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_those_of_the_evidence_and_hold_for_a_time() {
    let lab = Lab::new().await;
    let keyset = &lab.report["attestation"]["workload_keyset"];
    let under = |keyset: &Value| {
        lab.write("keyset.json", keyset);
        let mut receipt = lab.receipt.clone();
        receipt["workload_keyset_digest"] = json!(sha256(&canonical(keyset).unwrap()));
        lab.verify(&Lab::signed(receipt, &lab.seed), "--keyset keyset.json")
    };
    let with = |member: &str, value: Value| {
        let mut keyset = keyset.clone();
        keyset[member] = value;
        under(&keyset)
    };
    // A former one of the same key.
    let former = with("e2ee_public_keys", json!([]));
    assert_eq!(former.code, 0, "{}", former.words);
    let ended = with("not_after", lab.receipt["served_at"].clone());
    ended.is_refused_for(&["keyset"], "the keyset had ended when the request was served");
    let other = with("subject", json!(format!("app-id:0x{}", "0".repeat(40))));
    other.is_refused_for(&["subject"], "and the evidence that of app-id:0x");
    // One whose key nobody attests: it is judged by the attested one.
    let mut keys = keyset["receipt_signing_keys"].clone();
    keys[0]["public_key"] = json!("00".repeat(32));
    with("receipt_signing_keys", keys).is_refused_for(&["keyset"], "belongs to another keyset");

    // The evidence.
    let report = |pointer: &str, change: &dyn Fn(&str) -> String| {
        let mut report = lab.report.clone();
        let place = report.pointer_mut(pointer).unwrap();
        *place = json!(change(place.as_str().unwrap()));
        lab.write("other-report", &report);
        lab.verify(&lab.receipt, "--report other-report")
    };
    let quote = report("/attestation/evidence/quote", &|quote| {
        // A digit of the measurement of the firmware.
        let digit = if quote.as_bytes()[400] == b'0' { "1" } else { "0" };
        format!("{}{digit}{}", &quote[..400], &quote[401..])
    });
    assert_eq!((quote.code, &quote.document["verified"]), (UNVERIFIED, &json!(false)), "{}", quote.words);
    assert!(quote.words.contains("the evidence is refused: signature"), "{}", quote.words);
    let log = report("/attestation/evidence/event_log", &|log| log.replacen('a', "b", 1));
    assert_eq!(log.code, UNVERIFIED, "{}", log.words);
    let unbound = report("/attestation/report_data", &|_| "00".repeat(32));
    assert!(
        unbound.code == UNVERIFIED && unbound.words.contains("does not bind its keys"),
        "{}",
        unbound.words
    );
    for said in [Some("sev_snp"), None] {
        let mut report = lab.report.clone();
        report["attestation"]["tee_type"] = json!(said);
        lab.write("other-report", &report);
        let kind = lab.verify(&lab.receipt, "--report other-report");
        assert!(
            kind.code == UNVERIFIED && kind.words.contains("of another kind of machine"),
            "{}",
            kind.words
        );
    }
    // What is no attestation is refused for that.
    for attestation in ["00", "no hex"] {
        let mut report = lab.report.clone();
        report["attestation"]["evidence"]["attestation"] = json!(attestation);
        lab.write("other-report", &report);
        let other = lab.verify(&lab.receipt, "--report other-report");
        assert_eq!(other.code, UNVERIFIED, "{attestation}: {}", other.words);
        assert!(!other.words.contains("of another kind of machine"), "{}", other.words);
    }
    let line = format!("verify receipt receipt.json --report report.json --report-nonce {}", "0".repeat(64));
    assert_eq!(bare(&lab.home, &line).output().unwrap().status.code(), Some(UNVERIFIED));
}

/// Where the model runs in the gateway's own machine, the evidence of that machine is all that there is.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_serves_directly_has_no_upstream_to_account_for() {
    let lab = Lab::new().await;
    let mut receipt = lab.receipt.clone();
    let events = receipt["event_log"].as_array_mut().unwrap();
    events.retain(|event| event["type"] != "upstream.verified");
    for (seq, event) in events.iter_mut().enumerate() {
        event["seq"] = json!(seq);
    }
    let receipt = Lab::signed(receipt, &lab.seed);
    lab.verify(&receipt, "").is_refused_for(&["upstream"], "does not say once what was verified");
    let mut report = lab.report.clone();
    report["service_capabilities"]["serving"] = json!("direct");
    lab.write("direct", &report);
    let found = lab.verify(&receipt, "--report direct");
    assert_eq!(found.code, 0, "{}", found.words);
    let checks = found.document["checks"].as_array().unwrap();
    let upstream = checks.iter().find(|check| check["id"] == "upstream").unwrap();
    assert_eq!(upstream["outcome"], "not-checked", "{upstream}");
}

/// Where a router answers.
async fn serving(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

/// A gateway that gives the receipt of another request, and not the session that it names.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_gateway_gives_is_what_was_asked_for() {
    let lab = Lab::new().await;
    let receipt = lab.receipt["receipt_id"].as_str().unwrap();
    let chat = lab.receipt["chat_id"].as_str().unwrap();
    let given = lab.receipt.to_string();
    let router = Router::new().route("/v1/aci/receipts/{id}", get(|| async { given }));
    fs::write(lab.path("key"), KEY).unwrap();
    let url = format!("--url {} --key-file key", serving(router).await);
    let found = lab.run("rcpt-other", &url);
    found.is_refused_for(&["id"], "another request than the one that was asked for");
    for id in [receipt, chat] {
        let found = lab.run(id, &url);
        assert_eq!(found.code, 0, "{}", found.words);
    }
    lab.run(receipt, &format!("{url} --upstream-session none")).is_refused_for(&["session"], "not at hand");
    // No resolver has to know that this is here.
    for name in ["gateway.apps.localhost", "gateway.apps.localhost."] {
        let found = lab.run(receipt, &url.replace("127.0.0.1", name));
        assert_eq!(found.code, 0, "{name}: {}", found.words);
    }
}
