//! Chats whose texts are encrypted between client and gateway, from connection to connection.

use cloister_aci::e2ee::{self, Context, Purpose, SecretKey, Suite};
use serde_json::{Value, json};

use super::support::*;
use crate::upstream::fake::{Act, Fake, until};

const SUITES: [Suite; 2] = [Suite::X25519, Suite::Secp256k1];

/// One request of a client with a key of its own.
struct Client {
    secret: SecretKey,
    /// The gateway's key.
    service: String,
    nonce: String,
    ts: i64,
}

impl Client {
    /// `number` makes its nonce one that was not used before.
    fn new(bench: &Bench, suite: Suite, number: u8) -> Self {
        let identity = bench.running.gateway().notary.identity();
        let key = identity.keyset.e2ee_public_keys.iter().find(|key| key.algo == suite.algo()).unwrap();
        Self {
            secret: SecretKey::new(suite, &[9; 32]).unwrap(),
            service: key.public_key.clone(),
            nonce: hex::encode([number; 32]),
            ts: i64::try_from(crate::gateway::unix_now()).unwrap(),
        }
    }

    fn context<'a>(&'a self, field: &'a str, id: Option<&'a str>) -> Context<'a> {
        let purpose = if id.is_some() { Purpose::Response } else { Purpose::Request };
        let algo = self.secret.suite().algo();
        Context { algo, field, id, model: MODEL, nonce: &self.nonce, purpose, ts: self.ts }
    }

    async fn ask(&self, bench: &Bench, clear: &Value) -> Reply {
        self.ask_at(bench, "/v1/chat/completions", "messages.0.content", clear).await
    }

    /// With one encrypted field.
    async fn ask_at(&self, bench: &Bench, path: &str, field: &str, clear: &Value) -> Reply {
        let response = self.request(bench, path, field, clear).send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let reply = Reply { status, headers, body: response.bytes().await.unwrap() };
        assert_eq!(reply.header("x-e2ee-applied"), Some("true"), "{}", reply.text());
        assert_eq!(reply.header("x-e2ee-algo"), Some(self.secret.suite().algo()));
        reply
    }

    fn request(&self, bench: &Bench, path: &str, field: &str, clear: &Value) -> reqwest::RequestBuilder {
        let suite = self.secret.suite();
        let service = e2ee::public_key(suite, &self.service).unwrap();
        let ephemeral = SecretKey::new(suite, &[4; 32]).unwrap();
        let mut sealed = clear.clone();
        let place = sealed.pointer_mut(&format!("/{}", field.replace('.', "/"))).unwrap();
        let text = place.as_str().map_or_else(|| place.to_string(), ToOwned::to_owned);
        let context = self.context(field, None);
        *place = json!(e2ee::seal(&service, &ephemeral, [5; 12], &context, text.as_bytes()).unwrap());
        bench
            .request(path, &sealed)
            .header("x-e2ee-version", "2")
            .header("x-client-pub-key", hex::encode(self.secret.public_key()))
            .header("x-model-pub-key", &self.service)
            .header("x-e2ee-nonce", &self.nonce)
            .header("x-e2ee-timestamp", self.ts)
    }

    /// The text of a field of an answer, or of one event of it.
    fn open(&self, document: &Value, field: &str) -> Option<String> {
        let value = document.pointer(&format!("/{}", field.replace('.', "/")))?.as_str()?;
        let context = self.context(field, Some(document["id"].as_str().unwrap_or_default()));
        Some(String::from_utf8(e2ee::open(&self.secret, &context, value).unwrap().to_vec()).unwrap())
    }
}

