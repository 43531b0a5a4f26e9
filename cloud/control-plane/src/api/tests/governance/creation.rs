//! Making CVMs of applications under contracts.

use cloister_app_compose::ComposeHash;
use cloister_contracts::abi::Kms;
use cloister_contracts::{Address, SolEvent};

use super::*;
use crate::governance::{BlockRef, ContractReceipt, KmsQuestion, ReceiptLog};
use crate::operations::CvmStatus;

const APP: AppId = AppId::from_bytes([0xab; 20]);

fn body(name: &str) -> Value {
    let mut body = provision_body(name);
    body["kms_contract"] = json!(format!("0x{}", "CC".repeat(20)));
    body
}

impl World {
    async fn provision(&self, body: Value) -> Value {
        self.call("POST", "/cvms/provision", body).await.expect(200).json()
    }

    async fn create(&self, provision: &Value, more: Value) -> Answer {
        let mut body = json!({"app_id": format!("0x{APP}"), "compose_hash": provision["compose_hash"]});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        self.call("POST", "/cvms", body).await
    }

    /// The contract allows what was provisioned, and that of the service the image.
    fn allow(&self, provision: &Value) {
        let hash: ComposeHash = provision["compose_hash"].as_str().unwrap().parse().unwrap();
        self.contracts.deploy(APP);
        self.contracts.add_hash(APP, hash);
        self.contracts.add_device(APP, DEVICE);
        self.contracts
            .allow_for_kms(KmsQuestion { os_images: vec![PRODUCTION_IMAGE], ..KmsQuestion::default() });
    }

    fn mined(&self, seed: u8, succeeded: bool, logs: Vec<ReceiptLog>) -> String {
        let block = BlockRef { number: 7, hash: [7; 32] };
        let to = Some(KMS_CONTRACT.address);
        self.contracts.mine([seed; 32], ContractReceipt { succeeded, from: [9; 20], to, block, logs });
        format!("0x{}", hex::encode([seed; 32]))
    }
}

fn log(address: [u8; 20], event: &impl SolEvent) -> ReceiptLog {
    let data = event.encode_log_data();
    let topics = data.topics().iter().map(|topic| topic.0).collect();
    ReceiptLog { address, topics, data: data.data.to_vec() }
}

fn deployed(app: AppId, deployer: [u8; 20]) -> Kms::AppDeployedViaFactory {
    Kms::AppDeployedViaFactory { appId: Address::from(*app.as_bytes()), deployer: Address::from(deployer) }
}

