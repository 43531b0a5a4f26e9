//! Logging in with a browser elsewhere, and logging out.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::endpoint::account;
use crate::inference::Part;
use crate::support::{Fake, KEY, bare, transcript};

const PENDING: &str = "authorization_pending";

fn fake() -> Fake {
    let url = "https://cloud.example/device";
    Fake::start()
        .on(
            "POST /auth/device/code",
            200,
            json!({ "device_code": "secret", "user_code": "BCDF-GHJK", "verification_uri": url,
                "verification_uri_complete": format!("{url}?user_code=BCDF-GHJK"), "expires_in": 600, "interval": 1 }),
        )
        .on("GET /auth/me", 200, account())
        .on("DELETE /tokens/self", 204, Value::Null)
}

fn refusal(error: &str) -> Value {
    json!({ "error": error, "error_description": "", "detail": { "error": error, "error_description": "" } })
}

impl Fake {
    fn answering(self, refusals: &[&str]) -> Self {
        refusals.iter().fold(self, |fake, error| fake.on("POST /auth/device/token", 400, refusal(error)))
    }

    fn letting_in(self) -> Self {
        let token = json!({ "access_token": KEY, "token_type": "bearer", "expires_in": 7_776_000, "scope": "deploy" });
        self.on("POST /auth/device/token", 200, token)
    }

    fn here(&self, line: &str) -> String {
        let line = line.replace("HERE", &format!("--api-url http://{}", self.address));
        let output = bare(&self.home, &line).output().unwrap();
        transcript(&line, &output)
            .replace(&self.address.to_string(), "SERVER")
            .replace(self.home.path().to_str().unwrap(), "HOME")
    }

    fn lines(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.line).collect()
    }

    fn file(&self) -> PathBuf {
        credentials(self.home.path())
    }
}

fn credentials(home: &Path) -> PathBuf {
    home.join(".config/cloister/credentials.json")
}

#[test]
fn somebody_lets_the_command_line_in_and_it_logs_out_again() {
    let fake = fake().answering(&[PENDING]).letting_in();
    let transcript = [
        fake.here("login HERE --device"),
        // Then it is the server that is meant.
        fake.here("env"),
        fake.here("logout"),
        fake.here("env"),
        fake.here("logout"),
    ];
    insta::assert_snapshot!(transcript.concat());
    let asked = &fake.seen()[0].body;
    assert!(asked["client_id"].as_str().unwrap().starts_with("cloister"));
    assert_eq!(asked["scope"], "deploy");
    let lines = fake.lines();
    assert_eq!(lines.iter().filter(|line| *line == "POST /auth/device/token").count(), 2);
    assert_eq!(lines.last().unwrap(), "DELETE /tokens/self");
    assert!(!fs::read_to_string(fake.file()).unwrap().contains(KEY));
}

#[test]
fn programs_read_where_to_go_and_who_logged_in() {
    let fake = fake().letting_in();
    insta::assert_snapshot!(
        [fake.here("login HERE --scope read --json"), fake.here("logout --json")].concat()
    );
    assert_eq!(fake.seen()[0].body["scope"], "read");
}

