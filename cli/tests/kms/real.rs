use std::process::Output;

use serde_json::Value;

use super::service::Service;
use crate::support::{bare, transcript};

const APP: &str = "6f809b3214eb9a69571ad008289d9551fa9a4272";
const HASH: &str = "e14ea3f94504ead2613eda46ed3dc3f29747a2007a7fa6fd560725d6a123f87b";

#[track_caller]
fn code(output: &Output, expected: i32) -> Value {
    assert_eq!(output.status.code(), Some(expected), "{}", transcript("…", output));
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

#[track_caller]
fn outcome(document: &Value, id: &str) -> String {
    let checks = document["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["id"] == id).unwrap();
    check["outcome"].as_str().unwrap().to_owned()
}

#[test]
fn a_kms_is_onboarded_once_and_verified_from_outside() {
    let mut service = Service::start();
    let made = code(&service.run("kms bootstrap --domain 127.0.0.1 --json"), 0);
    assert_eq!(made["measurement"], service.measurement);
    let root_key = made["k256_pubkey"].as_str().unwrap().to_owned();
    let second = service.run("kms bootstrap --domain 127.0.0.1");
    code(&second, 1);
    assert!(String::from_utf8_lossy(&second.stderr).contains("already"), "{}", transcript("", &second));
    code(&service.run("kms finish"), 0);
    service.restart();
    code(&service.run("kms bootstrap --domain 127.0.0.1"), 7);

    let status = code(&service.run("kms status --json"), 0);
    assert_eq!(status["meta"]["k256_pubkey"], root_key.as_str());
    assert_eq!(status["rotation"]["pending_total"], 0);
    let shown = service.run("kms status");
    let authority = status["meta"]["roots"][0]["ca_pubkey"].as_str().unwrap();
    let line = format!("Root authority        {authority}\n");
    assert!(String::from_utf8_lossy(&shown.stdout).contains(&line), "{}", transcript("", &shown));

    let trust = format!("--json --development-root root.pem --pccs {}", service.pccs);
    let verified = code(&service.run(&format!("kms verify {trust}")), 0);
    for id in ["bootstrap", "first-root", "succession", "certificate", "platform"] {
        assert_eq!(outcome(&verified, id), "holds", "{id}");
    }
    assert_eq!(outcome(&verified, "measurement"), "not_checked");
    let pinned = format!("kms verify {trust} --root-key {root_key} --measurement {}", service.measurement);
    assert_eq!(outcome(&code(&service.run(&pinned), 0), "measurement"), "holds");

    let other = format!("02{}", "11".repeat(32));
    let wrong = code(&service.run(&format!("kms verify {trust} --root-key {other}")), 8);
    assert_eq!(outcome(&wrong, "succession"), "fails");
    let wrong = code(&service.run(&format!("kms verify {trust} --measurement {}", "11".repeat(32))), 8);
    assert_eq!(outcome(&wrong, "measurement"), "fails");
    // Nobody trusts the development vendor without being told to.
    let wrong = code(&service.run("kms verify --json --production"), 8);
    assert_eq!(outcome(&wrong, "bootstrap"), "fails");

    code(&service.run("kms rotate start"), 0);
    let rotated = code(&service.run(&format!("kms verify {trust} --root-key {root_key}")), 0);
    assert_eq!(outcome(&rotated, "succession"), "holds");
    assert_eq!(rotated["roots"].as_array().unwrap().len(), 2);
}

#[test]
fn policy_rotation_and_log_are_shown_to_people() {
    let service = Service::start();
    service.onboard();
    std::fs::write(
        service.home.path().join("rules.json"),
        r#"{"osImages":[],"allowedTcbStatuses":["UpToDate","SWHardeningNeeded"],"deniedAdvisoryIds":["INTEL-SA-1"]}"#,
    )
    .unwrap();
    std::fs::write(service.home.path().join("no-rules.json"), r#"{"osImage":[]}"#).unwrap();
    let transcript = [
        "kms policy show".to_owned(),
        format!("kms policy allow {APP} {HASH}"),
        format!("kms policy allow {APP} {HASH} --json"),
        "kms policy set-platform-rules rules.json".to_owned(),
        "kms policy set-platform-rules no-rules.json".to_owned(),
        "kms policy show".to_owned(),
        format!("kms policy revoke {APP} {HASH}"),
        "kms rotate retire 1".to_owned(),
        "kms rotate start".to_owned(),
        "kms rotate retire 1".to_owned(),
        "kms rotate status".to_owned(),
        "kms log show".to_owned(),
        format!("kms log show --app {APP}"),
        "kms log show --start 1 --json".to_owned(),
        "kms log verify".to_owned(),
    ]
    .map(|line| service.show(&line));
    insta::assert_snapshot!(transcript.concat());
}

#[test]
fn the_log_is_verified_from_checkpoint_to_checkpoint() {
    let mut service = Service::start();
    service.onboard();
    let first = code(&service.run("kms log verify --json --save saved"), 0);
    assert_eq!(
        (outcome(&first, "records"), outcome(&first, "history")),
        ("holds".into(), "not_checked".into())
    );
    code(&service.run(&format!("kms policy allow {APP} {HASH}")), 0);
    service.restart();
    let second = code(&service.run("kms log verify --json --checkpoint saved --save saved"), 0);
    assert_eq!(outcome(&second, "history"), "holds");
    assert_eq!(second["size"].as_u64(), first["size"].as_u64().map(|size| size + 1));
    assert_eq!(second["kinds"]["app_allowed"], 1);

    // Another KMS cannot pass for this one, whatever it signs.
    let other = Service::start();
    other.onboard();
    let ours = service.home.path().join("cloud/kms");
    let line = |url: &str| {
        format!(
            "kms log verify --directory-url {url} --ca {0}/root-ca.pem --verifier-key {0}/log-verifier-key",
            ours.display()
        )
    };
    code(&service.run(&line(&service.url("directory_url"))), 0);
    code(&service.run(&line(&other.url("directory_url"))), 8);
}

#[test]
fn the_administration_is_for_who_has_the_token() {
    let service = Service::start();
    service.onboard();
    std::fs::write(service.home.path().join("wrong"), "wrong\n").unwrap();
    for line in ["kms rotate start", "kms policy show", "kms rotate retire 1 --force"] {
        code(&service.run(&format!("{line} --admin-token-file wrong")), 4);
    }
    // What everybody may know is shown nevertheless.
    let status = code(&service.run("kms status --json --admin-token-file wrong"), 0);
    assert_eq!(status["rotation"], Value::Null);
    assert_eq!(status["meta"]["roots"].as_array().unwrap().len(), 1);
}

#[test]
fn a_kms_takes_the_roots_of_another_one_that_lets_it_in() {
    let first = Service::start();
    first.onboard();
    let second = first.start_beside();
    let line = format!("kms onboard --domain 127.0.0.1 --source {}", first.url("release_url"));
    let refused = second.run(&line);
    code(&refused, 3);
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains(&second.measurement),
        "{}",
        transcript("", &refused)
    );

    let rules =
        format!(r#"{{"allowedTcbStatuses":["UpToDate"],"kmsMeasurements":["{}"]}}"#, second.measurement);
    std::fs::write(first.home.path().join("rules.json"), rules).unwrap();
    code(&first.run("kms policy set-platform-rules rules.json"), 0);
    let root_key =
        code(&first.run("kms status --json"), 0)["meta"]["k256_pubkey"].as_str().unwrap().to_owned();
    let other = format!("02{}", "11".repeat(32));
    code(&second.run(&format!("{line} --root-key {other}")), 8);
    let taken = code(&second.run(&format!("{line} --root-key {root_key} --json")), 0);
    assert_eq!(taken["k256_pubkey"], root_key.as_str());
    code(&second.run("kms finish"), 0);
    second.wait("its directory", || second.run("kms status --json").status.success());

    let trust = format!("--json --development-root root.pem --pccs {}", second.pccs);
    let verified = code(&second.run(&format!("kms verify {trust} --root-key {root_key}")), 0);
    assert_eq!(
        (outcome(&verified, "bootstrap"), outcome(&verified, "succession")),
        ("not_checked".into(), "holds".into())
    );
    // Nothing shows who made the roots, and nothing is taken for granted.
    assert_eq!(outcome(&code(&second.run(&format!("kms verify {trust}")), 8), "succession"), "fails");
    let log = code(&first.run("kms log verify --json"), 0);
    // Also what the new one then did not want.
    assert_eq!(log["kinds"]["release"], 2);
    assert!(log["kinds"]["refusal"].as_u64() >= Some(1), "{log}");
}

#[test]
fn new_records_are_shown_as_they_come() {
    use std::io::{BufRead as _, BufReader};
    use std::process::Stdio;

    let service = Service::start();
    service.onboard();
    let line = format!("kms log show --follow --json --app {APP} --data-dir cloud");
    let mut follower = bare(&service.home, &line).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    for (command, kind) in [("allow", "app_allowed"), ("revoke", "app_revoked")] {
        code(&service.run(&format!("kms policy {command} {APP} {HASH}")), 0);
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!((&line["record"]["kind"], &line["record"]["app_id"]), (&kind.into(), &APP.into()));
    }
    follower.kill().unwrap();
    follower.wait().unwrap();
}
