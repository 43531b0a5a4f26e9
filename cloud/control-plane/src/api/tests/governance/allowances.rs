//! Whether applications may run what they run.

use cloister_management_api::{ApiVersion, IsAllowed};

use super::*;
use crate::api::view::vm_id;

/// What an answer says about a document on a device.
fn flags(answer: &Value) -> [Value; 4] {
    ["compose_hash_allowed", "allow_any_device", "device_id_allowed", "is_allowed"]
        .map(|name| answer[name].clone())
}

fn says(hash: bool, any: bool, device: Option<bool>, is_allowed: bool) -> [Value; 4] {
    [json!(hash), json!(any), json!(device), json!(is_allowed)]
}

#[tokio::test]
async fn a_contract_is_asked_about_a_document_on_a_device() {
    for world in World::both().await {
        let cvm = world.governed().await;
        let (app, hash) = (cvm.app_id, cvm.compose_hash.to_string());
        let ask = async |body: Value| {
            world.call("POST", &format!("/apps/0x{app}/is-allowed"), body).await.expect(200).json()
        };
        let (node, other) = (world.installation.node, hex::encode(OTHER_DEVICE));
        for (body, expected, device) in [
            (
                json!({"compose_hash": hash, "node_id": node}),
                says(true, false, Some(true), true),
                hex::encode(DEVICE),
            ),
            (
                json!({"compose_hash": format!("0x{hash}"), "device_id": format!("0x{other}"), "chain_id": CHAIN}),
                says(true, false, Some(false), false),
                other.clone(),
            ),
            (
                json!({"compose_hash": "11".repeat(32), "node_id": node}),
                says(false, false, Some(true), false),
                hex::encode(DEVICE),
            ),
            (json!({"compose_hash": hash}), says(true, false, None, true), String::new()),
            (
                json!({"compose_hash": hash, "device_id": "", "node_id": null}),
                says(true, false, None, true),
                String::new(),
            ),
            (
                json!({"compose_hash": hash, "node_id": node, "device_id": hex::encode(DEVICE)}),
                says(true, false, Some(true), true),
                hex::encode(DEVICE),
            ),
        ] {
            let answer = ask(body.clone()).await;
            assert_eq!(
                (flags(&answer), &answer["device_id"]),
                (expected, &json!(device)),
                "{body}: {answer}"
            );
            assert_eq!(
                (&answer["error"], &answer["app_contract_address"]),
                (&Value::Null, &json!(format!("0x{app}")))
            );
        }
        world.contracts.describe(app, |view| view.allow_any_device = Some(true));
        let anywhere = ask(json!({"compose_hash": hash, "device_id": other})).await;
        assert_eq!(flags(&anywhere), says(true, true, Some(false), true));
        // What is taken back counts at once.
        world.contracts.remove_hash(app, cvm.compose_hash);
        let denied = ask(json!({"compose_hash": hash, "device_id": other})).await;
        assert_eq!(flags(&denied), says(false, true, Some(false), false));
    }
}

#[tokio::test]
async fn what_cannot_be_told_is_no_permission_and_no_failure() {
    let world = World::new().await;
    let cvm = world.governed().await;
    let (app, hash) = (cvm.app_id, cvm.compose_hash.to_string());
    let path = format!("/apps/{app}/is-allowed");
    let nothing = says(false, false, None, false);
    let mut refused = Vec::new();
    let mut refuse = async |path: &str, body: Value| {
        let answer = world.call("POST", path, body).await.expect(200).json();
        assert_eq!(flags(&answer), nothing, "{answer}");
        refused.push(answer["error"].as_str().unwrap().to_owned());
    };
    refuse(&path, json!({"compose_hash": hash, "node_id": 77})).await;
    let both =
        json!({"compose_hash": hash, "node_id": world.installation.node, "device_id": "22".repeat(32)});
    refuse(&path, both).await;
    refuse(&path, json!({"compose_hash": hash, "chain_id": 1})).await;
    world.contracts.set_down(Some("chain development: no endpoint answers"));
    refuse(&path, json!({"compose_hash": hash})).await;
    refuse(&format!("/cvms/{}/is-allowed", cvm.id), Value::Null).await;
    let batch =
        world.call("POST", &format!("/apps/{app}/cvms/is-allowed"), Value::Null).await.expect(200).json();
    assert_eq!(
        (&batch["error_count"], &batch["allowed_count"], &batch["total"]),
        (&json!(1), &json!(0), &json!(1))
    );
    world.contracts.set_down(None);
    let plain = world.cvm("plain-app", None).await;
    refuse(&format!("/apps/{}/is-allowed", plain.app_id), json!({"compose_hash": hash})).await;
    let vanished = AppId::from_bytes([0xbb; 20]);
    let row = world.like(&cvm, "vanished", Some(world.kms), vanished, cvm.node_id).await;
    refuse(&format!("/cvms/{}/is-allowed", row.id), json!({})).await;
    insta::assert_snapshot!(refused.join("\n"));

    for body in [
        json!({}),
        json!({"compose_hash": "12"}),
        json!({"compose_hash": hash, "device_id": "xy"}),
        Value::Null,
    ] {
        assert_eq!(world.call("POST", &path, body).await.summary(), "422 validation");
    }
}