#[test]
fn a_key_is_kept_for_its_owner_and_the_former_one_ends() {
    let fake = fake().letting_in();
    let server = format!("http://{}/api/v1", fake.address);
    let before = json!({ "current": null, "servers": { &server: "phak_former" }, "own": [server] });
    fs::create_dir_all(fake.file().parent().unwrap()).unwrap();
    fs::write(fake.file(), before.to_string()).unwrap();
    fake.here("login HERE --device");
    assert_eq!(fake.lines().last().unwrap(), "DELETE /tokens/self");
    let kept = fs::read_to_string(fake.file()).unwrap();
    assert!(kept.contains(KEY) && !kept.contains("phak_former"));
    assert_eq!(fs::metadata(fake.file()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn whoever_is_refused_keeps_nothing() {
    for refused in ["access_denied", "expired_token", "invalid_request"] {
        let fake = fake().answering(&[refused]);
        let shown = fake.here("login HERE --device");
        let exit = match refused {
            "access_denied" => 4,
            "expired_token" => 6,
            _ => 1,
        };
        assert!(shown.ends_with(&format!("--- exit {exit}\n")), "{shown}");
        assert!(!fake.file().exists());
    }
}

/// A part of a secret is none, and of what was refused nothing is repeated.
#[test]
fn what_is_piped_in_is_read_as_a_whole_or_refused() {
    for (piped, exit, words) in [
        (format!("{KEY}\n").into_bytes(), 0, ""),
        (vec![b'x'; 4096], 2, "one line of visible ASCII characters"),
        (vec![b'x'; 4097], 2, "the API key is longer than 4096 bytes"),
        (b"\xff\xfe".to_vec(), 1, "cannot read the API key"),
    ] {
        let fake = fake();
        let input = fake.home.path().join("piped");
        fs::write(&input, piped).unwrap();
        let mut command = bare(&fake.home, &format!("login --api-url http://{}", fake.address));
        let output = command.stdin(fs::File::open(input).unwrap()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(exit), "{said}");
        assert!(said.contains(words) && !said.contains("xxx"), "{said}");
        assert_eq!((fake.file().exists(), fake.lines().is_empty()), (exit == 0, exit != 0));
    }
}

#[test]
fn a_key_that_others_may_have_is_forgotten_only() {
    let fake = fake();
    let server = format!("http://{}/api/v1", fake.address);
    let kept = |own: &[&str]| {
        let document = json!({ "current": server, "servers": { &server: KEY }, "own": own });
        fs::create_dir_all(fake.file().parent().unwrap()).unwrap();
        fs::write(fake.file(), document.to_string()).unwrap();
    };
    kept(&[]);
    let forgotten = fake.here("logout");
    kept(&[&server]);
    let asked = fake.here("logout --forget");
    assert_eq!(forgotten.replace(" --forget", ""), asked.replace(" --forget", ""));
    assert!(forgotten.contains("goes on working") && fake.lines().is_empty());

    // What cannot be ended stays known, or nobody could end it any more.
    let broken = Fake::start().on("DELETE /tokens/self", 500, json!({ "detail": "no" }));
    let server = format!("http://{}/api/v1", broken.address);
    fs::create_dir_all(broken.file().parent().unwrap()).unwrap();
    let document = json!({ "current": server, "servers": { &server: KEY }, "own": [server] });
    fs::write(broken.file(), document.to_string()).unwrap();
    let shown = broken.here("logout");
    assert!(shown.contains("cloister logout --forget") && shown.ends_with("--- exit 1\n"), "{shown}");
    assert!(fs::read_to_string(broken.file()).unwrap().contains(KEY));
}

#[test]
fn a_control_plane_lets_the_command_line_of_another_machine_in() {
    let [operators, laptop] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let line = "serve control-plane --api-listen 127.0.0.1:0 --fleet-listen 127.0.0.1:0";
    let server = Part::start(&operators, line, "control-plane.log");
    let run = |home: &TempDir, line: &str| bare(home, line).output().unwrap();

    let line = format!("login --device --json --api-url http://{}", server.address);
    let mut login = bare(&laptop, &line).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(login.stdout.take().unwrap()).lines();
    let mut document = || serde_json::from_str::<Value>(&said.next().unwrap().unwrap()).unwrap();
    let code = document();
    let approve = format!("tokens approve {}", code["user_code"].as_str().unwrap());
    assert!(run(&operators, &approve).status.success());
    assert_eq!(document()["user"]["username"], "admin");
    assert!(login.wait().unwrap().success());

    let keys = run(&laptop, "tokens list --json");
    let keys: Value = serde_json::from_slice(&keys.stdout).unwrap();
    let made = keys.as_array().unwrap().iter().find(|key| key["scope"] == "deploy").unwrap();
    assert!(made["name"].as_str().unwrap().starts_with("cloister"));
    let kept: Value = serde_json::from_slice(&fs::read(credentials(laptop.path())).unwrap()).unwrap();
    let key = kept["servers"].as_object().unwrap().values().next().unwrap().as_str().unwrap();
    assert!(run(&laptop, "logout").status.success());
    let mut late = bare(&laptop, "tokens list");
    late.env("CLOISTER_API_URL", format!("http://{}", server.address)).env("CLOISTER_API_KEY", key);
    assert_eq!(late.output().unwrap().status.code(), Some(4));
}
