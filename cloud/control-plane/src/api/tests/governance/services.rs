//! Key management services of contracts, and the images that those allow.

use super::*;
use crate::governance::{KmsQuestion, PublishedKeys};
use crate::kms::KmsContract;

#[tokio::test]
async fn services_are_told_by_their_contract() {
    let mut world = World::new().await;
    let further = KmsConfig {
        contract: Some(KmsContract { address: [0xdd; 20], ..KMS_CONTRACT }),
        ..absent("further")
    };
    let chain: Arc<FakeContracts> = Arc::clone(&world.contracts);
    let plain = KmsConfig { contract: None, ..absent("local") };
    let all = vec![plain, absent("chained"), absent("second"), further];
    know_with(&mut world.installation, all, chain).await;
    let slugs = async |version: &str, query: &str| {
        let page = world.installation.get_in(version, &format!("/kms{query}")).await.expect(200).json();
        let slugs =
            page["items"].as_array().unwrap().iter().map(|item| item["slug"].as_str().unwrap().to_owned());
        slugs.collect::<Vec<_>>()
    };
    assert_eq!(slugs("2026-01-21", "").await, ["local", "chained", "second", "further"]);
    assert_eq!(slugs("2026-01-21", "?is_onchain=true").await, ["chained", "second", "further"]);
    assert_eq!(slugs("2026-01-21", "?is_onchain=false").await, ["local"]);
    assert_eq!(slugs("2026-06-23", "?is_onchain=true").await, ["chained", "further"]);
    assert_eq!(slugs("2026-06-23", "").await, ["local", "chained", "further"]);

    let address = format!("0x{}", "cc".repeat(20));
    let node = world.get("/kms/second").await;
    assert_eq!((&node["chain_id"], &node["kms_contract_address"]), (&json!(CHAIN), &json!(address)));
    let contract = world.installation.get_in("2026-06-23", "/kms/second").await.expect(200).json();
    assert_eq!((&contract["contract_address"], &contract["chain_id"]), (&json!(address), &json!(CHAIN)));
    assert_eq!((&contract["slug"], &contract["node_count"]), (&json!("chained"), &json!(2)));
    // A chain that is not one of the public ones is of the kind of Ethereum.
    assert_eq!(world.get("/kms/ethereum").await["slug"], "chained");
    let nodes = world.get("/kms/second/nodes").await;
    assert_eq!(
        (&nodes["total"], &nodes["items"][1]["slug"], &nodes["items"][1]["kms_type"]),
        (&json!(2), &json!("second"), &json!("ethereum"))
    );
    let nodes = world.get("/kms/local/nodes").await;
    assert_eq!((&nodes["total"], &nodes["items"][0]["kms_type"]), (&json!(1), &json!("phala")));
    assert_eq!(world.call("GET", "/kms/none-such/nodes", Value::Null).await.summary(), "404 plain");
    assert_eq!(world.get("/teepods/available").await["nodes"][0]["support_onchain_kms"], true);
}

#[tokio::test]
async fn what_new_cvms_can_be_made_of_has_ids_in_the_form_of_the_version() {
    let world = World::new().await;
    for (version, are_texts) in
        [("2025-10-28", false), ("2026-01-21", false), ("2026-05-22", true), ("2026-06-23", true)]
    {
        let all =
            world.installation.get_in(version, "/teepods/cvm-create-resources").await.expect(200).json();
        let (off_chain, on_chain) = (&all["kms_nodes"][0], &all["kms_nodes"][1]);
        for id in [
            &off_chain["id"],
            &on_chain["id"],
            &on_chain["kms_contract_id"],
            &all["node_kms_relations"][1]["kms_id"],
        ] {
            assert_eq!((id.is_string(), id.is_i64()), (are_texts, !are_texts), "{version}: {all:#}");
        }
        assert_eq!((&off_chain["kms_type"], &off_chain["kms_contract_id"]), (&json!("phala"), &Value::Null));
        assert_eq!(on_chain["kms_type"], "ethereum");
        let images = all["nodes"][0]["images"].as_array().unwrap().iter().map(|image| image["name"].clone());
        assert_eq!(on_chain["supported_os_images"], images.collect::<Value>());
        assert_eq!(all["node_kms_relations"].as_array().unwrap().len(), 2);
        assert_eq!(all["gateway_nodes"], json!([]));
        let size = &all["instance_types"][0];
        assert_eq!(
            (&size["id"], &size["display_order"], &size["requires_gpu_count"]),
            (&json!("tdx.small"), &json!(0), &json!(0))
        );
    }
}

