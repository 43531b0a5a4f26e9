//! Sealed environments: what is read, whose key is believed, and what leaves the machine.

use std::fs;

use cloister_app_compose::AppId;
use cloister_key_derivation::RootSecrets;
use cloister_management_api::KmsId;
use serde_json::{Value, json};

use crate::support::{Fake, cvm, transcript, vm};

const APP: &str = "6f809b3214eb9a69571ad008289d9551fa9a4272";
const SECRET: &str = "correct horse battery staple";
const FILE: &str = "# credentials\nAPI_KEY='correct horse battery staple'\nexport LEVEL=debug\n";
const LINE: &str = "deploy -c hello/compose.yaml --no-wait --env-file hello/secrets.env";

fn root(seed: u8) -> RootSecrets {
    RootSecrets::from_bytes(&[seed; 32], &[seed + 1; 32]).unwrap()
}

fn k256(root: &RootSecrets) -> String {
    hex::encode(root.k256_public())
}

/// The answer of a KMS with this root.
fn pubkey(root: &RootSecrets) -> Value {
    let app: AppId = APP.parse().unwrap();
    let key = root.env_public_key(&app).unwrap();
    let signature = root.sign_env_public_key(&app, &key, None);
    json!({ "public_key": hex::encode(key), "signature": hex::encode(signature) })
}

/// What the environment is that was sealed to the application under this root.
fn opened(root: &RootSecrets, sealed: &Value) -> String {
    let secret = root.env_key(&APP.parse().unwrap()).unwrap();
    let blob = hex::decode(sealed.as_str().unwrap()).unwrap();
    String::from_utf8(cloister_sealed_env::open(&secret, &blob).unwrap().to_vec()).unwrap()
}

/// A server that takes every document as it is, and a home with an application and its variables.
fn cloud(root: &RootSecrets) -> Fake {
    let fake = Fake::start()
        .echoing_provisions(json!({ "id": KmsId(1), "slug": "local", "url": "https://10.0.2.2:12001",
            "version": "0.1.0", "chain_id": null, "kms_contract_address": null, "gateway_app_id": null }))
        .on(&format!("GET /kms/{}/pubkey/{APP}", KmsId(1)), 200, pubkey(root))
        .on("POST /cvms", 200, vm("hello", "creating"));
    home(fake)
}

fn home(fake: Fake) -> Fake {
    let directory = fake.home.path().join("hello");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("compose.yaml"), "services:\n  web:\n    image: hello\n").unwrap();
    fs::write(directory.join("secrets.env"), FILE).unwrap();
    fake
}

fn info(roots: &Value) -> Value {
    json!({ "id": KmsId(1), "slug": "local", "endpoint": "", "kms_type": "phala", "db_version": "0.1.0",
        "rpc": { "version": "0.1.0", "is_dev": true, "chain_id": null, "kms_contract_address": null,
            "gateway_app_id": null, "version_synced": true, "roots": roots,
            "bootstrap_info": { "k256_pubkey": "", "ca_pubkey": "", "quote_length": 0, "eventlog_length": 0 } },
        "rpc_error": null, "guest_agent": null, "guest_agent_error": null, "teepods": [], "on_chain": null })
}

fn entry(version: u32, root: &RootSecrets, signature: Option<&[u8]>) -> Value {
    json!({ "version": version, "k256_pubkey": k256(root), "ca_pubkey": hex::encode(root.ca_public_key_der()),
        "created_at": "2026-11-21T10:00:00Z", "predecessor_signature": signature.map(hex::encode) })
}

#[test]
fn an_environment_is_sealed_to_the_application_and_its_names_are_measured() {
    let root = root(1);
    let fake = cloud(&root);
    let shown = fake.run(LINE).replace(fake.home.path().to_str().unwrap(), "HOME");
    insta::assert_snapshot!(shown.replace(&k256(&root), "ROOT"));
    let seen = fake.seen();
    assert_eq!(seen[0].body["compose_file"]["allowed_envs"], json!(["API_KEY", "LEVEL"]));
    let create = seen.last().unwrap();
    assert_eq!(create.line, "POST /cvms");
    assert_eq!(
        opened(&root, &create.body["encrypted_env"]),
        r#"{"env":[{"key":"API_KEY","value":"correct horse battery staple"},{"key":"LEVEL","value":"debug"}]}"#
    );
    let everything = format!("{seen:?}{shown}");
    assert!(!everything.contains(SECRET) && !everything.contains(&hex::encode(SECRET)));
}