#[tokio::test]
async fn a_provision_tells_what_the_contract_has_to_allow() {
    for world in World::both().await {
        let provision = world.provision(body("my-app")).await;
        assert_eq!(
            (&provision["app_id"], &provision["app_env_encrypt_pubkey"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(provision["device_id"], json!(hex::encode(DEVICE)));
        assert_eq!(
            provision["os_image_hash"],
            json!(hex::encode(PRODUCTION_IMAGE)),
            "production unless asked otherwise"
        );
        let kms = &provision["kms_info"];
        assert_eq!((&kms["slug"], &kms["chain_id"]), (&json!("chained"), &json!(CHAIN)));
        assert_eq!(kms["kms_contract_address"], json!(format!("0x{}", "cc".repeat(20))));
        let again = world.provision(body("my-app")).await;
        assert_eq!(again["app_id"], Value::Null);

        let mut dev = body("my-app");
        dev["prefer_dev"] = json!(true);
        assert_eq!(world.provision(dev).await["os_image_hash"], json!("05".repeat(32)));
        let mut named = body("my-app");
        named["image"] = json!("cloister-0.1.0");
        assert_eq!(world.provision(named).await["os_image_hash"], json!("05".repeat(32)));
        // The contract is not asked: nobody has to have deployed anything yet.
        assert_eq!(world.contracts.round_trips(), 0);

        // A contract that exists has a key to seal to, which the service has to tell.
        let mut existing = body("my-app");
        existing["app_id"] = json!(format!("0x{APP}"));
        assert_eq!(world.call("POST", "/cvms/provision", existing.clone()).await.summary(), "503 plain");
        existing["nonce"] = json!(3);
        assert_eq!(world.call("POST", "/cvms/provision", existing).await.summary(), "400 ERR-02-009");
        let mut alone = provision_body("my-app");
        alone["app_id"] = json!(APP.to_string());
        assert_eq!(world.call("POST", "/cvms/provision", alone).await.summary(), "400 ERR-02-009");
    }
}

#[tokio::test]
async fn what_a_request_says_about_the_service_chooses_it() {
    let world = World::new().await;
    let mut table = Vec::new();
    for (member, value) in [
        ("kms", json!("PHALA")),
        ("kms", json!("ETHEREUM")),
        ("kms", json!("base")),
        ("kms_id", json!("chained")),
        ("kms_contract", json!("phala")),
        ("kms_contract", json!(format!("0x{}", "cc".repeat(20)))),
        ("kms_contract", json!(format!("0x{}", "dd".repeat(20)))),
    ] {
        let mut body = provision_body("my-app");
        body[member] = value.clone();
        let answer = world.call("POST", "/cvms/provision", body).await;
        let slug =
            if answer.status == 200 { answer.json()["kms_info"]["slug"].to_string() } else { String::new() };
        table.push(format!("{member} {value}: {} {slug}", answer.summary()));
    }
    // Nobody runs the one without a contract: 503 stands for it.
    insta::assert_snapshot!(table.join("\n"));
    let mut both = body("my-app");
    both["kms"] = json!("PHALA");
    assert_eq!(
        world.provision(both).await["kms_info"]["slug"],
        "chained",
        "some clients always write a kind"
    );
    let mut contrary = body("my-app");
    contrary["kms_id"] = json!("local");
    assert_eq!(world.call("POST", "/cvms/provision", contrary).await.summary(), "400 ERR-02-011");
}

#[tokio::test]
async fn a_cvm_is_made_once_the_contract_allows_it() {
    for world in World::both().await {
        let provision = world.provision(body("my-app")).await;
        let denied = world.create(&provision, json!({})).await;
        assert_eq!(denied.summary(), "468 ERR-01-008");
        assert!(denied.text.contains("deployAndRegisterApp"), "{}", denied.text);
        let details = denied.json()["details"].clone();
        let fields: Vec<_> =
            details.as_array().unwrap().iter().map(|one| one["field"].as_str().unwrap().to_owned()).collect();
        assert_eq!(fields, ["compose_hash", "app_id", "device_id", "kms_info", "onchain_status"]);

        world.contracts.deploy(APP);
        let denied = world.create(&provision, json!({})).await;
        assert_eq!(denied.summary(), "468 ERR-01-008");
        let hash = provision["compose_hash"].as_str().unwrap();
        let calls = format!("addComposeHash(0x{hash}) and addDevice(0x{})", hex::encode(DEVICE));
        assert!(denied.text.contains(&calls), "{}", denied.text);

        world.contracts.add_hash(APP, hash.parse().unwrap());
        assert_eq!(
            world.create(&provision, json!({})).await.summary(),
            "468 ERR-01-008",
            "the device is missing"
        );
        world.contracts.add_device(APP, DEVICE);
        let image = world.create(&provision, json!({})).await;
        assert_eq!(image.summary(), "400 ERR-02-013", "the image is missing");
        world.allow(&provision);
        world.contracts.describe(APP, |view| view.is_registered = false);
        let denied = world.create(&provision, json!({})).await;
        assert!(denied.text.contains("registerApp"), "{}", denied.text);
        world.contracts.describe(APP, |view| view.is_registered = true);
        world.contracts.set_down(Some("no endpoint answers"));
        let unknown = world.create(&provision, json!({})).await;
        assert_eq!((unknown.summary().as_str(), unknown.header("retry-after")), ("503 plain", "5"));
        world.contracts.set_down(None);

        let vm =
            world.create(&provision, json!({"contract_address": APP.to_string()})).await.expect(200).json();
        assert_eq!(vm["app_id"], json!(APP.to_string()));
        assert_eq!(vm["app_auth_contract_address"], json!(format!("0x{APP}")));
        let row = world.installation.row(&vm).await;
        assert_eq!((row.kms_id, row.status), (Some(world.kms), CvmStatus::Creating));
        // Again is the same CVM, whatever the chain says by now.
        world.contracts.set_down(Some("no endpoint answers"));
        let again = world.create(&provision, json!({})).await.expect(200).json();
        assert_eq!(again["vm_uuid"], vm["vm_uuid"]);
        world.contracts.set_down(None);
        let mut other = body("my-app-2");
        other["compose_file"]["docker_compose_file"] = json!("services: {other: {image: nginx}}");
        let other = world.provision(other).await;
        assert_eq!(world.create(&other, json!({})).await.summary(), "409 ERR-03-007");
    }
}

#[tokio::test]
async fn what_a_request_claims_has_to_be_so() {
    let world = World::new().await;
    let provision = world.provision(body("my-app")).await;
    world.allow(&provision);
    let kms = KMS_CONTRACT.address;
    let (other_app, other_kms) = (AppId::from_bytes([0xba; 20]), [0xdd; 20]);
    let deployer = [9; 20];
    let named = |account: [u8; 20]| json!(format!("0x{}", hex::encode(account)));
    let refused = [
        (world.mined(1, false, vec![log(kms, &deployed(APP, deployer))]), Value::Null),
        (world.mined(2, true, vec![]), Value::Null),
        (world.mined(3, true, vec![log(kms, &deployed(other_app, deployer))]), Value::Null),
        (world.mined(4, true, vec![log(other_kms, &deployed(APP, deployer))]), Value::Null),
        (world.mined(5, true, vec![log(kms, &deployed(APP, deployer))]), named([8; 20])),
        ("ab".repeat(32), Value::Null),
        ("0x12".to_owned(), Value::Null),
    ];
    for (transaction_hash, deployer_address) in refused {
        let claim = json!({"transaction_hash": transaction_hash, "deployer_address": deployer_address});
        assert_eq!(world.create(&provision, claim.clone()).await.summary(), "467 ERR-01-007", "{claim}");
    }
    for (claim, summary) in [
        (json!({"contract_address": other_app.to_string()}), "400 ERR-02-009"),
        (json!({"deployer_address": "0x12"}), "400 ERR-02-008"),
        (json!({"kms_id": "local"}), "400 ERR-02-009"),
        (json!({"env_keys": ["NOT_ALLOWED"]}), "400 ERR-02-008"),
    ] {
        assert_eq!(world.create(&provision, claim.clone()).await.summary(), summary, "{claim}");
    }
    // A wallet of several people deployed it: the account that sent the transaction is another.
    let wallet = [7; 20];
    let transaction_hash = world.mined(6, true, vec![log(kms, &deployed(APP, wallet))]);
    let claim = json!({"transaction_hash": transaction_hash, "deployer_address": named(wallet)});
    world.create(&provision, claim).await.expect(200);
}

#[tokio::test]
async fn a_contract_that_was_there_is_registered_by_a_transaction() {
    let world = World::new().await;
    let provision = world.provision(body("my-app")).await;
    world.allow(&provision);
    let event = Kms::AppRegistered { appId: Address::from(*APP.as_bytes()) };
    let transaction_hash = world.mined(1, true, vec![log(KMS_CONTRACT.address, &event)]);
    let request = json!({"transaction_hash": transaction_hash, "contract_address": format!("0x{APP}")});
    world.create(&provision, request).await.expect(200);
}

#[tokio::test]
async fn a_node_that_proved_nothing_is_for_no_contract() {
    let world = World::new().await;
    let mut change = world.installation.app.store.change().await.unwrap();
    let node = change.insert_node("unproved", 0).await.unwrap();
    let text = serde_json::to_string(&report(65536, false)).unwrap();
    change.put_node_report(node, &text, world.installation.app.clock.now_ms()).await.unwrap();
    change.commit().await.unwrap();
    let mut body = body("my-app");
    (body["teepod_id"], body["prefer_dev"]) = (json!(node), json!(true));
    let refused = world.call("POST", "/cvms/provision", body).await;
    assert_eq!(refused.summary(), "400 ERR-02-012", "{}", refused.text);
}

#[tokio::test]
async fn other_ways_of_making_cvms() {
    let world = World::new().await;
    // An agent, under the contract.
    let agent = json!({"name": "my-agent", "characterfile": "{}", "env_keys": [], "kms_id": "chained"});
    let provision = world.call("POST", "/cvms/provision/agentapp", agent).await.expect(200).json();
    assert_eq!(provision["app_id"], Value::Null);
    world.allow(&provision);
    let create = json!({"app_id": APP.to_string(), "compose_hash": provision["compose_hash"]});
    let vm = world.call("POST", "/cvms/agentapp", create).await.expect(200).json();
    assert_eq!(vm["app_id"], json!(APP.to_string()));

    // A document that was provisioned for the contract before gets an id of the wallet without it.
    let provision = world.provision(body("my-app")).await;
    let refused = world.call("POST", "/cvms/provision", provision_body("my-app")).await;
    assert_eq!(refused.summary(), "503 plain");
    let hash = provision["compose_hash"].as_str().unwrap().parse().unwrap();
    let store = &world.installation.app.store;
    let kept = store.provision(world.installation.tenant_workspace, hash, 0).await.unwrap().unwrap();
    assert_eq!((kept.awaits_contract, kept.app_id == AppId::from_bytes([0; 20])), (0, false));
}

/// The id of such an application is one that anybody can name.
#[tokio::test]
async fn an_application_stays_in_the_workspace_that_made_it() {
    for world in World::both().await {
        let provision = world.provision(body("my-app")).await;
        world.allow(&provision);
        let vm = world.create(&provision, json!({})).await.expect(200).json();
        let (store, row) = (&world.installation.app.store, world.installation.row(&vm).await);
        crate::store::tests::prepared_changes::vanish(store, row.id).await;

        let now_ms = world.installation.app.clock.now_ms();
        let (_, _, stranger) = super::super::account(store, "stranger", "user", 7, now_ms).await;
        let key = [("x-api-key", stranger.as_str())];
        let call =
            async |path: &str, body: Value| world.installation.call_with(&key, "POST", path, body).await;
        let theirs = call("/cvms/provision", body("my-app")).await.expect(200).json();
        assert_eq!(theirs["compose_hash"], provision["compose_hash"]);
        let create = json!({"app_id": format!("0x{APP}"), "compose_hash": theirs["compose_hash"]});
        let refused = call("/cvms", create.clone()).await;
        assert_eq!(refused.summary(), "409 ERR-03-007");
        assert!(refused.text.contains("in another workspace"), "{}", refused.text);

        world.provision(body("my-app")).await;
        let again = world.create(&provision, json!({})).await.expect(200).json();
        assert_ne!(again["vm_uuid"], vm["vm_uuid"]);
        assert_eq!(call("/cvms", create).await.summary(), "409 ERR-03-007");
    }
}
