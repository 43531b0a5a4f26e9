//! A service that a contract decides for.

use super::*;
use crate::api::auth::hash_key;
use crate::governance::testing::KMS_CONTRACT;
use crate::kms::KmsContract;
use crate::operations::CreateRequest;
use crate::store::tests::prepared_changes::put_under_kms;

/// Gives the CVM's keys to the service, as if it had been made under its contract.
async fn a_cvm_of_the_contract(cloud: &Cloud) -> Value {
    let mut body = provision_body("my-app-01");
    body["compose_file"]["kms_enabled"] = json!(false);
    let provision = cloud.installation.call("POST", "/cvms/provision", body).await.expect(200).json();
    let hash = provision["compose_hash"].as_str().unwrap().parse().unwrap();
    let store = &cloud.installation.app.store;
    let workspace = cloud.installation.tenant_workspace;
    let mut row = store.provision(workspace, hash, 0).await.unwrap().unwrap();
    row.kms_id = Some(cloud.installation.app.kmses.all()[0].id());
    let mut change = store.change().await.unwrap();
    change.put_provision(&row).await.unwrap();
    change.commit().await.unwrap();
    let key = hash_key(&cloud.installation.tenant);
    let caller = store.caller(&key, cloud.installation.app.clock.now_ms()).await.unwrap().unwrap();
    let request = CreateRequest {
        compose_hash: hash,
        app_id: row.app_id,
        is_allowed_by_contract: true,
        encrypted_env: None,
        scheduled_delete_at_ms: None,
    };
    let cvm = cloud.installation.app.lifecycle.create(&caller, request).await.unwrap();
    json!({"id": cvm.id})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_told_to_it_and_only_the_key_is_read() {
    let cloud = Cloud::under_contract(Some(KMS_CONTRACT)).await;
    let vm = a_cvm_of_the_contract(&cloud).await;
    // The service would refuse to be told anything, and the start would fail with that.
    let row = cloud.at_rest(&vm, CvmStatus::Running).await;
    let key = cloud.get(&format!("/kms/ethereum/pubkey/{}", row.app_id)).await;
    assert_eq!(row.env_pubkey.map(Value::from), Some(key["public_key"].clone()));
    // Nothing is taken back there either.
    cloud.installation.call("POST", &format!("/cvms/{}/restart", row.id), Value::Null).await.expect(200);
    cloud.at_rest(&vm, CvmStatus::Running).await;
    assert_eq!(cloud.nodes.power_ons(), 2);

    let mut existing = provision_body("my-app-02");
    (existing["app_id"], existing["prefer_dev"]) = (json!(row.app_id), json!(true));
    let refused = cloud.installation.call("POST", "/cvms/provision", existing).await;
    assert_eq!(refused.summary(), "400 ERR-02-012", "no node has proved its device: {}", refused.text);
    let info = cloud.get("/kms/local/info").await;
    assert_eq!(info["rpc"]["kms_contract_address"], json!(KMS_CONTRACT.hex_address()));
    assert!(info["on_chain"]["error"].as_str().unwrap().contains("not configured for chain"), "{info}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_another_contract_is_as_good_as_none() {
    let another = KmsContract { address: [0xdd; 20], ..KMS_CONTRACT };
    for configured in [Some(another), Some(KmsContract { chain_id: 1, ..KMS_CONTRACT }), None] {
        let cloud = Cloud::under_contract(configured).await;
        let path = format!("/kms/local/pubkey/{}", "00".repeat(20));
        let refused = cloud.installation.call("GET", &path, Value::Null).await;
        assert_eq!(refused.summary(), "503 plain");
        let info = cloud.get("/kms/local/info").await;
        assert!(info["rpc_error"].as_str().unwrap().contains("does not name the contract"), "{info}");
    }
    // A service without a contract where one is expected.
    let cloud = Cloud::new().await;
    let mut installation = cloud.installation;
    let config = KmsConfig { contract: Some(KMS_CONTRACT), ..cloud.config };
    know(&mut installation, vec![config]).await;
    let path = format!("/kms/local/pubkey/{}", "00".repeat(20));
    assert_eq!(installation.call("GET", &path, Value::Null).await.summary(), "503 plain");
}

/// Which service the applications of others have their keys from is nobody's business.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_stands_for_the_service_of_ones_own_application_only() {
    let mut cloud = Cloud::new().await;
    let vm = cloud.create("my-app-01", &blob(1)).await;
    let row = cloud.at_rest(&vm, CvmStatus::Running).await;
    let sibling = cloud.add_service().await;
    put_under_kms(&cloud.installation.app.store, row.id, sibling.kms_id).await;
    let path = format!("/kms/phala/info?app_id={}", row.app_id);
    assert_eq!(cloud.get(&path).await["slug"], "sibling");
    let admin = [("x-api-key", cloud.installation.admin.as_str())];
    let told = cloud.installation.call_with(&admin, "GET", &path, Value::Null).await.expect(200).json();
    assert_eq!(told["slug"], "local");
}
