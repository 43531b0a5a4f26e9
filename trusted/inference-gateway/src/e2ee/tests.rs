//! A client of its own, published values, and what an attacker or a careless gateway might do.

use cloister_verifier::Clock;
use ed25519_dalek::SigningKey;
use http::HeaderName;
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::proof::{Keys, Notary};
use crate::record::Settings;
use cloister_aci::e2ee::Suite;

const NONCE: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const TS: u64 = 1_750_000_000;
const SECRET: &str = "s3cret";

struct Lab {
    identity: Arc<Identity>,
    store: Store,
    shares: Shares,
    _dir: TempDir,
}

impl Lab {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::fixed(Timestamp::from_second(1_750_000_000).unwrap());
        let store = Store::open(dir.path(), Settings::default(), clock.clone()).unwrap();
        let notary = Notary::with_keys(Keys::published(), clock);
        Self { identity: notary.identity(), store, shares: Shares::default(), _dir: dir }
    }

    async fn open_at(
        &self,
        headers: &[(&str, String)],
        surface: Surface,
        body: &Value,
        now: u64,
    ) -> Result<Opened, GatewayError> {
        let body = Bytes::from(serde_json::to_vec(body).unwrap());
        open(&map(headers), surface, &body, &self.identity, self.memory(), now).await
    }

    async fn open_bytes(&self, headers: &[(&str, String)], body: String) -> Result<Opened, GatewayError> {
        open(&map(headers), Surface::Chat, &body.into(), &self.identity, self.memory(), TS).await
    }

    fn memory(&self) -> Memory<'_> {
        Memory { shares: &self.shares, key: KeyHash::of("key"), store: &self.store }
    }

    async fn open(&self, headers: &[(&str, String)], body: &Value) -> Result<Opened, GatewayError> {
        self.open_at(headers, Surface::Chat, body, TS).await
    }

    async fn fails(&self, headers: &[(&str, String)], body: &Value) -> &'static str {
        self.open(headers, body).await.unwrap_err().kind.row().kind
    }
}

fn map(headers: &[(&str, String)]) -> HeaderMap {
    headers
        .iter()
        .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()))
        .collect()
}

fn service(suite: Suite) -> SecretKey {
    SecretKey::new(suite, &[3; 32]).unwrap()
}

fn client(suite: Suite) -> SecretKey {
    SecretKey::new(suite, &[9; 32]).unwrap()
}

fn headers(suite: Suite) -> Vec<(&'static str, String)> {
    vec![
        ("x-e2ee-version", "2".to_owned()),
        ("x-client-pub-key", hex::encode(client(suite).public_key())),
        ("x-model-pub-key", hex::encode(service(suite).public_key())),
        ("x-e2ee-nonce", NONCE.to_owned()),
        ("x-e2ee-timestamp", TS.to_string()),
    ]
}

fn with(suite: Suite, name: &str, value: &str) -> Vec<(&'static str, String)> {
    let mut headers = headers(suite);
    headers.iter_mut().filter(|(header, _)| *header == name).for_each(|(_, old)| *old = value.to_owned());
    headers
}

fn without(suite: Suite, name: &str) -> Vec<(&'static str, String)> {
    headers(suite).into_iter().filter(|(header, _)| *header != name).collect()
}

fn context<'a>(suite: Suite, field: &'a str, id: Option<&'a str>) -> Context<'a> {
    let purpose = if id.is_some() { Purpose::Response } else { Purpose::Request };
    Context { algo: suite.algo(), field, id, model: "demo-model", nonce: NONCE, purpose, ts: 1_750_000_000 }
}

fn sealed(suite: Suite, field: &str, text: &str) -> String {
    let ephemeral = SecretKey::new(suite, &[4; 32]).unwrap();
    e2ee::seal(
        &service(suite).public_key(),
        &ephemeral,
        [5; 12],
        &context(suite, field, None),
        text.as_bytes(),
    )
    .unwrap()
}

fn opened(suite: Suite, field: &str, id: &str, value: &Value) -> String {
    let text = e2ee::open(&client(suite), &context(suite, field, Some(id)), value.as_str().unwrap()).unwrap();
    String::from_utf8(text.to_vec()).unwrap()
}

