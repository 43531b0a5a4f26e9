//! Every operation of the reference, once: a walk through scenes that call them in an order that makes sense.

use std::collections::{BTreeSet, HashMap};

use axum::body::Body;
use axum::http::Request;
use cloister_app_compose::{ComposeHash, OsImageHash, canonical};
use cloister_management_api::ApiVersion;
use cloister_node_api::NodeImage;
use serde_json::{Value, json};

use super::super::approvals::{Governed, Prepared};
use super::super::authorisation::SSH_KEY;
use super::super::gpus::with_gpus;
use super::super::kms::support::Cloud;
use super::super::{Answer, Installation, domains, live};
use super::deviations::DEVIATIONS;
use super::reference::{REFERENCE, against, load, with_deviations};
use super::{Answer as Checked, OURS};
use crate::governance::testing::CHAIN;
use crate::operations::CvmStatus;

const YAML: &str = "services:\n  web:\n    image: nginx:2\n";

/// The walk: what was answered in all scenes.
async fn walk() -> Vec<Checked> {
    let mut answers = Vec::new();
    for ledger in [tenant().await, of_models().await, governed().await, of_keys().await] {
        answers.extend(ledger);
    }
    answers
}

fn answers(installation: &Installation) -> Vec<Checked> {
    installation.answers.lock().clone()
}

/// A request of the tenant that has to be carried out, in every version if it only looks.
async fn done(installation: &Installation, method: &str, path: &str, body: Value) -> Value {
    if method == "GET" {
        for version in ApiVersion::ALL {
            let answer = installation.get_in(version.as_str(), path).await;
            assert!(answer.status.is_success(), "{method} {path}: {} {}", answer.status, answer.text);
        }
    }
    value(method, path, &installation.call(method, path, body).await)
}

fn value(method: &str, path: &str, answer: &Answer) -> Value {
    assert!(answer.status.is_success(), "{method} {path}: {} {}", answer.status, answer.text);
    serde_json::from_str(&answer.text).unwrap_or_default()
}

/// The life of a CVM on a node that answers, and everything around it.
async fn tenant() -> Vec<Checked> {
    let network = json!({"internal_ip": "10.0.2.15", "last_heard_at": "2026-01-21T10:00:00Z", "ports": []});
    let (installation, vm) = live::installation(live::stats(), network).await;
    domains::serve(&installation, HashMap::new());
    configure(&installation, &vm).await;
    read(&installation, &vm).await;
    account(&installation).await;
    evidence(&installation).await;
    power(&installation, &vm).await;
    answers(&installation)
}

/// Changes a CVM in every way.
async fn configure(installation: &Installation, vm: &Value) {
    let base = format!("/cvms/{}", vm["id"]);
    let path = |below: &str| format!("{base}{below}");
    let change = json!({"docker_compose_file": YAML, "user_config": "{\"a\":1}"});
    done(installation, "PATCH", &base, change.clone()).await;
    installation.carry_out(vm).await;
    // Nothing is left to do.
    done(installation, "PATCH", &base, change).await;
    let document = json!({"name": "", "docker_compose_file": "services: {web: {image: nginx:3}}"});
    let provision = done(installation, "POST", &path("/compose_file/provision"), document).await;
    let body = json!({"compose_hash": provision["compose_hash"]});
    done(installation, "PATCH", &path("/compose_file"), body).await;
    installation.carry_out(vm).await;
    let whole = done(installation, "GET", &path("/compose_file"), Value::Null).await;
    done(installation, "PATCH", &base, json!({"docker_compose_file": YAML})).await;
    installation.carry_out(vm).await;
    let hash = ComposeHash::of(&canonical::compact(&whole)).to_string();
    let body = json!({"compose_file": whole, "compose_hash": hash});
    done(installation, "POST", &path("/compose_file"), body).await;
    installation.carry_out(vm).await;
    for (below, text) in [("/docker-compose", YAML), ("/pre-launch-script", "echo 1\n")] {
        let request = Request::builder().method("PATCH").uri(format!("/api/v1{}", path(below)));
        let request = request.header("x-api-key", &installation.tenant).header("content-type", "text/plain");
        let answer = installation.send(request.body(Body::from(text)).unwrap()).await;
        value("PATCH", below, &answer);
        installation.carry_out(vm).await;
    }
    for (below, body) in [
        ("/listed", json!({"listed": true})),
        ("/scheduled-delete", json!({"scheduled_delete_at": "2100-01-01T00:00:00Z"})),
        ("/network-config", json!({"kms_urls": ["https://kms.example:9443"]})),
        ("/instance-id", json!({})),
        ("/name", json!({"name": "walked-app"})),
    ] {
        done(installation, "PATCH", &path(below), body).await;
    }
    done(installation, "PATCH", "/cvms/instance-ids", json!({})).await;
    done(installation, "PUT", &path("/ports"), json!({"ports": [{"vm_port": 80}]})).await;
    installation.settle(vm, CvmStatus::Running).await;
    let domains = json!({"domains": [{"domain": "a.example.org", "port": 80}]});
    done(installation, "POST", &path("/customize-domain-diagnose"), domains).await;
    again(installation, vm).await;
}