#[tokio::test]
async fn a_cvm_is_asked_about_as_it_is() {
    for world in World::both().await {
        let cvm = world.governed().await;
        let path = format!("/cvms/{}/is-allowed", cvm.id);
        for body in [Value::Null, json!({}), json!({"compose_hash": null, "node_id": null})] {
            let answer = world.call("POST", &path, body).await.expect(200).json();
            assert_eq!(flags(&answer), says(true, false, Some(true), true));
            assert_eq!(
                (&answer["cvm_id"], &answer["device_id"]),
                (&json!(cvm.id), &json!(hex::encode(DEVICE)))
            );
            assert_eq!(answer["compose_hash"], json!(cvm.compose_hash.to_string()));
        }
        let other = json!({"compose_hash": "11".repeat(32), "device_id": hex::encode(OTHER_DEVICE)});
        let answer = world.call("POST", &path, other).await.expect(200).json();
        assert_eq!(flags(&answer), says(false, false, Some(false), false));
        let headers = [("x-api-key", world.installation.tenant.as_str()), ("x-phala-version", "2026-05-22")];
        let answer =
            world.installation.call_with(&headers, "POST", &path, json!({})).await.expect(200).json();
        assert_eq!(answer["cvm_id"], json!(vm_id(cvm.id, ApiVersion::V20260522)));
        assert!(answer["cvm_id"].as_str().unwrap().starts_with("cvm_"));
    }
}

#[tokio::test]
async fn all_cvms_of_an_application_are_asked_about_at_once() {
    for world in World::both().await {
        let first = world.governed().await;
        let app = first.app_id;
        let mut change = world.installation.app.store.change().await.unwrap();
        let (proved, unproved) = (
            change.insert_node("proved", 0).await.unwrap(),
            change.insert_node("unproved", 0).await.unwrap(),
        );
        change.commit().await.unwrap();
        world.prove_device(proved, OTHER_DEVICE).await;
        let names: Vec<String> = (0..1_000).map(|number| format!("copy-{number}")).collect();
        let denied = world.many_like(&first, &names[..400], Some(world.kms), app, proved).await;
        let mut allowed = vec![first.id];
        let second = CvmRow { vm_uuid: Uuid::from_u128(1 << 40), ..first.clone() };
        allowed.extend(world.many_like(&second, &names[400..990], Some(world.kms), app, first.node_id).await);
        let third = CvmRow { vm_uuid: Uuid::from_u128(1 << 50), ..first.clone() };
        let skipped = world.many_like(&third, &names[990..], Some(world.kms), app, unproved).await;

        let before = world.contracts.round_trips();
        let path = format!("/apps/{app}/cvms/is-allowed");
        let answer = world.call("POST", &path, json!({})).await.expect(200).json();
        assert_eq!(world.contracts.round_trips() - before, 1);
        let figures =
            ["total", "allowed_count", "denied_count", "error_count"].map(|name| answer[name].clone());
        assert_eq!(figures, [json!(991), json!(591), json!(400), json!(0)]);
        assert_eq!((&answer["is_onchain"], &answer["skipped_cvm_ids"]), (&json!(true), &json!(skipped)));
        for result in answer["results"].as_array().unwrap() {
            let id = result["cvm_id"].as_i64().unwrap();
            assert_eq!(result["is_allowed"], json!(allowed.contains(&id)));
            assert_eq!(denied.contains(&id), result["device_id"] == json!(hex::encode(OTHER_DEVICE)));
            serde_json::from_value::<IsAllowed>(result.clone()).unwrap();
        }
    }
}

#[tokio::test]
async fn nobody_decides_about_an_application_without_a_contract() {
    let world = World::new().await;
    let cvm = world.cvm("plain-app", Some(1)).await;
    let app = cvm.app_id;
    let batch =
        world.call("POST", &format!("/apps/{app}/cvms/is-allowed"), Value::Null).await.expect(200).json();
    let ids = [cvm.id - 1, cvm.id];
    assert_eq!(
        (&batch["is_onchain"], &batch["results"], &batch["skipped_cvm_ids"]),
        (&json!(false), &json!([]), &json!(ids))
    );
    assert_eq!(
        world.get(&format!("/apps/{app}/device-allowlist")).await,
        json!({"is_onchain_kms": false, "allow_any_device": null, "chain_id": null, "app_contract_address": null, "devices": []})
    );
    let info = world.get(&format!("/apps/{app}/kms-info")).await;
    assert_eq!(
        (&info["is_onchain_kms"], &info["deployer_type"], &info["is_contract"]),
        (&json!(false), &Value::Null, &json!(false))
    );
    assert_eq!(world.contracts.round_trips(), 0);
}

