//! A gateway from its file, over loopback: what every answer has, limits, the operator's rights, files that change, and
//! the end.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use cloister_verifier::Clock;
use futures_util::stream;
use http::{HeaderMap, Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Semaphore;

use super::{Running, start, start_on};
use crate::admission::KeyHash;
use crate::door::MAX_BODY_BYTES;
use crate::record::Backing;
use crate::surface::Surface;

mod certificates;
mod changes;
mod records;
mod traces;
mod usage;

const KEY: &str = "sk-test-key";
const TOKEN: &str = "operator-token-of-a-test";
const PATIENCE: Duration = Duration::from_mins(2);

/// A file, a gateway, and an upstream that answers when it is let.
struct Bench {
    dir: TempDir,
    config: Value,
    running: Running,
    client: reqwest::Client,
    /// Permits to answer.
    leave: Arc<Semaphore>,
}

struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {:?}", self.body))
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name}")).to_str().unwrap()
    }

    /// Status, `error.type` and `error.param`.
    fn error(&self) -> (u16, String, Value) {
        let error = self.json()["error"].clone();
        (self.status.as_u16(), error["type"].as_str().unwrap().to_owned(), error["param"].clone())
    }
}

/// A whole answer; tokens of the prompt and of the answer.
fn completion(content: &str, (prompt, answer): (u64, u64)) -> Value {
    let message = json!({ "role": "assistant", "content": content });
    json!({
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }],
        "usage": { "prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer },
    })
}

/// The address of an upstream that answers each request once there is a permit.
async fn upstream(leave: Arc<Semaphore>) -> String {
    let answer = move || {
        let leave = Arc::clone(&leave);
        async move {
            leave.acquire().await.unwrap().forget();
            axum::Json(completion("hello", (1, 1)))
        }
    };
    let router = Router::new().route("/v1/chat/completions", post(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

fn entry(name: &str, url: &str, models: &[&str], more: &Value) -> Value {
    let models: serde_json::Map<_, _> =
        models.iter().map(|model| ((*model).to_owned(), json!(format!("own-{model}")))).collect();
    let mut entry = json!({ "name": name, "base_url": url, "models": models });
    entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    entry
}

impl Bench {
    async fn new(change: impl FnOnce(&mut Value, &TempDir)) -> Self {
        Self::on(Backing::file(), change).await
    }

    async fn on(backing: Backing, change: impl FnOnce(&mut Value, &TempDir)) -> Self {
        let leave = Arc::new(Semaphore::new(0));
        let url = upstream(Arc::clone(&leave)).await;
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("token"), format!("{TOKEN}\n")).unwrap();
        let mut config = json!({
            "bind": "127.0.0.1:0",
            "state_dir": dir.path().join("state"),
            "admin_token_file": dir.path().join("token"),
            "keys": [{ "name": "test", "sha256": KeyHash::of(KEY).to_string() }],
            "upstreams": [
                entry("open", &url, &["vendor/model", "vendor/other", "plain"], &json!({})),
                entry("keeps-nothing", &url, &["vendor/model"], &json!({ "zdr": true, "bearer_token": "s3cret" })),
            ],
            "models": [{
                "id": "vendor/model",
                "name": "A model",
                "pricing": { "prompt": "0.00000030", "completion": "0.0000012" },
                "supported_parameters": ["max_tokens"],
                "context_length": 8192,
            }, { "id": "vendor/other", "output_modalities": ["embeddings"] }],
        });
        change(&mut config, &dir);
        let file = dir.path().join("gateway.json");
        std::fs::write(&file, config.to_string()).unwrap();
        let running = start_on(&file, backing, Clock::system()).await.unwrap();
        Self { dir, config, running, client: client(rustls::RootCertStore::empty(), None), leave }
    }

    async fn plain() -> Self {
        Self::new(|_, _| {}).await
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("gateway.json")
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.running.address()))
    }

    async fn get(&self, path: &str, key: Option<&str>) -> Reply {
        let request = self.request(Method::GET, path);
        reply(key.into_iter().fold(request, reqwest::RequestBuilder::bearer_auth)).await
    }

    async fn ids(&self, path: &str) -> Vec<String> {
        let reply = self.get(path, Some(KEY)).await;
        assert_eq!(reply.status, StatusCode::OK, "{:?}", reply.body);
        let list = reply.json();
        assert_eq!(list["object"], "list");
        let data = list["data"].as_array().unwrap();
        data.iter().map(|model| model["id"].as_str().unwrap().to_owned()).collect()
    }

    fn chat(&self, model: &str) -> reqwest::RequestBuilder {
        let messages = json!([{ "role": "user", "content": "hi" }]);
        self.request(Method::POST, "/v1/chat/completions")
            .bearer_auth(KEY)
            .body(json!({ "model": model, "messages": messages }).to_string())
    }

    /// Waits until a model is listed.
    async fn listed(&self, model: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.ids("/v1/models").await.contains(&model.to_owned()) {
            assert!(Instant::now() < deadline, "{model} is not listed");
            tokio::task::yield_now().await;
        }
    }
}

