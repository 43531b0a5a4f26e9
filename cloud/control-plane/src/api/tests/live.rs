//! How a CVM is now and how it is connected, with a node that answers over mutual TLS.

use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use cloister_node_api::{NodeError, NodeErrorCode};
use serde_json::{Value, json};

use super::node::serve;
use super::{Installation, report};
use crate::clock::Clock;
use crate::operations::CvmStatus;
use crate::store::Configuration;

pub(super) fn stats() -> Value {
    json!({
        "os_name": "Cloister", "os_version": "0.1.0", "kernel_version": "6.18", "cpu_model": "x", "num_cpus": 2,
        "total_memory": 8, "available_memory": 7, "used_memory": 1, "free_memory": 6, "total_swap": 0,
        "used_swap": 0, "free_swap": 0, "uptime": 9, "loadavg_one": 150, "loadavg_five": 100,
        "loadavg_fifteen": 50, "more": 1,
        "disks": [{"name": "/dev/vdb\u{1b}[2J", "mount_point": "/data", "total_size": 100, "free_size": 40}],
    })
}

/// An installation with a CVM that is up; its node answers with these documents.
pub(super) async fn installation(stats: Value, network: Value) -> (Installation, Value) {
    let installation = Installation::with_clock(Clock::system()).await;
    let refusal = NodeError { code: NodeErrorCode::GuestUnreachable, message: "no answer".into() };
    let answer = move |document: &Value| match document {
        Value::Null => (StatusCode::BAD_GATEWAY, Json(json!(refusal))).into_response(),
        document => Json(document.clone()).into_response(),
    };
    let again = answer.clone();
    let router = Router::new()
        .route("/v1/vms/{vm}/stats", get(async move || answer(&stats)))
        .route("/v1/vms/{vm}/network", get(async move || again(&network)));
    serve(&installation, router, |report| report.port_range = Some((30000, 30001))).await;
    let vm = installation.create("my-app-01").await;
    installation.settle(&vm, CvmStatus::Running).await;
    (installation, vm)
}

impl Installation {
    /// What a tenant's request for a part of the CVM is answered with.
    async fn part(&self, vm: &Value, part: &str) -> Value {
        self.call("GET", &format!("/cvms/{}/{part}", vm["id"]), Value::Null).await.expect(200).json()
    }

    async fn user_config(&self, vm: &Value, text: &str) -> super::Answer {
        let row = self.row(vm).await;
        let mut change = self.app.store.change().await.unwrap();
        let revision = change.revision(row.revision_id.unwrap()).await.unwrap().unwrap();
        let configuration = Configuration { user_config: Some(text.into()), ..row.configuration() };
        change.apply_revision(&crate::store::RevisionRow { configuration, ..revision }, 0).await.unwrap();
        change.commit().await.unwrap();
        self.call("GET", &format!("/cvms/{}/user_config", vm["id"]), Value::Null).await
    }
}

#[tokio::test]
async fn figures_of_a_guest_that_answers_and_of_one_that_does_not() {
    let (installation, vm) = installation(stats(), Value::Null).await;
    let online = installation.part(&vm, "stats").await;
    insta::assert_json_snapshot!(online);
    let members = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();

    // What an older guest tells is not enough.
    let (other, other_vm) = super::live::installation(json!({"os_name": "x"}), Value::Null).await;
    let malformed = other.part(&other_vm, "stats").await;
    assert_eq!((&malformed["is_online"], &malformed["sysinfo"]), (&json!(false), &Value::Null));
    assert!(malformed["error"].as_str().unwrap().contains("cannot be read"), "{malformed}");

    let mut change = installation.app.store.change().await.unwrap();
    let row = installation.row(&vm).await;
    change.set_cvm_status(row.id, CvmStatus::Stopped, 0).await.unwrap();
    change.commit().await.unwrap();
    let off = installation.part(&vm, "stats").await;
    assert_eq!((&off["is_online"], &off["error"]), (&json!(false), &json!("the CVM is stopped")));
    assert_eq!(members(&off), members(&online), "no member is left out");
}

#[tokio::test]
async fn the_network_of_a_vm_that_runs_and_of_one_that_does_not() {
    let port = json!({"protocol": "tcp", "host_address": "10.0.0.7", "host_port": 30000, "vm_port": 80});
    let up = json!({"internal_ip": "10.0.2.15", "last_heard_at": "2026-01-21T10:00:00Z", "ports": [port]});
    let (installation, vm) = installation(Value::Null, up).await;
    let mut online = installation.part(&vm, "network").await;
    let urls = online["public_urls"].take();
    insta::assert_json_snapshot!(online);
    let detail = installation.get_in("2026-01-21", &format!("/cvms/{}", vm["id"])).await.json();
    assert_eq!(urls, detail["endpoints"]);
    let config = installation.part(&vm, "network-config").await;
    assert_eq!(config["ports"][0]["host_address"], "10.0.0.7", "what the node has now");

    let off = json!({"internal_ip": null, "last_heard_at": null, "ports": []});
    let (installation, vm) = super::live::installation(Value::Null, off).await;
    let offline = installation.part(&vm, "network").await;
    assert_eq!((&offline["is_online"], &offline["error"]), (&json!(false), &json!("the VM does not run")));

    let (installation, vm) = super::live::installation(Value::Null, Value::Null).await;
    let path = format!("/cvms/{}/network-config", vm["id"]);
    assert_eq!(installation.call("GET", &path, Value::Null).await.summary(), "500 plain");
    assert_eq!(installation.part(&vm, "network").await["error"], "no answer");
}

