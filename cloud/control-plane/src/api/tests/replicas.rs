//! Replicas and instances through the interface.

use cloister_app_compose::OsImageHash;
use serde_json::{Value, json};

use super::{Installation, account, report};
use crate::operations::CvmStatus;

async fn running(installation: &Installation, name: &str) -> Value {
    let vm = installation.create(name).await;
    installation.settle(&vm, CvmStatus::Running).await;
    vm
}

/// A second node that reports.
async fn further_node(installation: &Installation, image: u8, memory_mb: u32) -> i64 {
    let mut report = report(memory_mb, false);
    report.images[0].os_image_hash = OsImageHash::from_bytes([image; 32]);
    let now_ms = installation.app.clock.now_ms();
    let mut change = installation.app.store.change().await.unwrap();
    let node = change.insert_node("further", now_ms).await.unwrap();
    change.put_node_report(node, &serde_json::to_string(&report).unwrap(), now_ms).await.unwrap();
    change.commit().await.unwrap();
    node
}

#[tokio::test]
async fn every_form_of_an_empty_body_makes_a_replica_beside_its_source() {
    let installation = Installation::new().await;
    let vm = running(&installation, "my-app").await;
    let path = format!("/cvms/{}/replicas", vm["id"]);
    for (number, body) in [
        Value::Null,
        json!({}),
        json!({"node_id": null, "encrypted_env": null, "compose_hash": null}),
        json!(""),
    ]
    .into_iter()
    .enumerate()
    .take(3)
    {
        let headers = [("x-api-key", installation.tenant.as_str()), ("x-prepare-only", "true")];
        let replica = installation.call_with(&headers, "POST", &path, body).await.expect(200).json();
        assert_eq!(replica["name"], format!("my-app-r{}", number + 2));
        for same in
            ["app_id", "teepod_id", "vcpu", "memory", "disk_size", "base_image", "docker_compose_file"]
        {
            assert_eq!(replica[same], vm[same], "{same}");
        }
        assert!(replica["vm_uuid"] != vm["vm_uuid"] && replica["instance_id"].is_null());
        assert_eq!(replica["status"], "creating");
    }
    // The same by application, in all its spellings.
    let app = vm["app_id"].as_str().unwrap();
    for app in [app.to_owned(), format!("0x{app}"), format!("app_{app}")] {
        let path = format!("/apps/{app}/cvms/{}/replicas", vm["vm_uuid"].as_str().unwrap());
        installation.call("POST", &path, Value::Null).await.expect(200);
    }
    let list = installation.call("GET", "/cvms", Value::Null).await.json();
    assert_eq!(list.as_array().unwrap().len(), 7);
}

