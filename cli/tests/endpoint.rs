//! Which server a command talks to, and with which key.

use std::io::Write;
use std::process::Stdio;

use cloister_management_api::WorkspaceId;
use serde_json::{Value, json};

use crate::support::{Fake, KEY, bare, transcript};

pub(crate) fn account() -> Value {
    json!({
        "user": { "username": "admin", "email": "admin@localhost", "role": "admin", "avatar": "",
            "email_verified": true, "totp_enabled": false, "has_backup_codes": false, "flag_has_password": false },
        "workspace": { "id": WorkspaceId(1), "name": "Main", "slug": "main", "tier": "free", "role": "admin",
            "avatar": null },
        "credits": { "balance": "0", "granted_balance": "0", "is_post_paid": true, "outstanding_amount": null },
    })
}

fn login(fake: &Fake, key: &str) -> String {
    let line = format!("login --api-url http://{}", fake.address);
    let mut child = bare(&fake.home, &line)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(key.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    transcript(&line, &output)
        .replace(&fake.address.to_string(), "SERVER")
        .replace(fake.home.path().to_str().unwrap(), "HOME")
}

#[test]
fn a_login_is_kept_and_its_key_goes_to_no_other_server() {
    let fake = Fake::start().on("GET /auth/me", 200, account());
    let other = Fake::start().on("GET /auth/me", 200, account());
    let run = |line: &str| {
        let output = bare(&fake.home, line).output().unwrap();
        transcript(line, &output)
            .replace(&fake.address.to_string(), "SERVER")
            .replace(&other.address.to_string(), "OTHER")
    };
    let transcript = [
        run("env"),
        login(&fake, "wrong"),
        login(&fake, "two words"),
        login(&fake, &format!("{KEY}\n")),
        run("env"),
        run(&format!("env --api-url http://{}", other.address)),
        run("env --api-url http://cloud.example.org"),
    ];
    insta::assert_snapshot!(transcript.concat());
    assert!(other.seen().is_empty());
}

#[test]
fn env_is_for_shells_and_for_programs() {
    let fake = Fake::start().on("GET /auth/me", 200, account());
    insta::assert_snapshot!([fake.run("env"), fake.run("env --json")].concat());
}

#[test]
fn the_other_clients_variables_work_too() {
    let fake = Fake::start().on("GET /auth/me", 200, account());
    let output = bare(&fake.home, "env")
        .env("PHALA_CLOUD_API_PREFIX", format!("http://{}/api/v1", fake.address))
        .env("PHALA_CLOUD_API_KEY", KEY)
        .output()
        .unwrap();
    assert!(output.status.success());
}
