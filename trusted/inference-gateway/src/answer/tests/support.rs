//! A gateway, its upstreams, and a client.

use std::time::Duration;

use bytes::Bytes;
use cloister_verifier::Clock;
use http::HeaderMap;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::admission::KeyHash;
use crate::record::{Backing, Lookup, Store, UsageRow};
use crate::run::{Running, start_on};
use crate::upstream::fake::{Act, Fake, chunk, client, stream_head, until};

pub(super) const KEY: &str = "sk-test-key";
pub(super) const MODEL: &str = "vendor/model";

/// A running gateway.
pub(super) struct Bench {
    pub(super) running: Running,
    pub(super) client: reqwest::Client,
    dir: TempDir,
}

/// What a client got.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Reply {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Status and `error.type`.
    pub(super) fn error(&self) -> (u16, String) {
        let body = self.json();
        let error = body.get("error").unwrap_or_else(|| panic!("no error: {}", self.text()));
        (self.status, error["type"].as_str().unwrap().to_owned())
    }
}

/// One upstream of a configuration; several are tried in the order of their priorities.
pub(super) fn upstream(name: &str, url: &str, priority: u32, more: &Value) -> Value {
    let mut upstream = json!({
        "name": name,
        "base_url": url,
        "priority": priority,
        "models": {MODEL: "own-name"},
        "bearer_token": "s3cret-of-the-operator",
        "timeouts": {"connect": 2, "first_byte": 5, "idle": 5},
    });
    upstream.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    upstream
}

impl Bench {
    pub(super) async fn new(upstreams: Vec<Value>, more: Value) -> Self {
        Self::at(Clock::system(), upstreams, more).await
    }

    /// The same by another clock.
    pub(super) async fn at(clock: Clock, upstreams: Vec<Value>, more: Value) -> Self {
        let dir = TempDir::new().unwrap();
        let mut config = json!({
            "bind": "127.0.0.1:0",
            "state_dir": dir.path().join("state"),
            "keys": [{"name": "ci", "sha256": KeyHash::of(KEY).to_string()}],
            "upstreams": upstreams,
            "models": [{"id": MODEL, "pricing": {"prompt": "0.001", "completion": "0.002"}}],
            "capacity_retry_ms": 0,
        });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let file = dir.path().join("gateway.json");
        std::fs::write(&file, serde_json::to_vec(&config).unwrap()).unwrap();
        let running = start_on(&file, Backing::file(), clock).await.unwrap();
        Self { running, client: client(), dir }
    }

    /// With the first route and a fallback.
    pub(super) async fn pair(first: &Fake, second: &Fake) -> Self {
        Self::new(
            vec![upstream("one", &first.url(), 0, &json!({})), upstream("two", &second.url(), 1, &json!({}))],
            json!({}),
        )
        .await
    }

    pub(super) async fn alone(fake: &Fake) -> Self {
        Self::new(vec![upstream("one", &fake.url(), 0, &json!({}))], json!({})).await
    }

    pub(super) fn request(&self, path: &str, body: &Value) -> reqwest::RequestBuilder {
        let url = format!("http://{}{path}", self.running.address());
        self.client.post(url).bearer_auth(KEY).json(body)
    }

    /// Sends a request and reads whatever comes.
    pub(super) async fn ask(&self, body: &Value) -> Reply {
        self.ask_at("/v1/chat/completions", body).await
    }

    pub(super) async fn ask_at(&self, path: &str, body: &Value) -> Reply {
        let response = self.request(path, body).send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        // A body always ends cleanly.
        Reply { status, headers, body: response.bytes().await.unwrap() }
    }

    /// Writes another configuration.
    pub(super) fn rewrite(&self, change: impl FnOnce(&mut Value)) {
        let file = self.dir.path().join("gateway.json");
        let mut config: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        change(&mut config);
        std::fs::write(&file, config.to_string()).unwrap();
    }