fn data_of(reply: &Reply) -> Vec<Value> {
    let text = reply.text();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// What the receipt says of both forms of request and answer.
fn check(bench: &Bench, reply: &Reply, clear: &Value) {
    let receipt = bench.checked_receipt(reply);
    let received = &event(&receipt, "request.received").unwrap()["body_hash"];
    assert_eq!(*received, hash(&serde_json::to_vec(clear).unwrap()), "of what it said");
    let returned = event(&receipt, "response.returned").unwrap();
    assert_eq!(returned["wire_hash"], returned["body_hash"]);
    assert_ne!(returned["cleartext_hash"], returned["body_hash"]);
}

#[tokio::test]
async fn an_answer_at_once_is_for_the_client_alone() {
    let fake = good().await;
    let bench = Bench::alone(&fake).await;
    for (suite, number) in SUITES.into_iter().zip(0..) {
        let (client, clear) = (Client::new(&bench, suite, number), chat(false));
        let reply = client.ask(&bench, &clear).await;
        assert!(reply.status == 200 && !reply.text().contains("one two"), "{}", reply.text());
        let text = client.open(&reply.json(), "choices.0.message.content");
        assert_eq!(text.as_deref(), Some("one two three"));
        check(&bench, &reply, &clear);
        let seen = fake.seen.lock().last().unwrap().body.clone();
        assert!(String::from_utf8(seen).unwrap().contains("a secret prompt"));
    }
}

#[tokio::test]
async fn a_stream_is_for_the_client_alone() {
    let bench = Bench::alone(&good().await).await;
    for (suite, number) in SUITES.into_iter().zip(0..) {
        let (client, clear) = (Client::new(&bench, suite, number), chat(true));
        let reply = client.ask(&bench, &clear).await;
        assert!(reply.text().ends_with("data: [DONE]\n\n") && !reply.text().contains(" two"));
        let pieces = data_of(&reply);
        let pieces = pieces.iter().filter_map(|event| client.open(event, "choices.0.delta.content"));
        assert_eq!(pieces.collect::<String>(), "one two three");
        check(&bench, &reply, &clear);
    }
}

#[tokio::test]
async fn vectors_are_for_the_client_alone_and_no_more_than_anybody_asks_for() {
    let fake = Fake::start(|number, _| {
        let count = if number == 0 { 1 } else { 10_000 };
        let vectors = json!({"object": "list", "data": vec![json!({"index": 0, "embedding": [0.5]}); count]});
        vec![Act::Send(crate::upstream::fake::json(200, &vectors.to_string()))]
    })
    .await;
    let bench = Bench::alone(&fake).await;
    let clear = json!({"model": MODEL, "input": "a secret prompt"});
    for (number, answer) in [Ok("[0.5]"), Err((502, "upstream_error".to_owned()))].into_iter().enumerate() {
        let client = Client::new(&bench, Suite::X25519, u8::try_from(number).unwrap());
        let reply = client.ask_at(&bench, "/v1/embeddings", "input", &clear).await;
        match answer {
            Ok(vector) => {
                assert_eq!(client.open(&reply.json(), "data.0.embedding").as_deref(), Some(vector));
                check(&bench, &reply, &clear);
            }
            Err(error) => assert_eq!(reply.error(), error),
        }
    }
}

/// A control plane hears which prompts begin alike, before and after, and of encrypted ones nothing.
#[tokio::test]
async fn how_it_begins_is_not_told() {
    let fake = good().await;
    let control = crate::admission::tests::fake::Fake::start().await;
    let dir = tempfile::tempdir().unwrap();
    let token_file = control.config(dir.path()).token_file;
    let secret_file = dir.path().join("secret");
    std::fs::write(&secret_file, "s".repeat(32)).unwrap();
    let hooks = json!({"url": control.url, "token_file": token_file, "prefix_hash_secret_file": secret_file});
    let one = upstream("one", &fake.url(), 0, &json!({}));
    let bench = Bench::new(vec![one], json!({"keys": [], "control": hooks})).await;
    let mut long = chat(false);
    long["messages"][0]["content"] = json!("begins alike ".repeat(400));
    assert_eq!(bench.ask(&long).await.status, 200);
    assert_eq!(Client::new(&bench, Suite::X25519, 1).ask(&bench, &long).await.status, 200);

    control.told(2).await;
    let calls = control.calls();
    let hashes = |hook: &str, pointer: &str| -> Vec<_> {
        let calls = calls.iter().filter(|(called, ..)| called == hook);
        // Whose key it is was asked first.
        let calls = calls.filter(|(.., body)| body["model"] != "");
        calls.map(|(.., body)| body.pointer(pointer).cloned()).collect()
    };
    let asked = hashes("pre", "/request/prefixHash");
    assert!(matches!(asked.as_slice(), [Some(_), None]), "{asked:?}");
    assert_eq!(hashes("post", "/prefixHash"), asked);
}

/// What a request may cost is seen when it is opened: many pictures may be in one ciphertext.
#[tokio::test]
async fn what_was_hidden_is_set_aside() {
    let slow = Fake::start(|_, _| vec![Act::Hang]).await;
    let keys = json!([{
        "name": "ci", "sha256": crate::admission::KeyHash::of(KEY).to_string(), "credit": "10",
    }]);
    let mut plain = chat(false);
    plain["max_tokens"] = json!(10);
    let mut pictures = plain.clone();
    let picture = json!({"type": "image_url", "image_url": {"url": "https://images.test/1"}});
    pictures["messages"][0]["content"] = json!(vec![picture; 10]);
    // Beside pictures that are known, not even the ciphertext fits.
    for (before, applied) in [(&plain, "true"), (&pictures, "false")] {
        let one = upstream("one", &slow.url(), 0, &json!({}));
        let bench = Bench::new(vec![one], json!({"keys": keys})).await;
        let count = slow.seen.lock().len();
        let asked = |number, clear: &Value| {
            let client = Client::new(&bench, Suite::X25519, number);
            client.request(&bench, "/v1/chat/completions", "messages.0.content", clear).send()
        };
        let under_way = tokio::spawn(asked(0, before));
        until(|| slow.seen.lock().len() > count).await;
        let refused = asked(1, &pictures).await.unwrap();
        assert_eq!(
            (refused.status().as_u16(), &refused.headers()["x-e2ee-applied"]),
            (429, &applied.parse().unwrap())
        );
        under_way.abort();
    }
}

#[tokio::test]
async fn what_the_gateway_itself_says_can_be_read() {
    let fault = r#"{"error":{"message":"'a secret prompt' is too long","type":"invalid_request_error","param":"a secret"}}"#;
    let fake = Fake::start(move |number, _| match number {
        0 => broken(&[role(), word("one")]),
        1 => vec![Act::Send(crate::upstream::fake::json(400, fault))],
        2 => vec![Act::Send(crate::upstream::fake::json(200, fault))],
        3 => streamed(&[format!("data: {fault}\n\n").into_bytes()]),
        _ => streamed(&[role(), word("one"), format!("data: {fault}\n\n").into_bytes()]),
    })
    .await;
    let bench = Bench::alone(&fake).await;
    let client = Client::new(&bench, Suite::X25519, 0);
    let reply = client.ask(&bench, &chat(true)).await;
    let events = data_of(&reply);
    assert_eq!(client.open(&events[events.len() - 2], "choices.0.delta.content").as_deref(), Some("one"));
    assert_eq!(events.last().unwrap()["error"]["type"], "upstream_error");
    assert!(!reply.text().contains("[DONE]"));
    bench.checked_receipt(&reply);
    // The upstream's words can repeat the prompt.
    for (number, is_streaming) in [(1, true), (2, false), (3, true), (4, true)] {
        let refused = Client::new(&bench, Suite::X25519, number).ask(&bench, &chat(is_streaming)).await;
        assert!(refused.text().contains("error") && !refused.text().contains("secret"), "{}", refused.text());
        if number < 4 {
            assert_eq!(refused.error(), (400, "invalid_request_error".to_owned()));
            assert_eq!(refused.json()["error"]["message"], "The request was rejected as invalid");
            assert_eq!(refused.json()["error"]["param"], Value::Null);
        }
        bench.checked_receipt(&refused);
    }
}

/// What was held back goes out longer than it came, and may have to wait for others' memory: not beyond the end.
#[tokio::test]
async fn a_first_piece_that_waits_for_memory_hears_the_end() {
    const LENGTH: usize = 100 << 10;
    let long = role().repeat(LENGTH / role().len() + 1);
    let fake = Fake::start(move |_, _| streamed(&[long.clone(), word("one"), stop(), done()])).await;
    let patient = json!({"timeouts": {"connect": 60, "first_byte": 60, "idle": 60}});
    let one = upstream("one", &fake.url(), 0, &patient);
    let bench = Bench::new(vec![one], json!({"body_memory_mib": 32})).await;
    let gateway = bench.running.gateway();
    let mut others = gateway.bodies.share(1);
    others.try_cover((32 << 20) - LENGTH * 3).unwrap();
    let (client, request) = (Client::new(&bench, Suite::X25519, 0), chat(true));
    // Who waits has all that is left.
    let end = async {
        until(|| gateway.bodies.left() == 0).await;
        gateway.cut.cancel();
    };
    let (reply, ()) = tokio::join!(client.ask(&bench, &request), end);
    assert_eq!(reply.status, 200);
    assert_eq!(seen(&reply).error, Some(crate::door::ending().message));
    assert_broken(&seen(&reply), "");
    bench.checked_receipt(&reply);
}
