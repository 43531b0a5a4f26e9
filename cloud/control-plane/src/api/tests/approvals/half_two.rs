//! The second half of a change for callers with an account: the stored change, or the same request again.

use super::*;

#[tokio::test]
async fn an_empty_patch_with_the_hash_carries_out_what_waits() {
    for governed in Governed::both().await {
        let prepared = governed.prepare(YAML).await;
        let hash = format!("0x{}", prepared.hash);
        let half = async |hash: &str, transaction: &str, body: Value| {
            let headers = [("x-compose-hash", hash), ("x-transaction-hash", transaction)];
            governed.call_with(&headers, "PATCH", "", body).await
        };
        let other = ComposeHash::from_bytes([3; 32]).to_string();
        assert_eq!(half(&other, "", json!({})).await.summary(), "466 ERR-01-006");
        assert_eq!(half("not a hash", "", json!({})).await.summary(), "466 ERR-01-006");
        assert_eq!(half(&hash, &"7".repeat(64), json!({})).await.summary(), "467 ERR-01-007");
        assert_eq!(half(&hash, "already-registered", json!({})).await.summary(), "468 ERR-01-008");
        let transaction = governed.allow(1, prepared.hash);
        let answer = half(&hash, &transaction, Value::Null).await.expect(202).json();
        assert_eq!(answer["status"], "in_progress");
        assert_eq!(governed.coming(&governed.vm).await.configuration.compose_hash, prepared.hash);
        governed.installation.carry_out(&governed.vm).await;
        // What it has already is nothing to do.
        let again = half(&hash, &transaction, json!({})).await.expect(200).json();
        assert_eq!((&again["status"], &again["correlation_id"]), (&json!("no_change"), &json!("")));
        let token = json!({"token": prepared.token});
        assert_eq!(governed.commit("update", token).await.summary(), "466 ERR-01-006");
    }
}

#[tokio::test]
async fn files_and_environments_are_sent_again() {
    for governed in Governed::both().await {
        let env = json!({"encrypted_env": "ab".repeat(61), "env_keys": ["API_KEY"]});
        let mut number = 10;
        for (below, text) in
            [("/docker-compose", Some(YAML)), ("/pre-launch-script", Some("echo hello\n")), ("/envs", None)]
        {
            let send = async |hash: &str, transaction: &str| {
                if let Some(text) = text {
                    let headers = [("x-compose-hash", hash), ("x-transaction-hash", transaction)];
                    governed.text(&headers, below, text).await
                } else {
                    let mut body = env.clone();
                    body["compose_hash"] = json!(hash);
                    body["transaction_hash"] = json!(transaction);
                    governed.call("PATCH", below, body).await
                }
            };
            let prepared = Prepared::of(&send("", "").await);
            let hash = prepared.hash.to_string();
            assert_eq!(send(&"11".repeat(32), "").await.summary(), "466 ERR-01-006", "{below}");
            assert_eq!(send(&hash, "").await.summary(), "468 ERR-01-008", "{below}");
            let transaction = governed.allow(number, prepared.hash);
            let reverted = governed.mined(number + 1, *governed.app_id.as_bytes(), vec![], false);
            assert_eq!(send(&hash, &reverted).await.summary(), "467 ERR-01-007", "{below}");
            let answer = send(&hash, &transaction).await;
            assert!(answer.status.is_success(), "{below}: {}", answer.text);
            assert_eq!(answer.json()["status"], "in_progress");
            governed.installation.carry_out(&governed.vm).await;
            assert_eq!(governed.row().await.compose_hash, prepared.hash);
            number += 2;
        }
        // Other values under the same names are the tenant's own affair.
        let asked = governed.contracts.round_trips();
        let answer = governed.call("PATCH", "/envs", json!({"encrypted_env": "cd".repeat(61)})).await;
        assert_eq!(answer.expect(202).json()["allowed_envs_changed"], json!(false));
        assert_eq!(governed.contracts.round_trips(), asked);
    }
}

#[tokio::test]
async fn provisioned_documents_and_former_revisions_need_approval_too() {
    for governed in Governed::both().await {
        let provision = json!({"name": "my-app", "docker_compose_file": YAML});
        let provision = governed.call("POST", "/compose_file/provision", provision).await.expect(200).json();
        assert_eq!(provision["compose_hash_registered"], json!(false));
        let hash: ComposeHash = provision["compose_hash"].as_str().unwrap().parse().unwrap();
        let apply = json!({"compose_hash": hash.to_string()});
        let prepared = Prepared::of(&governed.call("PATCH", "/compose_file", apply.clone()).await);
        assert_eq!(prepared.hash, hash);
        let first = governed.row().await.compose_hash;
        governed.allow(1, hash);
        governed.call("PATCH", "/compose_file", apply).await.expect(202);
        governed.installation.carry_out(&governed.vm).await;
        governed.contracts.remove_hash(governed.app_id, first);

        let path = format!("/apps/{}/revisions", governed.app_id);
        let revisions = governed.installation.call("GET", &path, Value::Null).await.expect(200).json();
        let former = revisions["revisions"].as_array().unwrap().iter();
        let former = former.rev().find(|row| row["compose_hash"] == json!(first.to_string())).unwrap();
        let path = format!("{path}/{}/redeploy", former["revision_id"].as_str().unwrap());
        let below = format!("/revisions/{}/redeploy", former["revision_id"].as_str().unwrap());
        assert_eq!(Prepared::of(&governed.call("POST", &below, Value::Null).await).hash, first);
        let with = |transaction: &str| format!("{path}?transaction_hash={transaction}");
        let call = async |path: &str| governed.installation.call("POST", path, Value::Null).await;
        assert_eq!(call(&with("already-registered")).await.summary(), "468 ERR-01-008");
        let transaction = governed.allow(2, first);
        assert_eq!(call(&with(&"7".repeat(64))).await.summary(), "467 ERR-01-007");
        call(&with(&transaction)).await.expect(202);
    }
}

