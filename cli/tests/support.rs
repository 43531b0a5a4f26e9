//! A scripted management API and a way to run the command against it.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use cloister_app_compose::ComposeHash;
use cloister_app_compose::canonical::compact;
use cloister_management_api::CvmId;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The key that the server accepts.
pub(crate) const KEY: &str = "phak_test";

/// An answer: status and body; a JSON string is sent as an event stream.
type Answer = (u16, Value);

/// A request that arrived.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seen {
    /// Method and path with query.
    pub(crate) line: String,
    /// Body, null if empty or no JSON.
    pub(crate) body: Value,
    /// Hash that the document is expected to get.
    pub(crate) compose_hash: Option<String>,
    /// Transaction that is said to have allowed it.
    pub(crate) transaction: Option<String>,
}

#[derive(Default)]
struct Script {
    answers: HashMap<String, Vec<Answer>>,
    seen: Vec<Seen>,
    /// Description of the KMS, if provisions are answered with the hash of what they brought.
    echo: Option<Value>,
}

/// A server that answers as it was told, and a home directory for the command.
pub(crate) struct Fake {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Home of the command.
    pub(crate) home: TempDir,
    script: Arc<Mutex<Script>>,
    _runtime: tokio::runtime::Runtime,
}

impl Fake {
    /// Starts a server that knows nothing yet: every path is 404.
    pub(crate) fn start() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let script = Arc::new(Mutex::new(Script::default()));
        let router = Router::new().fallback(answer).with_state(Arc::clone(&script));
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, home: tempfile::tempdir().unwrap(), script, _runtime: runtime }
    }

    /// Adds an answer for `GET /path`-like lines; the last one is repeated.
    pub(crate) fn on(self, line: &str, status: u16, body: Value) -> Self {
        self.script.lock().unwrap().answers.entry(line.to_owned()).or_default().push((status, body));
        self
    }

    /// Takes every document that is provisioned as it is, with this description of a KMS.
    pub(crate) fn echoing_provisions(self, kms_info: Value) -> Self {
        self.script.lock().unwrap().echo = Some(kms_info);
        self
    }

    /// Requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.script.lock().unwrap().seen.clone()
    }

    /// The command with this server named by environment variables.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = bare(&self.home, line);
        command.env("CLOISTER_API_URL", format!("http://{}", self.address)).env("CLOISTER_API_KEY", KEY);
        command
    }

    /// Runs a command line and shows what a person would see.
    pub(crate) fn run(&self, line: &str) -> String {
        let output = self.command(line).output().unwrap();
        transcript(line, &output).replace(&self.address.to_string(), "SERVER")
    }
}

/// A proxy that opens a tunnel to one server, whatever is asked for (RFC 9110, 9.3.6). Its URL.
pub(crate) fn tunnel_to(server: SocketAddr) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let through = move |client: TcpStream| {
        let mut lines = BufReader::new(client.try_clone()?).lines();
        while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
        let server = TcpStream::connect(server)?;
        (&client).write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
        let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        std::io::copy(&mut &server, &mut &client)?;
        client.shutdown(Shutdown::Both)
    };
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let _ = client.and_then(through);
        }
    });
    url
}

/// The command in an empty environment; words are split at spaces.
pub(crate) fn bare(home: &TempDir, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cloister"));
    command.args(line.split_whitespace()).env_clear().env("HOME", home.path()).current_dir(home.path());
    command.stdin(Stdio::null());
    command
}

/// Everything that a run showed, in one text.
pub(crate) fn transcript(line: &str, output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    format!(
        "$ cloister {line}\n{}--- stderr\n{}--- exit {}\n",
        text(&output.stdout),
        without_times(&text(&output.stderr)),
        output.status.code().unwrap()
    )
}

