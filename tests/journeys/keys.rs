//! Keys: what a CVM gets from the KMS, what nobody else gets, and what stays over restarts and rotations.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use cloister_tests::api::script_app;
use cloister_tests::command::{Ran, Up};
use cloister_tests::data_dir::DataDir;
use cloister_tests::http::get_text;
use cloister_tests::{PATIENCE, eventually, paths};
use reqwest::Method;
use rustix::fs::SeekFrom as Extent;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// `cloister kms log verify` found something that does not hold.
const REFUTED: i32 = 8;
/// What the tenant plants, and nobody but the application may ever see.
const SECRET: &str = "planted-secret-3f6c0d59a1e84b27";

fn digest(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}

/// What the program in the guest found out when it was started for the `boots`th time.
async fn answers(url: &str, boots: u64) -> Value {
    eventually(&format!("the program in the guest answers, start {boots}"), PATIENCE, async || {
        let answers: Value = serde_json::from_str(&get_text(url).await?).ok()?;
        (answers["boots"]["answer"] == boots).then_some(answers)
    })
    .await
}

/// What the program in the guest got for a call.
fn answer<'a>(answers: &'a Value, call: &str) -> &'a Value {
    let answer = &answers[call]["answer"];
    assert!(!answer.is_null(), "{call}: {}", answers[call]);
    answer
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}"))
}

/// A command that must work; its document.
async fn done(up: &Up, arguments: &[&str]) -> Value {
    let ran: Ran = up.run(arguments).await;
    assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
    serde_json::from_str(&ran.stdout).unwrap_or(Value::Null)
}

/// Files below `dir` in which `word` occurs. Only what is written of a file is read: disks are mostly holes.
fn files_with(dir: &Path, word: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(files_with(&entry.path(), word));
        } else if kind.is_file() && occurs_in(&entry.path(), word.as_bytes()) {
            found.push(entry.path());
        }
    }
    found
}

fn occurs_in(path: &Path, word: &[u8]) -> bool {
    let Ok(mut file) = File::open(path) else { return false };
    let mut at = 0;
    while let Ok(begin) = rustix::fs::seek(&file, Extent::Data(at)) {
        let end = rustix::fs::seek(&file, Extent::Hole(begin)).unwrap();
        file.seek(SeekFrom::Start(begin)).unwrap();
        let mut extent = Vec::new();
        Read::by_ref(&mut file).take(end - begin).read_to_end(&mut extent).unwrap();
        if memchr::memmem::find(&extent, word).is_some() {
            return true;
        }
        at = end;
    }
    false
}

/// Nothing on the operator's side has the secret; the search itself works.
fn nobody_has(up: &Up, secret: &str) {
    assert_eq!(files_with(up.data_dir(), secret), Vec::<PathBuf>::new(), "the secret is nowhere");
    assert!(!files_with(up.data_dir(), "guest-sdk").is_empty(), "names of CVMs are kept in clear");
}

