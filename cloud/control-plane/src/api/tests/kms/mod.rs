//! Key management services, and what sealed environments go through.

mod configuration;
mod contracts;
mod owners;
pub(super) mod support;

use std::sync::atomic::Ordering;

use cloister_app_compose::{AppId, canonical};
use cloister_kms_api::statements::verify_env_key;
use cloister_management_api::{KmsContractId, KmsId};
use cloister_node_api::VmState;
use serde_json::{Value, json};

use self::support::{Cloud, know};
use super::{Installation, provision_body};
use crate::clock::Clock;
use crate::kms::KmsConfig;
use crate::operations::{CvmStatus, OperationKind};

/// Hex of bytes that stand for a sealed environment: nothing here can open one.
fn blob(byte: u8) -> String {
    hex::encode([byte; 61])
}

fn members(value: &Value) -> Vec<&str> {
    let mut members: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
    members.sort_unstable();
    members
}

fn with(member: &str, value: Value) -> Value {
    let mut body = provision_body("my-app-01");
    body[member] = value;
    body
}

/// A service that nobody runs.
fn absent(slug: &str) -> KmsConfig {
    KmsConfig {
        slug: slug.to_owned(),
        guest_url: "https://10.0.2.2:12001".parse().unwrap(),
        directory_url: "https://127.0.0.1:9".parse().unwrap(),
        ca_file: "/nonexistent/root-ca.pem".into(),
        admin_token_file: "/nonexistent/token".into(),
        contract: None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_those_of_the_service_and_signed_by_its_root() {
    let cloud = Cloud::new().await;
    let provision = cloud.installation.provision("my-app-01").await;
    let info = &provision["kms_info"];
    let all = ["chain_id", "gateway_app_id", "id", "kms_contract_address", "slug", "url", "version"];
    assert_eq!(members(info), all);
    assert_eq!((&info["id"], &info["slug"]), (&json!(KmsId(1)), &json!("local")));
    assert_eq!(provision["kms_id"], info["id"]);

    let app_id: AppId = provision["app_id"].as_str().unwrap().parse().unwrap();
    for name in ["local", "phala", "PHALA", info["id"].as_str().unwrap(), &KmsContractId(1).to_string()] {
        for form in [format!("{app_id}"), format!("0x{app_id}"), format!("app_{app_id}")] {
            let key = cloud.get(&format!("/kms/{name}/pubkey/{form}")).await;
            assert_eq!(members(&key), ["public_key", "signature"]);
            assert_eq!(key["public_key"], provision["app_env_encrypt_pubkey"]);
            let bytes = |member: &str| hex::decode(key[member].as_str().unwrap()).unwrap();
            let public_key: [u8; 32] = bytes("public_key").try_into().unwrap();
            verify_env_key(&app_id, &public_key, &bytes("signature"), &cloud.root).unwrap();
        }
    }
    for (path, summary) in [("local/pubkey/xyz", "400 plain"), ("other/pubkey/00", "404 plain")] {
        let answer = cloud.installation.call("GET", &format!("/kms/{path}"), Value::Null).await;
        assert_eq!(answer.summary(), summary);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_are_listed_in_the_form_of_the_version_and_inspected() {
    let cloud = Cloud::new().await;
    let page = cloud.get("/kms").await;
    assert_eq!(members(&page), ["items", "page", "page_size", "pages", "total"]);
    assert_eq!((&page["total"], &page["page_size"]), (&json!(1), &json!(20)));
    assert_eq!(page["items"][0], cloud.get("/kms/local").await);
    assert_eq!(cloud.get("/kms?is_onchain=true").await["items"], json!([]));
    assert_eq!(cloud.get("/kms?is_onchain=false&page=2").await["items"], json!([]));

    let contract = cloud.installation.get_in("2026-06-23", "/kms/local").await.expect(200).json();
    assert_eq!(
        members(&contract),
        ["ca_pubkey", "chain_id", "contract_address", "id", "k256_pubkey", "label", "node_count", "slug"]
    );
    assert_eq!(contract["k256_pubkey"], json!(hex::encode(cloud.root)));
    assert_eq!((&contract["contract_address"], &contract["chain_id"]), (&json!("phala"), &json!(0)));

    let inspection = cloud.get("/kms/local/info").await;
    let rpc = &inspection["rpc"];
    assert_eq!((&rpc["is_dev"], &rpc["version_synced"]), (&json!(true), &json!(true)));
    assert_eq!(rpc["bootstrap_info"]["k256_pubkey"], contract["k256_pubkey"]);
    assert_eq!(rpc["roots"][0]["ca_pubkey"], contract["ca_pubkey"]);
    assert_eq!((&inspection["rpc_error"], &inspection["guest_agent_error"]), (&Value::Null, &Value::Null));
    assert_eq!(inspection["guest_agent"]["mr_aggregated"].as_str().unwrap().len(), 64);
    assert_eq!(inspection["teepods"][0]["name"], "local");

    let offers = cloud.get("/teepods/available").await;
    assert_eq!(offers["kms_list"], page["items"]);
    let node = &offers["nodes"][0];
    assert_eq!((&node["default_kms"], &node["kms_list"]), (&json!("local"), &json!(["local"])));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_first_lets_the_application_run_its_document() {
    let cloud = Cloud::new().await;
    let vm = cloud.create("my-app-01", &blob(1)).await;
    let row = cloud.at_rest(&vm, CvmStatus::Running).await;
    assert_eq!(cloud.allowed(row.app_id).await, [row.compose_hash.to_string()]);
    let spec = cloud.nodes.spec_of(row.vm_uuid).unwrap();
    assert_eq!(spec.encrypted_env, Some(blob(1)));
    let url = cloud.installation.app.kmses.all()[0].guest_url().as_str().trim_end_matches('/').to_owned();
    assert_eq!(spec.kms_urls, [url]);

    // What a client needs to seal anew, and never what was sealed.
    let pubkey = cloud.get(&format!("/kms/phala/pubkey/{}", row.app_id)).await["public_key"].clone();
    assert_eq!(vm["encrypted_env_pubkey"], pubkey);
    for version in ["2025-10-28", "2026-01-21"] {
        let detail = cloud.installation.get_in(version, "/cvms/my-app-01").await.expect(200);
        assert!(!detail.text.contains(&blob(1)));
        let detail = detail.json();
        let (key, kms) = match version {
            "2025-10-28" => (&detail["encrypted_env_pubkey"], &detail["kms_info"]["slug"]),
            _ => (&detail["kms_info"]["encrypted_env_pubkey"], &detail["kms_type"]),
        };
        assert_eq!(*key, pubkey);
        assert!(kms == "local" || kms == "phala");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_after_a_new_root_shows_its_key() {
    let cloud = Cloud::new().await;
    let vm = cloud.create("my-app-01", &blob(1)).await;
    let before = cloud.at_rest(&vm, CvmStatus::Running).await.env_pubkey.unwrap();
    cloud.rotate().await;
    cloud.installation.call("POST", "/cvms/my-app-01/restart", Value::Null).await.expect(200);
    let row = cloud.at_rest(&vm, CvmStatus::Running).await;
    let after = row.env_pubkey.unwrap();
    assert_ne!(before, after);
    assert_eq!(cloud.get(&format!("/kms/local/pubkey/{}", row.app_id)).await["public_key"], json!(after));
    let roots = cloud.get("/kms/local/info").await["rpc"]["roots"].clone();
    assert_eq!(roots.as_array().unwrap().len(), 2);
    assert_eq!(roots[1]["predecessor_signature"].as_str().unwrap().len(), 130);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_without_keys_is_not_known_to_the_service() {
    let cloud = Cloud::new().await;
    let mut body = provision_body("my-app-01");
    body["compose_file"]["kms_enabled"] = json!(false);
    let provision = cloud.installation.call("POST", "/cvms/provision", body.clone()).await.expect(200).json();
    assert_eq!((&provision["kms_info"], &provision["app_env_encrypt_pubkey"]), (&Value::Null, &Value::Null));
    let mut create = json!({"app_id": provision["app_id"], "compose_hash": provision["compose_hash"]});
    create["encrypted_env"] = json!(blob(1));
    let refused = cloud.installation.call("POST", "/cvms", create.clone()).await;
    assert_eq!(refused.summary(), "400 ERR-02-009");
    body["encrypted_env"] = json!(blob(1));
    assert_eq!(cloud.installation.call("POST", "/cvms/provision", body).await.summary(), "400 ERR-02-009");

    create["encrypted_env"] = json!("");
    let vm = cloud.installation.call("POST", "/cvms", create).await.expect(200).json();
    let row = cloud.at_rest(&vm, CvmStatus::Running).await;
    assert!(cloud.allowed(row.app_id).await.is_empty());
    assert!(cloud.nodes.spec_of(row.vm_uuid).unwrap().kms_urls.is_empty());
    let envs = json!({"encrypted_env": blob(2)});
    let refused = cloud.installation.call("PATCH", "/cvms/my-app-01/envs", envs).await;
    assert_eq!(refused.summary(), "400 ERR-02-009");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_environment_is_replaced_in_place() {
    let cloud = Cloud::new().await;
    let vm = cloud.create("my-app-01", &blob(1)).await;
    let uuid = cloud.at_rest(&vm, CvmStatus::Running).await.vm_uuid;
    let patch = async |body: Value| cloud.installation.call("PATCH", "/cvms/my-app-01/envs", body).await;

    let accepted = patch(json!({"encrypted_env": format!("0x{}", blob(2)), "env_keys": ["API_KEY"]})).await;
    let accepted = accepted.expect(202).json();
    assert_eq!(accepted["status"], "in_progress");
    assert_eq!(accepted["allowed_envs_changed"], false);
    cloud.at_rest(&vm, CvmStatus::Running).await;
    assert_eq!(cloud.nodes.spec_of(uuid).unwrap().encrypted_env, Some(blob(2)));
    assert_eq!(cloud.nodes.power_ons(), 2, "it was restarted");
    let history = cloud.get("/cvms/my-app-01/operations").await;
    assert_eq!(history["items"][0]["correlation_id"], accepted["correlation_id"]);
    assert_eq!(history["items"][0]["operation_type"], OperationKind::EnvUpdate.as_str());

    cloud.installation.call("POST", "/cvms/my-app-01/stop", Value::Null).await.expect(200);
    cloud.at_rest(&vm, CvmStatus::Stopped).await;
    patch(json!({"encrypted_env": blob(3), "env_keys": null})).await.expect(202);
    cloud.at_rest(&vm, CvmStatus::Stopped).await;
    assert_eq!(cloud.nodes.spec_of(uuid).unwrap().encrypted_env, Some(blob(3)));
    assert_eq!(cloud.nodes.power_ons(), 2, "it stayed off");

    for (body, summary) in [
        (json!({}), "422 validation"),
        (json!({"encrypted_env": ""}), "422 validation"),
        (json!({"encrypted_env": hex::encode([1; 60])}), "422 validation"),
        (json!({"encrypted_env": hex::encode(vec![1; 256 * 1024 + 1])}), "422 validation"),
        (json!({"encrypted_env": "zz".repeat(61)}), "422 validation"),
        (json!({"encrypted_env": blob(4), "env_keys": ["A=B"]}), "400 ERR-01-003"),
        (json!({"encrypted_env": blob(4), "compose_hash": "00".repeat(32)}), "466 ERR-01-006"),
    ] {
        let refused = patch(body).await;
        assert_eq!(refused.summary(), summary, "{}", refused.text);
        assert!(!refused.text.contains(&blob(4)));
    }
    assert_eq!(cloud.installation.row(&vm).await.encrypted_env, Some(blob(3)), "a refusal changes nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_environment_with_other_names_brings_another_document() {
    let cloud = Cloud::new().await;
    let vm = cloud.create("my-app-01", &blob(1)).await;
    let before = cloud.at_rest(&vm, CvmStatus::Running).await;
    let patch = async |body: Value| cloud.installation.call("PATCH", "/cvms/my-app-01/envs", body).await;
    let body = json!({"encrypted_env": blob(2), "env_keys": ["MORE", "API_KEY"]});
    let accepted = patch(body.clone()).await.expect(202).json();
    assert_eq!(
        (&accepted["status"], &accepted["allowed_envs_changed"]),
        (&json!("in_progress"), &json!(true))
    );
    let row = cloud.at_rest(&vm, CvmStatus::Running).await;
    assert_ne!(row.compose_hash, before.compose_hash);
    assert_eq!(row.encrypted_env, Some(blob(2)));
    assert_eq!(cloud.allowed(row.app_id).await, [row.compose_hash.to_string()], "the former one is retired");
    // As if it had been retired before: the starts that follow allow it again, and that is noted.
    cloud.installation.app.store.note_keys_retired(row.app_id, row.compose_hash, 0).await.unwrap();
    let mut document = cloud.get("/cvms/my-app-01/compose_file").await;
    assert_eq!(document["allowed_envs"], json!(["MORE", "API_KEY"]));
    document["allowed_envs"] = json!(["API_KEY"]);
    let bytes = canonical::compact(&document);
    assert_eq!(String::from_utf8(bytes).unwrap(), before.app_compose, "the rest of the document stays");

    // The same names in another order are the same names.
    let again = patch(json!({"encrypted_env": blob(3), "env_keys": ["API_KEY", "MORE"]})).await.expect(202);
    assert_eq!(again.json()["allowed_envs_changed"], false);
    cloud.at_rest(&vm, CvmStatus::Running).await;
    // Going back with the hash that this gives.
    let mut back = json!({"encrypted_env": blob(4), "env_keys": ["API_KEY"], "transaction_hash": "0x00"});
    back["compose_hash"] = json!(row.compose_hash.to_string());
    assert_eq!(patch(back.clone()).await.summary(), "466 ERR-01-006");
    back["compose_hash"] = json!(format!("0x{}", before.compose_hash));
    patch(back).await.expect(202);
    assert_eq!(cloud.at_rest(&vm, CvmStatus::Running).await.compose_hash, before.compose_hash);
    assert_eq!(cloud.allowed(row.app_id).await, [before.compose_hash.to_string()]);

    // The same with the unified request and with a provisioned document.
    let unified = json!({"encrypted_env": blob(5), "allowed_envs": ["API_KEY", "MORE"], "vcpu": 3});
    cloud.installation.call("PATCH", "/cvms/my-app-01", unified).await.expect(202);
    let row = cloud.at_rest(&vm, CvmStatus::Running).await;
    assert_eq!((row.encrypted_env, row.vcpu), (Some(blob(5)), 3));
    let new = json!({"name": "", "docker_compose_file": "services: {web: {image: nginx}}"});
    let below = "/cvms/my-app-01/compose_file";
    let provisioned =
        cloud.installation.call("POST", &format!("{below}/provision"), new).await.expect(200).json();
    assert_eq!(provisioned["kms_info"]["slug"], "local");
    let apply = json!({
        "compose_hash": provisioned["compose_hash"], "encrypted_env": blob(6), "env_keys": ["MORE"],
    });
    cloud.installation.call("PATCH", below, apply).await.expect(202);
    let row = cloud.at_rest(&vm, CvmStatus::Running).await;
    assert_eq!(
        (row.encrypted_env, json!(row.compose_hash.to_string())),
        (Some(blob(6)), provisioned["compose_hash"].clone())
    );
    let without_keys = json!({"name": "", "docker_compose_file": "services: {a: {}}", "kms_enabled": false});
    let refused = cloud.installation.call("POST", &format!("{below}/provision"), without_keys).await;
    assert_eq!(refused.summary(), "400 ERR-02-009");
}

#[tokio::test]
async fn one_operation_at_a_time_also_for_environments() {
    let mut installation = Installation::new().await;
    know(&mut installation, vec![absent("local")]).await;
    let vm = installation.create_with_kms("my-app-01").await;
    let body = json!({"encrypted_env": blob(1)});
    let busy = installation.call("PATCH", "/cvms/my-app-01/envs", body.clone()).await;
    assert_eq!((busy.summary().as_str(), busy.header("retry-after")), ("409 plain", "5"));
    installation.settle(&vm, CvmStatus::Running).await;
    // The key is noted only if the service answers; the environment is taken anyway.
    installation.call("PATCH", "/cvms/my-app-01/envs", body.clone()).await.expect(202);
    assert_eq!(installation.call("PATCH", "/cvms/my-app-01/envs", body).await.summary(), "409 plain");
    assert_eq!(installation.row(&vm).await.status, CvmStatus::Updating);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cvm_that_runs_outlives_a_service_that_cannot_be_asked() {
    let cloud = Cloud::new().await;
    let vm = cloud.create("my-app-01", &blob(1)).await;
    cloud.at_rest(&vm, CvmStatus::Running).await;
    let cloud = cloud.forget_kms().await;
    let body = json!({"encrypted_env": blob(2)});
    cloud.installation.call("PATCH", "/cvms/my-app-01/envs", body).await.expect(202);
    let row = cloud.at_rest(&vm, CvmStatus::Running).await;
    assert_eq!((row.boot_error, row.encrypted_env), (None, Some(blob(1))));
    let operations = cloud.get("/cvms/my-app-01/operations").await;
    let change = &operations["items"][0];
    let reason = "the KMS that the CVM was made with is not part of this installation any more";
    assert_eq!((&change["status"], &change["error_message"]), (&json!("failed"), &json!(reason)));
    assert_eq!(cloud.nodes.state_of(row.vm_uuid), Some(VmState::Running), "nothing was done to it");
    assert_eq!(cloud.nodes.power_ons(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_broke_while_it_waited_is_replaced() {
    let cloud = Cloud::new().await;
    let (kmses, cut) = cloud.kms_over_a_breakable_way().await;
    let kms = &kmses.all()[0];
    kms.meta().await.unwrap();
    cut.store(true, Ordering::SeqCst);
    kms.meta().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_is_down_is_said_to_be() {
    let mut cloud = Cloud::new().await;
    cloud.stop_kms().await;
    let refused = cloud.installation.call("POST", "/cvms/provision", provision_body("my-app-01")).await;
    assert_eq!((refused.summary().as_str(), refused.header("retry-after")), ("503 plain", "5"));
    let path = format!("/kms/local/pubkey/{}", "00".repeat(20));
    let key = cloud.installation.call("GET", &path, Value::Null).await;
    assert_eq!(key.summary(), "503 plain");
    let inspection = cloud.get("/kms/local/info").await;
    assert_eq!((&inspection["rpc"], &inspection["guest_agent"]), (&Value::Null, &Value::Null));
    assert!(inspection["rpc_error"].as_str().unwrap().contains("KMS local does not answer"), "{inspection}");
    // What is known of it is shown as before.
    assert_ne!(cloud.get("/kms/local").await["version"], "unknown");
}

#[tokio::test]
async fn a_provision_names_its_service() {
    let mut installation = Installation::new().await;
    know(&mut installation, vec![absent("local"), absent("other")]).await;
    let mut table = Vec::new();
    for (member, value) in [
        ("kms", json!("PHALA")),
        ("kms_type", json!("phala")),
        ("kms", json!("ethereum")),
        ("kms", json!("Base")),
        ("kms", json!("legacy")),
        ("kms", json!("mine")),
        ("kms_id", json!("other")),
        ("kms_id", json!("Phala")),
        ("kms_id", json!(KmsId(2))),
        ("kms_id", json!(KmsContractId(2))),
        ("kms_id", json!(KmsId(3))),
        ("kms_id", json!("")),
        ("kms_contract", json!("phala")),
        ("kms_contract", json!("0x00")),
    ] {
        let answer = installation.call("POST", "/cvms/provision", with(member, value.clone())).await;
        table.push(format!("{member} {value}: {}", answer.summary()));
    }
    // Nobody runs them: 503 stands for a service that was chosen.
    insta::assert_snapshot!(table.join("\n"));
}

#[tokio::test]
async fn services_keep_their_numbers() {
    let mut installation = Installation::new().await;
    know(&mut installation, vec![absent("local"), absent("other")]).await;
    know(&mut installation, vec![absent("third"), absent("other")]).await;
    let ids = installation.app.kmses.all().iter().map(|kms| kms.id()).collect::<Vec<_>>();
    assert_eq!(ids, [3, 2]);
}

#[tokio::test]
async fn the_next_app_ids_are_the_ones_that_are_given() {
    let installation = Installation::new().await;
    let next = async |query: &str| {
        installation.call("GET", &format!("/kms/phala/next_app_id{query}"), Value::Null).await
    };
    let first = next("").await.expect(200).json();
    assert_eq!((members(&first), members(&first["app_ids"][0])), (vec!["app_ids"], vec!["app_id", "nonce"]));
    let three = next("?counts=3").await.expect(200).json();
    assert_eq!(three["app_ids"][0], first["app_ids"][0], "nothing is reserved");
    for expected in three["app_ids"].as_array().unwrap() {
        let name = format!("my-app-{}", expected["nonce"]);
        let vm = installation.create(&name).await;
        assert_eq!(vm["app_id"], expected["app_id"]);
    }
    assert_eq!(next("?counts=20").await.expect(200).json()["app_ids"].as_array().unwrap().len(), 20);
    for query in ["?counts=0", "?counts=21", "?counts=many"] {
        assert_eq!(next(query).await.summary(), "422 validation", "{query}");
    }
}

#[tokio::test]
async fn no_contract_is_on_any_chain() {
    let installation = Installation::new().await;
    for (chain, id) in [("base", 8453), ("Ethereum", 1), ("8453", 8453)] {
        let answer =
            installation.call("GET", &format!("/kms/on-chain/{chain}"), Value::Null).await.expect(200);
        assert_eq!((&answer.json()["chain_id"], &answer.json()["contracts"]), (&json!(id), &json!([])));
    }
    let unknown = installation.call("GET", "/kms/on-chain/moon", Value::Null).await;
    assert_eq!(unknown.summary(), "400 plain");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_holds_on_postgresql_too() {
    let mut cloud = Cloud::on(Installation::on_postgres_at(Clock::system()).await).await;
    let vm = cloud.create("my-app-01", &blob(1)).await;
    cloud.at_rest(&vm, CvmStatus::Running).await;
    let body = json!({"encrypted_env": blob(2)});
    cloud.installation.call("PATCH", "/cvms/my-app-01/envs", body).await.expect(202);
    let row = cloud.at_rest(&vm, CvmStatus::Running).await;
    assert_eq!((row.encrypted_env, row.kms_id), (Some(blob(2)), Some(1)));
    cloud.stop_kms().await;
}