/// Replaces `(1.2 s)` at the ends of lines.
fn without_times(text: &str) -> String {
    let strip = |line: &str| match line.rsplit_once(" (") {
        Some((words, time)) if time.ends_with(" s)") => format!("{words} (TIME)\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(strip).collect()
}

async fn answer(
    State(script): State<Arc<Mutex<Script>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path().strip_prefix("/api/v1").unwrap_or(uri.path());
    let line = format!("{method} {path}");
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut script = script.lock().unwrap();
    script.seen.push(Seen {
        line: format!("{line}{query}"),
        body: serde_json::from_slice(&body).unwrap_or_default(),
        compose_hash: header(&headers, "x-compose-hash"),
        transaction: header(&headers, "x-transaction-hash"),
    });
    let presigned = query.contains("sig=") || matches!(path, "/auth/device/code" | "/auth/device/token");
    if headers.contains_key("x-api-key") == presigned {
        return (StatusCode::IM_A_TEAPOT, "a key where none belongs, or none where one does").into_response();
    }
    if !presigned && headers["x-api-key"] != KEY {
        return reply(401, &json!({ "detail": "Authentication required" }));
    }
    if let (Some(kms_info), "POST /cvms/provision") = (&script.echo, line.as_str()) {
        let request: Value = serde_json::from_slice(&body).unwrap();
        let hash = ComposeHash::of(&compact(&request["compose_file"]));
        return reply(
            200,
            &json!({ "compose_hash": hash, "app_id": "6f809b3214eb9a69571ad008289d9551fa9a4272",
                "app_env_encrypt_pubkey": null, "kms_info": kms_info, "fmspc": null, "device_id": null,
                "os_image_hash": null, "instance_type": null, "teepod_id": 1, "node_id": 1, "kms_id": null,
                "kms_contract_id": null }),
        );
    }
    match script.answers.get_mut(&line) {
        Some(answers) if answers.len() > 1 => {
            let (status, body) = answers.remove(0);
            reply(status, &body)
        }
        Some(answers) => reply(answers[0].0, &answers[0].1),
        None => reply(
            404,
            &json!({ "error_code": "ERR-03-001", "message": "CVM not found", "request_id": "req-1" }),
        ),
    }
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).map(|value| value.to_str().unwrap().to_owned())
}

fn reply(status: u16, body: &Value) -> Response {
    let status = StatusCode::from_u16(status).unwrap();
    match body {
        Value::Null => status.into_response(),
        Value::String(text) => {
            (status, [(header::CONTENT_TYPE, "text/event-stream")], text.clone()).into_response()
        }
        json => (status, [("x-request-id", "req-header")], axum::Json(json.clone())).into_response(),
    }
}

/// A CVM as lists and details of version 2026-01-21 show it.
pub(crate) fn cvm(name: &str, status: &str) -> Value {
    json!({
        "id": CvmId(7), "name": name, "status": status,
        "app_id": "6f809b3214eb9a69571ad008289d9551fa9a4272",
        "vm_uuid": "0b9f6b0e-3a52-4f0a-9a43-0c9a4a6f2b11", "instance_id": null,
        "resource": { "instance_type": "tdx.small", "vcpu": 1, "memory_in_gb": 2.0, "disk_in_gb": 20, "gpus": 0,
            "compute_billing_price": "0.00", "billing_period": "skip" },
        "node_info": { "object_type": "node", "id": 1, "node_id": 1, "name": "local", "region": "local",
            "device_id": null, "ppid": null, "status": "ONLINE", "version": "0.1.0" },
        "os": { "name": "cloister-0.1.0", "version": "0.1.0", "is_dev": false, "os_image_hash": null },
        "kms_type": null, "kms_info": null, "in_progress": false, "progress": null,
        "compose_hash": "e14ea3f94504ead2613eda46ed3dc3f29747a2007a7fa6fd560725d6a123f87b",
        "docker_compose_hash": null, "pre_launch_script_hash": null,
        "gateway": { "base_domain": "apps.localhost", "cname": null },
        "logs": { "serial": null, "stdout": null, "stderr": null, "container_log_base": null }, "services": [],
        "endpoints": [{ "app": "http://6f809b3214eb9a69571ad008289d9551fa9a4272.apps.localhost:8780", "instance": "" }],
        "public_logs": false, "public_sysinfo": false, "public_tcbinfo": true, "gateway_enabled": true,
        "secure_time": false, "storage_fs": "zfs", "workspace": null, "creator": null,
        "created_at": "2026-11-21T04:38:34.123Z", "deleted_at": null, "listed": false, "project_type": null,
    })
}

/// A CVM as changes answer it.
pub(crate) fn vm(name: &str, status: &str) -> Value {
    json!({
        "id": 7, "name": name, "status": status, "teepod_id": 1, "teepod": { "id": 1, "name": "local" },
        "user_id": 1, "app_id": "6f809b3214eb9a69571ad008289d9551fa9a4272", "vm_uuid": null, "instance_id": null,
        "app_url": null, "base_image": "cloister-0.1.0", "vcpu": 1, "memory": 2048, "disk_size": 20,
        "manifest_version": 2, "version": "1.0.0", "runner": "docker-compose", "docker_compose_file": null,
        "features": [], "created_at": "2026-11-21T04:38:34.123Z", "encrypted_env_pubkey": null,
    })
}

/// One event of a state stream.
pub(crate) fn state(event: &str, status: &str, in_progress: bool, more: &Value) -> String {
    format!("event: {event}\ndata: {}\n\n", state_of_hello(status, in_progress, more))
}

/// The state of `hello`.
pub(crate) fn state_of_hello(status: &str, in_progress: bool, more: &Value) -> Value {
    let mut state = json!({ "id": "0b9f6b0e-3a52-4f0a-9a43-0c9a4a6f2b11", "name": "hello", "status": status,
        "vm_uuid": "0b9f6b0e-3a52-4f0a-9a43-0c9a4a6f2b11", "in_progress": in_progress });
    state.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    state
}
