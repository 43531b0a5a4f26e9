//! Asking for an update: what passes, what waits, and what is told about it.

use super::*;
use crate::governance::with_token;

#[tokio::test]
async fn a_change_that_is_not_allowed_waits_and_says_what_has_to_be_registered() {
    for governed in Governed::both().await {
        let before = governed.row().await;
        let prepared = governed.prepare(YAML).await;
        let Prepared { hash, token, details, answer } = &prepared;
        let (app, vm) = (governed.app_id.to_string(), governed.vm["vm_uuid"].as_str().unwrap());
        let api_url = format!("https://cloud.example/api/v1/cvms/{vm}/commit-update?token={token}");
        let url = format!("https://cloud.example/commit-update/{vm}#{token}");
        assert_eq!(details["app_id"], app);
        assert_eq!(details["device_id"], hex::encode(DEVICE));
        assert_eq!((&details["api_commit_url"], &details["commit_url"]), (&json!(api_url), &json!(url)));
        let status = json!({"compose_hash_allowed": false, "device_id_allowed": true, "is_allowed": false});
        assert_eq!(details["onchain_status"], status);
        let kms = details["kms_info"].as_object().unwrap();
        for key in ["id", "slug", "url", "version", "chain_id", "kms_contract_address", "gateway_app_id"] {
            assert!(kms.contains_key(key), "{key}");
        }
        assert_eq!(kms["chain_id"], json!(CHAIN));
        assert_eq!(token.parse::<uuid::Uuid>().unwrap().get_version_num(), 4);
        let suggestions = answer["suggestions"].to_string();
        let call = format!("addComposeHash(0x{hash}) of contract 0x{app} on chain {CHAIN}");
        assert!(suggestions.contains(&call), "{suggestions}");
        assert!(!suggestions.contains("addDevice"));
        assert_eq!(answer["links"][0]["url"], json!(url));
        // Nothing was changed, and the rehearsal left nothing behind.
        assert_eq!(governed.row().await, before);
        let operations = governed.call("GET", "/operations", Value::Null).await.expect(200).json();
        assert_eq!(operations["items"].as_array().unwrap().len(), 1);

        // The same again is the same; another one takes its place.
        let again = governed.prepare(YAML).await;
        assert_eq!((again.hash, &again.token), (*hash, token));
        let other = governed.prepare(OTHER_YAML).await;
        assert!(other.hash != *hash && other.token != *token);
        let refused = governed.commit("update", json!({"token": token})).await;
        assert_eq!(refused.summary(), "466 ERR-01-006");
        assert!(refused.json()["message"].as_str().unwrap().contains("another change took the place"));
        let back = governed.prepare(YAML).await;
        assert!(back.hash == *hash && back.token != *token);
    }
}

#[tokio::test]
async fn the_official_script_waits_for_those_who_decide_too() {
    const OFFICIAL: &str = "/pre-launch-script/upgrade-to-latest-official";
    for governed in Governed::both().await {
        let before = governed.row().await;
        let prepared = Prepared::of(&governed.call("POST", OFFICIAL, Value::Null).await.expect(465));
        assert_eq!(governed.row().await, before);
        // A prepared change is the same whoever asks for it.
        let again = Prepared::of(&governed.call("POST", OFFICIAL, Value::Null).await.expect(465));
        assert_eq!(again.token, prepared.token);
        governed.contracts.add_hash(governed.app_id, prepared.hash);
        let hash = prepared.hash.to_string();
        let headers = [("x-compose-hash", hash.as_str()), ("x-transaction-hash", "already-registered")];
        governed.call_with(&headers, "POST", OFFICIAL, Value::Null).await.expect(202);
        assert_eq!(governed.coming(&governed.vm).await.configuration.compose_hash, prepared.hash);
    }
}

