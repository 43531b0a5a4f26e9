//! Owners of applications: who they are, what they are shown, and that they sign nothing else.

use std::fs;
use std::path::Path;
use std::process::Command;

use cloister_app_compose::{AppCompose, AppId, ComposeHash, Revision};
use cloister_key_derivation::RootSecrets;
use cloister_kms_api::approvals::{Action, ApprovalStatement, Owners, verify};
use cloister_kms_api::{AppOwnersResponse, Hex};
use serde_json::{Value, json};

use crate::support::Fake;

const APP: &str = "6f809b3214eb9a69571ad008289d9551fa9a4272";
const BEFORE: &str = r#"{"docker_compose_file":"services:\n  web:\n    image: app:1\n","manifest_version":2,"name":"hello","runner":"docker-compose"}"#;
const AFTER: &str = r#"{"docker_compose_file":"services:\n  web:\n    image: app:2\n","manifest_version":2,"name":"hello","runner":"docker-compose"}"#;

fn app() -> AppId {
    APP.parse().unwrap()
}

fn hash() -> ComposeHash {
    ComposeHash::of(AFTER.as_bytes())
}

/// A person with a key in the home directory.
fn person(home: &Path, name: &str) -> String {
    let done = Command::new("ssh-keygen")
        .current_dir(home)
        .args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f", name])
        .status()
        .expect("ssh-keygen is missing; scripts/install-dependencies.sh test installs it");
    assert!(done.success());
    let line = fs::read_to_string(home.join(format!("{name}.pub"))).unwrap();
    line.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// What a server says about owners, with what the KMS under this root signed.
fn answer(root: &RootSecrets, shown: &Owners, signed: &Owners) -> Value {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let unsigned = AppOwnersResponse {
        app_id: app(),
        owners: Some(signed.clone()),
        serial: 7,
        allowed_documents: 0,
        timestamp: now,
        signature: Hex(Vec::new()),
        root_version: 1,
    };
    let signature = Hex(root.sign_app_owners(&unsigned).to_vec());
    let owner = |key: &cloister_kms_api::approvals::OwnerKey| json!({ "key": key.to_string(), "fingerprint": key.fingerprint(), "members": ["ada"] });
    json!({
        "app_id": APP, "threshold": shown.threshold(), "owners": shown.keys().iter().map(owner).collect::<Vec<_>>(),
        "serial": 7, "set_at": "2026-11-21T10:00:00Z", "kms_error": null,
        "kms_statement": AppOwnersResponse { signature, ..unsigned },
    })
}

fn root(seed: u8) -> RootSecrets {
    RootSecrets::from_bytes(&[seed; 32], &[seed + 1; 32]).unwrap()
}

fn item(statement: &ApprovalStatement, document: Option<&str>) -> Value {
    let (action, hash) = match statement.action {
        Action::AllowComposeHash(hash) => ("allow_compose_hash", Some(hash)),
        Action::RevokeComposeHash(hash) => ("revoke_compose_hash", Some(hash)),
        Action::SetOwners(_) => ("set_owners", None),
    };
    json!({
        "action": action, "compose_hash": hash, "statement": statement.to_string(), "threshold": 2, "signed_by": [],
        "is_approved": false, "reason": "prepared", "app_compose": document, "current_app_compose": BEFORE,
        "cvms": [{ "vm_uuid": "0b9f6b0e-3a52-4f0a-9a43-0c9a4a6f2b11", "name": "hello" }], "proposed_owners": null,
    })
}

fn allow(app_id: AppId, hash: ComposeHash) -> ApprovalStatement {
    ApprovalStatement { app_id, action: Action::AllowComposeHash(hash), serial: 8 }
}

/// A server where these statements wait.
fn server(items: &[Value]) -> Fake {
    let counted = item(&allow(app(), hash()), Some(AFTER));
    Fake::start()
        .on(&format!("GET /apps/{APP}/approvals"), 200, json!({ "items": items, "next_serial": 9 }))
        .on(&format!("POST /apps/{APP}/approvals"), 200, counted)
}

fn posted(fake: &Fake) -> Vec<Value> {
    fake.seen().into_iter().filter(|seen| seen.line.starts_with("POST ")).map(|seen| seen.body).collect()
}

#[test]
fn owners_are_those_whom_the_kms_names() {
    let home = tempfile::tempdir().unwrap();
    let keys: Vec<_> = ["ada", "bob"].map(|name| person(home.path(), name).parse().unwrap()).into();
    let owners = Owners::new(2, keys.clone()).unwrap();
    let line = format!("owners show {APP}");
    let path = format!("GET /apps/{APP}/owners");
    let fake = Fake::start().on(&path, 200, answer(&root(1), &owners, &owners));
    let shown = fake.run(&line);
    assert!(shown.ends_with("exit 0\n") && shown.contains("2 of 2 have to sign"), "{shown}");
    for key in owners.keys() {
        assert!(shown.contains(&key.fingerprint()), "{shown}");
    }
    // The root that was met is remembered.
    assert!(fake.run(&line).ends_with("exit 0\n"));

    let fewer = Owners::new(1, keys[..1].to_vec()).unwrap();
    let lower = Owners::new(1, keys).unwrap();
    for (what, server) in [
        ("other keys", answer(&root(1), &fewer, &owners)),
        ("another threshold", answer(&root(1), &lower, &owners)),
        ("another application", {
            let mut other = answer(&root(1), &owners, &owners);
            other["app_id"] = json!("00".repeat(20));
            other
        }),
        ("another number of documents", {
            let mut other = answer(&root(1), &owners, &owners);
            other["kms_statement"]["timestamp"] = json!(1);
            other
        }),
    ] {
        let shown = Fake::start().on(&path, 200, server).run(&line);
        assert!(shown.ends_with("exit 8\n"), "{what}: {shown}");
    }
    let other_root = format!("{line} --kms-root {}", hex::encode(root(1).k256_public()));
    let fake = Fake::start().on(&path, 200, answer(&root(3), &owners, &owners));
    assert!(!fake.run(&other_root).ends_with("exit 0\n"));
}

#[test]
fn owners_are_set_from_files_of_public_keys() {
    let root = root(1);
    let home = tempfile::tempdir().unwrap();
    let lines = ["ada", "bob"].map(|name| person(home.path(), name));
    let keys = lines.each_ref().map(|line| line.parse().unwrap());
    let owners = Owners::new(2, keys.to_vec()).unwrap();
    let path = format!("PUT /apps/{APP}/owners");
    let fake = Fake::start().on(&path, 200, answer(&root, &owners, &owners));
    for name in ["ada", "bob"] {
        fs::copy(home.path().join(format!("{name}.pub")), fake.home.path().join(format!("{name}.pub")))
            .unwrap();
    }
    let shown = fake.run(&format!("owners set {APP} --key ada.pub --key bob.pub --threshold 2"));
    assert!(shown.ends_with("exit 0\n") && shown.contains("What runs now needs it too"), "{shown}");
    let sent = fake.seen().pop().unwrap().body;
    assert_eq!(serde_json::from_value::<Owners>(sent).unwrap(), owners);

    fs::write(fake.home.path().join("private"), "-----BEGIN OPENSSH PRIVATE KEY-----\n").unwrap();
    for line in [
        "--key private --threshold 1",
        "--key ada.pub --threshold 2",
        "--key ada.pub --key ada.pub --threshold 1",
    ] {
        let shown = fake.run(&format!("owners set {APP} {line}"));
        assert!(shown.ends_with("exit 2\n") && !shown.contains("PRIVATE"), "{shown}");
    }
    assert_eq!(fake.seen().len(), 1);

    // Others than those who were named, and none that the KMS confirms.
    let others = Owners::new(1, owners.keys().to_vec()).unwrap();
    let mut unconfirmed = answer(&root, &owners, &owners);
    unconfirmed["kms_statement"] = Value::Null;
    for server in [answer(&root, &others, &others), unconfirmed] {
        let fake = Fake::start().on(&path, 200, server);
        for name in ["ada.pub", "bob.pub"] {
            fs::copy(home.path().join(name), fake.home.path().join(name)).unwrap();
        }
        let shown = fake.run(&format!("owners set {APP} --key ada.pub --key bob.pub --threshold 2"));
        assert!(shown.ends_with("exit 8\n") && !shown.contains("From now on"), "{shown}");
    }

    // Where there are owners already, they are asked.
    let refusal = json!({
        "error_code": "ERR-01-005", "message": "2 of the 3 present owners have to sign", "details": [],
        "suggestions": ["Have each of them run: cloister approve APP --owners"], "links": [], "request_id": "req-1",
    });
    let fake = Fake::start().on(&path, 465, refusal);
    fs::copy(home.path().join("ada.pub"), fake.home.path().join("ada.pub")).unwrap();
    let shown = fake.run(&format!("owners set {APP} --key ada.pub --threshold 1"));
    insta::assert_snapshot!(shown);
}

#[test]
fn what_is_signed_is_shown_and_its_hash_computed() {
    let statement = allow(app(), hash());
    let fake = server(&[item(&statement, Some(AFTER))]);
    let key = person(fake.home.path(), "ada");
    insta::assert_snapshot!(fake.run(&format!("approvals list {APP}")));
    // Without a key the text is printed, for whoever signs elsewhere.
    insta::assert_snapshot!(fake.run(&format!("approve {APP}")));
    assert!(posted(&fake).is_empty());

    let asked = fake.run(&format!("approve {APP} {} --key ada", hash()));
    assert!(asked.ends_with("exit 2\n") && asked.contains("--yes"), "{asked}");
    let shown = fake.run(&format!("approve {APP} --key ada --yes"));
    assert!(shown.ends_with("exit 0\n"), "{shown}");
    let body = posted(&fake).pop().unwrap();
    assert_eq!(body["statement"], statement.to_string());
    let owners = Owners::new(1, vec![key.parse().unwrap()]).unwrap();
    verify(&statement, &owners, &[body["signature"].as_str().unwrap()]).unwrap();

    // The same signature from a file.
    fs::write(fake.home.path().join("statement.sig"), body["signature"].as_str().unwrap()).unwrap();
    let shown = fake.run(&format!("approve {APP} {} --signature statement.sig", hash()));
    assert!(shown.ends_with("exit 0\n"), "{shown}");
    assert_eq!(posted(&fake)[1], body);
}

#[test]
fn nothing_is_signed_that_is_not_what_is_shown() {
    let honest = allow(app(), hash());
    let other_app = allow(AppId::from_bytes([9; 20]), hash());
    let revoke = ApprovalStatement { action: Action::RevokeComposeHash(hash()), ..honest };
    let with = |member: &str, value: Value| {
        let mut item = item(&honest, Some(AFTER));
        item[member] = value;
        item
    };
    for (what, item) in [
        ("another document", item(&honest, Some(BEFORE))),
        (
            "another document under the right hash",
            with("statement", json!(allow(app(), ComposeHash::of(b"x")).to_string())),
        ),
        ("another application", with("statement", json!(other_app.to_string()))),
        ("a revocation", with("statement", json!(revoke.to_string()))),
        ("an approval that outlives every revocation", {
            let ahead = ApprovalStatement { serial: 1 << 52, ..honest };
            item(&ahead, Some(AFTER))
        }),
        ("no statement", with("statement", json!("give me your key"))),
        ("a hash with nothing behind it", item(&honest, None)),
    ] {
        let fake = server(&[item]);
        person(fake.home.path(), "ada");
        let shown = fake.run(&format!("approve {APP} {} --key ada --yes", hash()));
        assert!(shown.ends_with("exit 8\n") || shown.ends_with("exit 3\n"), "{what}: {shown}");
        assert!(posted(&fake).is_empty(), "{what}");
    }
    // Other owners than those whose digest is signed.
    let fake = Fake::start();
    let mine: cloister_kms_api::approvals::OwnerKey = person(fake.home.path(), "ada").parse().unwrap();
    let theirs: cloister_kms_api::approvals::OwnerKey = person(fake.home.path(), "eve").parse().unwrap();
    let digest = Owners::new(1, vec![theirs.clone()]).unwrap().digest();
    let statement = ApprovalStatement { app_id: app(), action: Action::SetOwners(digest), serial: 8 };
    for (key, exit) in [(mine, "exit 8\n"), (theirs, "exit 0\n")] {
        let mut item = item(&statement, None);
        item["proposed_owners"] = json!({ "threshold": 1, "keys": [key.to_string()] });
        let fake = server(&[item]);
        let shown = fake.run(&format!("approve {APP} --owners"));
        assert!(shown.ends_with(exit), "{shown}");
    }
}

#[test]
fn a_revocation_is_made_here_or_joined() {
    let fake = server(&[]);
    let key = person(fake.home.path(), "ada");
    let shown = fake.run(&format!("approve {APP} {} --revoke --key ada --yes", hash()));
    assert!(shown.ends_with("exit 0\n"), "{shown}");
    let body = posted(&fake).pop().unwrap();
    let statement: ApprovalStatement = body["statement"].as_str().unwrap().parse().unwrap();
    assert_eq!((statement.app_id, statement.action), (app(), Action::RevokeComposeHash(hash())));
    assert!(statement.serial > 1_700_000_000_000);
    let owners = Owners::new(1, vec![key.parse().unwrap()]).unwrap();
    verify(&statement, &owners, &[body["signature"].as_str().unwrap()]).unwrap();

    let fake = server(&[item(&statement, None)]);
    let shown = fake.run(&format!("approve {APP} {} --revoke", hash()));
    assert!(shown.contains(&statement.to_string()), "{shown}");
    assert!(fake.run(&format!("approve {APP} --revoke")).ends_with("exit 2\n"));
    let nothing = fake.run(&format!("approve {APP}"));
    assert!(nothing.ends_with("exit 3\n"), "{nothing}");
    let both = server(&[
        item(&allow(app(), hash()), Some(AFTER)),
        item(&allow(app(), ComposeHash::of(BEFORE.as_bytes())), Some(BEFORE)),
    ]);
    insta::assert_snapshot!(both.run(&format!("approve {APP}")));
}

#[test]
fn an_update_says_who_has_to_sign_it() {
    let mut detail = crate::support::cvm("hello", "running");
    detail["compose_hash"] = json!(ComposeHash::of(BEFORE.as_bytes()));
    let id = detail["id"].as_str().unwrap().to_owned();
    let after = AppCompose::parse(BEFORE.as_bytes()).unwrap();
    let revision = Revision {
        docker_compose_file: Some("services:\n  web:\n    image: app:2\n".to_owned()),
        ..Revision::default()
    };
    let hash = after.revised(&revision).unwrap().compose_hash();
    let approval = json!({ "statement": allow(app(), hash).to_string(), "threshold": 2, "signed_by": [{}] });
    let status = json!({ "compose_hash_allowed": false, "device_id_allowed": false, "is_allowed": false });
    let token = "0b6a4a5e-5d7c-4b7e-9f0e-0c5f5b1d8f3a";
    let details = [
        ("compose_hash", json!(hash)),
        ("app_id", json!(APP)),
        ("device_id", json!("")),
        ("kms_info", Value::Null),
        ("commit_token", json!(token)),
        ("onchain_status", status),
        ("approval", approval),
    ];
    let details = details.map(|(field, value)| json!({ "field": field, "value": value, "message": null }));
    let refusal = json!({
        "error_code": "ERR-01-005", "message": "the application's owners have not allowed it", "details": details,
        "suggestions": [], "links": [], "request_id": "req-1",
    });
    let fake = Fake::start()
        .on("GET /cvms/hello", 200, detail.clone())
        .on(&format!("GET /cvms/{id}"), 200, detail)
        .on(&format!("GET /cvms/{id}/compose_file"), 200, serde_json::from_str(BEFORE).unwrap())
        .on(&format!("PATCH /cvms/{id}"), 465, refusal);
    fs::write(fake.home.path().join("new.yaml"), revision.docker_compose_file.unwrap()).unwrap();
    let shown = fake.run("update hello -c new.yaml");
    assert!(shown.ends_with("exit 9\n"), "{shown}");
    for words in [
        "2 owners have to sign it, 1 did".to_owned(),
        format!("cloister approve {APP} {hash} --key"),
        format!("cloister commit hello --token {token}"),
    ] {
        assert!(shown.contains(&words), "{words}: {shown}");
    }
}

#[test]
fn an_application_can_get_its_owners_when_it_is_deployed() {
    let people = tempfile::tempdir().unwrap();
    let lines = ["ada", "bob"].map(|name| person(people.path(), name));
    let owners = Owners::new(2, lines.each_ref().map(|line| line.parse().unwrap()).to_vec()).unwrap();
    let fake = Fake::start()
        .echoing_provisions(Value::Null)
        .on("POST /cvms", 200, crate::support::vm("hello", "creating"))
        .on("GET /cvms/7/state", 200, json!(crate::support::state("complete", "running", false, &json!({}))))
        .on("GET /cvms/7", 200, crate::support::cvm("hello", "running"))
        .on(&format!("PUT /apps/{APP}/owners"), 200, answer(&root(1), &owners, &owners));
    let home = fake.home.path();
    fs::create_dir_all(home.join("hello")).unwrap();
    fs::write(home.join("hello/compose.yaml"), "services:\n  web:\n    image: hello\n").unwrap();
    fs::write(home.join("owners"), format!("# who decides\n{}\n\n{}\n", lines[0], lines[1])).unwrap();
    let shown = fake.run("deploy -c hello/compose.yaml --owners owners --threshold 2");
    assert!(shown.ends_with("exit 0\n") && shown.contains("What runs now needs it too"), "{shown}");
    let seen = fake.seen();
    let set = seen.iter().find(|seen| seen.line.starts_with("PUT ")).unwrap();
    assert_eq!(serde_json::from_value::<Owners>(set.body.clone()).unwrap(), owners);

    // Nothing is made of owners that can be none.
    let before = fake.seen().len();
    for line in ["--owners owners --threshold 3", "--owners owners", "--threshold 1"] {
        let shown = fake.run(&format!("deploy -c hello/compose.yaml {line}"));
        assert!(shown.ends_with("exit 2\n"), "{shown}");
    }
    assert_eq!(fake.seen().len(), before);
}
