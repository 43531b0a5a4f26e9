//! Changes that the owner of a contract has to allow, where no chain is at hand; journeys have a real one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use cloister_app_compose::{AppCompose, ComposeHash, Revision};
use cloister_management_api::KmsId;
use serde_json::{Value, json};

use crate::support::{Fake, bare, cvm, state, transcript};

const BEFORE: &str = "services:\n  web:\n    image: app:1\n";
const AFTER: &str = "services:\n  web:\n    image: app:2\n";
const APP: &str = "6f809b3214eb9a69571ad008289d9551fa9a4272";
const TOKEN: &str = "0b6a4a5e-5d7c-4b7e-9f0e-0c5f5b1d8f3a";
const OPERATION: &str = "00000000-0000-4000-8000-000000000007";
/// Published key of development chains.
const KEY: &str = "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80";

fn document() -> String {
    json!({ "name": "hello", "runner": "docker-compose", "manifest_version": 2,
        "docker_compose_file": BEFORE, "allowed_envs": [] })
    .to_string()
}

fn new_hash() -> ComposeHash {
    let revision = Revision { docker_compose_file: Some(AFTER.to_owned()), ..Revision::default() };
    AppCompose::parse(document().as_bytes()).unwrap().revised(&revision).unwrap().compose_hash()
}

/// What a server says that has prepared a change.
fn needed(app: &str, hash: &str) -> Value {
    let details = [
        ("compose_hash", json!(hash)),
        ("app_id", json!(app)),
        ("device_id", json!("dd".repeat(32))),
        (
            "kms_info",
            json!({ "id": KmsId(1), "slug": "contract", "url": "https://kms", "version": "1", "chain_id": 31337,
                "kms_contract_address": format!("0x{}", "aa".repeat(20)), "gateway_app_id": null }),
        ),
        ("commit_token", json!(TOKEN)),
        ("commit_url", json!("https://cloud.example/commit")),
        (
            "onchain_status",
            json!({ "compose_hash_allowed": false, "device_id_allowed": true, "is_allowed": false }),
        ),
    ];
    let details = details.map(|(field, value)| json!({ "field": field, "value": value }));
    json!({ "error_code": "ERR-01-005", "message": "not allowed", "details": details,
        "suggestions": ["Do as the server says"], "request_id": "req-1" })
}

/// A server with the CVM `hello`, which answers the change with 465.
fn server(app: &str, hash: &str) -> Fake {
    let mut detail = cvm("hello", "running");
    detail["compose_hash"] = json!(ComposeHash::of(document().as_bytes()));
    let id = detail["id"].as_str().unwrap().to_owned();
    let fake = Fake::start()
        .on("GET /cvms/hello", 200, detail.clone())
        .on(&format!("GET /cvms/{id}"), 200, detail)
        .on(&format!("GET /cvms/{id}/compose_file"), 200, json!(document()))
        .on(&format!("PATCH /cvms/{id}"), 465, needed(app, hash));
    fs::write(fake.home.path().join("new.yaml"), AFTER).unwrap();
    fake
}

#[test]
fn whoever_cannot_allow_a_change_is_told_who_can_and_how() {
    let hash = new_hash().to_string();
    let fake = server(APP, &hash);
    let shown = fake.run("update hello -c new.yaml");
    assert!(shown.contains("--- exit 9"), "{shown}");
    assert!(shown.contains(&format!("addComposeHash(0x{hash})")), "{shown}");
    assert!(shown.contains(&format!("data 0xdfc77223{hash}")), "for wallets of several people: {shown}");
    assert!(shown.contains(&format!("cloister commit hello --token {TOKEN}")), "{shown}");
    assert!(!shown.contains("addDevice"), "the device is allowed: {shown}");
    let asked = fake.seen().pop().unwrap();
    assert_eq!(asked.compose_hash, Some(hash), "the hash that was computed here");
}

#[test]
fn what_the_server_would_like_to_be_allowed_is_not_passed_on() {
    let (hash, other) = (new_hash().to_string(), "ee".repeat(32));
    for (app, hash) in [(APP, &other), (&*"11".repeat(20), &hash)] {
        let shown = server(app, hash).run("update hello -c new.yaml --yes");
        assert!(shown.contains("--- exit 8") && shown.contains("do not allow it"), "{shown}");
        assert!(!shown.contains("0xdfc77223"), "{shown}");
    }
}