#[test]
fn a_variable_of_the_command_itself_may_be_named_but_not_given() {
    let root = root(1);
    let fake = cloud(&root);
    let line = "deploy -c hello/compose.yaml --no-wait -e API_KEY";
    let output = fake.command(line).env("API_KEY", SECRET).output().unwrap();
    assert!(output.status.success(), "{}", transcript(line, &output));
    assert!(opened(&root, &fake.seen().last().unwrap().body["encrypted_env"]).contains(SECRET));
    fs::write(fake.home.path().join("hello/bad.env"), "API_KEY=it's a secret\n").unwrap();
    fs::write(fake.home.path().join("hello/taking.env"), "LD_PRELOAD=/tmp/x.so\n").unwrap();
    let before = fake.seen().len();
    let lines = [
        "deploy -c hello/compose.yaml -e API_KEY=secret",
        "deploy -c hello/compose.yaml -e MISSING",
        "deploy -c hello/compose.yaml --env-file missing.env",
        "deploy -c hello/compose.yaml --env-file hello/bad.env",
        "deploy -c hello/compose.yaml --env-file hello/taking.env",
        "deploy -c hello/compose.yaml --env-file hello/secrets.env --kms-root 02ab",
    ];
    insta::assert_snapshot!(lines.map(|line| fake.run(line)).concat());
    assert_eq!(fake.seen().len(), before, "nothing was sent");
}

#[test]
fn the_first_root_is_remembered_and_another_one_refused() {
    let (first, other) = (root(1), root(7));
    let fake = cloud(&first).on(&format!("GET /kms/{}/pubkey/{APP}", KmsId(1)), 200, pubkey(&other)).on(
        &format!("GET /kms/{}/info", KmsId(1)),
        200,
        info(&json!([entry(1, &other, None)])),
    );
    assert!(fake.run(LINE).ends_with("--- exit 0\n"));
    let refused = fake.run(LINE).replace(&k256(&first), "FIRST").replace(&k256(&other), "OTHER");
    insta::assert_snapshot!(refused);
    assert_eq!(fake.seen().iter().filter(|seen| seen.line == "POST /cvms").count(), 1);

    // Who says which root is right is believed, from then on.
    let wrong = fake.run(&format!("{LINE} --kms-root {}", k256(&root(9))));
    assert!(wrong.ends_with("--- exit 8\n"), "{wrong}");
    let named = fake.run(&format!("{LINE} --kms-root {}", k256(&other)));
    assert!(named.ends_with("--- exit 0\n"), "{named}");
    assert!(fake.run(LINE).ends_with("--- exit 0\n"));
}

/// The document keeps a guest from other KMSes, and cannot keep what was sealed to one of them.
#[test]
fn who_names_the_kms_in_the_document_seals_to_no_unknown_root() {
    let root = root(1);
    let roots = info(&json!([entry(1, &root, None)]));
    let fake = cloud(&root).on(&format!("GET /kms/{}/info", KmsId(1)), 200, roots);
    let authority = format!("3059301306072a8648ce3d020106082a8648ce3d03010703420004{}", "ab".repeat(64));
    let line = format!("{LINE} --key-provider-id {authority}");
    // A root that was taken at its word is none that was named.
    assert!(fake.run(LINE).ends_with("--- exit 0\n"));
    let before = fake.seen().len();
    let refused = fake.run(&line);
    assert!(refused.ends_with("--- exit 8\n") && refused.contains("--kms-root"), "{refused}");
    assert_eq!(fake.seen().len(), before, "nothing was asked for");
    let wrong = fake.run(&format!("{line} --kms-root {}", k256(&self::root(9))));
    assert!(wrong.ends_with("--- exit 8\n"), "{wrong}");
    assert!(fake.run(&format!("{line} --kms-root {}", k256(&root))).ends_with("--- exit 0\n"));
}