/// Brings former revisions back.
async fn again(installation: &Installation, vm: &Value) {
    let app = vm["app_id"].as_str().unwrap();
    let page = done(installation, "GET", &format!("/apps/{app}/revisions"), Value::Null).await;
    let revisions = page["revisions"].as_array().unwrap();
    let first = revisions.last().unwrap()["revision_id"].as_str().unwrap();
    let newer = revisions.first().unwrap()["revision_id"].as_str().unwrap();
    done(installation, "GET", &format!("/apps/{app}/revisions/{first}"), Value::Null).await;
    for path in [
        format!("/apps/{app}/revisions/{first}/redeploy"),
        format!("/cvms/{}/revisions/{newer}/redeploy", vm["id"]),
    ] {
        done(installation, "POST", &path, Value::Null).await;
        installation.carry_out(vm).await;
        // Nothing is left to do.
        done(installation, "POST", &path, Value::Null).await;
    }
}

/// Looks at everything that is told of a CVM and its application.
async fn read(installation: &Installation, vm: &Value) {
    let app = vm["app_id"].as_str().unwrap();
    let uuid = vm["vm_uuid"].as_str().unwrap();
    let mut paths: Vec<_> = [
        "",
        "/compose_file",
        "/docker-compose.yml",
        "/pre-launch-script",
        "/operations",
        "/available-os-images",
        "/stats",
        "/attestation",
        "/network",
        "/operation-status",
        "/state",
        "/network-config",
        "/ports",
        "/firewall-status",
        "/user_config",
    ]
    .map(|below| format!("/cvms/{}{below}", vm["id"]))
    .to_vec();
    let of_app = [
        "",
        "/cvms",
        "/device-allowlist",
        "/attestations",
        "/attestations/tcb-evaluation",
        "/kms-info",
        "/pending-updates",
        "/usage",
    ];
    paths.extend(of_app.map(|below| format!("/apps/{app}{below}")));
    let others = [
        "/cvms",
        "/cvms/paginated",
        "/apps",
        "/apps/filter-options",
        "/instance-types",
        "/instance-types/cpu",
    ];
    paths.extend(others.map(str::to_owned));
    for path in paths {
        done(installation, "GET", &path, Value::Null).await;
    }
    let table = [("x-api-key", installation.tenant.as_str()), ("accept", "text/csv")];
    installation.call_with(&table, "GET", &format!("/apps/{app}/usage"), Value::Null).await.expect(200);
    done(installation, "POST", "/status/batch", json!({"vm_uuids": [uuid]})).await;
}

