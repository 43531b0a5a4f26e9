//! The catalogue of guest images, and what a CVM may change to.

use axum::body::Body;
use axum::http::Request;
use cloister_app_compose::OsImageHash;
use cloister_node_api::NodeImage;
use serde_json::{Value, json};

use super::{Answer, Installation, report};
use crate::os_images::tests::{archive, hash_of, image_files};

async fn add(installation: &Installation, key: &str, bytes: Vec<u8>) -> Answer {
    let request = Request::builder().method("POST").uri("/api/v1/admin/os-images").header("x-api-key", key);
    installation.send(request.body(Body::from(bytes)).unwrap()).await
}

#[tokio::test]
async fn the_operator_keeps_the_catalogue() {
    let installation = Installation::new().await;
    let admin = [("x-api-key", installation.admin.as_str())];
    let files = image_files("0.2.0", false);
    let hash = hash_of(&files).to_string();
    for _ in 0..2 {
        let added = add(&installation, &installation.admin, archive(&files)).await.expect(201).json();
        assert_eq!((&added["os_image_hash"], &added["state"]), (&json!(hash), &json!("offered")));
    }
    assert_eq!(add(&installation, &installation.tenant, archive(&files)).await.summary(), "403 plain");
    assert_eq!(add(&installation, &installation.admin, b"x".repeat(1000)).await.summary(), "400 plain");

    let list = installation.call("GET", "/os-images", Value::Null).await.expect(200).json();
    let names: Vec<_> = list["items"].as_array().unwrap().iter().map(|image| &image["name"]).collect();
    assert_eq!(names, ["cloister-0.2.0", "cloister-0.1.0"], "the catalogue's and the node's, newest first");
    assert_eq!((&list["items"][0]["version"], &list["items"][0]["is_dev"]), (&json!("0.2.0"), &json!(false)));

    let path = format!("/admin/os-images/0x{hash}");
    installation.call_with(&admin, "DELETE", &path, Value::Null).await.expect(204);
    assert_eq!(installation.call_with(&admin, "DELETE", &path, Value::Null).await.summary(), "404 plain");
    let left =
        installation.call_with(&admin, "GET", "/admin/os-images", Value::Null).await.expect(200).json();
    assert_eq!(left, json!([]));
    for path in ["/admin/os-images/zz", &format!("/admin/os-images/{}", "00".repeat(32))] {
        assert_eq!(installation.call_with(&admin, "DELETE", path, Value::Null).await.summary(), "404 plain");
    }
}

fn image(name: &str, seed: u8, version: &str, is_dev: bool) -> NodeImage {
    let os_image_hash = OsImageHash::from_bytes([seed; 32]);
    NodeImage { name: name.into(), version: version.into(), is_dev, os_image_hash, supports_gpu: false }
}

#[tokio::test]
async fn a_cvm_may_change_to_images_of_its_kind() {
    let installation = Installation::new().await;
    let vm = installation.create("my-app").await;
    let mut here = report(65536, false);
    here.images.push(image("cloister-0.10.0", 6, "0.10.0", true));
    here.images.push(image("cloister-0.9.0.1", 7, "0.9.0.1", true));
    here.images.push(image("cloister-prod-0.10.0", 8, "0.10.0", false));
    installation.report(&here).await;
    let path = format!("/cvms/{}/available-os-images", vm["id"]);
    let listed = installation.get_in("2026-01-21", &path).await.expect(200).json();
    let versions: Vec<_> = listed.as_array().unwrap().iter().map(|entry| entry["version"].clone()).collect();
    assert_eq!(versions, [json!([0, 10, 0]), json!([0, 9, 0, 1]), json!([0, 1, 0])]);
    assert_eq!(
        listed[2],
        json!({"version": [0, 1, 0], "prod": null, "dev": {
            "name": "cloister-0.1.0", "slug": "cloister-0.1.0", "os_image_hash": "05".repeat(32), "is_current": true,
        }})
    );
    assert_eq!((&listed[0]["prod"], &listed[0]["dev"]["is_current"]), (&Value::Null, &json!(false)));

    let keyed = installation.call("GET", &path, Value::Null).await.expect(200).json();
    assert_eq!(keyed[1]["version"], json!({"[0]": 0, "[1]": 9, "[2]": 0, "[3]": 1}));
}

#[tokio::test]
async fn what_is_retired_is_for_no_new_cvm() {
    let installation = Installation::new().await;
    let vm = installation.create("my-app").await;
    let files = image_files("0.2.0", true);
    let hash = hash_of(&files);
    add(&installation, &installation.admin, archive(&files)).await.expect(201);
    let mut here = report(65536, false);
    here.images.push(NodeImage { os_image_hash: hash, ..image("cloister-0.2.0", 0, "0.2.0", true) });
    installation.report(&here).await;
    let provision = |name: &str| {
        json!({ "name": name, "image": "cloister-0.2.0", "compose_file": {
            "name": name, "docker_compose_file": "services:\n  web:\n    image: nginx\n" } })
    };
    let earlier =
        installation.call("POST", "/cvms/provision", provision("early-app")).await.expect(200).json();
    let names = async || {
        let list = installation.call("GET", "/os-images", Value::Null).await.expect(200).json();
        let path = format!("/cvms/{}/available-os-images", vm["id"]);
        let fitting = installation.call("GET", &path, Value::Null).await.expect(200).json();
        (list["items"].as_array().unwrap().len(), fitting.as_array().unwrap().len())
    };
    assert_eq!(names().await, (2, 2));

    let admin = [("x-api-key", installation.admin.as_str())];
    installation
        .call_with(&admin, "DELETE", &format!("/admin/os-images/{hash}"), Value::Null)
        .await
        .expect(204);
    // The node has its files still.
    installation.report(&here).await;
    assert_eq!(names().await, (1, 1));
    let refused = installation.call("POST", "/cvms/provision", provision("late-app")).await;
    assert_eq!(refused.summary(), "400 ERR-02-010");
    let body = json!({ "app_id": earlier["app_id"], "compose_hash": earlier["compose_hash"] });
    assert_eq!(installation.call("POST", "/cvms", body).await.summary(), "400 ERR-02-010");
    let path = format!("/cvms/{}/os-image", vm["id"]);
    let refused = installation.call("PATCH", &path, json!({ "os_image_name": "cloister-0.2.0" })).await;
    assert_eq!(refused.summary(), "400 ERR-02-010");
    // Added again it is offered again.
    add(&installation, &installation.admin, archive(&files)).await.expect(201);
    assert_eq!(names().await, (2, 2));
}