/// An operator with two KMSes cannot show one of them for an application of the other.
#[test]
fn every_application_stays_with_its_kms_among_several() {
    const OTHER: &str = "11aa9b3214eb9a69571ad008289d9551fa9a4272";
    let (first, second) = (root(1), root(7));
    let key = |root: &RootSecrets, app: &str| {
        let app: AppId = app.parse().unwrap();
        let key = root.env_public_key(&app).unwrap();
        let signature = root.sign_env_public_key(&app, &key, None);
        json!({ "public_key": hex::encode(key), "signature": hex::encode(signature) })
    };
    let mut fake = Fake::start()
        .on("GET /kms/phala/info", 200, info(&json!([entry(1, &second, None)])))
        .on("PATCH /cvms/alpha/envs", 202, accepted())
        .on("PATCH /cvms/bravo/envs", 202, accepted());
    for (name, app) in [("alpha", APP), ("bravo", OTHER)] {
        let mut detail = cvm(name, "running");
        detail["app_id"] = json!(app);
        detail["compose_file"] = json!({ "allowed_envs": ["API_KEY", "LEVEL"] });
        fake = fake.on(&format!("GET /cvms/{name}"), 200, detail);
    }
    let path = |app: &str| format!("GET /kms/phala/pubkey/{app}");
    // In this order: alpha and bravo, alpha again, then alpha with the root of bravo's KMS.
    let fake = home(fake)
        .on(&path(APP), 200, key(&first, APP))
        .on(&path(OTHER), 200, key(&second, OTHER))
        .on(&path(OTHER), 200, key(&second, OTHER))
        .on(&path(APP), 200, key(&first, APP))
        .on(&path(APP), 200, key(&second, APP));
    let line = |name: &str| format!("cvms envs {name} --env-file hello/secrets.env --no-wait");
    assert!(fake.run(&line("alpha")).ends_with("--- exit 0\n"), "the first root of the server");
    let unknown = fake.run(&line("bravo"));
    assert!(unknown.ends_with("--- exit 8\n") && unknown.contains("--kms-root"), "{unknown}");
    let named = fake.run(&format!("{} --kms-root {}", line("bravo"), k256(&second)));
    assert!(named.ends_with("--- exit 0\n"), "{named}");
    assert!(fake.run(&line("alpha")).ends_with("--- exit 0\n"), "both roots are known");
    let swapped = fake.run(&line("alpha"));
    assert!(swapped.ends_with("--- exit 8\n") && swapped.contains(&k256(&first)), "{swapped}");
    let patches = fake.seen().into_iter().filter(|seen| seen.line.starts_with("PATCH ")).count();
    assert_eq!(patches, 3);
}

/// A root that was taken at its word once does not do when the document has come to name the KMS.
#[test]
fn an_application_whose_document_names_the_kms_is_never_sealed_to_a_root_that_is_only_kept() {
    let root = root(1);
    let detail = |key_provider_id: &str| {
        let mut detail = cvm("alpha", "running");
        detail["app_id"] = json!(APP);
        detail["compose_file"] =
            json!({ "allowed_envs": ["API_KEY", "LEVEL"], "key_provider_id": key_provider_id });
        detail
    };
    let fake = home(Fake::start())
        .on("GET /cvms/alpha", 200, detail(""))
        .on("GET /cvms/alpha", 200, detail("3059"))
        .on(&format!("GET /kms/phala/pubkey/{APP}"), 200, pubkey(&root))
        .on("PATCH /cvms/alpha/envs", 202, accepted());
    let line = "cvms envs alpha --env-file hello/secrets.env --no-wait";
    assert!(fake.run(line).ends_with("--- exit 0\n"), "it is kept from now on");
    let refused = fake.run(line);
    assert!(refused.ends_with("--- exit 8\n") && refused.contains("--kms-root"), "{refused}");
    assert!(fake.run(&format!("{line} --kms-root {}", k256(&root))).ends_with("--- exit 0\n"));
    let patches = fake.seen().into_iter().filter(|seen| seen.line.starts_with("PATCH ")).count();
    assert_eq!(patches, 2);
}

#[test]
fn whoever_names_a_contract_gets_no_application_without_one() {
    let fake = cloud(&root(1));
    let address = format!("0x{}", "aa".repeat(20));
    for options in [
        format!("--kms local --app {APP}"),
        format!("--rpc-url https://chain.example --chain-id 1 --kms-contract {address}"),
        "--key-file owner.key".to_owned(),
    ] {
        let shown = fake.run(&format!("{LINE} {options}"));
        assert!(shown.ends_with("--- exit 8\n") && shown.contains("nothing was created"), "{shown}");
    }
    assert!(fake.seen().iter().all(|seen| seen.line == "POST /cvms/provision"), "no secret was sealed");
}

