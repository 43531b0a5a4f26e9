//! The command line from its login to the removal of what it deployed, and what the libraries read meanwhile in every dated
//! version.

use cloister_tests::api::Api;
use cloister_tests::command::Up;
use cloister_tests::data_dir::DataDir;
use cloister_tests::{PATIENCE, paths};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Person, write};

const NAME: &str = "published";
const SSH_KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f ada@laptop";

/// The libraries, the versions that they can be told to speak and read, and what they tell of in each.
const WALKS: [(&str, &[&str], usize); 2] = [
    ("walk.mjs", &["2025-10-28", "2026-01-21"], 21),
    ("walk.py", &["2026-01-21", "2026-05-22", "2026-06-23"], 36),
];
/// Calls that fail for the client's own reasons: program, version or all, call, words of the error.
const SLIPS: [(&str, &str, &str, &str); 3] = [
    ("walk.py", "", "get_cvm_pre_launch_script", "Input should be a valid string"),
    ("walk.py", "2026-01-21", "get_cvm_info", "Input should be a valid integer"),
    ("walk.py", "2026-01-21", "get_cvm_state", "Input should be a valid integer"),
];

/// What the command line shows while a CVM starts.
const SHOWN_AT_FIRST: [(&[&str], &[&str]); 23] = [
    (&["status"], &["Logged in as", "Main"]),
    (&["status", "--json"], &["2026-01-21"]),
    (&["auth", "status"], &["admin"]),
    (&["whoami"], &["admin"]),
    (&["api", "/cvms", "-q", ".[].name"], &[NAME]),
    (&["api", "-X", "POST", "/status/batch", "-F", "vm_uuids:=[]"], &["{}"]),
    (&["nodes", "list"], &["local"]),
    (&["os-images"], &["cloister-"]),
    (&["os-images", "--dev", "--all"], &[]),
    (&["instance-types"], &["tdx.small", "h200.small"]),
    (&["instance-types", "cpu"], &["tdx.large"]),
    (&["instance-types", "gpu"], &["b200.small"]),
    (&["kms", "list"], &[]),
    (&["kms", "ethereum"], &["No KMS contracts"]),
    (&["kms", "base"], &["No KMS contracts"]),
    (&["ssh-keys", "list"], &["laptop", "ed25519"]),
    (&["apps"], &[NAME]),
    (&["apps", "--search", NAME, "--page-size", "1"], &[NAME, "Page 1/1"]),
    (&["cvms", "list"], &[NAME]),
    (&["cvms", "list-nodes"], &["local", "cloister-"]),
    (&["cvms", "device-allowlist", NAME], &["does not use on-chain KMS"]),
    (&["envs", "encrypt", NAME, "-e", "SECRET=two"], &[]),
    (&["help", "envs"], &["PHALA_CLOUD_API_PREFIX"]),
];
/// What it shows of a CVM that runs.
const SHOWN: [(&[&str], &[&str]); 13] = [
    (&["cvms", "get", NAME], &["running", NAME]),
    (&["ps", "--cvm-id", NAME], &["app-web-1", "app-api-1", "running"]),
    (&["logs", "--cvm-id", NAME, "--serial", "-n", "1000"], &["the application is healthy"]),
    (&["logs", "--cvm-id", NAME, "app-web-1"], &[]),
    (&["logs", "--cvm-id", NAME, "--stderr"], &[]),
    (&["cvms", "logs", NAME], &[]),
    (&["cvms", "serial-logs", NAME], &["the application is healthy"]),
    (&["cvms", "attestation", NAME], &["compose-hash", "os-image-hash", "system-ready"]),
    (&["runtime-config", NAME], &["Hostname"]),
    (&["ssh", NAME, "--dry-run"], &["-22.apps.localhost"]),
    (&["cp", "file", "published:/root/file", "--dry-run"], &["scp", "-22.apps.localhost:/root/file"]),
    (&["link", NAME], &["linked"]),
    (&["instances", "ls"], &[NAME, "running"]),
];
/// What cannot be done here, and how it says so.
const REFUSED: [(&[&str], &str); 3] = [
    (&["ssh-keys", "import-github", "somebody"], "reads no keys from other services"),
    (&["allow-devices", "list", NAME], "requires an on-chain KMS"),
    (&["cvms", "get", "nobody-has-this"], "not found"),
];

