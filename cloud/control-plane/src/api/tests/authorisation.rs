//! Every operation with no key, a bad key and the key of another workspace.

use std::fmt::Write as _;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use super::{Installation, provision_body};
use crate::api::document;
use crate::rollouts::{OnFailure, RolloutKind};
use crate::store::NewRollout;

pub(super) const SSH_KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f";

/// A body that would do harm if the caller were let through.
pub(super) fn body(operation: &str, tenant_provision: &Value) -> Value {
    match operation {
        "provision_app" => provision_body("stranger-app"),
        "provision_agent_app" => json!({"name": "stranger-agent", "characterfile": "{}", "env_keys": []}),
        "create_cvm_from_configuration" | "get_cvm_configuration_pubkey" => json!({
            "name": "stranger-app", "compose_manifest": provision_body("x")["compose_file"],
        }),
        "create_cvm" | "create_agent_cvm" => json!({
            "app_id": tenant_provision["app_id"], "compose_hash": tenant_provision["compose_hash"],
        }),
        "patch_cvm" => json!({"vcpu": 3, "rollback_on_failure": false}),
        "apply_cvm_compose_file" => json!({"compose_hash": tenant_provision["compose_hash"]}),
        "replace_cvm_compose_file" => json!({
            "compose_file": {"name": "x", "docker_compose_file": "services: {a: {}}"},
            "compose_hash": tenant_provision["compose_hash"],
        }),
        "provision_cvm_compose_file" => json!({"name": "x", "docker_compose_file": "services: {a: {}}"}),
        "put_cvm_compose" => json!({"compose_manifest": {"docker_compose_file": "services: {a: {}}"}}),
        "update_cvm_resources" => json!({"vcpu": 3}),
        "update_cvm_os_image" => json!({"os_image_name": "cloister-0.1.0"}),
        "update_cvm_visibility" => json!({"public_logs": false, "public_sysinfo": false}),
        "rename_cvm" => json!({"name": "stolen-app"}),
        "update_cvm_listed" => json!({"listed": false}),
        "update_cvm_scheduled_delete" => json!({"scheduled_delete_at": "2030-01-01T00:00:00Z"}),
        "batch_stop_cvms" => json!({"cvm_ids": [tenant_provision["vm_uuid"]]}),
        "update_cvm_envs" => json!({"encrypted_env": "ab".repeat(61)}),
        "batch_cvm_status" => json!({"vm_uuids": [tenant_provision["vm_uuid"]]}),
        "create_rollout" => json!({"vcpu": 2}),
        "create_workload_cvm" => {
            json!({"name": "stranger-model", "instance_type": "h200.small", "model_id": "a/b"})
        }
        "set_app_owners" => json!({"threshold": 1, "keys": [SSH_KEY]}),
        "approve_app_change" | "revoke_app_approval" => json!({"statement": "x", "signature": "y"}),
        "create_webhook" => json!({"url": "https://hooks.example.org/", "events": ["cvm.created"]}),
        "update_webhook" => json!({"url": "https://more.example.org/", "enabled": false}),
        "replay_webhook" => json!({"since": "2026-01-01T00:00:00Z"}),
        "create_token" => json!({"name": "stranger"}),
        "set_cvm_ports" => json!({"ports": [{"vm_port": 80}]}),
        "update_cvm_network_config" => json!({"kms_urls": ["https://kms.example"], "restart": true}),
        "diagnose_custom_domains" => json!({"domains": [{"domain": "a.example.org", "port": 1}]}),
        "set_cvm_ssh_keys" => json!({"ssh_key_ids": [tenant_provision["ssh_key"]], "apply_now": true}),
        "create_ssh_key" => json!({"name": "stranger", "public_key": SSH_KEY}),
        "import_github_ssh_keys" => json!({"github_username": "stranger"}),
        "is_app_allowed" => json!({"compose_hash": tenant_provision["compose_hash"], "chain_id": 1}),
        "set_app_budget" => json!({"monthly_limit": "1", "stop": true}),
        "estimate_cvm" => json!({"instance_type": "tdx.small"}),
        "admin_set_billing" => json!({"prepaid": true}),
        "admin_credit" => json!({"amount": "5", "reason": "a gift", "idempotency_key": "stranger"}),
        "admin_create_user" => json!({"username": "eve"}),
        "admin_set_user_openid" => json!({"openid_subject": "stranger"}),
        "admin_set_node_maintenance" => json!({"maintenance": true}),
        _ => Value::Null,
    }
}

/// A rollout of the tenant's application that is alive.
pub(super) async fn rollout(installation: &Installation, cvm: &Value) -> i64 {
    let row = installation.row(cvm).await;
    let new = NewRollout {
        kind: RolloutKind::Update,
        app: Some((row.app_id, row.workspace_id)),
        node_id: None,
        on_failure: OnFailure::Pause,
        max_unavailable: 1,
        arguments: "{}".to_owned(),
        triggered_by: row.user_id,
    };
    let mut change = installation.app.store.change().await.unwrap();
    let id = change.insert_rollout(&new, installation.app.clock.now_ms()).await.unwrap();
    change.commit().await.unwrap();
    id
}

