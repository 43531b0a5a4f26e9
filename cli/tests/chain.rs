//! Changes that the owner of a contract has to allow, where no chain is at hand; journeys have a real one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use cloister_chain::Clock;
use cloister_development_chain::{Config, DevelopmentChain};
use cloister_management_api::{KmsId, RevisionId, RolloutId};
use serde_json::{Value, json};

use crate::change::{self, OPERATION, new_hash, present_hash};
use crate::support::{Fake, bare, cvm, state, transcript};

const APP: &str = "6f809b3214eb9a69571ad008289d9551fa9a4272";
const TOKEN: &str = "0b6a4a5e-5d7c-4b7e-9f0e-0c5f5b1d8f3a";
/// Published key of development chains.
const KEY: &str = "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80";

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
    change::server(&present_hash(), 465, needed(app, hash))
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
    let fake = server(APP, &new_hash().to_string())
        .on("POST /cvms/hello/commit-update", 468, refused)
        .on(
            "POST /cvms/hello/commit-update",
            202,
            json!({ "correlation_id": OPERATION, "status": "in_progress" }),
        )
        .on("GET /cvms/hello/state", 200, json!(state("complete", "running", false, &json!({}))))
        .on("GET /cvms/hello/operations", 200, json!({ "items": [], "next_cursor": null, "limit": 20 }));
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

/// A server whose application has the CVM `hello` only, and which answers the rollouts in this order.
fn with_rollouts(answers: &[(u16, Value)]) -> Fake {
    let fake = server(APP, &new_hash().to_string());
    let fake = fake.on(&format!("GET /apps/{APP}/cvms"), 200, json!([cvm("hello", "running")]));
    let line = format!("POST /apps/{APP}/rollouts");
    answers.iter().fold(fake, |fake, (status, body)| fake.on(&line, *status, body.clone()))
}

/// What a server says of a rollout that is not allowed: as of a change, but nothing is kept.
fn needed_for_rollout(app: &str, hash: &str) -> Value {
    let mut answer = needed(app, hash);
    answer["details"]
        .as_array_mut()
        .unwrap()
        .retain(|detail| !detail["field"].as_str().unwrap().starts_with("commit"));
    answer
}

#[test]
fn a_rollout_that_the_owner_has_to_allow_is_told_and_not_begun() {
    let hash = new_hash().to_string();
    let fake = with_rollouts(&[(465, needed_for_rollout(APP, &hash))]);
    let shown = fake.run(&format!("rollouts start {APP} -c new.yaml"));
    assert!(shown.contains("--- exit 9"), "{shown}");
    assert!(shown.contains(&format!("addComposeHash(0x{hash})")), "{shown}");
    assert!(shown.contains(&format!("data 0xdfc77223{hash}")), "for wallets of several people: {shown}");
    assert!(shown.contains("start the rollout again") && !shown.contains("cloister commit"), "{shown}");

    let other = "ee".repeat(32);
    let fake = with_rollouts(&[(465, needed_for_rollout(APP, &other))]);
    let shown = fake.run(&format!("rollouts start {APP} -c new.yaml --yes"));
    assert!(shown.contains("--- exit 8") && !shown.contains("0xdfc77223"), "{shown}");
}

#[test]
fn the_transaction_that_allowed_several_cvms_is_passed_on() {
    let rollout = json!({ "rollout_id": RolloutId(5), "app_id": APP, "state": "running", "members": [],
        "reason": null, "on_failure": "roll_back", "max_unavailable": 1, "triggered_by": null,
        "created_at": "2026-11-21T04:38:34.123Z", "updated_at": "2026-11-21T04:38:34.123Z", "completed_at": null });
    let redeployed =
        json!({ "status": "in_progress", "message": "", "correlation_id": "", "rollout_id": RolloutId(5) });
    let path = format!("POST /apps/{APP}/revisions/rev_1/redeploy");
    let fake = with_rollouts(&[(202, rollout)]).on(&path, 202, redeployed);
    let transaction = format!("0x{}", "12".repeat(32));
    let options = format!("--transaction {transaction} --no-wait");
    let shown = fake.run(&format!("rollouts start {APP} -c new.yaml {options}"));
    assert!(shown.contains("--- exit 0"), "{shown}");
    assert_eq!(fake.seen().pop().unwrap().transaction.as_ref(), Some(&transaction));
    let shown = fake.run(&format!("revisions redeploy {APP} rev_1 {options}"));
    assert!(shown.contains("--- exit 0"), "{shown}");
    assert_eq!(fake.seen().pop().unwrap().line, format!("{path}?transaction_hash={transaction}"));
}