#[tokio::test]
async fn a_chain_shows_its_contracts_and_what_they_allow() {
    let world = World::new().await;
    world.contracts.publish(
        PublishedKeys {
            k256_pubkey: vec![2; 33],
            ca_pubkey: vec![3; 65],
            quote_length: 5,
            eventlog_length: 7,
        },
        "gateway-app",
    );
    world.contracts.allow_for_kms(KmsQuestion {
        devices: vec![DEVICE],
        os_images: vec![PRODUCTION_IMAGE],
        ..KmsQuestion::default()
    });
    let chain = world.get("/kms/on-chain/development").await;
    assert_eq!(chain, world.get(&format!("/kms/on-chain/{CHAIN}")).await);
    insta::assert_json_snapshot!(chain);
    for (name, id) in [("base", 8453), ("Ethereum", 1), ("8453", 8453)] {
        let empty = world.get(&format!("/kms/on-chain/{name}")).await;
        assert_eq!((&empty["chain_id"], &empty["contracts"]), (&json!(id), &json!([])));
    }
    assert_eq!(world.call("GET", "/kms/on-chain/moon", Value::Null).await.summary(), "400 plain");

    // The service itself does not answer: what would be compared with it is not told.
    let info = world.get("/kms/chained/info").await;
    assert_eq!(info["kms_type"], "ethereum");
    let said = &info["on_chain"];
    assert_eq!(
        (&said["owner"], &said["gateway_app_id"]),
        (&json!(format!("0x{}", hex::encode(OWNER))), &json!("gateway-app"))
    );
    assert_eq!((&said["kms_info"]["quote_length"], &said["error"]), (&json!(5), &Value::Null));
    assert!(said["verification"].as_object().unwrap().values().all(Value::is_null), "{said}");
    assert_eq!(world.get("/kms/local/info").await["on_chain"], Value::Null);

    world.contracts.set_down(Some("no endpoint answers"));
    let chain = world.get("/kms/on-chain/development").await;
    let contract = &chain["contracts"][0];
    assert_eq!(
        (&contract["devices"][0]["on_chain_allowed"], &contract["k256_pubkey"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(world.get("/kms/chained/info").await["on_chain"]["error"], "no endpoint answers");
}

#[tokio::test]
async fn only_images_that_the_contract_allows_are_offered() {
    let world = World::new().await;
    let cvm = world.governed().await;
    let mut images = report(65536, false);
    for (name, version, seed) in [("allowed", "0.2.0", 8), ("forbidden", "0.3.0", 9)] {
        let os_image_hash = OsImageHash::from_bytes([seed; 32]);
        images.images.push(NodeImage {
            name: name.into(),
            version: version.into(),
            os_image_hash,
            ..images.images[0].clone()
        });
    }
    world.installation.report(&images).await;
    let path = format!("/cvms/{}", cvm.id);
    let offered = async || {
        let list = world.get(&format!("{path}/available-os-images")).await;
        let names =
            list.as_array().unwrap().iter().map(|entry| entry["dev"]["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    let change = async |name: &str| {
        world.call("PATCH", &format!("{path}/os-image"), json!({"os_image_name": name})).await
    };
    assert_eq!(offered().await, ["cloister-0.1.0"], "its own is always one");
    world.contracts.allow_for_kms(KmsQuestion { os_images: vec![[8; 32]], ..KmsQuestion::default() });
    assert_eq!(offered().await, ["allowed", "cloister-0.1.0"]);
    let refused = change("forbidden").await;
    assert_eq!(refused.summary(), "400 ERR-02-013");
    assert!(refused.text.contains(&format!("addOsImageHash(0x{})", "09".repeat(32))), "{}", refused.text);
    world.contracts.set_down(Some("no endpoint answers"));
    assert_eq!(offered().await, ["cloister-0.1.0"]);
    let turns: Vec<_> = (0..crate::api::governance::MAX_CHAIN_READS)
        .map(|_| world.installation.api.chain_reads.take(cvm.workspace_id).unwrap())
        .collect();
    let busy = world.call("GET", &format!("{path}/available-os-images"), Value::Null).await;
    assert_eq!(busy.summary(), "429 plain");
    drop(turns);
    let unknown = change("allowed").await;
    assert_eq!((unknown.summary().as_str(), unknown.header("retry-after")), ("503 plain", "5"));
    // What it has needs nobody.
    assert_ne!(change("cloister-0.1.0").await.summary(), "503 plain");
}