/// One CVM through everything that can happen to its keys.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_and_disk_are_opened_by_the_kms_for_this_code_only() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let dir = DataDir::new();
    let up = Up::start(dir.path(), None).await;
    done(&up, &["image", "push", paths::guest_sdk().to_str().unwrap()]).await;

    // Strangers seal with the key that the API gives, and check it with the public SDK: so its signature goes
    // along. The application's id is the next one of the workspace.
    let next = up.api().get("/kms/phala/next_app_id?counts=1").await;
    let app_id = text(&next["app_ids"][0]["app_id"]).to_owned();
    let env_key = up.api().get(&format!("/kms/phala/pubkey/{app_id}")).await;
    let env_file = dir.path().join("secrets.env");
    let variables = format!(
        "PLANTED_SECRET={SECRET}\nENV_KEY={}\nENV_KEY_SIGNATURE={}\n",
        text(&env_key["public_key"]),
        text(&env_key["signature"])
    );
    fs::write(&env_file, variables).unwrap();
    let compose = paths::workspace().join("tests/guest-sdk/compose.yaml");
    let (compose, env) = (compose.to_str().unwrap(), env_file.to_str().unwrap());
    done(&up, &["--json", "deploy", "-c", compose, "-n", "guest-sdk", "--env-file", env]).await;
    fs::remove_file(&env_file).unwrap();

    let cvm = done(&up, &["--json", "cvms", "get", "guest-sdk"]).await;
    assert_eq!(cvm["app_id"], *app_id, "the id that was told before");
    let url = text(&cvm["endpoints"][0]["app"]).to_owned();
    let first = answers(&url, 1).await;
    assert_eq!(answer(&first, "secret"), &json!(digest(SECRET)), "the environment was opened");
    let status = done(&up, &["--json", "kms", "status"]).await;
    let root = text(&status["meta"]["k256_pubkey"]);
    the_chains_lead_to_the_kms(&first, root);
    assert_eq!(answer(&first, "env_key_signer"), &json!(format!("0x{root}")), "by the SDK's own function");
    nobody_has(&up, SECRET);

    // The log says who got keys, and holds.
    let log = up.run(&["kms", "log", "show", "--app", &app_id]).await;
    assert!(log.code == 0 && log.stdout.contains(&app_id), "{log:?}");
    let checkpoint = dir.path().join("checkpoint");
    let checkpoint = checkpoint.to_str().unwrap();
    done(&up, &["kms", "log", "verify", "--save", checkpoint]).await;

    // Sealed by the public SDK: a new secret for the same application.
    let sealed = json!({ "encrypted_env": answer(&first, "sealed") });
    let changed = up.api().call(Method::PATCH, "/cvms/guest-sdk/envs", Some(sealed)).await;
    assert_eq!(changed.status, 202, "{changed:?}");
    let second = answers(&url, 2).await;
    let secret = digest(SECRET);
    assert_eq!(answer(&second, "secret"), &json!(digest(&secret)), "the second environment was opened");
    assert_eq!(answer(&second, "key"), answer(&first, "key"), "the same keys, from the same disk");
    nobody_has(&up, &secret);

    // A new root; the CVM goes over to it when it next attests, and then the old one can go.
    done(&up, &["--json", "kms", "rotate", "start"]).await;
    let early = up.run(&["kms", "rotate", "retire", "1"]).await;
    assert_ne!(early.code, 0, "a CVM is still under the old root: {early:?}");
    done(&up, &["cvms", "restart", "guest-sdk"]).await;
    let third = answers(&url, 3).await;
    assert_eq!(answer(&third, "secret"), answer(&second, "secret"));
    eventually("the CVM tells that it was re-sealed", PATIENCE, async || {
        let status = done(&up, &["--json", "kms", "rotate", "status"]).await;
        (status["pending_total"] == 0 && status["resealed"] == 1).then_some(())
    })
    .await;
    done(&up, &["kms", "rotate", "retire", "1"]).await;
    done(&up, &["cvms", "restart", "guest-sdk"]).await;
    let fourth = answers(&url, 4).await;
    assert_eq!(answer(&fourth, "secret"), answer(&second, "secret"), "without the old root");
    let status = done(&up, &["--json", "kms", "status"]).await;
    the_chains_lead_to_the_kms(&fourth, text(&status["meta"]["k256_pubkey"]));
    assert_ne!(answer(&fourth, "key")["root"], answer(&first, "key")["root"]);
    done(&up, &["kms", "log", "verify", "--checkpoint", checkpoint]).await;
    assert_eq!(up.interrupt().await, 0);
}

/// An operator who swaps disks and changes one byte, of a disk, of the document or of the log, hoping that nobody
/// compares.
#[tokio::test(flavor = "multi_thread")]
async fn other_disks_and_other_code_get_no_keys_and_the_log_cannot_be_changed() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let dir = DataDir::new();
    let up = Up::start(dir.path(), None).await;
    let mut cvms = Vec::new();
    for name in ["vault-one", "vault-two"] {
        let mut app = script_app(name);
        app["kms_enabled"] = json!(true);
        cvms.push(up.api().create(name, app).await);
        up.api().runs(name, PATIENCE).await;
        done(&up, &["cvms", "stop", name]).await;
    }
    let checkpoint = dir.path().join("checkpoint");
    let checkpoint = checkpoint.to_str().unwrap();
    done(&up, &["kms", "log", "verify", "--save", checkpoint]).await;
    let disk_of = |cvm: &Value| dir.path().join("node/vms").join(text(&cvm["vm_uuid"])).join("data.img");
    a_disk_that_is_not_the_cvms_own_is_refused(&up, &disk_of(&cvms[0]), &disk_of(&cvms[1])).await;
    done(&up, &["cvms", "stop", "vault-two"]).await;

    // Other code, no keys.
    assert_eq!(up.interrupt().await, 0);
    change_one_byte_of_the_document(dir.path(), "vault-one");
    let up = Up::start(dir.path(), None).await;
    assert!(why_it_does_not_boot(&up, "vault-one").await.contains("MEASUREMENT_NOT_FOUND"));
    let app_id = text(&cvms[0]["app_id"]);
    let log = up.run(&["kms", "log", "show", "--app", app_id]).await;
    assert!(log.stdout.contains("MEASUREMENT_NOT_FOUND"), "the refusal is in the log: {log:?}");
    done(&up, &["kms", "log", "verify", "--checkpoint", checkpoint]).await;

    // Another log: everybody notices.
    let tampered = tamper_with_the_log(dir.path(), app_id);
    let verdict = up.run(&["kms", "log", "verify", "--checkpoint", checkpoint]).await;
    assert_eq!(verdict.code, REFUTED, "{} was changed: {verdict:?}", tampered.display());
    up.interrupt().await;
}