#[tokio::test]
async fn the_unmeasured_configuration() {
    let (installation, vm) = installation(Value::Null, Value::Null).await;
    let empty = installation.part(&vm, "user_config").await;
    assert_eq!(empty, json!({"hostname": null, "ssh_authorized_keys": [], "default_gateway_domain": null}));
    let text = r#"{"hostname": "web", "ssh_authorized_keys": ["k"], "token": "planted-words"}"#;
    let known = installation.user_config(&vm, text).await.expect(200);
    assert_eq!(known.json()["ssh_authorized_keys"], json!(["k"]));
    let broken = installation.user_config(&vm, "{planted-words").await;
    assert_eq!(broken.summary(), "502 plain");
    assert!(!known.text.contains("planted") && !broken.text.contains("planted"));
}

#[tokio::test]
async fn ports_are_replaced_as_a_whole() {
    let (installation, vm) = installation(Value::Null, Value::Null).await;
    assert_eq!(installation.part(&vm, "firewall-status").await, json!({"available": true, "reason": null}));
    assert_eq!(installation.part(&vm, "ports").await, json!([]));
    let path = format!("/cvms/{}/ports", vm["id"]);
    let put = async |ports: Value| installation.call("PUT", &path, json!({"ports": ports})).await;

    let mapped = put(json!([{"vm_port": 80}, {"vm_port": 53, "protocol": "udp"}])).await.expect(200).json();
    insta::assert_json_snapshot!(mapped);
    assert_eq!(installation.part(&vm, "ports").await, mapped);
    assert_eq!(put(json!([])).await.summary(), "409 plain", "the first change is at work");
    installation.settle(&vm, CvmStatus::Running).await;
    let fewer = put(json!([{"vm_port": 53.0, "protocol": "udp"}])).await.expect(200).json();
    assert_eq!(fewer[0], mapped[1], "id and port stay");
    installation.settle(&vm, CvmStatus::Running).await;

    let many: Vec<_> = (1..=65).map(|port| json!({"vm_port": port})).collect();
    for (ports, refusal) in [
        (json!([{"vm_port": 0}]), "422 validation"),
        (json!([{"vm_port": 65536}]), "422 validation"),
        (json!([{"vm_port": 1, "protocol": "sctp"}]), "422 validation"),
        (json!([{"vm_port": 1}, {"vm_port": 1, "protocol": "tcp"}]), "422 validation"),
        (json!(many), "422 validation"),
        (json!([{"vm_port": 1}, {"vm_port": 2}, {"vm_port": 3}]), "400 ERR-02-008"),
    ] {
        assert_eq!(put(ports.clone()).await.summary(), refusal, "{ports}");
    }
    let mut here = report(65536, false);
    installation.report(&here).await;
    assert_eq!(put(json!([{"vm_port": 80}])).await.summary(), "403 plain", "the operator offers none");
    let status = installation.part(&vm, "firewall-status").await;
    assert_eq!(status["reason"], "Node local maps no ports; use the application's URL");
    here.port_range = Some((1, 2));
    here.maintenance = true;
    installation.report(&here).await;
    assert_eq!(installation.part(&vm, "firewall-status").await["available"], false);
}

#[tokio::test]
async fn addresses_are_kept_for_the_next_start() {
    let up = json!({"internal_ip": "10.0.2.15", "last_heard_at": null, "ports": []});
    let (installation, vm) = installation(Value::Null, up).await;
    let path = format!("/cvms/{}/network-config", vm["id"]);
    let send = async |body: Value| installation.call("PATCH", &path, body).await;
    let kms = json!(["https://kms.example:9443"]);
    let kept = send(json!({"kms_urls": kms, "gateway_urls": null})).await.expect(200).json();
    assert_eq!(kept, json!({"kms_urls": kms, "gateway_urls": [], "ports": []}));
    assert_eq!(installation.row(&vm).await.status, CvmStatus::Running, "nothing was restarted");

    let more = send(json!({"gateway_urls": ["https://gw.example"]})).await.expect(200).json();
    assert_eq!((&more["kms_urls"], &more["gateway_urls"][0]), (&kms, &json!("https://gw.example")));
    assert_eq!(installation.part(&vm, "network-config").await, more);
    for bad in [
        json!(["http://kms.example"]),
        json!(["https://u:p@kms.example"]),
        json!(vec!["https://a"; 17]),
        json!("x"),
    ] {
        assert_eq!(send(json!({"kms_urls": bad.clone()})).await.summary(), "422 validation", "{bad}");
    }
    let reset = send(json!({"kms_urls": [], "restart": true})).await.expect(200).json();
    assert_eq!(reset["kms_urls"], json!([]), "this installation has no service of its own");
    assert_eq!(installation.row(&vm).await.status, CvmStatus::Restarting);
    assert_eq!(send(json!({"kms_urls": kms})).await.summary(), "409 plain");
    assert_eq!(installation.row(&vm).await.kms_urls.as_deref(), Some("[]"));
}
