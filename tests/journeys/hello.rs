//! The main job as a person does it: `cloister up` with the hello example, the commands of the command
//! line, Ctrl-C, the next start, and the end.

use cloister_tests::command::Up;
use cloister_tests::data_dir::DataDir;
use cloister_tests::http::get_text;
use cloister_tests::vms::processes_of;
use cloister_tests::{PATIENCE, eventually, paths};
use serde_json::Value;

use crate::used::{self, now, served};

/// The page once the service behind it answers too.
async fn whole_page(up: &Up) -> String {
    let url = up.document["app_url"].as_str().unwrap().to_owned();
    eventually("both services answer", PATIENCE, async || {
        get_text(&url).await.filter(|page| page.contains("two services, one compose file"))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn hello_from_the_first_start_to_the_end() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let data_dir = DataDir::new();
    let up = Up::start(data_dir.path(), Some(&paths::hello())).await;
    assert!(whole_page(&up).await.contains("Hello from hello"));

    let listed = up.run(&["--json", "cvms", "list"]).await.json();
    let cvm = &listed["items"][0];
    assert_eq!((&cvm["name"], &cvm["status"]), (&Value::from("hello"), &Value::from("running")));
    let uuid = cvm["vm_uuid"].as_str().unwrap().to_owned();
    assert_eq!(processes_of(&uuid).len(), 1);
    let logs = up.run(&["cvms", "logs", "hello"]).await;
    assert_eq!(logs.code, 0, "{logs:?}");
    let operations = up.run(&["--json", "operations", "list", "hello"]).await.json();
    assert_eq!(operations["items"][0]["operation_type"], "create");
    assert_eq!(up.run(&["cvms", "get", "no-such-cvm"]).await.code, 3);
    let compose = paths::hello().join("compose.yaml");
    let again = up.run(&["deploy", "-c", compose.to_str().unwrap(), "-n", "hello"]).await;
    assert_eq!(again.code, 5, "the name is taken: {again:?}");

    let (app_id, created) =
        (cvm["app_id"].as_str().unwrap(), served(&up, "hello", &[], &[(now(), now())]).await);

    // The data stays over Ctrl-C, no VM does; the next start brings the same CVM back.
    let interrupted = now();
    assert_eq!(up.interrupt().await, 0);
    assert_eq!(processes_of(&uuid), Vec::<u32>::new());
    let off = now();
    let up = Up::start(data_dir.path(), Some(&paths::hello())).await;
    whole_page(&up).await;
    let listed = up.run(&["--json", "cvms", "list"]).await.json();
    let back = now();
    assert_eq!(listed["items"][0]["vm_uuid"].as_str(), Some(uuid.as_str()));
    assert_eq!(listed["total"], 1);

    for (command, status) in [("shutdown", "stopped"), ("start", "running"), ("stop", "stopped")] {
        let ran = up.run(&["cvms", command, "hello"]).await;
        assert_eq!(ran.code, 0, "{ran:?}");
        let state = up.run(&["--json", "cvms", "get", "hello"]).await.json();
        assert_eq!(state["status"], status, "after {command}");
        if command == "shutdown" {
            let resized = up.run(&["update", "hello", "--vcpu", "3", "--disk", "21"]).await;
            assert_eq!(resized.code, 0, "{resized:?}");
        }
    }
    let (served, deleted_after) = (served(&up, "hello", &[(off, back)], &[(interrupted, back)]).await, now());
    assert_eq!(served.len(), 3, "before Ctrl-C, after it, and once more");
    // Where all of this went by within one minute, nothing is used yet.
    let usage = format!("/apps/{app_id}/usage");
    eventually("a minute of its disk is used", PATIENCE, async || {
        let usage = up.api().get(&usage).await;
        let mut records = usage["usage"].as_array()?.iter();
        records.any(|record| record["usage_type"] == "storage").then_some(())
    })
    .await;
    let deleted = up.run(&["cvms", "delete", "hello", "--yes"]).await;
    assert_eq!(deleted.code, 0, "{deleted:?}");
    assert_eq!(up.run(&["cvms", "get", "hello"]).await.code, 3);
    used::check(&up.api(), app_id, &served, (created[0].0, (deleted_after, now()))).await;
    assert_eq!(processes_of(&uuid), Vec::<u32>::new());
    assert!(!data_dir.path().join("node/vms").join(&uuid).exists());
    assert_eq!(up.interrupt().await, 0);
}