fn chat(suite: Suite) -> Value {
    json!({
        "model": "demo-model",
        "messages": [{"role": "user", "content": sealed(suite, "messages.0.content", "hello")}],
    })
}

const SUITES: [Suite; 2] = [Suite::X25519, Suite::Secp256k1];

#[tokio::test]
async fn the_published_values_open() {
    for (suite, value) in [
        (
            Suite::X25519,
            "ac01b2209e86354fb853237b5de0f4fab13c7fcbf433a61c019369617fecf10b050505050505050505050505feb53041c4fbae7f82260ca7f3c8ae718e73359281",
        ),
        (
            Suite::Secp256k1,
            "04462779ad4aad39514614751a71085f2f10e1c7a593e4e030efb5b8721ce55b0b199c07969f5442000bea455d72ae826a86bfac9089cb18152ed756ebb2a596f5050505050505050505050505b28ac920877bad59dfeea8b486827d4f8b3d98a28a",
        ),
    ] {
        let body = json!({"messages": [{"content": value, "role": "user"}], "model": "demo-model"});
        let request = Lab::new().open(&headers(suite), &body).await.unwrap();
        assert_eq!(request.body, r#"{"messages":[{"content":"hello","role":"user"}],"model":"demo-model"}"#);
        assert_eq!(request.sealer.headers()[0], ("x-e2ee-version", "2".to_owned()));
        assert_eq!(request.sealer.headers()[1], ("x-e2ee-algo", suite.algo().to_owned()));
    }
}

#[tokio::test]
async fn every_listed_field_of_a_request_opens_in_its_place() {
    let suite = Suite::X25519;
    let at = |field: &str, text: &str| sealed(suite, field, text);
    let parts = r#"[{"type":"text","text":"whole"}]"#;
    let body = json!({
        "model": "demo-model",
        "messages": [
            {"role": "system", "content": at("messages.0.content", parts)},
            {"role": "user", "content": [
                {"type": "text", "text": at("messages.1.content.0.text", "part")},
                {"type": "image_url", "image_url": {"url": at("messages.1.content.1.image_url.url", "data:x")}},
                {"type": "input_audio",
                    "input_audio": {"data": at("messages.1.content.2.input_audio.data", "snd"), "format": "wav"}},
            ]},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "c"}]},
            {"role": "user", "content": at("messages.3.content", "[1, 2]")},
        ],
        "prompt": [at("prompt.0", "p0"), 17],
        "input": at("input", "i"),
    });
    let request = Lab::new().open(&headers(suite), &body).await.unwrap();
    let request: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(request["messages"][0]["content"], json!([{"type": "text", "text": "whole"}]));
    assert_eq!(request["messages"][1]["content"][0]["text"], "part");
    assert_eq!(request["messages"][1]["content"][1]["image_url"]["url"], "data:x");
    assert_eq!(request["messages"][1]["content"][2]["input_audio"], json!({"data": "snd", "format": "wav"}));
    assert_eq!(request["messages"][3]["content"], "[1, 2]");
    assert_eq!((&request["prompt"], &request["input"]), (&json!(["p0", 17]), &json!("i")));
}

