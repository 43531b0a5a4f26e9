//! What goes wrong on the way, each with a reason that a person can act on and nothing left behind.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use cloister_tests::api::{Api, script_app};
use cloister_tests::cloud::MortalCloud;
use cloister_tests::data_dir::DataDir;
use cloister_tests::vms::processes_of;
use cloister_tests::{PATIENCE, eventually, paths};
use reqwest::Method;
use serde_json::{Value, json};

fn data_dir() -> DataDir {
    DataDir::new()
}

async fn online(cloud: &MortalCloud) -> Api {
    let api = cloud.api(cloud.key.as_deref().unwrap());
    eventually("the node is online", PATIENCE, async || {
        (api.get("/attestations/nodes").await[0]["status"] == "ONLINE").then_some(())
    })
    .await;
    api
}

/// Waits for a CVM to fail; the reason that its operation and its state give.
async fn reason_of_failure(api: &Api, name: &str) -> String {
    let state = api.at_rest(name, PATIENCE).await;
    assert_eq!(state["status"], "error", "{state}");
    let operation = api.operations(name).await.pop().unwrap();
    assert_eq!(operation["status"], "failed", "{operation}");
    assert_eq!(operation["error_message"], state["boot_error"]);
    state["boot_error"].as_str().unwrap().to_owned()
}

async fn deleted(api: &Api, name: &str) {
    assert_eq!(api.call(Method::DELETE, &format!("/cvms/{name}"), None).await.status, 204);
    api.gone(name, PATIENCE).await;
}

fn compose_app(name: &str, compose: &str) -> Value {
    json!({
        "name": name, "runner": "docker-compose", "manifest_version": 2, "kms_enabled": false,
        "docker_compose_file": compose,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_cannot_be_found_and_a_script_that_fails() {
    let dir = data_dir();
    let cloud = MortalCloud::start(dir.path(), None).await;
    let api = online(&cloud).await;
    let missing = "services:\n  web:\n    image: registry.invalid/nobody/nothing:9\n";
    let cvm = api.create("missing-image", compose_app("missing-image", missing)).await;
    let reason = reason_of_failure(&api, "missing-image").await;
    assert!(reason.contains("registry.invalid/nobody/nothing:9"), "{reason}");
    assert!(reason.contains("cloister image push"), "it says what to do: {reason}");
    assert_eq!(processes_of(cvm["vm_uuid"].as_str().unwrap()), Vec::<u32>::new());

    let mut failing = script_app("bad-script");
    failing["pre_launch_script"] = json!("echo the disk is purple >&2\nexit 7\n");
    api.create("bad-script", failing).await;
    let reason = reason_of_failure(&api, "bad-script").await;
    assert!(reason.contains('7') && reason.contains("the disk is purple"), "{reason}");
    for name in ["missing-image", "bad-script"] {
        deleted(&api, name).await;
    }
    assert_eq!(fs::read_dir(dir.path().join("node/vms")).unwrap().count(), 0, "no files are left");
}

/// A copy of the guest images whose large files are links.
fn images_to_break(into: &Path) {
    for image in fs::read_dir(paths::guest_images()).unwrap().flatten().filter(|entry| entry.path().is_dir())
    {
        let copy = into.join(image.file_name());
        fs::create_dir_all(&copy).unwrap();
        for file in fs::read_dir(image.path()).unwrap().flatten() {
            symlink(file.path(), copy.join(file.file_name())).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_image_that_breaks_after_it_was_chosen() {
    let (dir, images) = (data_dir(), data_dir());
    images_to_break(images.path());
    let cloud = MortalCloud::start_with_images(dir.path(), images.path(), None).await;
    let api = online(&cloud).await;
    let provision = api.provision("broken-image", script_app("broken-image")).await;
    for image in fs::read_dir(images.path()).unwrap().flatten() {
        let initrd = image.path().join("initrd.img");
        fs::remove_file(&initrd).unwrap();
        fs::write(&initrd, "not an initial RAM disk").unwrap();
    }
    let request = json!({ "app_id": provision["app_id"], "compose_hash": provision["compose_hash"] });
    let answer = api.call(Method::POST, "/cvms", Some(request)).await;
    if answer.status.is_success() {
        let reason = reason_of_failure(&api, "broken-image").await;
        assert!(reason.contains("image"), "{reason}");
        let uuid = answer.body["vm_uuid"].as_str().unwrap();
        assert_eq!(processes_of(uuid), Vec::<u32>::new());
        deleted(&api, "broken-image").await;
    } else {
        // The node noticed, and told, before the call came.
        assert_eq!(answer.status, 400, "{answer:?}");
    }
    let next =
        json!({ "name": "next-one", "compose_file": script_app("next-one"), "vcpu": 1, "memory": 512 });
    eventually("no image is offered any more", PATIENCE, async || {
        let refused = api.call(Method::POST, "/cvms/provision", Some(next.clone())).await;
        (refused.status == 400).then_some(())
    })
    .await;
}
