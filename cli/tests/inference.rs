//! The inference gateway and its echo upstream as processes.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::support::bare;

pub(crate) const KEY: &str = "sk-of-a-test";
const MODEL: &str = "cloister/echo";
const PATIENCE: Duration = Duration::from_mins(1);

/// A process with a log of JSON lines; killed if the test ends early.
pub(crate) struct Part {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Part {
    pub(crate) fn start(home: &TempDir, line: &str, log: &str) -> Self {
        Self::start_with(home, line, log, &[])
    }

    /// With these variables.
    fn start_with(home: &TempDir, line: &str, log: &str, variables: &[(&str, &str)]) -> Self {
        let path = home.path().join(log);
        let mut command = bare(home, &format!("{line} --log-format json"));
        command.envs(variables.iter().copied());
        command.stdout(Stdio::null()).stderr(File::create(&path).unwrap());
        let mut child = command.spawn().unwrap();
        let address = eventually("it says where it listens", || {
            assert_eq!(child.try_wait().unwrap(), None, "{}", fs::read_to_string(&path).unwrap());
            let log = fs::read_to_string(&path).unwrap();
            let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let at = |line: &Value| {
                let names = ["address", "api_address"];
                names.into_iter().find_map(|name| line["fields"][name].as_str()?.parse().ok())
            };
            lines.find_map(|line| at(&line))
        });
        Self { child, address }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn ended(mut self) -> Option<i32> {
        eventually("it ends", || self.child.try_wait().unwrap()).code()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The echo upstream, with so many milliseconds between words.
pub(crate) fn echo(home: &TempDir, pause_ms: u32) -> Part {
    let line = format!("serve echo-upstream --listen 127.0.0.1:0 --pause {pause_ms}");
    Part::start(home, &line, "upstream.log")
}

fn config(home: &TempDir, upstream: &Part) -> Value {
    json!({
        "bind": "127.0.0.1:0",
        "state_dir": home.path().join("state"),
        "keys": [{ "name": "test", "sha256": hex::encode(Sha256::digest(KEY)) }],
        "upstreams": [{
            "name": "echo",
            "base_url": format!("http://{}", upstream.address),
            "models": { MODEL: "echo" },
        }],
    })
}

fn chat(client: &reqwest::Client, gateway: &Part, text: &str, stream: bool) -> reqwest::RequestBuilder {
    let messages = json!([{ "role": "user", "content": text }]);
    let body = json!({ "model": MODEL, "messages": messages, "stream": stream });
    let url = format!("http://{}/v1/chat/completions", gateway.address);
    client.post(url).bearer_auth(KEY).body(body.to_string())
}

/// The line of a request says who asked, for which model, and why there is no answer.
#[tokio::test]
async fn the_log_says_who_asked_for_what_and_why_there_is_no_answer() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let home = tempfile::tempdir().unwrap();
    let upstream = echo(&home, 0);
    let mut config = config(&home, &upstream);
    config["upstreams"].as_array_mut().unwrap().push(json!({
        "name": "gone", "base_url": "http://127.0.0.1:1", "models": { "vendor/gone": "gone" },
    }));
    fs::write(home.path().join("gateway.json"), config.to_string()).unwrap();
    let gateway = Part::start(&home, "serve inference-gateway --config gateway.json", "gateway.log");
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    let ask = async |key: &str, model: &str| {
        let body = json!({ "model": model, "messages": [{ "role": "user", "content": "a secret prompt" }] });
        let url = format!("http://{}/v1/chat/completions", gateway.address);
        let answer = client.post(url).bearer_auth(key).body(body.to_string()).send().await.unwrap();
        drop(answer.bytes().await.unwrap());
    };
    ask(KEY, MODEL).await;
    ask("sk-of-nobody", MODEL).await;
    ask(KEY, "vendor/none").await;
    ask(KEY, "vendor/gone").await;
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.ended(), Some(0));
    let log = fs::read_to_string(home.path().join("gateway.log")).unwrap();
    let lines: Vec<Value> =
        log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["fields"].clone()).collect();
    let of = |message: &str| lines.iter().filter(|line| line["message"] == message).collect::<Vec<_>>();
    let told: Vec<_> = of("answered")
        .into_iter()
        .map(|line| ["status", "key", "model", "error"].map(|name| line[name].clone()))
        .collect();
    let expected = [
        json!([200, "test", MODEL, null]),
        json!([401, null, null, "authentication_error"]),
        json!([400, "test", null, "model_not_found"]),
        json!([502, "test", "vendor/gone", "upstream_error"]),
    ];
    assert_eq!(told, expected.map(|line| [0, 1, 2, 3].map(|at| line[at].clone())));
    let failed = of("an attempt failed");
    assert!(failed[0]["cause"].as_str().unwrap().contains("Connection refused"), "{failed:?}");
    for message in
        ["the gateway ends when its requests are answered, or after these seconds", "the gateway has ended"]
    {
        assert_eq!(of(message).len(), 1, "{log}");
    }
    assert!(!log.contains("a secret prompt") && !log.contains(KEY), "{log}");
}

/// A file that is no configuration ends it with the code of wrong input, its name and the member.
#[test]
fn a_wrong_file_is_named_with_its_member() {
    let home = tempfile::tempdir().unwrap();
    for (text, said) in [
        (
            r#"{"state_dir": "state", "upstreams": [{"name": "a", "base_url": "b", "models": {}}]}"#,
            "gateway.json: upstreams[0].base_url: has to be an absolute URL",
        ),
        (
            r#"{"state_dir": "state", "upstreams": [], "admin_token_file": 1}"#,
            "gateway.json: admin_token_file: has to be",
        ),
    ] {
        fs::write(home.path().join("gateway.json"), text).unwrap();
        let output = bare(&home, "serve inference-gateway --config gateway.json").output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}");
        assert!(words.contains(said), "{words}");
    }
}