#[tokio::test]
async fn webhooks_are_told_once_of_each_new_change_and_the_token_is_stored_nowhere() {
    for governed in Governed::both().await {
        let prepared = governed.prepare(YAML).await;
        governed.prepare(YAML).await;
        let events = governed.events().await;
        let [(kind, data)] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!(kind, "cvm.update.pending_approval");
        assert!(!data.to_string().contains(&prepared.token));
        let app = &governed.installation.app;
        let told = with_token(data.clone(), &app.log_url_key, &app.public_url, kind);
        assert_eq!(told["commit_token"], json!(prepared.token));
        assert_eq!(told["commit_url"], prepared.details["commit_url"]);
        assert_eq!(told["api_commit_url"], prepared.details["api_commit_url"]);
        assert_eq!(told["compose_hash"], json!(prepared.hash.to_string()));
        assert_eq!(told["app_id"], json!(format!("0x{}", governed.app_id)));
        assert_eq!(told["device_id"], prepared.details["device_id"]);
        let contract = format!("0x{}", hex::encode(KMS_CONTRACT.address));
        assert_eq!(told["kms"], json!({"chain_id": CHAIN, "contract_address": contract}));
        let action = json!({
            "to": format!("0x{}", governed.app_id), "method": "addComposeHash",
            "calldata": format!("0xdfc77223{}", prepared.hash),
        });
        assert_eq!((&told["onchain_action"], &told["onchain_actions"]), (&action, &json!([action])));
        assert_eq!(told["expires_at"], "2026-02-04T10:00:00Z");
        assert_eq!(told["initiated_by"]["username"], "tenant");
        assert!(told.get("prepared_change_id").is_none());
        // An event of another kind is left as it is.
        let other = json!({"prepared_change_id": 1, "cvm_id": governed.vm["vm_uuid"]});
        assert_eq!(with_token(other.clone(), &app.log_url_key, &app.public_url, "cvm.updated"), other);
    }
}

#[tokio::test]
async fn what_is_allowed_or_leaves_the_document_alone_passes() {
    for governed in Governed::both().await {
        let installation = &governed.installation;
        let asked = governed.contracts.round_trips();
        for (below, body) in [("", json!({"vcpu": 3})), ("/resources", json!({"memory": 8192}))] {
            governed.call("PATCH", below, body).await.expect(202);
            installation.carry_out(&governed.vm).await;
        }
        governed.call("POST", "/stop", Value::Null).await.expect(200);
        installation.settle(&governed.vm, CvmStatus::Stopped).await;
        assert_eq!(governed.contracts.round_trips(), asked, "nobody is asked about what they do not decide");

        let waiting = governed.prepare(YAML).await;
        governed.contracts.add_hash(governed.app_id, waiting.hash);
        governed.call("PATCH", "", json!({"docker_compose_file": YAML})).await.expect(202);
        assert_eq!(governed.coming(&governed.vm).await.configuration.compose_hash, waiting.hash);
        // What waited for the same document was carried out with it.
        let refused = governed.commit("update", json!({"token": waiting.token})).await;
        assert_eq!(refused.summary(), "466 ERR-01-006");
        assert!(refused.json()["message"].as_str().unwrap().contains("used already"));
    }
}

#[tokio::test]
async fn a_change_can_be_only_prepared() {
    for governed in Governed::both().await {
        let before = governed.row().await;
        let only = [("x-prepare-only", "True")];
        for body in [json!({"docker_compose_file": YAML}), json!({"vcpu": 3})] {
            let answer = governed.call_with(&only, "PATCH", "", body.clone()).await.expect(465);
            let hash = Prepared::of(&answer).hash;
            governed.contracts.add_hash(governed.app_id, hash);
            let answer = governed.call_with(&only, "PATCH", "", body).await.expect(465);
            assert_eq!(Prepared::of(&answer).details["onchain_status"]["is_allowed"], json!(true));
        }
        assert_eq!(governed.row().await, before);
        // Nothing to change is nothing to prepare.
        governed.call_with(&only, "PATCH", "", json!({})).await.expect(200);
    }
}

