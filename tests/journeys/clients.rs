//! The published clients of the management API, unmodified, against a cloud of this machine: the command line from its
//! login to the removal of what it deployed, and what the libraries read meanwhile in every dated version.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use cloister_tests::api::Api;
use cloister_tests::command::Up;
use cloister_tests::data_dir::DataDir;
use cloister_tests::{paths, published};
use serde_json::{Map, Value};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

const PATIENCE: Duration = Duration::from_mins(3);
const SET: &str = "public-clients";
const NAME: &str = "published";

/// The libraries, the versions that they can be told to speak and read, and what they tell of in each.
const WALKS: [(&str, &[&str], usize); 2] = [
    ("walk.mjs", &["2025-10-28", "2026-01-21"], 21),
    ("walk.py", &["2026-01-21", "2026-05-22", "2026-06-23"], 35),
];
/// Calls that fail for the client's own reasons: program, version or all, call, words of the error.
const SLIPS: [(&str, &str, &str, &str); 3] = [
    ("walk.py", "", "get_cvm_pre_launch_script", "Input should be a valid string"),
    ("walk.py", "2026-01-21", "get_cvm_info", "Input should be a valid integer"),
    ("walk.py", "2026-01-21", "get_cvm_state", "Input should be a valid integer"),
];

/// A person with the published command line.
struct Person<'a> {
    up: &'a Up,
    home: TempDir,
    key: Option<String>,
}

impl Person<'_> {
    fn api_url(&self) -> &str {
        self.up.document["api_url"].as_str().unwrap()
    }

    fn with_access(&self, command: &mut Command) {
        command.env("PHALA_CLOUD_API_PREFIX", self.api_url()).env("PHALA_CLOUD_DIR", self.home.path());
        command.env("HOME", self.home.path()).env("NO_COLOR", "1").env_remove("HTTP_PROXY");
        if let Some(key) = &self.key {
            command.env("PHALA_CLOUD_API_KEY", key);
        }
        command.stdin(Stdio::null());
    }

    fn phala(&self, arguments: &[&str]) -> Command {
        let mut command = published::command(SET, "phala");
        self.with_access(&mut command);
        command.args(arguments);
        command
    }

    /// Logs in as on a machine without a browser; the operator lets it in.
    async fn log_in(&mut self) {
        let mut login = self.phala(&["login", "--no-open", "--print-token"]);
        let mut login = login.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut words = BufReader::new(login.stderr.take().unwrap()).lines();
        let mut data = BufReader::new(login.stdout.take().unwrap()).lines();
        let mut approved = false;
        while !approved {
            let line = tokio::time::timeout(PATIENCE, words.next_line()).await.expect("in time").unwrap();
            if let Some((_, code)) = line.expect("a code").split_once("enter code: ") {
                let decided = self.up.run(&["tokens", "approve", code.trim()]).await;
                assert_eq!(decided.code, 0, "{decided:?}");
                approved = true;
            }
        }
        // What it says further has to go somewhere.
        let rest = tokio::spawn(async move { while let Ok(Some(_)) = words.next_line().await {} });
        while let Some(line) =
            tokio::time::timeout(PATIENCE, data.next_line()).await.expect("in time").unwrap()
        {
            if let Some(start) = line.find("phak_") {
                self.key = Some(line[start..].trim().to_owned());
            }
        }
        rest.await.unwrap();
        assert!(login.wait().await.unwrap().success() && self.key.is_some());
    }

    /// Runs a command of it; what it prints holds all of these.
    async fn runs(&self, arguments: &[&str], shown: &[&str]) {
        let output = published::ended(self.phala(arguments)).await;
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "phala {arguments:?}: {text}");
        for wanted in shown {
            assert!(text.contains(wanted), "phala {arguments:?} does not show {wanted:?}: {text}");
        }
    }

    /// What a library gets of a CVM in a version.
    async fn walk(&self, script: &str, version: &str) -> Map<String, Value> {
        let mut command = published::program(SET, script, &[NAME, version]);
        self.with_access(&mut command);
        match published::printed(command).await {
            Value::Object(seen) => seen,
            other => panic!("{script} {version}: {other}"),
        }
    }
}

/// Waits until nothing is under way for a CVM any more; it runs then.
async fn runs(api: &Api, cvm: &str) {
    let state = api.at_rest(cvm, PATIENCE).await;
    assert_eq!(state["status"], "running", "{state:#}");
}

