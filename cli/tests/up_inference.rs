//! The inference gateway of `cloister up`, as a person uses it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use reqwest::Client;
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::bare;
use crate::up::{Up, command, eventually, has_qemu, is_alive};

const PART: &str = "inference-gateway";

fn data_dir(home: &TempDir) -> PathBuf {
    home.path().join(".local/share/cloister")
}

fn client() -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().tls_certs_only([]).build().unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

/// A question of whoever has the key file; the answer's receipt id.
async fn ask(home: &TempDir, up: &Up, words: &str) -> String {
    let inference = &up.document["inference"];
    let key = fs::read_to_string(text(&inference["key_file"])).unwrap();
    let messages = json!([{ "role": "user", "content": words }]);
    let request = json!({ "model": inference["model"], "messages": messages }).to_string();
    let url = format!("{}/chat/completions", text(&inference["base_url"]));
    let answer = client().post(url).bearer_auth(key.trim()).body(request.clone()).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let id = answer.headers()["x-receipt-id"].to_str().unwrap().to_owned();
    let body = answer.bytes().await.unwrap();
    let said: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(said["choices"][0]["message"]["content"], *words);
    fs::write(home.path().join("request.json"), request).unwrap();
    fs::write(home.path().join("answer.json"), body).unwrap();
    id
}

/// What does not hold of the receipt of the last question, judged with the cloud's own root; `None` if there is none.
fn refuted(home: &TempDir, up: &Up, id: &str) -> Option<Vec<String>> {
    let inference = &up.document["inference"];
    let line = format!(
        "--json verify receipt {id} --url {} --key-file {} --request request.json --response answer.json",
        text(&inference["base_url"]).trim_end_matches("/v1"),
        text(&inference["key_file"]),
    );
    let mut command = bare(home, &line);
    command.env("CLOISTER_DEVELOPMENT_ROOT", data_dir(home).join("control-plane/development-root.pem"));
    let verdict: Value = serde_json::from_slice(&command.output().unwrap().stdout).ok()?;
    assert_eq!(verdict["evidence"]["verified"], true, "{verdict:#}");
    let named = |outcome: &str| {
        let checks = verdict["checks"].as_array().unwrap().iter();
        let found = checks.filter(|check| check["outcome"] == outcome);
        found.map(|check| text(&check["id"]).to_owned()).collect::<Vec<_>>()
    };
    let holding = named("holds");
    for check in ["signature", "keyset", "request", "response"] {
        assert!(holding.iter().any(|found| found == check), "{verdict:#}");
    }
    // The gateway's own name of a model is not the upstream's.
    Some(named("fails").into_iter().filter(|check| check != "unchanged").collect())
}

/// Waits until so many answered requests are shown.
fn used(home: &TempDir, requests: u64) {
    eventually("what was used is shown", || {
        let output = bare(home, "--json usage --inference").output().unwrap();
        let usage: Value = serde_json::from_slice(&output.stdout).unwrap();
        let records = usage["usage"].as_array().unwrap().iter();
        let seen: u64 = records.map(|record| record["requests"].as_u64().unwrap()).sum();
        assert!(seen <= requests, "{usage}");
        (seen == requests).then_some(())
    });
}

fn is_private(path: &Path) -> bool {
    path.metadata().unwrap().permissions().mode().trailing_zeros() >= 6
}