#[test]
fn a_root_that_the_trusted_one_signed_is_its_successor() {
    let (first, second) = (root(1), root(7));
    let by_first = first.sign_successor(2, second.public());
    let roots = json!([entry(1, &first, None), entry(2, &second, Some(&by_first))]);
    let fake = cloud(&second).on(&format!("GET /kms/{}/info", KmsId(1)), 200, info(&roots));
    let shown = fake.run(&format!("{LINE} --kms-root {}", k256(&first)));
    assert!(shown.ends_with("--- exit 0\n"), "{shown}");
    assert!(opened(&second, &fake.seen().last().unwrap().body["encrypted_env"]).contains(SECRET));

    // Signed by somebody else.
    let by_other = root(9).sign_successor(2, second.public());
    let forged = json!([entry(1, &first, None), entry(2, &second, Some(&by_other))]);
    let fake = cloud(&second).on(&format!("GET /kms/{}/info", KmsId(1)), 200, info(&forged));
    assert!(fake.run(&format!("{LINE} --kms-root {}", k256(&first))).ends_with("--- exit 8\n"));
}

/// Where a server has several KMSes, the successor is looked for at that of the application.
#[test]
fn the_successor_of_an_applications_own_root_is_asked_for() {
    let (first, second) = (root(1), root(7));
    let by_first = first.sign_successor(2, second.public());
    let roots = json!([entry(1, &first, None), entry(2, &second, Some(&by_first))]);
    let mut detail = cvm("hello", "running");
    detail["app_id"] = json!(APP);
    detail["compose_file"] = json!({ "allowed_envs": ["API_KEY", "LEVEL"] });
    let fake = home(
        Fake::start()
            .on("GET /cvms/hello", 200, detail)
            .on(&format!("GET /kms/phala/pubkey/{APP}"), 200, pubkey(&second))
            .on("GET /kms/phala/info", 200, info(&roots))
            .on("PATCH /cvms/hello/envs", 202, accepted()),
    );
    let line = format!("cvms envs hello --env-file hello/secrets.env --no-wait --kms-root {}", k256(&first));
    let shown = fake.run(&line);
    assert!(shown.ends_with("--- exit 0\n") && shown.contains("has a successor"), "{shown}");
    let asked = fake.seen().into_iter().find(|seen| seen.line.contains("/info")).unwrap();
    assert_eq!(asked.line, format!("GET /kms/phala/info?app_id={APP}"));
}

#[test]
fn a_server_without_a_kms_gets_no_environment() {
    let fake = home(Fake::start().echoing_provisions(Value::Null));
    insta::assert_snapshot!(fake.run(LINE));
    assert_eq!(fake.seen().len(), 1);
}

fn accepted() -> Value {
    json!({ "status": "in_progress", "message": "The environment is being replaced",
        "correlation_id": "0b9f6b0e-3a52-4f0a-9a43-0c9a4a6f2b11", "allowed_envs_changed": false })
}

#[test]
fn an_environment_is_replaced_as_a_whole() {
    let root = root(1);
    let mut detail = cvm("hello", "running");
    detail["app_id"] = json!(APP);
    detail["compose_file"] = json!({ "allowed_envs": ["API_KEY", "LEVEL", "MORE"] });
    let fake = home(
        Fake::start()
            .on("GET /cvms/hello", 200, detail)
            .on(&format!("GET /kms/phala/pubkey/{APP}"), 200, pubkey(&root))
            .on("PATCH /cvms/hello/envs", 202, accepted()),
    );
    let line = format!("cvms envs hello --env-file hello/secrets.env --no-wait --kms-root {}", k256(&root));
    fs::write(fake.home.path().join("hello/foreign.env"), "OTHER=1\n").unwrap();
    let shown = [
        fake.run(&line),
        fake.run("cvms envs hello --env-file hello/foreign.env"),
        fake.run("cvms envs hello"),
    ];
    insta::assert_snapshot!(shown.concat().replace(&k256(&root), "ROOT"));
    let patch = fake.seen().into_iter().find(|seen| seen.line == "PATCH /cvms/hello/envs").unwrap();
    assert!(opened(&root, &patch.body["encrypted_env"]).contains(SECRET));
    assert_eq!(patch.body.as_object().unwrap().len(), 1, "names that stay the same are not sent");
}