#[tokio::test]
async fn the_matrix_is_the_reviewed_one() {
    let installation = Installation::new().await;
    let cvm = installation.create("tenant-app").await;
    let before = installation.row(&cvm).await;
    let mut provision = installation.provision("tenant-app-2").await;
    provision["vm_uuid"] = cvm["vm_uuid"].clone();
    let own_key = json!({"name": "laptop", "public_key": SSH_KEY});
    let ssh_key = installation.call("POST", "/user/ssh-keys", own_key).await.expect(201).json()["id"].clone();
    provision["ssh_key"] = ssh_key.clone();
    let token = installation.call("GET", "/tokens", Value::Null).await.json()[0]["id"].clone();
    let stranger = installation
        .call_with(&[("x-api-key", &installation.admin)], "GET", "/tokens", Value::Null)
        .await
        .expect(200);
    assert_ne!(stranger.json()[0]["id"], token);
    let (_, _, stranger) =
        super::account(&installation.app.store, "stranger", "user", 7, installation.app.clock.now_ms()).await;
    let rollout = rollout(&installation, &cvm).await;
    let hook = json!({"url": "https://hooks.example.org/", "events": ["cvm.created"]});
    let hook = installation.call("POST", "/workspace/webhooks", hook).await.expect(201).json();
    let webhook = hook["id"].clone();

    let document = serde_json::to_value(document()).unwrap();
    let mut table = String::from("operation | no key | bad key | key of another workspace\n");
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap();
            // Would end the stranger's own key before the other operations.
            if name == "delete_own_token" {
                continue;
            }
            let path = path
                .replace("{cvm_id}", &cvm["id"].to_string())
                .replace("{vm_uuid}", cvm["vm_uuid"].as_str().unwrap())
                .replace("{token_id}", token.as_str().unwrap())
                .replace("{key_id}", ssh_key.as_str().unwrap())
                .replace("{slug}", "tenant")
                .replace("{node}", "local")
                .replace("{workspace}", "tenant")
                .replace("{username}", "tenant")
                .replace("{kms_id}", "phala")
                .replace("{chain}", "base")
                .replace("{family}", "cpu")
                .replace("{container}", "web")
                .replace("{app_id}", cvm["app_id"].as_str().unwrap())
                .replace("{revision_id}", &cloister_management_api::RevisionId(1).to_string())
                .replace("{rollout_id}", &cloister_management_api::RolloutId(rollout).to_string())
                .replace("{os_image_hash}", &"05".repeat(32))
                .replace("{compose_hash}", &"11".repeat(32))
                .replace("{webhook_id}", webhook.as_str().unwrap())
                .replace("{event_id}", "evt_0123456789abcdef")
                .replace("{delivery}", "1")
                // Whoever may follow events would do so for minutes.
                .replace("/events/stream", "/events/stream?after=x")
                .replace("{reference}", "cloister.local/x:1");
            let mut cells = vec![format!("{} {name}", method.to_uppercase())];
            for key in [None, Some("phak_unknown"), Some(stranger.as_str())] {
                let body = body(name, &provision);
                let mut request = Request::builder().method(method.to_uppercase().as_str()).uri(&path);
                if let Some(key) = key {
                    request = request.header("x-api-key", key);
                }
                let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
                cells.push(installation.send(request.body(body).unwrap()).await.summary());
            }
            writeln!(table, "{}", cells.join(" | ")).unwrap();
        }
    }
    insta::assert_snapshot!(table);

    // Whatever the answers were: nothing of the tenant's changed.
    let path = format!("/workspace/webhooks/{}/reveal-secret", webhook.as_str().unwrap());
    assert_eq!(installation.call("POST", &path, Value::Null).await.expect(200).json(), hook);
    let row = installation.row(&cvm).await;
    assert_eq!(row, before);
    let statuses = installation
        .call_with(
            &[("x-api-key", &stranger)],
            "POST",
            "/status/batch",
            json!({"vm_uuids": [cvm["vm_uuid"]]}),
        )
        .await;
    assert_eq!(statuses.json(), json!({}));
    assert_eq!(installation.call("GET", "/tokens", Value::Null).await.json().as_array().unwrap().len(), 1);
    let row = installation.row(&cvm).await;
    assert_eq!((row.ports.as_str(), row.kms_urls, row.user_config), ("[]", None, None));
    let keys = installation.call("GET", "/user/ssh-keys", Value::Null).await.json();
    assert_eq!(keys.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_foreign_cvm_is_hidden_in_every_form_but_the_status() {
    let installation = Installation::new().await;
    let cvm = installation.create("tenant-app").await;
    let (_, _, stranger) =
        super::account(&installation.app.store, "stranger", "user", 7, installation.app.clock.now_ms()).await;
    for form in ["id", "vm_uuid", "app_id"] {
        let id = cvm[form].to_string().replace('"', "");
        let answer = installation
            .call_with(&[("x-api-key", &stranger)], "GET", &format!("/cvms/{id}"), Value::Null)
            .await;
        assert_eq!(answer.summary(), "403 ERR-03-004", "{form}");
        assert_eq!(answer.json()["message"], "CVM not found");
        let path = format!("/cvms/{id}");
        let admin = [("x-api-key", installation.admin.as_str())];
        let answer = installation.call_with(&admin, "GET", &path, Value::Null).await;
        assert_eq!(answer.summary(), "403 ERR-03-003", "{form}");
    }
    let answer =
        installation.call_with(&[("x-api-key", &stranger)], "GET", "/cvms/tenant-app", Value::Null).await;
    assert_eq!(answer.summary(), "404 ERR-03-001");
}

#[tokio::test]
async fn figures_are_for_administrators() {
    let installation = Installation::new().await;
    let get = |key: Option<String>| {
        let mut request = Request::builder().uri("/metrics");
        if let Some(key) = key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        installation.send(request.body(Body::empty()).unwrap())
    };
    assert_eq!(get(None).await.summary(), "401 plain");
    assert_eq!(get(Some(installation.tenant.clone())).await.summary(), "403 plain");
    let answer = get(Some(installation.admin.clone())).await.expect(200);
    assert!(answer.text.contains("cloister_nodes{status=\"ONLINE\"} 1"), "{}", answer.text);
}
