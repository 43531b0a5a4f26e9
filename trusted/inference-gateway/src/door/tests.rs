//! Connections as clients make them, byte by byte.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::poll;
use http::Version;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::interval;
use tokio_util::sync::CancellationToken;

use super::headers;
use super::listener::{Patience, serve_with, spoken};
use crate::admission::KeyHash;
use crate::run::{Running, start};
use crate::upstream::fake::until;

const KEY: &str = "sk-test-key";
/// More than lies in buffers between a server and a client that does not read.
const LONG_BYTES: usize = 48 << 20;
const LONG: Duration = Duration::from_mins(1);
const SHORT: Duration = Duration::from_millis(200);
const PATIENT: Patience =
    Patience { handshake: LONG, head: LONG, idle: LONG, piece: LONG, left: LONG, farewell: LONG };

/// A gateway whose one upstream is never asked.
struct Lab {
    running: Running,
    _dir: TempDir,
}

impl Lab {
    async fn new() -> Self {
        Self::with(&json!({}), &[(KEY, None)]).await
    }

    /// With more members of the configuration, and with keys that may ask so often in a minute.
    async fn with(members: &Value, keys: &[(&str, Option<u64>)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let keys = keys.iter().map(|(key, limit)| {
            let mut entry = json!({"name": key, "sha256": KeyHash::of(key).to_string()});
            limit.inspect(|limit| entry["requests_per_minute"] = json!(limit));
            entry
        });
        let mut config = json!({
            "bind": "127.0.0.1:0",
            "state_dir": dir.path().join("state"),
            "keys": keys.collect::<Vec<_>>(),
            "upstreams": [{"name": "one", "base_url": "http://127.0.0.1:9", "models": {"m": "m"}}],
        });
        config.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let file = dir.path().join("gateway.json");
        std::fs::write(&file, config.to_string()).unwrap();
        Self { running: start(&file).await.unwrap(), _dir: dir }
    }

    async fn connect(&self, bytes: &[u8]) -> TcpStream {
        connect(self.running.address(), bytes).await
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.running.address())
    }
}

async fn connect(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

/// What comes until the other side is done with the connection.
async fn rest(mut stream: TcpStream) -> String {
    let (mut all, mut piece) = (Vec::new(), vec![0; 4096]);
    while let Ok(read) = stream.read(&mut piece).await
        && read > 0
    {
        all.extend_from_slice(&piece[..read]);
    }
    String::from_utf8(all).unwrap()
}

/// The next response with a length: its status and body.
async fn next(stream: &mut TcpStream) -> (u16, String) {
    let mut all = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&all).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned());
            }
        }
        let mut byte = [0; 1];
        assert_eq!(stream.read(&mut byte).await.unwrap(), 1, "{text}");
        all.extend_from_slice(&byte);
    }
}

fn tls() -> rustls::ClientConfig {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
}

fn h2c() -> reqwest::Client {
    reqwest::Client::builder()
        .no_proxy()
        .tls_backend_preconfigured(tls())
        .http2_prior_knowledge()
        .build()
        .unwrap()
}

#[tokio::test]
async fn http2_without_tls_is_spoken_to_who_begins_with_it() {
    let (lab, client) = (Lab::new().await, h2c());
    let asked = join_all((0..20).map(|_| client.get(lab.url("/health")).send())).await;
    for response in asked {
        let response = response.unwrap();
        assert_eq!((response.version(), response.status().as_u16()), (Version::HTTP_2, 200));
        assert_eq!(response.json::<Value>().await.unwrap(), json!({"status": "ok"}));
    }
    let refused = client
        .post(lab.url("/v1/chat/completions"))
        .bearer_auth("sk-wrong")
        .json(&json!({"model": "m", "messages": []}));
    let refused = refused.send().await.unwrap();
    assert_eq!(refused.status(), 401);
    assert_eq!(refused.json::<Value>().await.unwrap()["error"]["type"], "authentication_error");
    let large = client.get(lab.url("/health")).header("x-large", "x".repeat(70 << 10)).send().await.unwrap();
    assert_eq!(large.status(), 431);
    assert_eq!(client.get(lab.url("/health")).send().await.unwrap().status(), 200, "the others go on");
}

