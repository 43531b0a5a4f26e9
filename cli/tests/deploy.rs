//! From a compose file to a running CVM.

use std::fs;

use cloister_app_compose::ComposeHash;
use cloister_app_compose::canonical::compact;
use serde_json::{Value, json};

use crate::support::{Fake, cvm, state, vm};

const COMPOSE: &str = "services:\n  web:\n    image: hello\n";
const LINE: &str = "deploy -c hello/compose.yaml --memory 2G --disk 20";

fn provision(compose_hash: &str) -> Value {
    json!({ "compose_hash": compose_hash, "app_id": "6f809b3214eb9a69571ad008289d9551fa9a4272",
        "app_env_encrypt_pubkey": null, "kms_info": null, "fmspc": null, "device_id": null, "os_image_hash": null,
        "instance_type": null, "teepod_id": 1, "node_id": 1, "kms_id": null, "kms_contract_id": null })
}

/// A home with `hello/compose.yaml`.
fn with_compose(fake: Fake) -> Fake {
    fs::create_dir_all(fake.home.path().join("hello")).unwrap();
    fs::write(fake.home.path().join("hello/compose.yaml"), COMPOSE).unwrap();
    fake
}

/// The hash of the document that the command sends, learnt by letting it send one.
fn hash_of_what_is_sent() -> String {
    let fake = with_compose(Fake::start().on("POST /cvms/provision", 400, json!({ "detail": "no" })));
    fake.run(LINE);
    let request = fake.seen().remove(0).body;
    ComposeHash::of(&compact(&request["compose_file"])).to_string()
}

#[test]
fn a_compose_file_becomes_a_running_cvm() {
    let hash = hash_of_what_is_sent();
    let stream = [
        state("state", "provisioning", true, &json!({})),
        state("state", "starting", true, &json!({ "boot_progress": "setting up docker" })),
        state("complete", "running", false, &json!({})),
    ];
    let fake = with_compose(
        Fake::start()
            .on("POST /cvms/provision", 200, provision(&hash))
            .on("POST /cvms", 200, vm("hello", "provisioning"))
            .on("GET /cvms/7/state", 200, json!(stream.concat()))
            .on("GET /cvms/7", 200, cvm("hello", "running")),
    );
    insta::assert_snapshot!([fake.run(LINE), fake.run(&format!("{LINE} --no-wait"))].concat());
    let seen = fake.seen();
    insta::assert_json_snapshot!("provision_request", seen[0].body);
    assert_eq!(seen[1].body["compose_hash"], json!(hash));
}

#[test]
fn a_document_names_the_kms_that_its_keys_come_from() {
    const HEAD: &str = "3059301306072a8648ce3d020106082a8648ce3d030107034200";
    let authority = format!("{HEAD}04{}", "ab".repeat(64));
    let fake = with_compose(Fake::start().on("POST /cvms/provision", 400, json!({ "detail": "no" })));
    let pinned = fake.run(&format!("{LINE} --key-provider-id 0x{}", authority.to_uppercase()));
    assert!(pinned.contains("exit 1"), "{pinned}");
    assert_eq!(fake.seen()[0].body["compose_file"]["key_provider_id"], json!(authority));
    // The other key of the root, and what is none.
    let root_key = format!("02{}", "ab".repeat(32));
    let (cut, long) = (authority[..authority.len() - 2].to_owned(), format!("{authority}00"));
    for text in [root_key, "3".to_owned(), "0x".to_owned(), "30".to_owned(), cut, long] {
        let refused = fake.run(&format!("{LINE} --key-provider-id {text}"));
        assert!(refused.contains("cloister kms status") && refused.contains("exit 2"), "{refused}");
    }
    assert_eq!(fake.seen().len(), 1);
}

#[test]
fn a_server_that_changes_the_document_gets_no_cvm() {
    let fake = with_compose(Fake::start().on("POST /cvms/provision", 200, provision(&"ab".repeat(32))));
    let transcript = fake.run(LINE).replace(&hash_of_what_is_sent(), "OURS");
    insta::assert_snapshot!(transcript);
    assert_eq!(fake.seen().len(), 1);
}

#[test]
fn a_name_that_is_taken_is_refused_with_a_way_out() {
    let body = json!({ "error_code": "ERR-01-004", "message": "A CVM named hello exists in this workspace.",
        "suggestions": ["Choose another name"], "request_id": "req-9" });
    let fake = with_compose(Fake::start().on("POST /cvms/provision", 409, body));
    insta::assert_snapshot!(fake.run(LINE));
}

#[test]
fn wrong_input_never_reaches_the_server() {
    let fake = with_compose(Fake::start());
    fs::write(fake.home.path().join("hello/bad.yaml"), "services: []\n").unwrap();
    fs::write(fake.home.path().join("hello/large.yaml"), "#".repeat(204_801)).unwrap();
    let lines = [
        "deploy",
        "deploy -c missing.yaml",
        "deploy -c hello/bad.yaml",
        "deploy -c hello/large.yaml",
        "deploy -c hello/compose.yaml -n abc",
        "deploy -c hello/compose.yaml --memory lots",
    ];
    insta::assert_snapshot!(lines.map(|line| fake.run(line)).concat());
    assert!(fake.seen().is_empty());
}