/// A disk is opened by the CVM that made it only; another one refuses it and leaves it as it is. Both CVMs are off;
/// `vault-two`, whose disk is `two`, runs afterwards.
async fn a_disk_that_is_not_the_cvms_own_is_refused(up: &Up, one: &Path, two: &Path) {
    let instance = up.api().get("/cvms/vault-two").await["instance_id"].clone();
    let kept = up.data_dir().join("kept.img");
    copy_disk(two, &kept);

    copy_disk(one, two);
    assert!(why_it_does_not_boot(up, "vault-two").await.contains("another application or instance"));
    done(up, &["cvms", "stop", "vault-two"]).await;

    // The same disk with one byte changed in both copies of its header.
    copy_disk(&kept, two);
    for header in [0, 16384] {
        change_byte(two, header + 200);
    }
    assert!(why_it_does_not_boot(up, "vault-two").await.contains("cannot be trusted"));
    done(up, &["cvms", "stop", "vault-two"]).await;

    // All that is left of the CVM is its disk: the one that takes its place is the same to the KMS.
    fs::remove_dir_all(two.parent().unwrap()).unwrap();
    fs::create_dir(two.parent().unwrap()).unwrap();
    copy_disk(&kept, two);
    done(up, &["cvms", "start", "vault-two"]).await;
    assert_eq!(up.api().get("/cvms/vault-two").await["instance_id"], instance);
}

/// The reason that the CVM gives for its state, an error.
async fn why_it_does_not_boot(up: &Up, cvm: &str) -> String {
    let started = up.run(&["cvms", "start", cvm]).await;
    assert_ne!(started.code, 0, "{started:?}");
    let state = up.api().at_rest(cvm, PATIENCE).await;
    assert_eq!(state["status"], "error", "{state}");
    text(&state["boot_error"]).to_owned()
}

/// Copies a disk with its holes.
fn copy_disk(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg("--sparse=always").args([from, to]).status().unwrap();
    assert!(copied.success());
}

fn change_byte(disk: &Path, at: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(disk).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

/// The published SDK's own functions recover the root of the KMS from every signature.
fn the_chains_lead_to_the_kms(answers: &Value, root: &str) {
    for key in ["key", "ed25519_key"] {
        assert_eq!(answer(answers, key)["root"], *root, "{key}");
    }
    assert_eq!(answer(answers, "key")["app"], answer(answers, "ed25519_key")["app"]);
    for signature in ["signature", "ed25519_signature"] {
        assert_eq!(answer(answers, signature), &json!({ "valid": true, "forged": false, "chain": 3 }));
    }
    let chain = answer(answers, "tls_key")["certificate_chain"].as_array().unwrap();
    assert_eq!(chain.len(), 3, "leaf, the application's authority, root: {chain:?}");
    assert!(text(&answer(answers, "legacy_key")["key"]).contains("PRIVATE KEY"));
}

/// As a hostile operator would who hopes that nobody compares.
fn change_one_byte_of_the_document(data_dir: &Path, cvm: &str) {
    let script = "import sqlite3, sys\n\
        db = sqlite3.connect(sys.argv[1])\n\
        change = \"UPDATE cvms SET app_compose = replace(app_compose, 'the script runs', 'the script rUns')\"\n\
        changed = db.execute(change + ' WHERE name = ?', (sys.argv[2],))\n\
        assert changed.rowcount == 1\n\
        db.commit()\n";
    let database = fs::read_dir(data_dir.join("control-plane"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "db" || extension == "sqlite"))
        .expect("the database");
    let mut python = std::process::Command::new("python3");
    let status = python.args(["-c", script]).arg(database).arg(cvm).status().expect("python3");
    assert!(status.success());
}

/// Changes one digit of a record; the file that has it.
fn tamper_with_the_log(data_dir: &Path, app_id: &str) -> PathBuf {
    let log = data_dir.join("kms/log");
    let path = files_with(&log, app_id).pop().expect("records of the application");
    let mut bytes = fs::read(&path).unwrap();
    let at = memchr::memmem::find(&bytes, app_id.as_bytes()).unwrap();
    bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
    fs::write(&path, bytes).unwrap();
    path
}