#[tokio::test]
async fn what_is_spoken_is_known_as_soon_as_it_can_be_and_stays_unread() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for (first, rest, version) in [
        ("G", "", Some(Version::HTTP_11)),
        ("PO", "", Some(Version::HTTP_11)),
        ("P", "OST / HTTP/1.1", Some(Version::HTTP_11)),
        ("PRI * HTTP/1.1", "", Some(Version::HTTP_11)),
        ("PRI * HT", "TP/2.0\r\n\r\nSM\r\n\r\n", Some(Version::HTTP_2)),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0", "", Some(Version::HTTP_2)),
    ] {
        let mut client = connect(listener.local_addr().unwrap(), first.as_bytes()).await;
        let (mut server, _) = listener.accept().await.unwrap();
        server.peek(&mut [0]).await.unwrap();
        let found = {
            let mut spoken = pin!(spoken(&server));
            let found = match poll!(spoken.as_mut()) {
                Poll::Ready(found) => found,
                Poll::Pending => {
                    assert!(!rest.is_empty(), "{first}");
                    client.write_all(rest.as_bytes()).await.unwrap();
                    spoken.await
                }
            };
            found.ok()
        };
        assert_eq!(found, version, "{first}");
        client.shutdown().await.unwrap();
        let mut read = String::new();
        server.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, format!("{first}{rest}"));
    }
    for (only, version) in
        [("", None), ("P", Some(Version::HTTP_11)), ("PRI * HTTP/2.0", Some(Version::HTTP_11))]
    {
        let mut client = connect(listener.local_addr().unwrap(), only.as_bytes()).await;
        let (server, _) = listener.accept().await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(spoken(&server).await.ok(), version, "{only}");
    }
}

#[tokio::test]
async fn heads_are_limited() {
    let lab = Lab::new().await;
    // With two others.
    let many = |count: usize| "x-many: x\r\n".repeat(count - 2);
    let (most, more) = (many(100), many(101));
    for (head, status) in [
        (format!("GET /health HTTP/1.1\r\nhost: x\r\nx-large: {}\r\n\r\n", "x".repeat(70 << 10)), "431"),
        (format!("GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{most}\r\n"), "200"),
        (format!("GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{more}\r\n"), "431"),
        (format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "x".repeat(70 << 10)), "414"),
        ("NONSENSE\r\n\r\n".to_owned(), "400"),
        ("GET /health HTTP/1.1\r\nhost: x\r\ncontent-length: x\r\n\r\n".to_owned(), "400"),
        ("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n".to_owned(), "400"),
    ] {
        let answer = rest(lab.connect(head.as_bytes()).await).await;
        let told = answer.split(' ').nth(1).unwrap_or_default();
        assert!(told == status || (status == "414" && told == "431"), "{}: {answer}", &head[..20]);
    }
    // Whether it comes at once or in pieces, what counts is its size.
    for (size, status) in [(60, "200"), (65, "431")] {
        let head = format!(
            "GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-large: {}\r\n\r\n",
            "x".repeat(size << 10)
        );
        for pieces in [1, 7] {
            let mut stream = lab.connect(&[]).await;
            for piece in head.as_bytes().chunks(head.len().div_ceil(pieces)) {
                // What is refused early is not read to its end.
                let _ = stream.write_all(piece).await;
            }
            let answer = rest(stream).await;
            assert_eq!(answer.split(' ').nth(1), Some(status), "{size} KiB in {pieces}: {answer}");
        }
    }
}

#[tokio::test]
async fn a_body_that_is_announced_is_asked_for_or_refused() {
    let lab = Lab::new().await;
    let head = |key: &str, length: usize| {
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\nexpect: 100-continue\r\n\
             content-length: {length}\r\n\r\n"
        )
    };
    let mut stream = lab.connect(head(KEY, 2).as_bytes()).await;
    assert_eq!(next(&mut stream).await, (100, String::new()));
    stream.write_all(b"{}").await.unwrap();
    let (status, body) = next(&mut stream).await;
    assert!(status == 400 && body.contains("'model' is required"), "{body}");
    // The connection goes on.
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert_eq!(next(&mut stream).await.0, 200);
    for (key, length, status) in [("", 2, "401"), (KEY, 1 << 30, "413")] {
        let answer = rest(lab.connect(head(key, length).as_bytes()).await).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
}

/// The head of a request with a body of so many bytes.
fn asking(key: &str, length: usize) -> Vec<u8> {
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-length: {length}\r\n\r\n"
    );
    head.into_bytes()
}

/// However many bodies they begin, whoever has no key takes no room from those who have one.
#[tokio::test]
async fn a_body_of_nobody_is_not_kept() {
    let lab = Lab::new().await;
    let begun = |key: &str| {
        let mut bytes = asking(key, 9_000_000);
        bytes.resize(bytes.len() + (8 << 20), b' ');
        bytes
    };
    let bodies = lab.running.gateway().bodies.clone();
    let whole = bodies.left();
    // The socket took all of it, so that it was read.
    let strangers = join_all((0..4).map(|_| async { lab.connect(&begun("sk-wrong")).await })).await;
    assert_eq!(bodies.left(), whole);
    let _known = lab.connect(&begun(KEY)).await;
    crate::upstream::fake::until(|| bodies.left() < whole).await;
    drop(strangers);
}