/// What belongs to people and workspaces.
async fn account(installation: &Installation) {
    let key =
        done(installation, "POST", "/user/ssh-keys", json!({"name": "laptop", "public_key": SSH_KEY})).await;
    done(installation, "GET", "/user/ssh-keys", Value::Null).await;
    done(installation, "DELETE", &format!("/user/ssh-keys/{}", key["id"].as_str().unwrap()), Value::Null)
        .await;

    let named = [("x-api-key", installation.tenant.as_str()), ("idempotency-key", "walk")];
    for (name, status) in [("one", 201), ("other", 422)] {
        let body = json!({"name": name, "public_key": SSH_KEY});
        installation.call_with(&named, "POST", "/user/ssh-keys", body).await.expect(status);
    }

    let hooks = "/workspace/webhooks";
    let body = json!({"url": "https://hooks.example.org/", "events": ["cvm.created"]});
    let hook = done(installation, "POST", hooks, body).await;
    let base = format!("{hooks}/{}", hook["id"].as_str().unwrap());
    let sent = done(installation, "POST", &format!("{base}/test"), Value::Null).await;
    let event = sent["event_id"].as_str().unwrap();
    for (method, path, body) in [
        ("GET", hooks.to_owned(), Value::Null),
        ("GET", base.clone(), Value::Null),
        ("PUT", base.clone(), json!({"events": ["cvm.deleted"]})),
        ("POST", format!("{base}/reveal-secret"), Value::Null),
        ("POST", format!("{base}/rotate-secret"), Value::Null),
        ("GET", format!("{base}/deliveries"), Value::Null),
        ("POST", format!("{base}/deliveries/{event}/resend"), Value::Null),
        ("GET", format!("{base}/stats"), Value::Null),
        ("DELETE", base.clone(), Value::Null),
    ] {
        done(installation, method, &path, body).await;
    }
}

/// Quotes that anybody has verified.
async fn evidence(installation: &Installation) {
    let quote = hex::encode(installation.tee.quote([7; 64]));
    let verified = done(installation, "POST", "/attestations/verify", json!({"hex": quote})).await;
    let checksum = verified["checksum"].as_str().unwrap();
    for path in ["recent", "ppids", "device_ids", "nodes"] {
        done(installation, "GET", &format!("/attestations/{path}"), Value::Null).await;
    }
    for path in ["view", "collateral"] {
        done(installation, "GET", &format!("/attestations/{path}/{checksum}"), Value::Null).await;
    }
    let (known, path) = (format!("\"{checksum}\""), format!("/attestations/collateral/{checksum}"));
    installation.call_with(&[("if-none-match", &known)], "GET", &path, Value::Null).await.expect(304);
    for method in ["GET", "HEAD"] {
        let request = Request::builder().method(method).uri(format!("/api/v1/attestations/raw/{checksum}"));
        // The bytes of a quote are no text.
        let router = installation.router.clone();
        let answer = tower::ServiceExt::oneshot(router, request.body(Body::empty()).unwrap()).await.unwrap();
        assert!(answer.status().is_success(), "{method}");
    }
}

/// Stops and starts a CVM, makes others like it, and removes them.
async fn power(installation: &Installation, vm: &Value) {
    let (app, uuid) = (vm["app_id"].as_str().unwrap(), vm["vm_uuid"].as_str().unwrap());
    let path = |below: &str| format!("/cvms/{}{below}", vm["id"]);
    for (below, status) in [
        ("/stop", CvmStatus::Stopped),
        ("/start", CvmStatus::Running),
        ("/restart", CvmStatus::Running),
        ("/shutdown", CvmStatus::Stopped),
        ("/start", CvmStatus::Running),
    ] {
        done(installation, "POST", &path(below), Value::Null).await;
        installation.settle(vm, status).await;
    }
    done(installation, "POST", &path("/operations/cancel"), Value::Null).await;
    for path in
        [path("/replicas"), format!("/apps/{app}/cvms/{uuid}/replicas"), format!("/apps/{app}/instances")]
    {
        let made = done(installation, "POST", &path, json!({})).await;
        installation.settle(&made, CvmStatus::Running).await;
    }
    done(installation, "POST", "/cvms/batch-stop", json!({"cvm_ids": [uuid]})).await;
    done(installation, "GET", &path(""), Value::Null).await;
    installation.settle(vm, CvmStatus::Stopped).await;
    let refused = installation.call("GET", "/cvms/nobody", Value::Null).await;
    assert_eq!(refused.status.as_u16(), 404);
    done(installation, "DELETE", &path(""), Value::Null).await;
}