/// What the libraries get of a running CVM.
async fn libraries_read(person: &Person<'_>) {
    let mut wrong = Vec::new();
    for (script, versions, calls) in WALKS {
        for version in versions {
            let seen = person.walk(script, (NAME, version), &[]).await;
            let differing = seen.get("asynchronous").and_then(Value::as_array);
            assert!(differing.is_none_or(Vec::is_empty), "{script} {version}: {differing:#?}");
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

/// What the libraries make of refusals. The last one uses up the keys that the workspace may make in a minute.
async fn libraries_are_refused(person: &Person<'_>, api: &Api) {
    let key =
        async |scope| api.post("/tokens", json!({"name": scope, "scope": scope})).await["token"].clone();
    let [admin, reader] = [key("admin").await, key("read").await];
    let keys = [("PHALA_CLOUD_API_KEY", &admin), ("READER_KEY", &reader)];
    let keys = keys.map(|(name, key)| (name, key.as_str().unwrap()));
    let plainly = [
        ("unknown key", "AuthError 401"),
        ("key without the scope", "AuthError 403"),
        ("unknown CVM", "ResourceError 404 ERR-03-001"),
        ("unknown path", "BusinessError 404"),
        ("taken name", "ResourceError 409 ERR-01-004"),
    ];
    let seen = person.walk("troubles.py", (NAME, "2026-06-23"), &keys).await;
    for (what, told) in plainly {
        for kind in ["", "async "] {
            assert_eq!(seen[&format!("{kind}{what}")], told, "{seen:#?}");
        }
    }
    for what in ["missing member", "async missing member"] {
        assert_eq!(seen[what], "BusinessError 422", "{seen:#?}");
    }
    let seen = person.walk("troubles.mjs", (NAME, "2026-01-21"), &keys).await;
    let more = [
        ("unknown CVM, changed", "ResourceError 404 ERR-03-001"),
        ("unknown instance type", "ResourceError 400 ERR-02-001"),
        ("wrong document", "ResourceError 422 ERR-01-003"),
        ("missing member", "ValidationError 422 name"),
        ("too many keys", "ResourceError 429 ERR-05-002"),
    ];
    for (what, told) in plainly.into_iter().chain(more) {
        assert_eq!(seen[what], told, "{seen:#?}");
    }
}

/// The deprecated way to a CVM: a key for a configuration, and the CVM from both. It is not waited for.
async fn deprecated_create(person: &Person<'_>, api: &Api, compose: &str, env: &str) {
    let images = api.get("/os-images").await;
    let image = images["items"][0]["name"].as_str().unwrap();
    let size = ["--vcpu", "1", "--memory", "512", "--disk-size", "20", "--image", image];
    let create = |name| [&["cvms", "create", "--name", name, "--compose", compose], &size[..]].concat();
    person.runs(&[create("older-app"), vec!["--skip-env"]].concat(), &["CVM created successfully"]).await;
    let with_env = [create("older-two"), vec!["--env-file", env]].concat();
    person.is_refused(&with_env, "the document allows none of them").await;
    person.runs(&["cvms", "delete", "older-app", "--force"], &[]).await;
    api.gone("older-app", PATIENCE).await;
}

/// What the command line keeps on this machine, once the API has said whose key it is.
async fn profiles(person: &Person<'_>, api: &Api) {
    let key = api.get("/user/ssh-keys").await[0]["id"].as_str().unwrap().to_owned();
    person.runs(&["ssh-keys", "remove", &key], &[]).await;
    assert_eq!(api.get("/user/ssh-keys").await, json!([]));
    let login = ["login", person.key.as_deref().unwrap(), "--url", person.api_url(), "--profile", "here"];
    person.runs(&login, &["Welcome admin"]).await;
    person.runs(&["profiles"], &["here", person.api_url()]).await;
    person.runs(&["profiles", "rename", "here", "there"], &["there"]).await;
    person.runs(&["switch", "there"], &["there"]).await;
    person.runs(&["profiles", "delete", "there"], &["Deleted"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn published_clients_deploy_read_change_and_remove() {
    let data_dir = DataDir::new();
    let up = Up::start(data_dir.path(), None).await;
    let api = up.api();
    let image = paths::hello().join("hello.tar");
    let pushed = up.run(&["image", "push", image.to_str().unwrap()]).await;
    assert_eq!(pushed.code, 0, "{pushed:?}");
    let person = Person::logged_in(&up).await;

    let files = TempDir::new().unwrap();
    let compose = std::fs::read_to_string(paths::hello().join("compose.yaml")).unwrap();
    let first = write(files.path(), "docker-compose.yml", &compose);
    let env = write(files.path(), "first.env", "SECRET=one\n");
    person.runs(&["deploy", "-c", &first, "-n", NAME, "-e", &env], &["CVM created", NAME]).await;
    write(person.home.path(), "file", "to be copied");
    let key = write(files.path(), "key.pub", SSH_KEY);
    person.runs(&["ssh-keys", "add", "--name", "laptop", "--key-file", &key], &["laptop"]).await;
    for (arguments, shown) in SHOWN_AT_FIRST {
        person.runs(arguments, shown).await;
    }
    for (arguments, words) in REFUSED {
        person.is_refused(arguments, words).await;
    }
    api.runs(NAME, PATIENCE).await;
    for (arguments, shown) in SHOWN {
        person.runs(arguments, shown).await;
    }
    libraries_read(&person).await;
    libraries_are_refused(&person, &api).await;

    // Each change restarts it.
    let env = write(files.path(), "second.env", "SECRET=two\n");
    person.runs(&["envs", "update", "--cvm-id", NAME, "-e", &env], &["initiated"]).await;
    api.runs(NAME, PATIENCE).await;
    let second =
        write(files.path(), "second.yml", &compose.replace("restart: unless-stopped", "restart: always"));
    person.runs(&["deploy", "--cvm-id", NAME, "-c", &second], &[]).await;
    api.runs(NAME, PATIENCE).await;
    let resize = ["cvms", "resize", NAME, "-v", "1", "-m", "2048", "-d", "20", "-r", "true", "-y"];
    person.runs(&resize, &[]).await;
    api.runs(NAME, PATIENCE).await;
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
    api.runs(&replica, PATIENCE).await;
    person.runs(&["cvms", "stop", uuid], &[]).await;
    assert_eq!(api.at_rest(uuid, PATIENCE).await["status"], "stopped");
    person.runs(&["cvms", "restart", &replica], &[]).await;
    person.runs(&["instances", "rm", &replica, "--force"], &[]).await;
    api.gone(&replica, PATIENCE).await;
    // Of a CVM that is off, the deprecated way to another compose file.
    person.runs(&["cvms", "upgrade", uuid, "--compose", &first], &["is being upgraded"]).await;
    assert_eq!(api.at_rest(uuid, PATIENCE).await["status"], "stopped");
    let program = api.get(&format!("/cvms/{uuid}/docker-compose.yml")).await;
    assert!(!program.as_str().unwrap().contains("restart: always"));
    deprecated_create(&person, &api, &first, &env).await;
    person.runs(&["cvms", "start", uuid], &[]).await;
    person.runs(&["cvms", "delete", uuid, "--force"], &[]).await;
    api.gone(uuid, PATIENCE).await;
    profiles(&person, &api).await;
    person.runs(&["logout"], &[]).await;
    assert_eq!(up.interrupt().await, 0);
}