#[tokio::test]
async fn headers_of_approval_change_nothing_where_nobody_decides() {
    let installation = Installation::new().await;
    let vm = installation.create("my-app").await;
    installation.settle(&vm, CvmStatus::Running).await;
    let headers = [
        ("x-api-key", installation.tenant.as_str()),
        ("x-prepare-only", "true"),
        ("x-transaction-hash", "not even a hash"),
    ];
    let path = format!("/cvms/{}", vm["id"]);
    let body = json!({"docker_compose_file": YAML});
    installation.call_with(&headers, "PATCH", &path, body).await.expect(202);
}

#[tokio::test]
async fn a_device_has_to_be_allowed_too_and_to_be_known() {
    for governed in Governed::both().await {
        governed.contracts.remove_device(governed.app_id, DEVICE);
        let prepared = governed.prepare(YAML).await;
        let suggestions = prepared.answer["suggestions"].to_string();
        assert!(suggestions.contains(&format!("addDevice(0x{})", hex::encode(DEVICE))), "{suggestions}");
        assert_eq!(governed.events().await[0].1["onchain_actions"].as_array().unwrap().len(), 2);
        governed.contracts.add_hash(governed.app_id, prepared.hash);
        let refused = governed.commit("update", json!({"token": prepared.token})).await;
        assert_eq!(refused.summary(), "468 ERR-01-008");
        governed.contracts.describe(governed.app_id, |view| view.allow_any_device = Some(true));
        governed.commit("update", json!({"token": prepared.token})).await.expect(202);
    }
    let unknown = Governed::on(Installation::new().await).await;
    let node = unknown.installation.node;
    crate::store::tests::prepared_changes::forget_devices(&unknown.installation.app.store, node).await;
    let refused = unknown.call("PATCH", "", json!({"docker_compose_file": YAML})).await;
    assert_eq!((refused.summary().as_str(), refused.header("retry-after")), ("503 plain", "5"));
}

#[tokio::test]
async fn nothing_is_allowed_while_nobody_can_be_asked() {
    for governed in Governed::both().await {
        let before = governed.row().await;
        governed.contracts.set_down(Some("no endpoint of the chain answers"));
        let body = json!({"docker_compose_file": YAML});
        for headers in [vec![], vec![("x-prepare-only", "true")], vec![("x-transaction-hash", "0xab")]] {
            let refused = governed.call_with(&headers, "PATCH", "", body.clone()).await;
            let expected = if headers.iter().any(|(_, value)| *value == "0xab") {
                "467 ERR-01-007"
            } else {
                "503 plain"
            };
            assert_eq!(refused.summary(), expected, "{headers:?}: {}", refused.text);
        }
        assert_eq!(governed.row().await, before);
        assert!(governed.events().await.is_empty());
        governed.contracts.set_down(None);
        let prepared = governed.prepare(YAML).await;
        governed.contracts.set_down(Some("no endpoint of the chain answers"));
        let refused = governed.commit("update", json!({"token": prepared.token})).await;
        assert_eq!((refused.summary().as_str(), refused.header("retry-after")), ("503 plain", "5"));
        governed.contracts.set_down(None);
        governed.allow(1, prepared.hash);
        governed.commit("update", json!({"token": prepared.token})).await.expect(202);
    }
}

#[tokio::test]
async fn what_could_not_be_done_is_refused_before_anybody_is_asked_to_allow_it() {
    let governed = Governed::on(Installation::new().await).await;
    let too_much = json!({"docker_compose_file": YAML, "memory": 1_048_576});
    assert_eq!(governed.call("PATCH", "", too_much).await.summary(), "400 ERR-02-004");
    governed.call("POST", "/restart", Value::Null).await.expect(200);
    let busy = governed.call("PATCH", "", json!({"docker_compose_file": YAML})).await;
    assert_eq!(busy.summary(), "409 plain");
    assert!(governed.events().await.is_empty());
}