#[tokio::test]
async fn answers_come_with_receipts_files_are_heard_and_streams_may_end() {
    // The client has no TLS to do, but wants a provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let home = tempfile::tempdir().unwrap();
    let upstream = echo(&home, 20);
    let mut config = config(&home, &upstream);
    let file = home.path().join("gateway.json");
    fs::write(&file, config.to_string()).unwrap();
    let gateway =
        Part::start(&home, &format!("serve inference-gateway --config {}", file.display()), "gateway.log");
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    let url = |path: &str| format!("http://{}{path}", gateway.address);
    let chat = |text: &str, stream| chat(&client, &gateway, text, stream);
    let ids = || async {
        let list = client.get(url("/v1/models")).bearer_auth(KEY).send().await.unwrap();
        list.json::<Value>().await.unwrap()["data"].as_array().unwrap().len()
    };

    let nobody = client.post(url("/v1/chat/completions")).body("{}").send().await.unwrap();
    assert_eq!(nobody.status(), 401);
    assert_eq!(ids().await, 1);

    // A whole answer, and its receipt, over exactly the bytes that came.
    let answer = chat("hello there", false).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let receipt_id = answer.headers()["x-receipt-id"].to_str().unwrap().to_owned();
    let body = answer.bytes().await.unwrap();
    let parsed: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(parsed["choices"][0]["message"]["content"], "hello there");
    let receipt = client.get(url(&format!("/v1/aci/receipts/{receipt_id}"))).bearer_auth(KEY).send().await;
    let receipt: Value = receipt.unwrap().json().await.unwrap();
    let returned = receipt["event_log"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(returned["type"], "response.returned");
    assert_eq!(returned["body_hash"], format!("sha256:{}", hex::encode(Sha256::digest(&body))));

    // Another model appears in the file.
    config["upstreams"][0]["models"]["cloister/other"] = json!("echo");
    fs::write(&file, config.to_string()).unwrap();
    gateway.signal(Signal::HUP);
    let deadline = Instant::now() + PATIENCE;
    while ids().await != 2 {
        assert!(Instant::now() < deadline, "the file is not read again");
    }

    // A stream that is under way ends well, then the process does.
    let text = "word ".repeat(30);
    let mut stream = chat(text.trim_end(), true).send().await.unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let mut bytes = stream.chunk().await.unwrap().unwrap().to_vec();
    gateway.signal(Signal::TERM);
    while let Some(chunk) = stream.chunk().await.unwrap() {
        bytes.extend_from_slice(&chunk);
    }
    let streamed = String::from_utf8(bytes).unwrap();
    assert_eq!(streamed.matches("word").count(), 30);
    assert!(streamed.ends_with("data: [DONE]\n\n"), "{streamed}");
    assert_eq!(gateway.ended(), Some(0));
    let log = fs::read_to_string(home.path().join("gateway.log")).unwrap();
    assert!(!log.contains("hello") && !log.contains("word") && !log.contains(KEY), "{log}");
    upstream.signal(Signal::TERM);
    assert_eq!(upstream.ended(), Some(0));
}

/// As in an image that holds the program and nothing else.
#[tokio::test]
async fn a_gateway_without_authorities_answers() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let home = tempfile::tempdir().unwrap();
    let upstream = echo(&home, 0);
    let file = home.path().join("gateway.json");
    fs::write(&file, config(&home, &upstream).to_string()).unwrap();
    let line = format!("serve inference-gateway --config {}", file.display());
    let nowhere = [("SSL_CERT_FILE", "/nowhere"), ("SSL_CERT_DIR", "/nowhere")];
    let gateway = Part::start_with(&home, &line, "gateway.log", &nowhere);
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    let answer = chat(&client, &gateway, "hello", false).send().await.unwrap();
    assert_eq!(answer.status(), 200);
}

/// The first request to stop lets answers end, however long they take; the next one does not.
#[tokio::test]
async fn who_asks_twice_waits_for_no_answer() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let home = tempfile::tempdir().unwrap();
    // A word would come in an hour.
    let upstream = echo(&home, 3_600_000);
    let file = home.path().join("gateway.json");
    fs::write(&file, config(&home, &upstream).to_string()).unwrap();
    let line = format!("serve inference-gateway --drain-timeout 3600 --config {}", file.display());
    let mut gateway = Part::start(&home, &line, "gateway.log");
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    let mut stream = chat(&client, &gateway, "one two", true).send().await.unwrap();
    let mut bytes = stream.chunk().await.unwrap().unwrap().to_vec();
    let status = eventually("it ends", || {
        gateway.signal(Signal::TERM);
        gateway.child.try_wait().unwrap()
    });
    assert_eq!(status.code(), Some(0));
    // What was cut off says so, and does not look complete.
    while let Ok(Some(chunk)) = stream.chunk().await {
        bytes.extend_from_slice(&chunk);
    }
    let streamed = String::from_utf8(bytes).unwrap();
    assert!(streamed.contains("service_unavailable") && !streamed.contains("[DONE]"), "{streamed}");
}