/// CVMs that are made in other ways, on a node with GPUs and several images.
async fn of_models() -> Vec<Checked> {
    let installation = Installation::new().await;
    let vm = installation.create("my-app").await;
    installation.settle(&vm, CvmStatus::Running).await;
    let mut here = with_gpus(4);
    let first = here.images[0].clone();
    let production =
        NodeImage { is_dev: false, os_image_hash: OsImageHash::from_bytes([8; 32]), ..first.clone() };
    let hash = OsImageHash::from_bytes([9; 32]);
    let newer = NodeImage {
        name: "cloister-dev-0.2.0".into(),
        version: "0.2.0".into(),
        os_image_hash: hash,
        ..first
    };
    here.images.extend([production, newer]);
    installation.report(&here).await;

    let model = json!({"name": "my-model", "instance_type": "h200.medium", "model_id": "Qwen/Qwen3-8B"});
    done(&installation, "POST", "/cvms/workload", model).await;
    let agent = json!({"name": "my-agent", "characterfile": "{\"name\": \"Ada\"}", "env_keys": []});
    let agent = done(&installation, "POST", "/cvms/provision/agentapp", agent).await;
    let body = json!({"app_id": agent["app_id"], "compose_hash": agent["compose_hash"]});
    done(&installation, "POST", "/cvms/agentapp", body).await;

    let path = format!("/cvms/{}/os-image", vm["id"]);
    let image = json!({"os_image_name": "cloister-dev-0.2.0"});
    done(&installation, "PATCH", &path, image.clone()).await;
    installation.carry_out(&vm).await;
    done(&installation, "PATCH", &path, image).await;
    answers(&installation)
}

/// An application that a contract decides for.
async fn governed() -> Vec<Checked> {
    let governed = Governed::on(Installation::new().await).await;
    let installation = &governed.installation;
    let (app, uuid) = (governed.app_id.to_string(), governed.vm["vm_uuid"].as_str().unwrap());
    let hash = installation.row(&governed.vm).await.compose_hash.to_string();
    let body = json!({"compose_hash": hash});
    done(installation, "POST", &format!("/apps/{app}/is-allowed"), body).await;
    for path in [format!("/apps/{app}/cvms/is-allowed"), format!("/cvms/{uuid}/is-allowed")] {
        done(installation, "POST", &path, json!({})).await;
    }
    for path in [format!("/apps/{app}/device-allowlist"), format!("/kms/on-chain/{CHAIN}"), "/kms".to_owned()]
    {
        done(installation, "GET", &path, Value::Null).await;
    }
    done(installation, "PATCH", &governed.path("/envs"), json!({"encrypted_env": "cd".repeat(61)})).await;
    installation.carry_out(&governed.vm).await;

    let prepared = governed.prepare(YAML).await;
    let look = governed.path(&format!("/commit-update?token={}", prepared.token));
    value("GET", &look, &installation.call_with(&[], "GET", &look, Value::Null).await);
    governed.contracts.add_hash(governed.app_id, prepared.hash);
    let pending = format!("/apps/{app}/pending-updates");
    done(installation, "GET", &pending, Value::Null).await;
    done(installation, "GET", &format!("{pending}/{uuid}/{}/preview", prepared.hash), Value::Null).await;
    value("POST", "commit-update", &governed.commit("update", json!({"token": prepared.token})).await);
    installation.carry_out(&governed.vm).await;

    let only = [("x-prepare-only", "true")];
    let prepared = Prepared::of(&governed.call_with(&only, "POST", "/replicas", Value::Null).await);
    let look = governed.path(&format!("/commit-replica?token={}", prepared.token));
    value("GET", &look, &installation.call_with(&[], "GET", &look, Value::Null).await);
    value("POST", "commit-replica", &governed.commit("replica", json!({"token": prepared.token})).await);
    answers(installation)
}