#[tokio::test]
async fn refusals_of_replicas() {
    let installation = Installation::new().await;
    let vm = running(&installation, "my-app").await;
    let other = running(&installation, "other-app").await;
    let without_image = further_node(&installation, 9, 65536).await;
    let path = format!("/cvms/{}/replicas", vm["id"]);
    let of_app = |app: &Value| {
        format!("/apps/{}/cvms/{}/replicas", app.as_str().unwrap(), vm["vm_uuid"].as_str().unwrap())
    };
    let cases = [
        (&path, json!({"node_id": 77}), "404 ERR-01-001"),
        (&path, json!({"node_id": without_image}), "400 ERR-03-006"),
        (&path, json!({"teepod_id": without_image}), "400 ERR-03-006"),
        (&path, json!({"encrypted_env": "zz"}), "400 ERR-02-008"),
        (&path, json!({"encrypted_env": "ab".repeat(60)}), "400 ERR-02-008"),
        (&path, json!({"encrypted_env": "ab".repeat(61)}), "400 ERR-02-009"),
        (&path, json!({"compose_hash": "11".repeat(32)}), "400 ERR-02-008"),
        (&path, json!({"compose_hash": "11"}), "422 validation"),
        (&path, json!({"node_id": "x"}), "422 validation"),
        (&of_app(&other["app_id"]), Value::Null, "400 ERR-02-009"),
        (&"/apps/none/cvms/none/replicas".to_owned(), Value::Null, "404 ERR-03-001"),
        (&"/cvms/none-such/replicas".to_owned(), Value::Null, "404 ERR-03-001"),
    ];
    for (path, body, expected) in cases {
        let answer = installation.call("POST", path, body.clone()).await;
        assert_eq!(answer.summary(), expected, "{path} {body}: {}", answer.text);
    }
    installation.report(&report(65536, true)).await;
    assert_eq!(installation.call("POST", &path, Value::Null).await.summary(), "400 ERR-02-012");
    installation.report(&report(1024, false)).await;
    assert_eq!(installation.call("POST", &path, Value::Null).await.summary(), "400 ERR-02-004");

    installation.report(&report(65536, false)).await;
    let (_, _, stranger) =
        account(&installation.app.store, "stranger", "user", 7, installation.app.clock.now_ms()).await;
    for path in [&path, &of_app(&vm["app_id"])] {
        let answer = installation.call_with(&[("x-api-key", &stranger)], "POST", path, Value::Null).await;
        assert_eq!(answer.summary(), "403 ERR-03-004");
    }
    let list = installation.call("GET", "/cvms", Value::Null).await.json();
    assert_eq!(list.as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn an_instance_goes_where_the_application_is_not_yet() {
    let installation = Installation::new().await;
    let vm = running(&installation, "my-app").await;
    let further = further_node(&installation, 5, 16384).await;
    let path = format!("/apps/{}/instances", vm["app_id"].as_str().unwrap());
    let instance = installation.call("POST", &path, json!({"name": "second"})).await.expect(200).json();
    assert_eq!((&instance["teepod_id"], &instance["name"]), (&json!(further), &json!("second")));
    assert!(instance["id"].is_i64() && instance.get("resource").is_none());

    let headers = [("x-api-key", installation.tenant.as_str()), ("x-phala-version", "2026-05-22")];
    let both = installation.call_with(&headers, "POST", &path, json!({})).await.expect(200).json();
    assert!(both["id"].as_str().unwrap().starts_with("cvm_"));
    assert!(both["resource"].is_object() && both["teepod_id"].is_i64() && both["vcpu"].is_i64());

    // Another document for one instance: from then on which one is meant has to be said.
    let compose = "services:\n  web:\n    image: nginx:2\n";
    let changed =
        installation.call("POST", &path, json!({"docker_compose_file": compose})).await.expect(200).json();
    assert_eq!((&changed["docker_compose_file"], &changed["app_id"]), (&json!(compose), &vm["app_id"]));
    assert_eq!(installation.call("POST", &path, Value::Null).await.summary(), "400 ERR-03-009");
    let hash = installation.row(&changed).await.compose_hash.to_string();
    let again = installation.call("POST", &path, json!({"compose_hash": hash})).await.expect(200).json();
    assert_eq!(again["docker_compose_file"], compose);

    let hash = installation.row(&vm).await.compose_hash.to_string();
    for (body, expected) in [
        (json!({"compose_hash": hash, "docker_compose_file": "services: ["}), "400 ERR-01-003"),
        (json!({"compose_hash": hash, "name": "x"}), "422 validation"),
        (json!({"compose_hash": hash, "name": "MY-APP"}), "409 ERR-01-004"),
        (json!({"token": "1b4e28ba-2fa1-11d2-883f-0016d3cca427"}), "466 ERR-01-006"),
    ] {
        let answer = installation.call("POST", &path, body.clone()).await;
        assert_eq!(answer.summary(), expected, "{body}: {}", answer.text);
    }
    let unknown = format!("/apps/{}/instances", "12".repeat(20));
    assert_eq!(installation.call("POST", &unknown, Value::Null).await.summary(), "404 plain");
    let (_, _, stranger) =
        account(&installation.app.store, "stranger", "user", 7, installation.app.clock.now_ms()).await;
    let answer = installation.call_with(&[("x-api-key", &stranger)], "POST", &path, Value::Null).await;
    assert_eq!(answer.summary(), "404 plain");
}
