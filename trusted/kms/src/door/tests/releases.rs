//! What is released, to whom, and what the log says of it.

use cloister_evidence::RuntimeEvent;
use cloister_key_derivation::AppKey;
use cloister_kms_api::KmsErrorCode::{BadRequest, KeyNotFound, MeasurementNotFound, Unauthorized};
use cloister_kms_api::log::{Event, Released};
use cloister_kms_api::{EnvPublicKeyRequest, Hex, Meta, method, statements};
use cloister_ra_tls::inspect_pem;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::lab::{Client, Lab, Machine, app, hex_of, post};
use super::requests;

fn gone_on() -> Machine {
    let further = vec![
        RuntimeEvent::new("key-provider", *br#"{"name":"kms","id":"00"}"#),
        RuntimeEvent::new("system-ready", []),
        RuntimeEvent::new("app-id", [2; 20]),
    ];
    Machine { further, ..Machine::of(1) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_booting_machine_gets_its_keys_and_the_log_says_so() {
    let lab = Lab::new().await;
    let machine = Machine::of(1);
    lab.allow(&machine).await;
    let mut client = lab.machine(&machine).await;
    let told = client.app_key(&machine.vm_config()).await;
    assert_eq!(told.status, 200, "{told:?}");
    let keys = told.json();
    let meta: Meta = serde_json::from_value(client.get(method::META).await.json()).unwrap();
    assert_eq!(meta.roots[0].ca_pubkey.as_ref(), client.root_public_key);
    let secret: [u8; 32] = hex_of(&keys["k256_key"]).0.try_into().unwrap();
    let application = AppKey::from_bytes(&secret).unwrap();
    let signature: [u8; 65] = hex_of(&keys["k256_signature"]).0.try_into().unwrap();
    let digest = statements::app_key_digest(&app(1), &application.public_key());
    let root: [u8; 33] = meta.k256_pubkey.0.clone().try_into().unwrap();
    assert_eq!(statements::recover(&digest, &signature).unwrap(), root);
    assert_eq!(keys["former"], json!([]));

    // The same keys for the same CVM, another disk key for another one, none in common with another app.
    assert_eq!(lab.machine(&machine).await.app_key(&machine.vm_config()).await.json(), keys);
    let sibling = Machine { instance: vec![8; 20], ..machine.clone() };
    let of_sibling = lab.machine(&sibling).await.app_key(&machine.vm_config()).await.json();
    assert_ne!(of_sibling["disk_crypt_key"], keys["disk_crypt_key"]);
    assert_eq!(of_sibling["env_crypt_key"], keys["env_crypt_key"]);
    let stranger = Machine::of(2);
    lab.allow(&stranger).await;
    let of_stranger = lab.machine(&stranger).await.app_key(&stranger.vm_config()).await.json();
    for key in ["disk_crypt_key", "env_crypt_key", "k256_key"] {
        assert_ne!(of_stranger[key], keys[key]);
    }

    // getKey(name) is what the agent derives, and needs no booting machine.
    let ready = gone_on();
    for machine in [&machine, &ready] {
        let mut client = lab.machine(machine).await;
        let told = client.key("storage", &machine.vm_config()).await;
        assert_eq!(told.body.as_ref(), application.derive("storage").as_bytes());
    }
    let events = lab.events().await;
    let named = events.iter().find_map(|event| match event {
        Event::Release {
            released: Released::NamedKey,
            caller,
            name_hash,
            root_version: 1,
            authorized_at: None,
        } => Some((caller, name_hash.clone().unwrap())),
        _ => None,
    });
    let (caller, name_hash) = named.unwrap();
    assert_eq!(name_hash, Hex::from(Sha256::digest("storage").to_vec()));
    assert_eq!(caller.app_id, Some(app(1)));
    assert!(caller.os_image_hash.is_some() && caller.device_id.is_some() && caller.instance_id.is_some());
    let releases = events.iter().filter(|event| matches!(event, Event::Release { .. })).count();
    assert_eq!(releases, 6, "one record for each release");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_past_its_boot_gets_no_disk_key() {
    let lab = Lab::new().await;
    let ready = gone_on();
    lab.allow(&ready).await;
    let mut client = lab.machine(&ready).await;
    let told = client.app_key(&ready.vm_config()).await;
    assert_eq!(told.code(), Unauthorized);
    assert!(told.reason().contains("gone past"), "{}", told.reason());
    let confirm = json!({"root_version": 1, "vm_config": ready.vm_config()});
    assert_eq!(client.post(method::CONFIRM_RESEAL, &confirm).await.code(), Unauthorized);
    // What the application measured is its own word: it stays who it was.
    assert_eq!(client.key("a", &ready.vm_config()).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_none_and_requests_that_are_none() {
    let lab = Lab::new().await;
    let machine = Machine::of(1);
    lab.allow(&machine).await;
    let mut client = lab.machine(&machine).await;
    let config = machine.vm_config();
    for name in ["", "a\nb", "\u{7f}", &"x".repeat(257), &"ü".repeat(129)] {
        assert_eq!(client.key(name, &config).await.code(), KeyNotFound, "{name:?}");
    }
    assert_eq!(client.key(&"x".repeat(256), &config).await.status, 200);
    let version = json!({"name": "a", "vm_config": config, "root_version": 2});
    assert_eq!(client.post(method::KEY, &version).await.code(), KeyNotFound);
    for body in [json!([]), json!({"name": 1}), json!({"name": "a"})] {
        assert_eq!(client.post(method::KEY, &body).await.code(), BadRequest, "{body}");
    }
    assert_eq!(client.post("/prpc/KMS.Nothing", &json!({})).await.code(), BadRequest);
    let too_much = json!({"name": "a", "vm_config": "x".repeat(2 << 20)});
    // Whoever sends so much may find the connection ended before it has sent it all.
    let told = lab.machine(&machine).await.try_send(post(method::KEY, &too_much)).await;
    assert!(told.is_err() || told.unwrap().code() == BadRequest);
    let newer = json!({"api_version": 2, "vm_config": config});
    assert_eq!(client.post(method::APP_KEY, &newer).await.code(), BadRequest);
}

#[tokio::test(flavor = "multi_thread")]
async fn roots_go_to_registered_kmses_only() {
    let lab = Lab::new().await;
    let machine = Machine::of(1);
    lab.allow(&machine).await;
    let told = lab.machine(&machine).await.post(method::KMS_KEY, &json!({"vm_config": ""})).await;
    assert_eq!(told.code(), MeasurementNotFound, "{}", told.reason());
    let wrong = Machine { kernel: "another", ..machine.clone() }.vm_config();
    let told = lab.machine(&machine).await.post(method::KMS_KEY, &json!({"vm_config": wrong})).await;
    assert_eq!(told.code(), Unauthorized);
    let aggregated = lab.events().await.iter().rev().find_map(|event| match event {
        Event::Refusal { caller, .. } => caller.mr_aggregated.clone(),
        _ => None,
    });
    // Of a machine that is still booting, the full aggregate is that of its boot.
    let rules = cloister_kms_api::admin::PlatformRules {
        kms_measurements: vec![aggregated.unwrap()],
        ..Default::default()
    };
    lab.keys.set_platform_rules(rules).await.unwrap();
    let told = lab.machine(&machine).await.post(method::KMS_KEY, &json!({"vm_config": ""})).await;
    assert_eq!(told.status, 200, "{told:?}");
    assert!(told.json()["roots"][0]["ca_key"].is_string());
    assert!(
        lab.events()
            .await
            .iter()
            .any(|event| matches!(event, Event::Release { released: Released::Roots, .. }))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_rotation_machines_get_both_keys_until_they_confirm() {
    let lab = Lab::new().await;
    let machine = Machine::of(1);
    lab.allow(&machine).await;
    let config = machine.vm_config();
    let mut before = lab.machine(&machine).await;
    let old = before.app_key(&config).await.json();
    lab.keys.start_rotation().await.unwrap();
    // The connection goes on; what is asked now comes from the new root.
    let new = before.app_key(&config).await.json();
    assert_eq!((new["root_version"].as_u64(), new["former"][0]["root_version"].as_u64()), (Some(2), Some(1)));
    for key in ["disk_crypt_key", "env_crypt_key", "k256_key", "k256_signature"] {
        assert_eq!(new["former"][0][key], old[key]);
        assert_ne!(new[key], old[key]);
    }
    let pinned = before.root_public_key.clone();
    let after = wait_for_root(&lab, &machine, &pinned).await;
    assert_ne!(after.root_public_key, pinned);
    let named = |version: u32| json!({"name": "a", "vm_config": config, "root_version": version});
    assert_ne!(
        before.post(method::KEY, &named(1)).await.body,
        before.post(method::KEY, &named(2)).await.body
    );
    assert_eq!(lab.keys.rotation_status().pending_total, 1);
    let confirm = json!({"root_version": 2, "vm_config": config});
    assert_eq!(before.post(method::CONFIRM_RESEAL, &confirm).await.json(), json!({}));
    assert_eq!(lab.keys.rotation_status().pending_total, 0);
    let unknown = json!({"root_version": 9, "vm_config": config});
    assert_eq!(before.post(method::CONFIRM_RESEAL, &unknown).await.code(), BadRequest);
}

/// A connection to the server once it shows another root than `old`.
async fn wait_for_root(lab: &Lab, machine: &Machine, old: &[u8]) -> Client {
    let patience = std::time::Duration::from_secs(30);
    tokio::time::timeout(patience, async {
        loop {
            let client = lab.machine(machine).await;
            if client.root_public_key != old {
                return client;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_for_the_callers_own_keys() {
    let lab = Lab::new().await;
    let machine = gone_on();
    lab.allow(&machine).await;
    let request = |machine: &Machine| requests::certificate(machine, &lab.platform);
    let (key, body) = request(&machine);
    let told = lab.machine(&machine).await.post(method::SIGN_CERT, &body).await;
    assert_eq!(told.status, 200, "{told:?}");
    let chain: Vec<String> = serde_json::from_value(told.json()["certificate_chain"].clone()).unwrap();
    assert_eq!(chain.len(), 3);
    let leaf = inspect_pem(&chain[0]).unwrap();
    assert_eq!(leaf.public_key, key.public_key());
    assert_eq!((leaf.app_id, leaf.usage.as_deref()), (Some(app(1)), Some("app:custom")));

    // Another application's key, and a signature by another key.
    let other = Machine::of(2);
    lab.allow(&other).await;
    let (_, of_other) = request(&other);
    assert_eq!(lab.machine(&machine).await.post(method::SIGN_CERT, &of_other).await.code(), Unauthorized);
    let mut forged = body.clone();
    forged["signature"] = of_other["signature"].clone();
    assert_eq!(lab.machine(&machine).await.post(method::SIGN_CERT, &forged).await.code(), BadRequest);
}

#[tokio::test(flavor = "multi_thread")]
async fn anybody_may_know_the_environment_key() {
    let lab = Lab::new().await;
    let mut client = Client::connect(lab.directory, None).await;
    let meta: Meta = serde_json::from_value(client.get(method::META).await.json()).unwrap();
    let told = client.post(method::ENV_PUBLIC_KEY, &EnvPublicKeyRequest { app_id: app(1) }).await.json();
    let public: [u8; 32] = hex_of(&told["public_key"]).0.try_into().unwrap();
    let signature: [u8; 65] = hex_of(&told["signature"]).0.try_into().unwrap();
    let root: [u8; 33] = meta.k256_pubkey.0.try_into().unwrap();
    let digest = statements::env_key_digest(&app(1), &public);
    assert_eq!(statements::recover(&digest, &signature).unwrap(), root);
    let body = json!({"name": "a", "vm_config": "{}"});
    for method in [method::KEY, method::APP_KEY, method::KMS_KEY, method::SIGN_CERT] {
        assert_eq!(client.post(method, &body).await.code(), Unauthorized, "{method}");
    }
}