/// What a key management service tells.
async fn of_keys() -> Vec<Checked> {
    let cloud = Cloud::new().await;
    let installation = &cloud.installation;
    let provision =
        done(installation, "POST", "/cvms/provision", super::super::provision_body("my-app")).await;
    let body = json!({"app_id": provision["app_id"], "compose_hash": provision["compose_hash"]});
    let vm = done(installation, "POST", "/cvms", body.clone()).await;
    // Ids are texts in newer versions; who repeats a creation is told of the same CVM.
    let newest = [("x-api-key", installation.tenant.as_str()), ("x-phala-version", "2026-06-23")];
    value("POST", "/cvms", &installation.call_with(&newest, "POST", "/cvms", body).await);
    let app = provision["app_id"].as_str().unwrap();
    for path in ["/kms", "/kms/local", "/kms/local/info", "/kms/phala/next_app_id"] {
        done(installation, "GET", path, Value::Null).await;
    }
    done(installation, "GET", &format!("/kms/local/pubkey/{app}"), Value::Null).await;
    for path in [format!("/cvms/{}", vm["id"]), format!("/apps/{app}/kms-info"), format!("/apps/{app}")] {
        done(installation, "GET", &path, Value::Null).await;
    }
    answers(installation)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_operation_of_the_reference_succeeds_and_every_deviation_is_needed() {
    let answers = walk().await;
    let Some(reference) = &*REFERENCE else { return };
    let seen: BTreeSet<_> = answers
        .iter()
        .filter(|answer| answer.status < 300)
        .filter_map(|answer| reference.operation(&answer.method, &answer.path))
        .map(|operation| format!("{} {}", operation.method, operation.path))
        .collect();
    let all = reference.operations.iter().map(|operation| format!("{} {}", operation.method, operation.path));
    let missing: BTreeSet<_> = all.filter(|name| !seen.contains(name)).collect();
    let known: BTreeSet<_> = DEVIATIONS.unreached.keys().cloned().collect();
    assert_eq!(missing, known, "operations of the reference that the walk does not reach");

    // What only the published document objects to is what deviations are about.
    let published = with_deviations(Vec::new()).unwrap();
    let disputed: Vec<_> = answers.iter().filter(|answer| !against(&published, answer).is_empty()).collect();
    // Several places deviate for one reason.
    let reasons: BTreeSet<_> = DEVIATIONS.places.iter().map(|each| each.reason.as_str()).collect();
    for reason in reasons {
        let others = DEVIATIONS.places.iter().filter(|each| each.reason != reason);
        let without = with_deviations(others).unwrap();
        let is_needed = disputed.iter().any(|answer| !against(&without, answer).is_empty());
        assert!(is_needed, "nothing needs the deviation any more: {reason}");
    }
}

#[test]
fn every_tolerated_failure_is_one_of_ours_that_the_reference_does_not_list() {
    let Some(published) = load().map(super::Description::new) else { return };
    for (status, reason) in &DEVIATIONS.failures {
        let is_ours_only = published.operations.iter().any(|operation| {
            let ours = OURS.operation(&operation.method, &operation.path);
            ours.is_some_and(|ours| ours.statuses.contains_key(status))
                && !operation.statuses.contains_key(status)
        });
        assert!(is_ours_only, "{status} ({reason}) is listed wherever we answer it");
    }
}