#[tokio::test]
async fn a_key_leaves_room_for_the_bodies_of_others() {
    const LARGE: usize = 31 << 20;
    let lab = Lab::with(&json!({"body_memory_mib": 64}), &[(KEY, None), ("sk-other", None)]).await;
    let large = |key: &str, length: usize| {
        let mut bytes = asking(key, length);
        bytes.resize(bytes.len() + LARGE, b' ');
        bytes
    };
    let bodies = lab.running.gateway().bodies.clone();
    let trickling = lab.connect(&large(KEY, LARGE + 1)).await;
    until(|| bodies.left() == (64 << 20) - LARGE).await;
    for (key, status) in [(KEY, 503), ("sk-other", 400)] {
        let mut stream = lab.connect(&large(key, LARGE)).await;
        let (told, body) = next(&mut stream).await;
        assert_eq!(told, status, "{key}: {body}");
        // There is room for little.
        stream.write_all(&[asking(key, 2), b"{}".to_vec()].concat()).await.unwrap();
        assert!(next(&mut stream).await.1.contains("'model' is required"), "{key}");
    }
    drop(trickling);
    until(|| bodies.left() == 64 << 20).await;
    assert_eq!(next(&mut lab.connect(&large(KEY, LARGE)).await).await.0, 400);
}

/// Who asks for lists and takes none keeps nobody's answers from them.
#[tokio::test]
async fn lists_of_models_have_their_place_in_the_memory_of_their_key() {
    let lab = Lab::with(&json!({ "models": [], "upstreams": many_models() }), &[(KEY, None)]).await;
    let bodies = lab.running.gateway().bodies.clone();
    let all = bodies.left();
    let ask = format!("GET /v1/models HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {KEY}\r\n\r\n");
    let untaken = lab.connect(ask.as_bytes()).await;
    until(|| bodies.left() < all).await;
    drop(untaken);
    until(|| bodies.left() == all).await;
}

/// An upstream with more models than a connection takes at once.
fn many_models() -> Value {
    let models: serde_json::Map<_, _> =
        (0..20_000).map(|number| (format!("vendor/model-{number}"), json!("own"))).collect();
    json!([{ "name": "many", "base_url": "http://127.0.0.1:1", "models": models }])
}

/// Also who is refused before anything is read is told whether the answer is encrypted.
#[tokio::test]
async fn early_refusals_say_that_they_are_not_encrypted() {
    let lab = Lab::new().await;
    let client = reqwest::Client::new();
    for (path, key) in
        [("/v1/chat/completions", "sk-nobody's"), ("/v1/messages", "sk-nobody's"), ("/v1/responses", KEY)]
    {
        let request = client.post(lab.url(path)).bearer_auth(key).header("x-upstream-verification", "1");
        let refused = request.body("{}").send().await.unwrap();
        assert_eq!(refused.headers()["x-e2ee-applied"], "false", "{path}");
        let body: Value = refused.json().await.unwrap();
        assert_eq!(body["type"] == "error", path == "/v1/messages", "{body}");
    }
}

/// Whoever sends bodies in part, or none that is taken, asks for something all the same.
#[tokio::test]
async fn a_body_that_does_not_come_counts_as_a_request() {
    let cases =
        [("sk-large", 1 << 30, 0, true), ("sk-cut", 9000, 5000, true), ("sk-left", 9000, 5000, false)];
    let lab = Lab::with(&json!({}), &cases.map(|(key, ..)| (key, Some(1)))).await;
    let bodies = lab.running.gateway().bodies.clone();
    let all = bodies.left();
    for (key, length, sent, is_told) in cases {
        let mut stream = lab.connect(&asking(key, length)).await;
        stream.write_all(&vec![b' '; sent]).await.unwrap();
        until(|| sent == 0 || bodies.left() < all).await;
        if is_told {
            stream.shutdown().await.unwrap();
            rest(stream).await;
        } else {
            drop(stream);
        }
        until(|| bodies.left() == all).await;
        let mut stream = lab.connect(&[asking(key, 2), b"{}".to_vec()].concat()).await;
        assert_eq!(next(&mut stream).await.0, 429, "{key}");
    }
}

async fn panics() -> &'static str {
    panic!("the handler's secret")
}