    /// Another configuration holds from now on.
    pub(super) async fn reconfigure(&self, upstreams: Vec<Value>) {
        let before = self.running.gateway().live();
        self.rewrite(|config| config["upstreams"] = upstreams.into());
        self.running.reload();
        until(|| !std::sync::Arc::ptr_eq(&before, &self.running.gateway().live())).await;
    }

    /// The figures that begin with a name, but for those of time, in order.
    pub(super) async fn figures(&self, names: &[&str]) -> Vec<String> {
        let url = format!("http://{}/metrics", self.running.metrics_address().unwrap());
        let text = self.client.get(url).send().await.unwrap().text().await.unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("private_ai_gateway_"));
        let mut lines: Vec<String> = lines
            .filter(|line| names.iter().any(|name| line.starts_with(name)) && !line.contains("seconds"))
            .map(ToOwned::to_owned)
            .collect();
        lines.sort();
        lines
    }

    /// Ends the gateway, and gives what it recorded.
    pub(super) async fn stop(self, patience: Duration) -> (Store, TempDir) {
        let store = self.running.gateway().store.clone();
        self.running.stop(patience, std::future::pending()).await;
        (store, self.dir)
    }

    /// All rows that were recorded.
    pub(super) fn rows(&self) -> Vec<UsageRow> {
        self.running.gateway().store.usage(0, 10_000).unwrap()
    }

    /// Waits until so many rows were recorded.
    pub(super) async fn rows_of(&self, count: usize) -> Vec<UsageRow> {
        until(|| self.rows().len() >= count).await;
        self.rows()
    }

    /// The receipt of an answer, after a look at what holds for every one: it hashes what was sent.
    pub(super) fn checked_receipt(&self, reply: &Reply) -> Value {
        checked_receipt(&self.running.gateway().store, reply)
    }
}

/// The receipt that an answer names.
pub(super) fn receipt(store: &Store, reply: &Reply) -> Value {
    let id = reply.header("x-receipt-id").expect("no receipt");
    let found = store.receipt(id, KeyHash::of(KEY)).unwrap();
    let Lookup::Found(document) = found else { panic!("the receipt {id} is not there") };
    serde_json::from_slice(&document).unwrap()
}

/// The same, after a look at what holds for every one: it hashes what was sent.
pub(super) fn checked_receipt(store: &Store, reply: &Reply) -> Value {
    let receipt = receipt(store, reply);
    let events = receipt["event_log"].as_array().unwrap();
    assert_eq!(events[0]["type"], "request.received");
    assert_eq!(events.last().unwrap()["type"], "response.returned");
    assert_eq!(events.last().unwrap()["body_hash"], hash(&reply.body), "{receipt}");
    receipt
}

pub(super) fn hash(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

/// An event of a receipt.
pub(super) fn event<'a>(receipt: &'a Value, kind: &str) -> Option<&'a Value> {
    receipt["event_log"].as_array().unwrap().iter().find(|event| event["type"] == kind)
}

pub(super) fn chat(stream: bool) -> Value {
    json!({"model": MODEL, "messages": [{"role": "user", "content": "a secret prompt"}], "stream": stream})
}

pub(super) fn data(json: &str) -> Vec<u8> {
    format!("data: {json}\n\n").into_bytes()
}

pub(super) fn role() -> Vec<u8> {
    data(
        r#"{"id":"up-1","object":"chat.completion.chunk","created":1,"model":"own-name","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#,
    )
}

pub(super) fn word(word: &str) -> Vec<u8> {
    data(&format!(
        r#"{{"id":"up-1","object":"chat.completion.chunk","created":1,"model":"own-name","choices":[{{"index":0,"delta":{{"content":"{word}"}},"finish_reason":null}}]}}"#
    ))
}

pub(super) fn stop() -> Vec<u8> {
    data(
        r#"{"id":"up-1","object":"chat.completion.chunk","created":1,"model":"own-name","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
    )
}