#[test]
fn a_token_carries_the_change_out_once_it_is_allowed() {
    let refused = json!({ "error_code": "ERR-01-008", "message": "not allowed yet", "request_id": "req-1" });
    let id = cvm("hello", "running")["id"].as_str().unwrap().to_owned();
    let fake = server(APP, &new_hash().to_string())
        .on("POST /cvms/hello/commit-update", 468, refused)
        .on(
            "POST /cvms/hello/commit-update",
            202,
            json!({ "correlation_id": OPERATION, "status": "in_progress" }),
        )
        .on("GET /cvms/hello/state", 200, json!(state("complete", "running", false, &json!({}))))
        .on("GET /cvms/hello/operations", 200, json!({ "items": [], "next_cursor": null, "limit": 20 }));
    assert!(!id.is_empty());
    let early = fake.run(&format!("commit hello --token {TOKEN}"));
    assert!(early.contains("--- exit 9") && early.contains("not allowed yet"), "{early}");
    let transaction = format!("0x{}", "12".repeat(32));
    let done = fake.run(&format!("commit hello --token {TOKEN} --transaction {transaction} --no-wait"));
    assert!(done.contains("--- exit 0"), "{done}");
    let commits: Vec<Value> =
        fake.seen().into_iter().filter(|seen| seen.line.contains("commit")).map(|seen| seen.body).collect();
    assert_eq!(commits[0], json!({ "token": TOKEN, "transaction_hash": "already-registered" }));
    assert_eq!(commits[1]["transaction_hash"], *transaction);
}

#[test]
fn secrets_are_neither_arguments_nor_repeated() {
    let home = tempfile::tempdir().unwrap();
    let run = |line: &str| transcript(line, &bare(&home, line).output().unwrap());
    let change = format!("chain allow-hash {APP} {}", "ab".repeat(32));
    let with_key = run(&format!("{change} --rpc-url https://chain.example/v2/API-KEY --chain-id 1"));
    assert!(with_key.contains("--- exit 2") && with_key.contains("--rpc-file"), "{with_key}");

    fs::write(home.path().join("endpoints"), "https://chain.example/v2/API-KEY\n").unwrap();
    fs::write(home.path().join("key"), KEY).unwrap();
    let readable = run(&format!("{change} --rpc-file endpoints --chain-id 1"));
    assert!(readable.contains("--- exit 2") && readable.contains("chmod 600 endpoints"), "{readable}");
    fs::set_permissions(home.path().join("endpoints"), fs::Permissions::from_mode(0o600)).unwrap();
    let readable = run(&format!("{change} --rpc-file endpoints --chain-id 1 --key-file key"));
    assert!(readable.contains("--- exit 2") && readable.contains("chmod 600 key"), "{readable}");
    let nobody = run(&format!("{change} --rpc-file endpoints --chain-id 1"));
    assert!(nobody.contains("--- exit 2") && nobody.contains("who signs?"), "{nobody}");
    fs::set_permissions(home.path().join("key"), fs::Permissions::from_mode(0o600)).unwrap();
    let unasked = run(&format!("{change} --rpc-file endpoints --chain-id 1 --key-file key"));
    assert!(unasked.contains("--- exit 2") && unasked.contains("--yes"), "nothing is sent unseen: {unasked}");
    for shown in [readable, nobody, unasked] {
        assert!(!shown.contains("API-KEY") && !shown.contains(KEY), "{shown}");
    }
}

#[test]
fn what_somebody_else_has_to_send_is_printed_without_any_chain() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("endpoints"), "https://chain.example/\n").unwrap();
    fs::set_permissions(home.path().join("endpoints"), fs::Permissions::from_mode(0o600)).unwrap();
    let hash = "ab".repeat(32);
    let line =
        format!("--json chain allow-hash {APP} {hash} --calldata --rpc-file endpoints --chain-id 8453");
    let output = bare(&home, &line).output().unwrap();
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(printed["chain_id"], 8453);
    assert_eq!(printed["transactions"][0]["data"], format!("0xdfc77223{hash}"));
    let to = printed["transactions"][0]["to"].as_str().unwrap();
    assert_eq!(to.to_lowercase(), format!("0x{APP}"));
}