#[tokio::test]
async fn a_cloud_answers_with_receipts_and_goes_on_after_whatever_ends_it() {
    if !has_qemu() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let up = Up::start(&home);
    let key_file = PathBuf::from(text(&up.document["inference"]["key_file"]));
    let key = fs::read_to_string(&key_file).unwrap();
    let token = key_file.with_file_name("control-token");
    assert!(is_private(&key_file) && is_private(&token));
    assert!(fs::read_to_string(text(&up.document["inference"]["config"])).unwrap().contains("agent_socket"));

    // The receipt holds down to the evidence, and says what an echo is worth.
    let first = ask(&home, &up, "hello there").await;
    assert_eq!(refuted(&home, &up, &first).unwrap(), ["upstream"]);
    used(&home, 1);

    // Killed, it comes back with its keys and its receipts.
    let killed = up.service(PART).unwrap();
    kill_process(killed, Signal::KILL).unwrap();
    eventually("another process", || up.service(PART).filter(|pid| *pid != killed));
    assert_eq!(eventually("it answers again", || refuted(&home, &up, &first)), ["upstream"]);
    ask(&home, &up, "hello again").await;
    used(&home, 2);

    // It ends with its cloud, whether that is asked or killed, and begins again where it was.
    let process = up.service(PART).unwrap();
    assert_eq!(up.end(Signal::TERM), Some(0));
    assert!(!is_alive(process));
    let up = Up::start(&home);
    assert_eq!(fs::read_to_string(&key_file).unwrap(), key, "the key is kept");
    let second = ask(&home, &up, "and again").await;
    assert_eq!(refuted(&home, &up, &second).unwrap(), ["upstream"]);
    used(&home, 3);
    let process = up.service(PART).unwrap();
    assert_eq!(up.end(Signal::KILL), None);
    eventually("the orphan ends", || (!is_alive(process)).then_some(()));

    // A key that somebody deleted is replaced, and none of the secrets stands in a log.
    let up = Up::start(&home);
    let keys = bare(&home, "--json tokens list").output().unwrap();
    let keys: Value = serde_json::from_slice(&keys.stdout).unwrap();
    let made = keys.as_array().unwrap().iter().find(|key| key["scope"] == "inference").unwrap();
    assert!(bare(&home, &format!("tokens delete {}", text(&made["id"]))).output().unwrap().status.success());
    assert_eq!(up.end(Signal::TERM), Some(0));
    let up = Up::start(&home);
    assert_ne!(fs::read_to_string(&key_file).unwrap(), key);
    ask(&home, &up, "with another key").await;
    assert_eq!(up.end(Signal::TERM), Some(0));
    let log = fs::read_to_string(home.path().join("log")).unwrap();
    for secret in [&key, &fs::read_to_string(&key_file).unwrap(), &fs::read_to_string(token).unwrap()] {
        assert!(!log.contains(secret.trim()), "{log}");
    }
    assert!(!log.contains("hello"), "{log}");
}

#[tokio::test]
async fn a_configuration_of_the_operators_own_holds_instead_of_the_default() {
    if !has_qemu() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let up = Up::start(&home);
    let default = PathBuf::from(text(&up.document["inference"]["config"]));
    let mut config: Value = serde_json::from_slice(&fs::read(&default).unwrap()).unwrap();
    assert_eq!(up.end(Signal::TERM), Some(0));

    // As a person does: copied and changed.
    let own = default.with_file_name("gateway.json");
    config["upstreams"][0]["models"] = json!({ "mine/other": "echo" });
    config["models"] = json!([]);
    fs::write(&own, config.to_string()).unwrap();
    let up = Up::start(&home);
    let inference = &up.document["inference"];
    assert_eq!((text(&inference["config"]), &inference["model"]), (own.to_str().unwrap(), &Value::Null));
    // The ports of the start before may be others now, and with them who knows the keys.
    let url = text(&inference["base_url"]);
    assert!(url.contains(text(&config["bind"])), "{url}");
    let health = client().get(format!("{}/health", url.trim_end_matches("/v1"))).send().await.unwrap();
    assert_eq!(health.status(), 200);
    assert_eq!(up.end(Signal::TERM), Some(0));

    // What is of no use is named before anything starts, and so is a port that is taken.
    let refused = || {
        let output = command(&home, "up").output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let _taken = std::net::TcpListener::bind(text(&config["bind"])).unwrap();
    let (code, said) = refused();
    assert_eq!(code, 5, "{said}");
    assert!(said.contains("in use") && said.contains("bind in ") && said.contains("gateway.json"), "{said}");
    fs::write(&own, "{\"upstreams\": [], \"bearer_token\": \"sk-secret\"}").unwrap();
    let (code, said) = refused();
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("gateway.json") && said.contains("bearer_token"), "{said}");
    assert!(!said.contains("sk-secret"), "{said}");
}