#[tokio::test]
async fn devices_are_listed_with_what_the_contract_says() {
    for world in World::both().await {
        let cvm = world.governed().await;
        let path = format!("/apps/{}/device-allowlist", cvm.app_id);
        let mut change = world.installation.app.store.change().await.unwrap();
        let other = change.insert_node("other", 0).await.unwrap();
        change.commit().await.unwrap();
        world.prove_device(other, OTHER_DEVICE).await;
        let list = world.get(&path).await;
        let device = |id: [u8; 32], node: &str, cvms: Value, allowed: bool, status: &str| json!({"device_id": hex::encode(id), "node_name": node, "cvm_ids": cvms, "allowed_onchain": allowed, "status": status});
        let own = |status: &str, allowed| device(DEVICE, "local", json!([cvm.id]), allowed, status);
        let foreign = |status: &str| device(OTHER_DEVICE, "other", json!([]), false, status);
        assert_eq!(list["devices"], json!([own("allowed", true), foreign("not_allowed")]));
        assert_eq!(
            (&list["is_onchain_kms"], &list["allow_any_device"], &list["chain_id"]),
            (&json!(true), &json!(false), &json!(CHAIN))
        );
        world.contracts.describe(cvm.app_id, |view| view.allow_any_device = Some(true));
        let list = world.get(&path).await;
        assert_eq!((&list["devices"][1], &list["allow_any_device"]), (&foreign("allowed"), &json!(true)));
        world.contracts.set_down(Some("no endpoint answers"));
        let list = world.get(&path).await;
        assert_eq!(list["devices"], json!([own("unknown", false), foreign("unknown")]));
        assert_eq!(list["allow_any_device"], Value::Null);
    }
}

#[tokio::test]
async fn the_owner_of_a_contract_is_told() {
    let world = World::new().await;
    let cvm = world.governed().await;
    let path = format!("/apps/{}/kms-info", cvm.app_id);
    let told = |owner: Value, kind: Value, is_contract: bool| {
        json!({
            "is_onchain_kms": true, "chain_id": CHAIN,
            "kms_contract_address": format!("0x{}", "cc".repeat(20)),
            "app_contract_address": format!("0x{}", cvm.app_id),
            "deployer_address": owner, "deployer_type": kind, "is_contract": is_contract, "safe_app_url": null,
        })
    };
    let owner = json!(format!("0x{}", hex::encode(OWNER)));
    assert_eq!(world.get(&path).await, told(owner.clone(), json!("eoa"), false));
    world.contracts.describe(cvm.app_id, |view| view.owner_is_contract = true);
    assert_eq!(world.get(&path).await, told(owner.clone(), json!("contract"), true));
    world.contracts.make_safe(OWNER);
    assert_eq!(world.get(&path).await, told(owner, json!("safe"), true));
    world.contracts.describe(cvm.app_id, |view| view.owner = None);
    assert_eq!(world.get(&path).await, told(Value::Null, Value::Null, false));
    world.contracts.set_down(Some("no endpoint answers"));
    assert_eq!(world.get(&path).await, told(Value::Null, Value::Null, false));
}

#[tokio::test]
async fn strangers_learn_nothing_and_ask_nothing() {
    let world = World::new().await;
    let cvm = world.governed().await;
    let stranger = world.stranger().await;
    let unknown = "77".repeat(20);
    let body = || json!({"compose_hash": cvm.compose_hash.to_string(), "chain_id": CHAIN});
    for (method, below, body) in [
        ("POST", "is-allowed", body()),
        ("POST", "cvms/is-allowed", Value::Null),
        ("GET", "device-allowlist", Value::Null),
        ("GET", "kms-info", Value::Null),
    ] {
        let ask = async |app: &str| {
            let headers = [("x-api-key", stranger.as_str())];
            world
                .installation
                .call_with(&headers, method, &format!("/apps/{app}/{below}"), body.clone())
                .await
        };
        let (foreign, missing) = (ask(&cvm.app_id.to_string()).await, ask(&unknown).await);
        assert_eq!(
            (foreign.summary().as_str(), foreign.json()["detail"].clone()),
            ("404 plain", missing.json()["detail"].clone())
        );
    }
    let headers = [("x-api-key", stranger.as_str())];
    let path = format!("/cvms/{}/is-allowed", cvm.id);
    assert_eq!(
        world.installation.call_with(&headers, "POST", &path, Value::Null).await.summary(),
        "403 ERR-03-004"
    );
    assert_eq!(world.contracts.round_trips(), 0);
}
