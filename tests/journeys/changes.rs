//! Changing a CVM that people use: what is new comes up with the same disk, identity and address, and what does
//! not come up takes itself back.

use std::path::{Path, PathBuf};

use cloister_tests::command::{Ran, Up};
use cloister_tests::data_dir::DataDir;
use cloister_tests::http::get_text;
use cloister_tests::{PATIENCE, eventually, guest_images, paths};
use serde_json::Value;

/// What a line of the example's compose file says, and what a new version of it says.
const GREETING: &str = "${DSTACK_APP_NAME:-hello}";
/// Version of the image that never boots.
const BROKEN: &str = "9.9.9";

async fn page(up: &Up, greeting: &str) -> String {
    let url = up.document["app_url"].as_str().unwrap().to_owned();
    eventually(&format!("the page says {greeting:?}"), PATIENCE, async || {
        get_text(&url).await.filter(|page| page.contains(greeting) && page.contains("two services"))
    })
    .await
}

async fn done(up: &Up, arguments: &[&str]) -> Value {
    let ran: Ran = up.run(arguments).await;
    assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
    serde_json::from_str(&ran.stdout).unwrap_or(Value::Null)
}

/// The example's compose file with one text replaced.
fn variant(dir: &Path, name: &str, from: &str, to: &str) -> PathBuf {
    let text = std::fs::read_to_string(paths::hello().join("compose.yaml")).unwrap();
    assert!(text.contains(from), "{from}");
    let file = dir.join(name);
    std::fs::write(&file, text.replacen(from, to, 1)).unwrap();
    file
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_comes_up_or_takes_itself_back() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let dir = DataDir::new();
    let up = Up::start(dir.path(), Some(&paths::hello())).await;
    page(&up, "Hello from hello").await;
    let first = done(&up, &["--json", "cvms", "get", "hello"]).await;

    // What is new is known before it is there, and is what is there afterwards.
    let second = variant(dir.path(), "second.yaml", GREETING, "second");
    let second = second.to_str().unwrap();
    let announced = done(&up, &["--json", "diff", "hello", "-c", second]).await;
    assert_eq!(announced["compose_hash"]["before"], first["compose_hash"]);
    done(&up, &["update", "hello", "-c", second]).await;
    page(&up, "Hello from second").await;
    let now = done(&up, &["--json", "cvms", "get", "hello"]).await;
    assert_eq!(now["compose_hash"], announced["compose_hash"]["after"]);
    for kept in ["vm_uuid", "app_id", "instance_id", "id"] {
        assert_eq!(now[kept], first[kept], "{kept} stays");
    }

    // An application that ends over and over is not what anybody wants to be left with.
    let bad = variant(dir.path(), "bad.yaml", "[\"web\"]", "[\"no-such-thing\"]");
    let ran = up.run(&["update", "hello", "-c", bad.to_str().unwrap()]).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("former configuration"), "{ran:?}");
    page(&up, "Hello from second").await;

    // Nor is a system that does not come up.
    let images = tempfile::tempdir().unwrap();
    let broken =
        guest_images::that_never_boots(&guest_images::newest(&paths::guest_images()), images.path(), BROKEN);
    done(&up, &["os-images", "add", broken.to_str().unwrap()]).await;
    let name = format!("cloister-{BROKEN}");
    eventually("the node has the image", PATIENCE, async || {
        let fitting = up.run(&["os-images", "for", "hello"]).await;
        fitting.stdout.contains(&name).then_some(())
    })
    .await;
    let ran = up.run(&["update", "hello", "--image", &name]).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    page(&up, "Hello from second").await;
    let after = done(&up, &["--json", "cvms", "get", "hello"]).await;
    assert_eq!((&after["os"]["name"], &after["status"]), (&first["os"]["name"], &Value::from("running")));

    // The history tells all of it, and brings the first version back.
    let app = first["app_id"].as_str().unwrap();
    let history = done(&up, &["--json", "revisions", "list", app]).await;
    let states: Vec<_> = history["revisions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|revision| revision["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["rolled_back", "rolled_back", "current", "superseded"]);
    let deployed = history["revisions"][3]["revision_id"].as_str().unwrap();
    done(&up, &["revisions", "redeploy", app, deployed]).await;
    page(&up, "Hello from hello").await;
    let back = done(&up, &["--json", "cvms", "get", "hello"]).await;
    assert_eq!(back["compose_hash"], first["compose_hash"]);
    assert_eq!(up.interrupt().await, 0);
}