/// TLS that trusts these and asks for these protocols.
fn tls(roots: rustls::RootCertStore, protocols: &[&[u8]]) -> rustls::ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    tls
}

/// A client that trusts these, and that finds `localhost` at an address.
fn client(roots: rustls::RootCertStore, localhost: Option<SocketAddr>) -> reqwest::Client {
    let tls = tls(roots, &[b"h2", b"http/1.1"]);
    let builder = reqwest::Client::builder().no_proxy().tls_backend_preconfigured(tls);
    let builder =
        localhost.into_iter().fold(builder, |builder, address| builder.resolve("localhost", address));
    builder.build().unwrap()
}

async fn reply(request: reqwest::RequestBuilder) -> Reply {
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    Reply { status, headers, body: response.bytes().await.unwrap() }
}

#[tokio::test]
async fn every_answer_has_the_headers_and_every_failure_the_format() {
    let bench = Bench::plain().await;
    let digest = bench.get("/", None).await.json()["workload_keyset_digest"].as_str().unwrap().to_owned();
    for (method, path, status, kind) in [
        (Method::GET, "/nothing", 404, "not_found_error"),
        (Method::GET, "/v1/chat/completions", 405, "invalid_request_error"),
        (Method::DELETE, "/v1/models", 405, "invalid_request_error"),
        (Method::GET, "/v1/models", 401, "authentication_error"),
        (Method::GET, "/v1/models/vendor", 401, "authentication_error"),
        (Method::GET, "/v1/messages", 405, "invalid_request_error"),
        (Method::POST, "/v1/messages/nothing", 404, "not_found_error"),
        (Method::GET, "/v1/models/%ff", 400, "invalid_request_error"),
    ] {
        let request = bench.request(method.clone(), path);
        let request = if path.contains('%') { request.bearer_auth(KEY) } else { request };
        let reply = reply(request).await;
        assert_eq!(reply.error(), (status, kind.to_owned(), Value::Null), "{method} {path}");
        assert_eq!(reply.json()["type"] == "error", path.starts_with("/v1/messages"), "{method} {path}");
        assert_eq!(reply.header("content-type"), "application/json");
        assert_eq!(reply.header("x-aci-keyset-digest"), digest);
        assert_eq!(reply.header("x-aci-identity"), digest);
        assert_eq!(reply.header("x-aci-version"), "aci/1");
        assert_eq!(reply.header("access-control-allow-origin"), "*");
        assert!(reply.header("x-request-id").starts_with("req_"));
        if status == 405 {
            let allowed = if path == "/v1/models" { "GET,HEAD" } else { "POST" };
            assert_eq!(reply.header("allow"), allowed, "{method} {path}");
        }
    }
    for surface in Surface::ALL {
        for (name, value) in [("x-none", "x"), ("authorization", "Basic abc"), ("authorization", "Bearer ")] {
            let request = bench.request(Method::POST, surface.path()).header(name, value).body("{");
            let reply = reply(request).await;
            assert_eq!(reply.error().0, 401, "{surface:?}");
            assert_eq!(reply.error().1, "authentication_error", "{surface:?}");
        }
    }
    let preflight = reply(
        bench
            .request(Method::OPTIONS, "/v1/chat/completions")
            .header("origin", "https://app.example.com")
            .header("access-control-request-method", "POST"),
    )
    .await;
    assert_eq!((preflight.status, preflight.body.len()), (StatusCode::OK, 0));
    assert!(preflight.header("access-control-allow-headers").contains("authorization"));
    assert_eq!(preflight.header("allow"), "POST");
    assert_eq!(preflight.header("x-aci-version"), "aci/1");
    let retired = reply(bench.chat("vendor/model").header("x-upstream-verification", "required")).await;
    assert_eq!(retired.error().0, 400);
    assert!(retired.json()["error"]["message"].as_str().unwrap().contains("provider.aci_verified"));
    assert_eq!(bench.get("/health", None).await.json(), json!({ "status": "ok" }));
}

