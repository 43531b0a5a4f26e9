//! An inference gateway with the control plane that knows its keys, as processes.

use std::fs;
use std::net::{SocketAddr, TcpStream};

use reqwest::{Client, Method, Response, StatusCode};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::inference::Part;
use crate::support::bare;

const MODEL: &str = "cloister/echo";
/// Prices of a token, and the same in billionths.
const PRICES: [(&str, i128); 2] = [("0.000123457", 123_457), ("0.987654321", 987_654_321)];

/// A control plane, a gateway before an upstream that echoes, and who administers them.
struct Lab {
    home: TempDir,
    http: Client,
    upstream: Part,
    control_plane: Option<Part>,
    gateway: Option<Part>,
    /// Where the control plane is in all its lives.
    api: SocketAddr,
    admin: String,
}

impl Lab {
    fn start(upstream_pause: u32) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("control-token"), "0123456789abcdef0123456789abcdef\n").unwrap();
        let line = format!("serve echo-upstream --listen 127.0.0.1:0 --pause {upstream_pause}");
        let upstream = Part::start(&home, &line, "upstream.log");
        let http = Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
        let api = a_free_port();
        let admin = String::new();
        let mut lab = Self { home, http, upstream, control_plane: None, gateway: None, api, admin };
        lab.start_control_plane();
        lab.start_gateway();
        lab.admin = lab.run("tokens create admin --scope admin").trim().to_owned();
        lab
    }

    fn start_control_plane(&mut self) {
        let line = format!(
            "serve control-plane --api-listen {} --fleet-listen 127.0.0.1:0 --inference-token-file control-token",
            self.api
        );
        self.control_plane = Some(Part::start(&self.home, &line, "control-plane.log"));
    }

    fn start_gateway(&mut self) {
        let price = |price: (&str, i128)| price.0.to_owned();
        let config = json!({
            "bind": "127.0.0.1:0",
            "state_dir": self.home.path().join("state"),
            "control": {
                "url": format!("http://{}/internal/inference", self.api),
                "token_file": self.home.path().join("control-token"),
            },
            "upstreams": [{
                "name": "echo",
                "base_url": format!("http://{}", self.upstream.address),
                "models": { MODEL: "echo" },
            }],
            "models": [{
                "id": MODEL,
                "pricing": { "prompt": price(PRICES[0]), "completion": price(PRICES[1]) },
            }],
        });
        fs::write(self.home.path().join("gateway.json"), config.to_string()).unwrap();
        let line = "serve inference-gateway --config gateway.json";
        self.gateway = Some(Part::start(&self.home, line, "gateway.log"));
    }

    /// A command of the administrator's; its data.
    fn run(&self, line: &str) -> String {
        let output = bare(&self.home, line).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// A key of scope `inference`: its id and its secret.
    fn key(&self) -> (String, String) {
        let made: Value =
            serde_json::from_str(&self.run("--json tokens create chat --scope inference")).unwrap();
        (made["id"].as_str().unwrap().to_owned(), made["token"].as_str().unwrap().to_owned())
    }

    async fn ask(&self, key: &str, text: &str, stream: bool) -> Response {
        let gateway = self.gateway.as_ref().unwrap().address;
        let messages = json!([{ "role": "user", "content": text }]);
        let body = json!({ "model": MODEL, "messages": messages, "stream": stream, "max_tokens": 64 });
        let request = self.http.post(format!("http://{gateway}/v1/chat/completions")).bearer_auth(key);
        request.body(body.to_string()).send().await.unwrap()
    }

    /// The status and the code of a refusal.
    async fn refusal(&self, key: &str) -> (u16, Value) {
        let answer = self.ask(key, "hello", false).await;
        let status = answer.status().as_u16();
        let body: Value = answer.json().await.unwrap();
        (status, body["error"]["code"].clone())
    }

    async fn call(&self, method: Method, path: &str, body: Value) -> Value {
        let request = self.http.request(method, format!("http://{}/api/v1{path}", self.api));
        let request = request.header("x-api-key", &self.admin);
        let request = if body.is_null() { request } else { request.json(&body) };
        let answer = request.send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        answer.json().await.unwrap()
    }

    /// What commands show of inference: answered requests, tokens of both kinds, and the cost in billionths.
    fn used(&self) -> [i128; 4] {
        let usage: Value = serde_json::from_str(&self.run("--json usage --inference")).unwrap();
        // Two records where the hour ended in between.
        let sum = |member: &str| {
            let records = usage["usage"].as_array().unwrap().iter();
            records.map(|record| i128::from(record[member].as_i64().unwrap())).sum()
        };
        let cost = billionths(usage["total_cost"].as_str().unwrap());
        [sum("requests"), sum("prompt_tokens"), sum("completion_tokens"), cost]
    }

    /// Waits until so many requests are known; what all of them used.
    fn used_by(&self, requests: i128) -> [i128; 4] {
        crate::inference::eventually("what was used is told", || {
            let used = self.used();
            assert!(used[0] <= requests, "something was told twice: {used:?}");
            (used[0] == requests).then_some(used)
        })
    }

    async fn balance(&self) -> i128 {
        let billing = self.call(Method::GET, "/workspace/billing", Value::Null).await;
        billionths(billing["balance"].as_str().unwrap())
    }

    /// Gives or takes credit.
    async fn credit(&self, workspace: &str, amount: &str, kind: &str) {
        let body = json!({ "amount": amount, "kind": kind, "reason": "test", "idempotency_key": amount });
        self.call(Method::POST, &format!("/admin/workspaces/{workspace}/credits"), body).await;
    }
}