#[tokio::test]
async fn a_handler_that_panics_is_a_fault_of_the_gateway_and_no_more() {
    let lab = Lab::new().await;
    let gateway = std::sync::Arc::clone(lab.running.gateway());
    let router = Router::new()
        .route("/panic", get(panics))
        .route("/fine", get(|| async { "fine" }))
        .layer(from_fn_with_state(gateway, headers::every_response));
    let address = listen(router, PATIENT).await;
    let mut stream = connect(address, b"GET /panic HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let (status, body) = next(&mut stream).await;
    let error =
        json!({"message": "The gateway failed", "type": "internal_error", "code": null, "param": null});
    assert_eq!((status, serde_json::from_str::<Value>(&body).unwrap()), (500, json!({ "error": error })));
    stream.write_all(b"GET /fine HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert_eq!(next(&mut stream).await, (200, "fine".to_owned()));
}

async fn listen(router: Router, patience: Patience) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve_with(patience, listener, None, router, CancellationToken::new()));
    address
}

#[tokio::test]
async fn who_takes_too_long_is_not_waited_for() {
    let fine = || Router::new().route("/fine", get(|| async { "fine" }));
    let slow = listen(fine(), Patience { head: SHORT, ..PATIENT }).await;
    for head in ["GET /fine HTTP/1.1\r\nhost: x\r\n", "G"] {
        let answer = rest(connect(slow, head.as_bytes()).await).await;
        assert!(!answer.contains("fine"), "{answer}");
    }
    let idle = listen(fine(), Patience { idle: SHORT, ..PATIENT }).await;
    assert_eq!(rest(connect(idle, b"").await).await, "");
    let answer = rest(connect(idle, b"GET /fine HTTP/1.1\r\nhost: x\r\n\r\n").await).await;
    assert!(answer.ends_with("\r\n\r\nfine"), "{answer}");
}

/// An answer at once of so many bytes, and whether anybody still holds it.
fn whole(length: usize) -> (Router, Arc<()>) {
    struct Held(Vec<u8>, #[expect(dead_code, reason = "it counts who holds the answer")] Arc<()>);
    impl AsRef<[u8]> for Held {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let holders = Arc::new(());
    let held = Arc::clone(&holders);
    let answer = move || {
        let held = Held(vec![b'x'; length], Arc::clone(&held));
        async { Body::from(Bytes::from_owner(held)) }
    };
    (Router::new().route("/whole", get(answer)), holders)
}

/// However long it takes: as long as it takes something, it gets all.
#[tokio::test]
async fn a_slow_reader_gets_all_of_its_answer() {
    let (router, holders) = whole(LONG_BYTES);
    let hasty = Patience { idle: SHORT, farewell: SHORT, ..PATIENT };
    let address = listen(router, hasty).await;
    let mut stream = connect(address, b"GET /whole HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let (mut read, mut piece, mut pause) = (0, vec![0; 1 << 20], interval(SHORT / 16));
    let length = loop {
        pause.tick().await;
        let some = stream.read(&mut piece).await.unwrap();
        if some == 0 {
            break read;
        }
        read += some;
    };
    assert!(length > LONG_BYTES, "{length}");
    until(|| Arc::strong_count(&holders) == 2).await;
}

/// A client that takes nothing keeps nobody's memory, over either version.
#[tokio::test]
async fn who_takes_nothing_is_given_up() {
    let (router, holders) = whole(LONG_BYTES);
    let address = listen(router, Patience { piece: SHORT, ..PATIENT }).await;
    let silent = connect(address, b"GET /whole HTTP/1.1\r\nhost: x\r\n\r\n").await;
    until(|| Arc::strong_count(&holders) == 3).await;
    until(|| Arc::strong_count(&holders) == 2).await;
    drop(silent);
    let response = h2c().get(format!("http://{address}/whole")).send().await.unwrap();
    assert_eq!((response.version(), response.content_length()), (Version::HTTP_2, Some(LONG_BYTES as u64)));
    until(|| Arc::strong_count(&holders) == 2).await;
    assert!(response.bytes().await.is_err());
}

/// Also when all that is left of its answer is the last piece, which over HTTP/2 waits for the client's window.
#[tokio::test]
async fn who_leaves_a_little_is_given_up_too() {
    let (router, holders) = whole(100 << 10);
    let address = listen(router, Patience { piece: SHORT, ..PATIENT }).await;
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_backend_preconfigured(tls())
        .http2_prior_knowledge()
        .http2_initial_stream_window_size(65_535);
    let response = client.build().unwrap().get(format!("http://{address}/whole")).send().await.unwrap();
    assert_eq!(response.version(), Version::HTTP_2);
    until(|| Arc::strong_count(&holders) == 2).await;
    assert!(response.bytes().await.is_err());
}

/// Goes on asking for something small on the connection on which it leaves an answer, until that is given up.
async fn leaves(patience: Patience, window: u32, is_small_taken: bool) {
    let (router, holders) = whole(1 << 20);
    let address = listen(router.route("/fine", get(|| async { "fine" })), patience).await;
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_backend_preconfigured(tls())
        .http2_prior_knowledge()
        .http2_initial_stream_window_size(window)
        .build()
        .unwrap();
    let url = |path: &str| format!("http://{address}{path}");
    let left = client.get(url("/whole")).send().await.unwrap();
    let (mut others, mut pause) = (Vec::new(), interval(SHORT / 4));
    for _ in 0..200 {
        pause.tick().await;
        if Arc::strong_count(&holders) == 2 {
            break;
        }
        // None is answered on a connection that is just being closed.
        let Ok(small) = client.get(url("/fine")).send().await else { continue };
        if is_small_taken {
            drop(small.bytes().await);
        } else {
            others.push(small);
        }
    }
    assert_eq!(Arc::strong_count(&holders), 2, "window {window}");
    assert!(left.bytes().await.is_err());
}

/// Nor does it by asking for more that it does not take either, whether it lets that be sent in part or not at all.
#[tokio::test]
async fn who_asks_and_takes_nothing_is_given_up() {
    for window in [0, 1] {
        leaves(Patience { piece: SHORT, ..PATIENT }, window, false).await;
    }
}

/// Nor, for ever, beside what it takes.
#[tokio::test]
async fn an_answer_that_is_left_is_given_up_beside_others() {
    leaves(Patience { left: SHORT, ..PATIENT }, 65_535, true).await;
}

/// A stream whose end waits for a permit.
fn stream() -> (Router, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let answer = move || {
        let held = Arc::clone(&held);
        async move {
            let last = futures_util::stream::once(async move {
                held.acquire().await.unwrap().forget();
                Ok(Bytes::from_static(b"last"))
            });
            let first = futures_util::stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"first "))]);
            Body::from_stream(first.chain(last))
        }
    };
    (Router::new().route("/stream", get(answer)), gate)
}