#[tokio::test]
async fn bodies_are_limited_and_who_sends_too_much_reads_why() {
    let bench = Bench::plain().await;
    let chunk = Bytes::from(vec![b' '; 1 << 20]);
    let chunks = MAX_BODY_BYTES / chunk.len() + 2;
    let body = || {
        stream::iter((0..chunks).map({
            let chunk = chunk.clone();
            move |_| Ok::<_, Infallible>(chunk.clone())
        }))
    };
    for (path, kind) in
        [("/v1/chat/completions", "invalid_request_error"), ("/v1/messages", "request_too_large")]
    {
        let announced =
            bench.request(Method::POST, path).bearer_auth(KEY).body(vec![b' '; MAX_BODY_BYTES + 1]);
        let streamed =
            bench.request(Method::POST, path).bearer_auth(KEY).body(reqwest::Body::wrap_stream(body()));
        for request in [announced, streamed] {
            assert_eq!(reply(request).await.error(), (413, kind.to_owned(), Value::Null), "{path}");
        }
    }
    // Who has no key does not have its body kept, either.
    let nobody = bench.request(Method::POST, "/v1/chat/completions").body(reqwest::Body::wrap_stream(body()));
    assert_eq!(reply(nobody).await.error().0, 401);
    assert_eq!(bench.running.gateway.bodies.left(), 512 << 20);
}

#[tokio::test]
async fn models_are_listed_and_filtered() {
    let bench = Bench::plain().await;
    for (path, ids) in [
        ("/v1/models", &["vendor/model", "vendor/other", "plain"][..]),
        ("/v1/models?zdr=false", &["vendor/model", "vendor/other", "plain"]),
        ("/v1/models?zdr=true", &["vendor/model"]),
        ("/v1/models?zdr", &["vendor/model"]),
        ("/v1/models?tee=true", &[]),
        ("/v1/models/vendor", &["vendor/model", "vendor/other"]),
        ("/v1/models/providers/open", &["vendor/model", "vendor/other", "plain"]),
        ("/v1/models/providers/keeps-nothing", &["vendor/model"]),
        ("/v1/embeddings/models", &["vendor/other"]),
    ] {
        assert_eq!(bench.ids(path).await, ids, "{path}");
    }
    let model = bench.get("/v1/models?zdr=1", Some(KEY)).await.json()["data"][0].clone();
    assert_eq!(model["pricing"], json!({ "prompt": "0.00000030", "completion": "0.0000012" }));
    assert_eq!(model["providers"], json!(["keeps-nothing"]));
    for (member, value) in [
        ("object", json!("model")),
        ("owned_by", json!("vendor")),
        ("name", json!("A model")),
        ("is_tee", json!(false)),
        ("is_zdr", json!(true)),
        ("context_length", json!(8192)),
        ("supported_parameters", json!(["max_tokens"])),
    ] {
        assert_eq!(model[member], value, "{member}");
    }
    let limits = json!(["max_tokens", "max_completion_tokens"]);
    for (id, parameters) in
        [("vendor/model", json!(["max_tokens"])), ("plain", limits), ("vendor/other", json!([]))]
    {
        let model = bench.get(&format!("/v1/models/{id}"), Some(KEY)).await.json();
        assert_eq!((&model["id"], &model["supported_parameters"]), (&json!(id), &parameters));
    }
    for (path, error) in [
        ("/v1/models?zdr=yes", (400, "invalid_request_error".to_owned(), json!("zdr"))),
        ("/v1/models?tee=2", (400, "invalid_request_error".to_owned(), json!("tee"))),
        ("/v1/models/nobody", (404, "not_found_error".to_owned(), Value::Null)),
        ("/v1/models/providers/nobody", (404, "not_found_error".to_owned(), Value::Null)),
    ] {
        assert_eq!(bench.get(path, Some(KEY)).await.error(), error, "{path}");
    }
    assert_eq!(bench.get("/v1/models", Some("sk-unknown")).await.error().0, 401);
}

#[tokio::test]
async fn a_host_for_confidential_models_lists_no_others() {
    let bench = Bench::new(|config, _| config["tee_hosts"] = json!(["tee.example.com"])).await;
    let of = |host: &'static str, path: &'static str| {
        reply(bench.request(Method::GET, path).header("host", host).bearer_auth(KEY))
    };
    let count = |reply: Reply| reply.json()["data"].as_array().unwrap().len();
    assert_eq!(count(of("TEE.example.com.:443", "/v1/models?tee=false").await), 0);
    assert_eq!(count(of("api.example.com", "/v1/models").await), 3);
}