/// An address that nobody listens on, below those that outgoing connections get. It is not listened on to find that out:
/// programs that others start at that moment would share the listener until they run, and keep the address from us.
fn a_free_port() -> SocketAddr {
    let mut addresses = (0..1000_u32).map(|_| {
        let port = 12_000 + u16::try_from(getrandom::u32().unwrap() % 20_000).unwrap();
        SocketAddr::from(([127, 0, 0, 1], port))
    });
    addresses.find(|address| TcpStream::connect(address).is_err()).expect("a free port")
}

/// An exact decimal text.
fn billionths(text: &str) -> i128 {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    assert!(fraction.len() <= 9 || fraction[9..].bytes().all(|digit| digit == b'0'), "{text}");
    let fraction = format!("{fraction:0<9}");
    let amount = whole.parse::<i128>().unwrap() * 1_000_000_000 + fraction[..9].parse::<i128>().unwrap();
    if negative { -amount } else { amount }
}

fn decimal(billionths: i128) -> String {
    let (sign, amount) = if billionths < 0 { ("-", -billionths) } else { ("", billionths) };
    format!("{sign}{}.{:09}", amount / 1_000_000_000, amount % 1_000_000_000)
}

/// What `words` words cost when they come back.
fn price(words: i128) -> i128 {
    words * (PRICES[0].1 + PRICES[1].1)
}

#[tokio::test]
async fn keys_and_credit_of_a_workspace_are_those_of_the_gateway() {
    let lab = Lab::start(0);
    let (id, key) = lab.key();
    let billing = lab.call(Method::GET, "/workspace/billing", Value::Null).await;
    let workspace = billing["workspace_id"].as_str().unwrap().to_owned();
    lab.call(Method::PUT, &format!("/admin/workspaces/{workspace}/billing"), json!({ "prepaid": true }))
        .await;

    // Without credit nothing is answered, whoever asks; a stranger is not told more.
    assert_eq!(lab.refusal(&key).await, (403, json!("insufficient_credits")));
    assert_eq!(lab.refusal("phak_nobody").await.0, 401);
    lab.credit(&workspace, "500", "payment").await;

    // Every answer costs what it costs, to the last digit.
    let mut words = 0;
    for length in 1..=7_i128 {
        let text = vec!["word"; usize::try_from(length).unwrap()].join(" ");
        let stream = length % 2 == 0;
        let answer = lab.ask(&key, &text, stream).await;
        assert_eq!(answer.status(), StatusCode::OK);
        let body = answer.text().await.unwrap();
        assert_eq!(body.ends_with("data: [DONE]\n\n"), stream, "{body}");
        words += length;
    }
    assert_eq!(lab.used_by(7), [7, words, words, price(words)]);
    assert_eq!(lab.balance().await, 500_000_000_000 - price(words));

    // What is left is taken away to the last digit; a little more opens the door again.
    lab.credit(&workspace, &decimal(price(words) - 500_000_000_000), "correction").await;
    assert_eq!(lab.balance().await, 0);
    assert_eq!(lab.refusal(&key).await, (403, json!("insufficient_credits")));
    lab.credit(&workspace, "499.999999999", "payment").await;
    assert_eq!(lab.ask(&key, "hello again", false).await.status(), StatusCode::OK);
    words += 2;
    assert_eq!(lab.used_by(8), [8, words, words, price(words)]);
    assert_eq!(lab.balance().await, 499_999_999_999 - price(2));

    // A key that is deleted is refused from the next request on, and its usage stays.
    lab.run(&format!("tokens delete {id}"));
    assert_eq!(lab.refusal(&key).await.0, 401);
    assert_eq!(lab.used_by(8), [8, words, words, price(words)]);
    let log = fs::read_to_string(lab.home.path().join("gateway.log")).unwrap();
    assert!(!log.contains(&key) && !log.contains("word"), "{log}");
}

#[tokio::test]
async fn what_was_used_is_told_once_whoever_is_killed() {
    let mut lab = Lab::start(20);
    let (_, key) = lab.key();

    // The control plane dies while an answer is under way. Nobody notices who was let in.
    let text = vec!["word"; 40].join(" ");
    let mut answer = lab.ask(&key, &text, true).await;
    assert_eq!(answer.status(), StatusCode::OK);
    let mut body = answer.chunk().await.unwrap().unwrap().to_vec();
    let control_plane = lab.control_plane.take().unwrap();
    control_plane.signal(Signal::KILL);
    assert_eq!(control_plane.ended(), None);
    while let Some(chunk) = answer.chunk().await.unwrap() {
        body.extend_from_slice(&chunk);
    }
    assert!(body.ends_with(b"data: [DONE]\n\n"), "{}", String::from_utf8_lossy(&body));
    // Nobody else is let in without it.
    assert_eq!(lab.refusal(&key).await.0, 503);

    lab.start_control_plane();
    assert_eq!(lab.used_by(1), [1, 40, 40, price(40)]);

    // The gateway dies as soon as its answer is there, and begins again with what it owes.
    let answer = lab.ask(&key, "hello", false).await;
    assert_eq!(answer.status(), StatusCode::OK);
    answer.bytes().await.unwrap();
    let control_plane = lab.control_plane.take().unwrap();
    control_plane.signal(Signal::KILL);
    assert_eq!(control_plane.ended(), None);
    let gateway = lab.gateway.take().unwrap();
    gateway.signal(Signal::KILL);
    assert_eq!(gateway.ended(), None);
    lab.start_control_plane();
    lab.start_gateway();
    assert_eq!(lab.used_by(2), [2, 41, 41, price(41)]);

    // Rows are told in their order: with this one the others were, and none of them twice.
    assert_eq!(lab.ask(&key, "once more", false).await.status(), StatusCode::OK);
    assert_eq!(lab.used_by(3), [3, 43, 43, price(43)]);
}
