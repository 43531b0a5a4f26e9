//! Keys, the account and the catalogue.

use serde_json::{Value, json};

use super::Installation;

#[tokio::test]
async fn the_account_in_both_versions() {
    let installation = Installation::new().await;
    insta::assert_json_snapshot!(installation.get_in("2025-10-28", "/auth/me").await.expect(200).json());
    insta::assert_json_snapshot!(installation.get_in("2026-01-21", "/auth/me").await.expect(200).json());
}

#[tokio::test]
async fn a_key_is_made_used_and_deleted() {
    let installation = Installation::new().await;
    let made = installation.call("POST", "/tokens", json!({"name": "ci", "expires_in_days": 1})).await;
    let made = made.expect(201).json();
    let key = made["token"].as_str().unwrap();
    let with_key = [("authorization", format!("Bearer {key}"))];
    let with_key = [(with_key[0].0, with_key[0].1.as_str())];
    let listed = installation.call_with(&with_key, "GET", "/tokens", Value::Null).await.expect(200);
    assert!(!listed.text.contains(key));
    assert_eq!(listed.json().as_array().unwrap().len(), 2);

    installation.app.clock.advance_ms(24 * 60 * 60 * 1000);
    installation.call_with(&with_key, "GET", "/auth/me", Value::Null).await.expect(401);
    let path = format!("/tokens/{}", made["id"].as_str().unwrap());
    installation.call("DELETE", &path, Value::Null).await.expect(204);
    installation.call("DELETE", &path, Value::Null).await.expect(404);

    installation.call("DELETE", "/tokens/self", Value::Null).await.expect(204);
    installation.call("GET", "/auth/me", Value::Null).await.expect(401);
}

#[tokio::test]
async fn a_key_is_refreshed() {
    for installation in [Installation::new().await, Installation::on_postgres().await] {
        let body = json!({"name": "ci", "expires_in_days": 1, "scope": "read"});
        let made = installation.call("POST", "/tokens", body).await.expect(201).json();
        let path = format!("/tokens/{}/refresh", made["id"].as_str().unwrap());
        let uses = async || {
            let key = [("x-api-key", made["token"].as_str().unwrap())];
            installation.call_with(&key, "GET", "/auth/me", Value::Null).await
        };
        installation.app.clock.advance_ms(24 * 60 * 60 * 1000);
        uses().await.expect(401);
        // The version that requests get which name none.
        let keep = json!({"expires_in_days": 2, "upgrade_version": false});
        let kept = installation.call("POST", &path, keep).await.expect(200).json();
        assert_eq!((&kept["expires_at"], &kept["is_active"]), (&json!("2026-01-24T10:00:00Z"), &json!(true)));
        assert_eq!((&kept["scope"], &kept["default_version"]), (&json!("read"), &made["default_version"]));
        assert_eq!(kept.get("token"), None);
        assert_eq!(
            uses().await.expect(200).header("x-phala-version"),
            made["default_version"].as_str().unwrap()
        );
        let newer = installation.call("POST", &path, Value::Null).await.expect(200).json();
        assert_eq!(
            (&newer["expires_at"], &newer["default_version"]),
            (&kept["expires_at"], &json!("2026-06-23"))
        );
        assert_eq!(uses().await.expect(200).header("x-phala-version"), "2026-06-23");

        for days in [0, 366] {
            let refused = installation.call("POST", &path, json!({"expires_in_days": days})).await;
            assert_eq!(refused.summary(), "422 validation");
        }
        let foreign = [("x-api-key", installation.admin.as_str())];
        installation.call_with(&foreign, "POST", &path, Value::Null).await.expect(404);
        let own = [("x-api-key", made["token"].as_str().unwrap())];
        installation.call_with(&own, "POST", &path, Value::Null).await.expect(403);
        let gone = path.trim_end_matches("/refresh");
        installation.call("DELETE", gone, Value::Null).await.expect(204);
        installation.call("POST", &path, Value::Null).await.expect(404);
    }
}

#[tokio::test]
async fn keys_have_limits() {
    let installation = Installation::new().await;
    for body in
        [json!({"name": ""}), json!({"name": "x", "expires_in_days": 366}), json!({}), json!({"name": 1})]
    {
        assert_eq!(installation.call("POST", "/tokens", body).await.summary(), "422 validation");
    }
    for _ in 0..10 {
        installation.call("POST", "/tokens", json!({"name": "x"})).await.expect(201);
    }
    let answer = installation.call("POST", "/tokens", json!({"name": "x"})).await;
    assert_eq!(answer.summary(), "429 ERR-05-002");
    assert_eq!(answer.header("retry-after"), "6");
    installation.app.clock.advance_ms(6_000);
    installation.call("POST", "/tokens", json!({"name": "x"})).await.expect(201);
    assert_eq!(installation.call("POST", "/tokens", json!({"name": "x"})).await.summary(), "429 ERR-05-002");
}

#[tokio::test]
async fn the_catalogue() {
    let installation = Installation::new().await;
    let mut shown = serde_json::Map::new();
    for path in [
        "/teepods/available",
        "/instance-types",
        "/instance-types/cpu",
        "/os-images",
        "/attestations/nodes",
        "/workspaces",
        "/workspaces/tenant",
        "/workspaces/tenant/nodes",
        "/images",
    ] {
        shown.insert(path.to_owned(), installation.call("GET", path, Value::Null).await.expect(200).json());
    }
    insta::assert_json_snapshot!(shown);
    installation.call("GET", "/instance-types/tpu", Value::Null).await.expect(404);
    installation.call("GET", "/workspaces/operator", Value::Null).await.expect(404);
}

#[tokio::test]
async fn a_key_stays_in_its_workspace() {
    let installation = Installation::new().await;
    let headers = [("x-api-key", installation.tenant.as_str()), ("x-workspace-id", "operator")];
    installation.call_with(&headers, "GET", "/cvms", Value::Null).await.expect(403);
    let headers = [("x-api-key", installation.tenant.as_str()), ("x-workspace-id", "tenant")];
    installation.call_with(&headers, "GET", "/cvms", Value::Null).await.expect(200);
}

#[tokio::test]
async fn nodes_are_invited_put_under_maintenance_and_removed() {
    let installation = Installation::new().await;
    let admin = [("x-api-key", installation.admin.as_str())];
    let invited = installation.call_with(&admin, "POST", "/admin/nodes/invitations", Value::Null).await;
    assert!(!invited.expect(201).json()["join_token"].as_str().unwrap().is_empty());
    let body = json!({"maintenance": true});
    let node =
        installation.call_with(&admin, "POST", "/admin/nodes/local/maintenance", body).await.expect(200);
    assert_eq!(node.json()["status"], "MAINTENANCE");
    let answer = installation.call("POST", "/cvms/provision", super::provision_body("my-app-01")).await;
    assert_eq!(answer.summary(), "400 ERR-02-012");
    let body = json!({"maintenance": false});
    installation.call_with(&admin, "POST", "/admin/nodes/1/maintenance", body).await.expect(200);

    installation.create("my-app-01").await;
    let refused =
        installation.call_with(&admin, "DELETE", "/admin/nodes/local", Value::Null).await.expect(400);
    assert!(refused.json()["detail"].as_str().unwrap().contains("delete them first"));
    installation.call_with(&admin, "DELETE", "/admin/nodes/nobody", Value::Null).await.expect(404);
}