#[tokio::test]
async fn what_is_not_encrypted_goes_through_whatever_its_length() {
    let suite = Suite::X25519;
    let zeros = format!("[{}0]", "0,".repeat(1 << 19));
    let written = chat(suite).to_string();
    let body = written.replacen('{', &format!(r#"{{ "x" : {{"zeros": {zeros}, "y": "\u00e9"}},"#), 1);
    let request = Lab::new().open_bytes(&headers(suite), body).await.unwrap();
    let begin = format!(r#"{{"x":{{"zeros":{zeros},"y":"é"}},"#);
    assert!(request.body.starts_with(begin.as_bytes()));
}

#[tokio::test]
async fn what_can_be_encrypted_has_a_limit() {
    let (suite, lab) = (Suite::X25519, Lab::new());
    let parts = format!("[{}{{}}]", "{},".repeat(1 << 16));
    let mut within = chat(suite);
    within["messages"][0]["content"] = json!(sealed(suite, "messages.0.content", &parts));
    let written = chat(suite).to_string();
    let in_clear = written.replace(r#""messages":["#, &format!(r#""messages":[{{"content":{parts}}},"#));
    for body in [within.to_string(), in_clear] {
        let error = lab.open_bytes(&headers(suite), body).await.unwrap_err();
        assert!(error.kind == Kind::InvalidRequest && error.message.contains("65536 values"), "{error}");
    }
    // A text that only looks like a list of parts stays a text.
    let numbers = format!("[{}0]", "0,".repeat(1 << 16));
    let mut text = chat(suite);
    text["messages"][0]["content"] = json!(sealed(suite, "messages.0.content", &numbers));
    let request = lab.open(&headers(suite), &text).await.unwrap();
    let request: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(request["messages"][0]["content"], json!(numbers));
}

#[tokio::test]
async fn headers_are_checked_one_after_the_other() {
    let lab = Lab::new();
    for suite in SUITES {
        let body = chat(suite);
        for name in
            ["x-e2ee-version", "x-client-pub-key", "x-model-pub-key", "x-e2ee-nonce", "x-e2ee-timestamp"]
        {
            assert_eq!(lab.fails(&without(suite, name), &body).await, "e2ee_header_missing", "{name}");
            let mut twice = headers(suite);
            let again = twice.iter().find(|(header, _)| *header == name).unwrap().clone();
            twice.push(again);
            assert_eq!(lab.fails(&twice, &body).await, "e2ee_header_missing", "{name} twice");
        }
        let other = hex::encode(client(suite).public_key());
        let short = &NONCE[2..];
        for (name, value, error) in [
            ("x-e2ee-version", "1", "e2ee_invalid_version"),
            ("x-e2ee-version", "3", "e2ee_invalid_version"),
            ("x-client-pub-key", "00", "e2ee_invalid_public_key"),
            ("x-model-pub-key", "zz", "e2ee_invalid_public_key"),
            ("x-model-pub-key", other.as_str(), "e2ee_model_key_mismatch"),
            ("x-e2ee-nonce", short, "e2ee_invalid_nonce"),
            ("x-e2ee-nonce", "0x01", "e2ee_invalid_nonce"),
            ("x-e2ee-timestamp", "1749999699", "e2ee_invalid_timestamp"),
            ("x-e2ee-timestamp", "1750000301", "e2ee_invalid_timestamp"),
            ("x-e2ee-timestamp", "+1750000000", "e2ee_invalid_timestamp"),
            ("x-e2ee-timestamp", "-1", "e2ee_invalid_timestamp"),
        ] {
            assert_eq!(lab.fails(&with(suite, name, value), &body).await, error, "{name}: {value}");
        }
        for surface in [Surface::Messages, Surface::Responses] {
            let error =
                lab.open_at(&[("x-e2ee-version", "9".to_owned())], surface, &body, TS).await.unwrap_err();
            assert_eq!(error.kind.row().kind, "e2ee_unsupported_endpoint");
        }
    }
    // A key with which everybody would share the secret.
    let nobody = "00".repeat(32);
    let headers = with(Suite::X25519, "x-client-pub-key", &nobody);
    assert_eq!(lab.fails(&headers, &chat(Suite::X25519)).await, "e2ee_invalid_public_key");
}

#[tokio::test]
async fn what_cannot_be_decrypted_is_refused_and_nothing_is_remembered() {
    let lab = Lab::new();
    let suite = Suite::X25519;
    let good = chat(suite);
    let mut clear = good.clone();
    clear["messages"][0]["content"] = json!("in clear");
    let mut moved = good.clone();
    let content = good["messages"][0]["content"].clone();
    moved["messages"].as_array_mut().unwrap().insert(0, json!({"role": "user", "content": content}));
    let mut renamed = good.clone();
    renamed["model"] = json!("other-model");
    let mut nothing = good.clone();
    nothing["messages"][0]["content"] = Value::Null;
    for body in [&clear, &moved, &renamed, &nothing] {
        assert_eq!(lab.fails(&headers(suite), body).await, "e2ee_decryption_failed");
    }
    for model in [Value::Null, json!(7)] {
        let mut body = good.clone();
        body["model"] = model;
        assert_eq!(lab.fails(&headers(suite), &body).await, "e2ee_invalid_payload_model");
    }
    let mut probabilities = good.clone();
    probabilities["logprobs"] = json!(true);
    assert_eq!(lab.fails(&headers(suite), &probabilities).await, "invalid_request_error");
    let other = lab.open(&with(suite, "x-e2ee-timestamp", "1750000001"), &good).await.unwrap_err();
    assert_eq!(other.param.as_deref(), Some("messages.0.content"));
    lab.open(&headers(suite), &good).await.unwrap();
}

#[tokio::test]
async fn a_challenge_is_new_once_for_as_long_as_its_time_is_accepted() {
    let lab = Lab::new();
    let suite = Suite::Secp256k1;
    let (early, late) = (TS - 300, TS + 300);
    lab.open_at(&headers(suite), Surface::Chat, &chat(suite), early).await.unwrap();
    let again = with(suite, "x-e2ee-nonce", &NONCE.to_uppercase());
    // Nothing binds the client's key to what is encrypted: another one does not make it new.
    let other = hex::encode(SecretKey::new(suite, &[8; 32]).unwrap().public_key());
    let other = with(suite, "x-client-pub-key", &other);
    for (headers, now) in [(headers(suite), early), (headers(suite), late), (again, TS), (other, TS)] {
        // The same nonce in other letters is the same; it is part of what is authenticated, as it was sent.
        let mut body = chat(suite);
        if headers[3].1 != NONCE {
            let nonce = NONCE.to_uppercase();
            let place = Context { nonce: &nonce, ..context(suite, "messages.0.content", None) };
            let ephemeral = SecretKey::new(suite, &[4; 32]).unwrap();
            let key = service(suite).public_key();
            body["messages"][0]["content"] =
                json!(e2ee::seal(&key, &ephemeral, [5; 12], &place, b"hello").unwrap());
        }
        let error = lab.open_at(&headers, Surface::Chat, &body, now).await.unwrap_err();
        assert_eq!(error.kind.row().kind, "e2ee_replay_detected");
    }
    assert_eq!(
        lab.open_at(&headers(suite), Surface::Chat, &chat(suite), late + 1)
            .await
            .unwrap_err()
            .kind
            .row()
            .kind,
        "e2ee_invalid_timestamp"
    );
}

fn sealer(suite: Suite) -> Sealer {
    let terms = Terms::read(&map(&headers(suite)), &Keys::published(), TS).unwrap();
    Sealer { terms, model: "demo-model".to_owned() }
}

#[test]
fn an_answer_goes_out_sealed_in_every_listed_field() {
    for suite in SUITES {
        let sealer = sealer(suite);
        let answer = json!({
            "id": "req_1",
            "model": "demo-model",
            "choices": [
                {"index": 3, "message": {
                    "role": "assistant", "content": SECRET, "reasoning": SECRET, "reasoning_content": SECRET,
                    "reasoning_details": [{"text": SECRET}], "thinking_blocks": [SECRET],
                    "annotations": [{"url_citation": {"title": SECRET}}], "images": [{"image_url": {"url": SECRET}}],
                    "audio": {"id": "a", "data": SECRET, "transcript": SECRET},
                }, "logprobs": {"content": [{"token": SECRET}]}, "finish_reason": "stop"},
                {"text": SECRET, "message": {"content": [{"type": "text", "text": SECRET}]}},
            ],
            "data": [
                {"index": 0, "object": "embedding", "embedding": [0.5, -1]},
                {"index": 1, "object": "embedding", "embedding": "AAAAPwAAgL8="},
            ],
            "usage": {"total_tokens": 3},
        });
        let out = sealer.seal_body(&serde_json::to_vec(&answer).unwrap()).unwrap();
        assert!(!String::from_utf8(out.to_vec()).unwrap().contains(SECRET));
        let out: Value = serde_json::from_slice(&out).unwrap();
        let message = &out["choices"][0]["message"];
        for name in ["content", "reasoning", "reasoning_content"] {
            assert_eq!(opened(suite, &format!("choices.3.message.{name}"), "req_1", &message[name]), SECRET);
        }
        assert_eq!(opened(suite, "choices.3.message.audio.data", "req_1", &message["audio"]["data"]), SECRET);
        assert_eq!(opened(suite, "choices.1.text", "req_1", &out["choices"][1]["text"]), SECRET);
        assert_eq!(
            opened(suite, "choices.1.message.content", "req_1", &out["choices"][1]["message"]["content"]),
            r#"[{"type":"text","text":"s3cret"}]"#
        );
        assert_eq!(opened(suite, "data.0.embedding", "req_1", &out["data"][0]["embedding"]), "[0.5,-1]");
        // In either form it is JSON that was sealed.
        assert_eq!(
            opened(suite, "data.1.embedding", "req_1", &out["data"][1]["embedding"]),
            "\"AAAAPwAAgL8=\""
        );
        assert_eq!((&out["usage"], &message["role"]), (&answer["usage"], &json!("assistant")));
        assert_eq!(out["choices"][0]["finish_reason"], "stop");
    }
}

#[test]
fn no_answer_has_more_fields_than_can_be_sealed() {
    let sealer = sealer(Suite::X25519);
    let vectors = |count| json!({"data": vec![json!({"embedding": [0]}); count]}).to_string();
    let texts =
        |count| json!({"choices": vec![json!({"text": "a", "delta": {"content": "b"}}); count]}).to_string();
    for (answer, is_sealed) in [
        (vectors(3), true),
        (vectors(MAX_FIELDS + 1), false),
        (texts(3), true),
        (texts(MAX_FIELDS / 2 + 1), false),
    ] {
        assert_eq!(sealer.seal_body(answer.as_bytes()).is_ok(), is_sealed);
        assert_eq!(sealer.seal_events(format!("data: {answer}\n\n").as_bytes()).is_ok(), is_sealed);
    }
}

#[test]
fn a_stream_is_sealed_event_by_event() {
    let suite = Suite::X25519;
    let sealer = sealer(suite);
    let chunk = |content: &str| {
        json!({"id": "req_1", "choices": [{"index": 0, "delta": {"content": content}}]}).to_string()
    };
    let clear = format!(
        ": comment\n\ndata: {}\n\nevent: x\r\ndata: {}\r\n\r\ndata: {{\"error\":{{\"message\":\"m\"}}}}\n\ndata: [DONE]\n\n",
        chunk("s3").replacen(r#""choices":["#, "\"choices\":\ndata: [", 1),
        chunk("cret")
    );
    let out = sealer.seal_events(clear.as_bytes()).unwrap();
    let text = String::from_utf8(out.to_vec()).unwrap();
    assert!(text.starts_with(": comment\n\ndata: {") && text.ends_with("data: [DONE]\n\n"), "{text}");
    assert!(
        text.contains("\nevent: x\ndata: {") && text.contains("data: {\"error\":{\"message\":\"m\"}}\n\n")
    );
    let mut events = Events::default();
    events.push(&out);
    let mut said = String::new();
    while let Some(event) = events.next() {
        let Some(data) = event.unwrap().data() else { continue };
        let Ok(chunk) = serde_json::from_slice::<Value>(&data) else { continue };
        if let Some(value) = chunk.pointer("/choices/0/delta/content") {
            said.push_str(&opened(suite, "choices.0.delta.content", "req_1", value));
        }
    }
    assert_eq!(said, SECRET);
    for broken in ["data: s3cret\n\n", "data: \"s3cret\"\n\n", "data: {\"choices\":[]}", "s3cret"] {
        let error = sealer.seal_events(broken.as_bytes()).unwrap_err();
        assert!(error.kind == Kind::Internal && !error.message.contains(SECRET), "{broken}");
        assert!(sealer.seal_body(broken.as_bytes()).is_err());
    }
}

#[tokio::test]
async fn the_older_version() {
    let lab = Lab::new();
    let signer = SigningKey::from_bytes(&[8; 32]);
    let own = SigningKey::from_bytes(&[5; 32]);
    for (algo, client, service, client_key, model_key) in [
        (
            "ecdsa",
            client(Suite::Secp256k1),
            service(Suite::Secp256k1).public_key(),
            hex::encode(client(Suite::Secp256k1).public_key())[2..].to_owned(),
            hex::encode(service(Suite::Secp256k1).public_key()),
        ),
        (
            "ed25519",
            v1::secret_of_ed25519(&signer).unwrap(),
            v1::public_of_ed25519(own.verifying_key().as_bytes()).unwrap(),
            hex::encode(signer.verifying_key()),
            hex::encode(own.verifying_key()),
        ),
    ] {
        let headers = vec![
            ("x-signing-algo", algo.to_owned()),
            ("x-client-pub-key", client_key),
            ("x-model-pub-key", model_key.clone()),
        ];
        let ephemeral = SecretKey::new(client.suite(), &[4; 32]).unwrap();
        let value = v1::seal(&service, &ephemeral, [5; 12], b"hello").unwrap();
        let body = json!({"model": "m", "messages": [{"content": value}]});
        let request = lab.open(&headers, &body).await.unwrap();
        assert_eq!(request.body, r#"{"model":"m","messages":[{"content":"hello"}]}"#);
        assert_eq!(request.sealer.headers()[1].1, algo);
        let out = request.sealer.seal_body(br#"{"choices":[{"message":{"content":"s3cret"}}]}"#).unwrap();
        let out: Value = serde_json::from_slice(&out).unwrap();
        let value = out["choices"][0]["message"]["content"].as_str().unwrap();
        assert_eq!(v1::open(&client, value).unwrap().as_slice(), SECRET.as_bytes());
        for (name, value, error) in [
            ("x-e2ee-nonce", NONCE, "e2ee_invalid_version"),
            ("x-e2ee-timestamp", "1750000000", "e2ee_invalid_version"),
            ("x-e2ee-version", "2", "e2ee_invalid_version"),
        ] {
            let mut more = headers.clone();
            more.push((name, value.to_owned()));
            assert_eq!(lab.fails(&more, &body).await, error, "{name}");
        }
        let mut unknown = headers.clone();
        unknown[0].1 = "rsa".to_owned();
        assert_eq!(lab.fails(&unknown, &body).await, "e2ee_invalid_signing_algo");
        let mut other = headers.clone();
        other[2].1 = headers[1].1.clone();
        assert_eq!(lab.fails(&other, &body).await, "e2ee_model_key_mismatch");
        assert_eq!(lab.fails(&headers[..2], &body).await, "e2ee_header_missing");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever a text is: it comes out of an answer's ciphertext as it went in, and stands nowhere in clear.
    #[test]
    fn texts_come_back(texts in prop::collection::vec("\\PC{8,40}", 1..4), secp in any::<bool>(), id in "\\PC{0,8}") {
        let suite = if secp { Suite::Secp256k1 } else { Suite::X25519 };
        let sealer = sealer(suite);
        let choices: Vec<_> = texts.iter().enumerate()
            .map(|(index, text)| json!({"index": index, "delta": {"content": text}})).collect();
        let chunk = json!({"id": id, "choices": choices}).to_string();
        let out = sealer.seal_events(format!("data: {chunk}\n\n").as_bytes()).unwrap();
        let out = String::from_utf8(out.to_vec()).unwrap();
        let answer: Value = serde_json::from_str(out.strip_prefix("data: ").unwrap()).unwrap();
        for (index, text) in texts.iter().enumerate() {
            let value = &answer["choices"][index]["delta"]["content"];
            prop_assert!(value.as_str().unwrap().bytes().all(|byte| byte.is_ascii_hexdigit()));
            prop_assert_eq!(&opened(suite, &format!("choices.{index}.delta.content"), &id, value), text);
        }
    }

    /// Nothing that comes makes it panic, and nothing but JSON objects goes out.
    #[test]
    fn anything_may_come(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let sealer = sealer(Suite::X25519);
        if let Ok(out) = sealer.seal_body(&bytes) {
            prop_assert!(serde_json::from_slice::<Value>(&out).unwrap().is_object());
        }
        let _ = sealer.seal_events(&bytes);
    }
}