#[test]
fn whoever_names_a_contract_gives_no_environment_to_another_kms() {
    let mut detail = cvm("hello", "running");
    detail["compose_file"] = json!({ "allowed_envs": ["API_KEY"] });
    let fake = server(APP, &new_hash().to_string()).on("GET /cvms/other", 200, detail);
    let fake = fake.on(&format!("GET /apps/{APP}/cvms"), 200, json!([cvm("hello", "running")]));
    fs::write(fake.home.path().join("secrets.env"), "API_KEY=planted-secret\n").unwrap();
    let contract =
        format!("--rpc-url https://chain.example --chain-id 1 --kms-contract 0x{}", "aa".repeat(20));
    for command in ["cvms envs other", &format!("rollouts start {APP}")] {
        let shown = fake.run(&format!("{command} --env-file secrets.env {contract}"));
        assert!(shown.contains("--- exit 8") && shown.contains("nothing was sealed"), "{shown}");
    }
    assert!(fake.seen().iter().all(|seen| seen.line.starts_with("GET ")), "{:?}", fake.seen());
}

#[test]
fn what_a_contract_allows_is_shown_of_what_the_server_knows() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let node = runtime.block_on(DevelopmentChain::start(Config::default(), Clock::system())).unwrap();
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("key"), KEY).unwrap();
    fs::set_permissions(home.path().join("key"), fs::Permissions::from_mode(0o600)).unwrap();
    let chain =
        format!("--rpc-url {} --chain-id 31337 --kms-contract {}", node.rpc_url(), node.kms_contract());
    let (hash, device) = ("ab".repeat(32), "cd".repeat(32));
    let line = format!("chain deploy-app --hash {hash} --device {device} --key-file key --yes {chain}");
    let output = bare(&home, &line).output().unwrap();
    assert!(output.status.success(), "{}", transcript(&line, &output));
    let app = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    let id = app.trim_start_matches("0x").to_lowercase();

    let revision = |number: i64, hash: &str| {
        json!({ "app_id": id, "vm_uuid": "0b9f6b0e-3a52-4f0a-9a43-0c9a4a6f2b11", "workspace": null, "compose_hash": hash, "revision_id": RevisionId(number),
            "created_at": "2026-11-21T04:38:34.123Z", "operation_type": "create", "triggered_by": null,
            "trace_id": null, "cvm": null, "state": "superseded" })
    };
    let (other, unknown) = ("11".repeat(32), "22".repeat(32));
    let revisions = [revision(3, &hash), revision(2, &other), revision(1, &hash)];
    let device_of = |id: &str, node: &str| json!({ "device_id": id, "node_name": node, "cvm_ids": [], "allowed_onchain": true, "status": "allowed" });
    // Of the second device the server says what is not so.
    let devices = [device_of(&device, "one"), device_of(&other, "two")];
    let fake = Fake::start()
        .on(
            &format!("GET /apps/{id}/revisions"),
            200,
            json!({ "revisions": revisions, "total": 3, "page": 1, "page_size": 1000, "total_pages": 1 }),
        )
        .on(
            &format!("GET /apps/{id}/device-allowlist"),
            200,
            json!({ "is_onchain_kms": true, "allow_any_device": false, "chain_id": 31337,
                "app_contract_address": app, "devices": devices }),
        );
    let line = format!("--json chain show {app} --hash {unknown} --known {chain}");
    let output = fake.command(&line).output().unwrap();
    assert!(output.status.success(), "{}", transcript(&line, &output));
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let asked = |kind: &str, value: &str, allowed: bool, known_as: Value| json!({ "kind": kind, "value": format!("0x{value}"), "allowed": allowed, "known_as": known_as });
    let (third, second) = (RevisionId(3).to_string(), RevisionId(2).to_string());
    let expected = json!([
        asked("document", &unknown, false, Value::Null),
        asked("document", &hash, true, json!(third)),
        asked("document", &other, false, json!(second)),
        asked("device", &device, true, json!("one")),
        asked("device", &other, false, json!("two")),
    ]);
    assert_eq!(shown["asked"], expected);
    let table = fake.run(&format!("chain show {app} --known {chain}"));
    assert!(table.contains("(an account)") && table.contains("two"), "{table}");
    let unasked = bare(&home, &format!("chain show {app} --hash {hash} {chain}")).output().unwrap();
    assert!(unasked.status.success(), "without the flag no server is needed");
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