pub(super) fn usage() -> Vec<u8> {
    data(
        r#"{"id":"up-1","object":"chat.completion.chunk","created":1,"model":"own-name","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13}}"#,
    )
}

pub(super) fn done() -> Vec<u8> {
    b"data: [DONE]\n\n".to_vec()
}

pub(super) fn error_event() -> Vec<u8> {
    data(r#"{"error":{"message":"the engine at 10.1.2.3 died","type":"server_error"}}"#)
}

/// Events of a whole answer: one, two, three.
pub(super) fn answer() -> Vec<Vec<u8>> {
    vec![role(), word("one"), word(" two"), word(" three"), stop(), usage(), done()]
}

/// A stream of these events that ends well.
pub(super) fn streamed(events: &[Vec<u8>]) -> Vec<Act> {
    let mut acts = begun(events);
    acts.push(Act::Send(chunk(b"")));
    acts
}

/// A stream of these events, and nothing after them.
pub(super) fn begun(events: &[Vec<u8>]) -> Vec<Act> {
    let pieces = events.iter().map(|event| Act::Send(chunk(event)));
    std::iter::once(Act::Send(stream_head())).chain(pieces).collect()
}

/// A stream of these events that breaks.
pub(super) fn broken(events: &[Vec<u8>]) -> Vec<Act> {
    let mut acts = begun(events);
    acts.push(Act::Close);
    acts
}

pub(super) async fn good() -> Fake {
    Fake::start(|_, seen| {
        if String::from_utf8_lossy(&seen.body).contains("\"stream\":true") {
            streamed(&answer())
        } else {
            vec![Act::Send(crate::upstream::fake::json(200, WHOLE))]
        }
    })
    .await
}

pub(super) const WHOLE: &str = r#"{"id":"up-1","object":"chat.completion","created":1,"model":"own-name","system_fingerprint":"fp","choices":[{"index":0,"message":{"role":"assistant","content":"one two three"},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13}}"#;

/// What a client sees of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) text: String,
    pub(super) is_finished: bool,
    pub(super) is_done: bool,
    pub(super) error: Option<String>,
    pub(super) comments: usize,
}

/// Reads a stream as clients do; each event has to be whole.
pub(super) fn seen(reply: &Reply) -> Seen {
    assert_eq!(reply.header("content-type"), Some("text/event-stream"), "{}", reply.text());
    let text = reply.text();
    let mut seen = Seen::default();
    for event in
        text.split("\n\n").map(|event| event.trim_start_matches('\n')).filter(|event| !event.is_empty())
    {
        if event.starts_with(':') {
            seen.comments += 1;
            continue;
        }
        let data = event.strip_prefix("data: ").unwrap_or_else(|| panic!("no event: {event:?}"));
        if data == "[DONE]" {
            seen.is_done = true;
            continue;
        }
        let value: Value = serde_json::from_str(data).unwrap_or_else(|_| panic!("half an event: {data:?}"));
        if let Some(error) = value.get("error") {
            seen.error = Some(error["message"].as_str().unwrap().to_owned());
            continue;
        }
        for choice in value["choices"].as_array().unwrap() {
            seen.text.push_str(choice["delta"]["content"].as_str().unwrap_or_default());
            seen.is_finished |= !choice["finish_reason"].is_null();
        }
    }
    assert!(text.is_empty() || text.ends_with("\n\n"), "{text:?}");
    seen
}

/// A whole answer as a client sees it.
pub(super) fn complete() -> Seen {
    Seen { text: "one two three".to_owned(), is_finished: true, is_done: true, error: None, comments: 0 }
}

/// No half answer looks whole: there is an error and no terminator.
pub(super) fn assert_broken(seen: &Seen, text: &str) {
    assert_eq!(seen.text, text);
    assert!(seen.error.is_some() && !seen.is_done, "{seen:?}");
    let words = seen.error.clone().unwrap_or_default();
    assert!(!words.contains("10.1.2.3"), "{words}");
}

pub(super) const SECOND: Duration = Duration::from_secs(1);
