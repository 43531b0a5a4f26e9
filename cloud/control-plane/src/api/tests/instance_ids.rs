//! Refreshing instance ids, with a node that answers over mutual TLS.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use cloister_fleet_tls::{Identity, TlsListener, server_config};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{Installation, account, report};
use crate::operations::CvmStatus;

/// What the guests on the node say, by VM.
type Guests = Arc<Mutex<HashMap<String, Value>>>;

fn vm(guests: &Guests, vm: &str) -> Response {
    let Some(instance_id) = guests.lock().get(vm).cloned() else {
        return (StatusCode::NOT_FOUND, Json(json!({"code": "unknown_vm", "message": "no such VM"})))
            .into_response();
    };
    Json(json!({"vm_uuid": vm, "state": "running", "instance_id": instance_id, "started_at": null,
                "exited_at": null}))
    .into_response()
}

async fn installation() -> (Installation, Guests) {
    let installation = Installation::with_clock(crate::clock::Clock::system()).await;
    let guests = Guests::default();
    let of_node = Arc::clone(&guests);
    let router =
        Router::new().route("/v1/vms/{vm}", get(async move |Path(id): Path<String>| vm(&of_node, &id)));
    let names = ["127.0.0.1".to_owned()];
    let identity = Identity::Node("local".to_owned());
    let credentials =
        installation.app.authority.issue(&identity, &names, installation.app.clock.now()).unwrap();
    let listener = TlsListener::bind(
        "127.0.0.1:0".parse().unwrap(),
        Arc::new(server_config(&credentials, true).unwrap()),
    );
    let listener = listener.await.unwrap();
    let mut here = report(65536, false);
    here.endpoint = listener.address().to_string();
    tokio::spawn(async move { axum::serve(listener, router).await });
    installation.report(&here).await;
    (installation, guests)
}

impl Installation {
    async fn refresh(&self, vm: &Value, body: Value) -> Value {
        let path = format!("/cvms/{}/instance-id", vm["id"]);
        self.call("PATCH", &path, body).await.expect(200).json()
    }

    async fn running(&self, name: &str) -> Value {
        let vm = self.create(name).await;
        self.settle(&vm, CvmStatus::Running).await;
        vm
    }
}

#[tokio::test]
async fn what_is_missing_is_found_at_the_node() {
    let (installation, guests) = installation().await;
    let vm = installation.running("my-app").await;
    let uuid = vm["vm_uuid"].as_str().unwrap().to_owned();
    let id = "0a".repeat(20);

    let unknown = installation.refresh(&vm, Value::Null).await;
    assert_eq!((&unknown["status"], &unknown["reason"]), (&json!("error"), &json!("no such VM")));
    guests.lock().insert(uuid.clone(), Value::Null);
    let silent = installation.refresh(&vm, json!({})).await;
    assert_eq!((&silent["status"], &silent["source"]), (&json!("skipped"), &json!("none")));

    guests.lock().insert(uuid.clone(), json!(id));
    let dry = installation.refresh(&vm, json!({"dry_run": true})).await;
    assert_eq!((&dry["status"], &dry["new_instance_id"]), (&json!("updated"), &json!(id)));
    assert_eq!(dry["verified_with_gateway"], false, "nothing was stored that could be routed");
    assert!(installation.row(&vm).await.instance_id.is_none());

    let stored = installation.refresh(&vm, json!({"overwrite": false, "dry_run": false})).await;
    assert_eq!(
        stored,
        json!({"cvm_id": vm["id"], "identifier": uuid, "status": "updated", "old_instance_id": null,
               "new_instance_id": id, "source": "teepod_info", "verified_with_gateway": true, "reason": null})
    );
    let again = installation.refresh(&vm, Value::Null).await;
    assert_eq!((&again["status"], &again["source"]), (&json!("unchanged"), &json!("teepod_state")));

    // The guest has another one by now.
    let other = "0b".repeat(20);
    guests.lock().insert(uuid, json!(other));
    assert_eq!(installation.refresh(&vm, Value::Null).await["status"], "unchanged");
    let replaced = installation.refresh(&vm, json!({"overwrite": true})).await;
    assert_eq!((&replaced["status"], &replaced["old_instance_id"]), (&json!("updated"), &json!(id)));
    assert_eq!(installation.row(&vm).await.instance_id, Some(other));

    let path = format!("/cvms/{}/instance-id", vm["id"]);
    let headers = [("x-api-key", installation.tenant.as_str()), ("x-phala-version", "2026-05-22")];
    let later = installation.call_with(&headers, "PATCH", &path, Value::Null).await.expect(200).json();
    assert!(later["cvm_id"].as_str().unwrap().starts_with("cvm_"));
    assert_eq!(
        installation.call("PATCH", &path, json!({"overwrite": "x"})).await.summary(),
        "422 validation"
    );
}

#[tokio::test]
async fn many_at_once() {
    let (installation, guests) = installation().await;
    let mut vms = Vec::new();
    for (number, name) in ["first-app", "second-app", "third-app"].into_iter().enumerate() {
        let vm = installation.running(name).await;
        // The third guest claims to be the second.
        let id = format!("{:02x}", number.min(1)).repeat(20);
        guests.lock().insert(vm["vm_uuid"].as_str().unwrap().to_owned(), json!(id));
        vms.push(vm);
    }
    let stopped = installation.create("stopped-app").await;
    installation.settle(&stopped, CvmStatus::Stopped).await;

    let limited =
        installation.call("PATCH", "/cvms/instance-ids", json!({"limit": 2, "dry_run": true})).await;
    let limited = limited.expect(200).json();
    assert_eq!(
        (&limited["total"], &limited["scanned"], &limited["updated"]),
        (&json!(3), &json!(2), &json!(2))
    );
    installation.refresh(&vms[1], Value::Null).await;
    let all = installation.call("PATCH", "/cvms/instance-ids", Value::Null).await.expect(200).json();
    assert_eq!((&all["total"], &all["updated"], &all["conflicts"]), (&json!(2), &json!(1), &json!(1)));
    let conflict = all["items"].as_array().unwrap().iter().find(|item| item["status"] == "conflict").unwrap();
    assert_eq!(
        (&conflict["cvm_id"], &conflict["reason"]),
        (&vms[2]["id"], &json!("another CVM has this instance id"))
    );
    assert!(installation.row(&vms[2]).await.instance_id.is_none());

    let (_, _, stranger) =
        account(&installation.app.store, "stranger", "user", 7, installation.app.clock.now_ms()).await;
    let named =
        json!({"cvm_ids": [vms[0]["id"], vms[1]["id"].to_string(), "cvm_none", 77], "missing_only": false});
    let many = async |key: &str| {
        let headers = [("x-api-key", key)];
        let answer = installation.call_with(&headers, "PATCH", "/cvms/instance-ids", named.clone()).await;
        answer.expect(200).json()
    };
    let foreign = many(&stranger).await;
    assert_eq!((&foreign["errors"], &foreign["items"][0]["reason"]), (&json!(4), &json!("CVM not found")));
    assert_eq!(foreign["items"][0]["old_instance_id"], Value::Null);
    for key in [&installation.tenant, &installation.admin] {
        let own = many(key).await;
        assert_eq!((&own["unchanged"], &own["errors"], &own["total"]), (&json!(2), &json!(2), &json!(4)));
    }
    for limit in [0, 501] {
        let refused = installation.call("PATCH", "/cvms/instance-ids", json!({"limit": limit})).await;
        assert_eq!(refused.summary(), "422 validation");
    }
}