#[tokio::test]
async fn a_rollout_begins_when_every_member_is_allowed() {
    for governed in Governed::both().await {
        let path = governed.path("/replicas");
        let replica = governed.installation.call("POST", &path, Value::Null).await.expect(200).json();
        governed.installation.settle(&replica, CvmStatus::Running).await;
        let path = format!("/apps/{}/rollouts", governed.app_id);
        let body = json!({"docker_compose_file": YAML});
        let refused = governed.installation.call("POST", &path, body.clone()).await;
        assert_eq!(refused.summary(), "465 ERR-01-005");
        let answer = refused.json();
        let fields: Vec<_> = answer["details"]
            .as_array()
            .unwrap()
            .iter()
            .map(|detail| detail["field"].as_str().unwrap())
            .collect();
        assert_eq!(fields, ["compose_hash", "app_id", "device_id", "kms_info", "onchain_status"]);
        assert!(answer["suggestions"].to_string().contains("start the rollout again"));
        assert!(governed.events().await.is_empty());
        let hash = answer["details"][0]["value"].as_str().unwrap().parse().unwrap();
        governed.contracts.add_hash(governed.app_id, hash);
        governed.contracts.set_down(Some("away"));
        assert_eq!(governed.installation.call("POST", &path, body.clone()).await.summary(), "503 plain");
        governed.contracts.set_down(None);
        governed.installation.call("POST", &path, body).await.expect(202);
    }
}

/// A second CVM of the application.
async fn replicate(governed: &Governed) {
    let path = governed.path("/replicas");
    let replica = governed.installation.call("POST", &path, Value::Null).await.expect(200).json();
    governed.installation.settle(&replica, CvmStatus::Running).await;
}

#[tokio::test]
async fn a_rollout_begins_with_the_transaction_that_allowed_it_and_no_other() {
    for governed in Governed::both().await {
        replicate(&governed).await;
        let path = format!("/apps/{}/rollouts", governed.app_id);
        let body = json!({"docker_compose_file": YAML});
        let refused = governed.installation.call("POST", &path, body.clone()).await.json();
        let hash = refused["details"][0]["value"].as_str().unwrap().to_owned();
        let send = async |headers: &[(&str, &str)]| {
            let headers = [&[("x-api-key", governed.installation.tenant.as_str())], headers].concat();
            governed.installation.call_with(&headers, "POST", &path, body.clone()).await
        };
        // Said to be allowed, and not; allowed by something else; another document than is expected; only prepared.
        let unrelated = governed.mined(50, [9; 20], vec![], true);
        let other = "11".repeat(32);
        for (header, expected) in [
            (("x-transaction-hash", "already-registered"), "468 ERR-01-008"),
            (("x-compose-hash", &*hash), "468 ERR-01-008"),
            (("x-transaction-hash", &*unrelated), "467 ERR-01-007"),
            (("x-transaction-hash", "no hash"), "467 ERR-01-007"),
            (("x-compose-hash", &*other), "466 ERR-01-006"),
            (("x-prepare-only", "true"), "400 ERR-02-009"),
        ] {
            assert_eq!(send(&[header]).await.summary(), expected, "{header:?}");
        }
        let transaction = governed.allow(51, hash.parse().unwrap());
        send(&[("x-compose-hash", &hash), ("x-transaction-hash", &transaction)]).await.expect(202);
    }
}

#[tokio::test]
async fn several_cvms_get_a_revision_that_a_transaction_allowed() {
    for governed in Governed::both().await {
        replicate(&governed).await;
        let first = governed.row().await.compose_hash;
        let prepared = governed.prepare(YAML).await;
        governed.allow(1, prepared.hash);
        governed.commit("update", json!({"token": prepared.token})).await.expect(202);
        governed.installation.carry_out(&governed.vm).await;
        governed.contracts.remove_hash(governed.app_id, first);

        let path = format!("/apps/{}/revisions", governed.app_id);
        let revisions = governed.installation.call("GET", &path, Value::Null).await.expect(200).json();
        let former = revisions["revisions"].as_array().unwrap().iter();
        let former = former.rev().find(|row| row["compose_hash"] == json!(first.to_string())).unwrap();
        let path = format!("{path}/{}/redeploy", former["revision_id"].as_str().unwrap());
        let cvms = governed.installation.app.store.cvms_of_app(governed.app_id).await.unwrap();
        let uuids: Vec<_> = cvms.iter().map(|cvm| cvm.vm_uuid.to_string()).collect();
        assert_eq!(uuids.len(), 2);
        let send = async |transaction: &str| {
            let path = format!("{path}?transaction_hash={transaction}");
            governed.installation.call("POST", &path, json!({"vm_uuids": uuids})).await
        };
        let unrelated = governed.mined(50, [9; 20], vec![], true);
        assert_eq!(send("").await.summary(), "465 ERR-01-005");
        assert_eq!(send("already-registered").await.summary(), "468 ERR-01-008");
        assert_eq!(send(&unrelated).await.summary(), "467 ERR-01-007");
        let transaction = governed.allow(51, first);
        let begun = send(&transaction).await.expect(202).json();
        assert!(begun["rollout_id"].is_string(), "{begun}");
    }
}