/// What the libraries get of a running CVM.
async fn libraries_read(person: &Person<'_>) {
    let mut wrong = Vec::new();
    for (script, versions, calls) in WALKS {
        for version in versions {
            let seen = person.walk(script, version).await;
            for (call, answer) in &seen {
                let answer = answer.as_str().unwrap_or_default();
                let slip = SLIPS.iter().find(|slip| {
                    (slip.0, slip.2) == (script, call.as_str()) && (slip.1.is_empty() || slip.1 == *version)
                });
                let is_as_it_should = match slip {
                    Some((.., words)) => answer.contains(words),
                    None => !answer.contains("Error"),
                };
                if !is_as_it_should {
                    wrong.push(format!("{script} {version} {call}: {answer}"));
                }
            }
            assert_eq!(
                (seen.len(), &seen["status"]),
                (calls, &"running".into()),
                "{script} {version}: {seen:#?}"
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn write(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn published_clients_deploy_read_change_and_remove() {
    let data_dir = DataDir::new();
    let up = Up::start(data_dir.path(), None).await;
    let api = up.api();
    let image = paths::hello().join("hello.tar");
    let pushed = up.run(&["image", "push", image.to_str().unwrap()]).await;
    assert_eq!(pushed.code, 0, "{pushed:?}");
    let mut person = Person { up: &up, home: TempDir::new().unwrap(), key: None };
    person.log_in().await;

    let files = TempDir::new().unwrap();
    let compose = std::fs::read_to_string(paths::hello().join("compose.yaml")).unwrap();
    let first = write(files.path(), "docker-compose.yml", &compose);
    let env = write(files.path(), "first.env", "SECRET=one\n");
    person.runs(&["deploy", "-c", &first, "-n", NAME, "-e", &env], &["CVM created", NAME]).await;
    // What it reads while the CVM starts.
    for (arguments, shown) in [
        (&["status"][..], &["Logged in as", "Main"][..]),
        (&["whoami"], &["admin"]),
        (&["nodes", "list"], &["local"]),
        (&["os-images"], &["cloister-"]),
        (&["instance-types"], &["tdx.small", "h200.small"]),
        (&["kms", "list"], &[]),
        (&["ssh-keys", "list"], &[]),
        (&["apps"], &[NAME]),
        (&["cvms", "list"], &[NAME]),
    ] {
        person.runs(arguments, shown).await;
    }
    runs(&api, NAME).await;
    for (arguments, shown) in [
        (&["cvms", "get", NAME][..], &["running", NAME][..]),
        (&["ps", "--cvm-id", NAME], &["app-web-1", "app-api-1", "running"]),
        (&["logs", "--cvm-id", NAME, "--serial", "-n", "1000"], &["the application is healthy"]),
        (&["logs", "--cvm-id", NAME, "app-web-1"], &[]),
        (&["cvms", "attestation", NAME], &["compose-hash", "os-image-hash", "system-ready"]),
        (&["runtime-config", NAME], &["Hostname"]),
    ] {
        person.runs(arguments, shown).await;
    }
    libraries_read(&person).await;

    // Each change restarts it.
    let env = write(files.path(), "second.env", "SECRET=two\n");
    person.runs(&["envs", "update", "--cvm-id", NAME, "-e", &env], &["initiated"]).await;
    runs(&api, NAME).await;
    let second =
        write(files.path(), "second.yml", &compose.replace("restart: unless-stopped", "restart: always"));
    person.runs(&["deploy", "--cvm-id", NAME, "-c", &second], &[]).await;
    runs(&api, NAME).await;
    let resize = ["cvms", "resize", NAME, "-v", "1", "-m", "2048", "-d", "20", "-r", "true", "-y"];
    person.runs(&resize, &[]).await;
    runs(&api, NAME).await;
    let cvm = api.get(&format!("/cvms/{NAME}")).await;
    let size = ["vcpu", "memory_in_gb"].map(|name| cvm["resource"][name].as_f64());
    assert_eq!(size, [Some(1.0), Some(2.0)], "{cvm:#}");
    assert!(
        api.get(&format!("/cvms/{NAME}/docker-compose.yml"))
            .await
            .as_str()
            .unwrap()
            .contains("restart: always")
    );
    let operations: Vec<_> =
        api.operations(NAME).await.iter().map(|one| one["operation_type"].clone()).collect();
    assert_eq!(operations.len(), 4, "{operations:?}");

    let uuid = cvm["vm_uuid"].as_str().unwrap();
    person.runs(&["cvms", "replicate", uuid], &["creating"]).await;
    let all = api.get(&format!("/apps/{}/cvms", cvm["app_id"].as_str().unwrap())).await;
    let replica = all.as_array().unwrap().iter().find(|other| other["vm_uuid"] != cvm["vm_uuid"]).unwrap();
    let replica = replica["vm_uuid"].as_str().unwrap().to_owned();
    runs(&api, &replica).await;
    person.runs(&["cvms", "stop", uuid], &[]).await;
    assert_eq!(api.at_rest(uuid, PATIENCE).await["status"], "stopped");
    for cvm in [uuid, &replica] {
        person.runs(&["cvms", "delete", cvm, "--force"], &[]).await;
        api.gone(cvm, PATIENCE).await;
    }
    person.runs(&["logout"], &[]).await;
    assert_eq!(up.interrupt().await, 0);
}