/// Begins to read a stream.
async fn begins(client: &reqwest::Client, address: SocketAddr) -> reqwest::Response {
    let mut response = client.get(format!("http://{address}/stream")).send().await.unwrap();
    assert_eq!(response.chunk().await.unwrap().unwrap(), "first ");
    response
}

/// Reads on, after it was silent for longer than a client may take nothing.
async fn outlasts(stream: reqwest::Response, gate: &Semaphore) {
    let mut pause = interval(4 * SHORT);
    pause.tick().await;
    pause.tick().await;
    gate.add_permits(1);
    assert_eq!(stream.bytes().await.unwrap(), "last");
}

#[tokio::test]
async fn a_silent_stream_is_not_cut() {
    let (router, gate) = stream();
    let address = listen(router, Patience { piece: SHORT, left: SHORT, ..PATIENT }).await;
    let one = reqwest::Client::builder().no_proxy().tls_backend_preconfigured(tls()).build().unwrap();
    for client in [one, h2c()] {
        outlasts(begins(&client, address).await, &gate).await;
    }
}

/// Nor is one beside which an answer is not taken.
#[tokio::test]
async fn an_answer_that_nobody_takes_costs_no_other_its_connection() {
    let ((streaming, gate), (router, holders)) = (stream(), whole(LONG_BYTES));
    let address = listen(router.merge(streaming), Patience { piece: SHORT, ..PATIENT }).await;
    let client = h2c();
    let stream = begins(&client, address).await;
    let left = client.get(format!("http://{address}/whole")).send().await.unwrap();
    outlasts(stream, &gate).await;
    drop(left);
    until(|| Arc::strong_count(&holders) == 2).await;
}

#[tokio::test]
async fn the_head_of_an_answer_is_told_without_its_body() {
    let lab = Lab::new().await;
    for (path, status) in [("/v1/chat/completions", 405), ("/health", 200)] {
        let http1 = reqwest::Client::builder().no_proxy().tls_backend_preconfigured(tls());
        for client in [http1.build().unwrap(), h2c()] {
            let answer = client.head(lab.url(path)).send().await.unwrap();
            assert_eq!(answer.status(), status, "{path}");
            assert!(answer.headers().contains_key("content-length"), "{path}");
            assert_eq!(answer.bytes().await.unwrap().len(), 0, "{path}");
        }
    }
}
