//! CVMs made from a configuration in two calls, as deprecated commands of published clients do.

use cloister_kms_api::statements::verify_env_key;

use super::support::Cloud;
use super::{CvmStatus, Installation, Value, blob, json};
use crate::governance::testing::KMS_CONTRACT;

const PUBKEY: &str = "/cvms/pubkey/from_cvm_configuration";
const CREATE: &str = "/cvms/from_cvm_configuration";

/// What the published command line sends.
fn configuration(name: &str) -> Value {
    json!({
        "teepod_id": 1, "name": name, "image": "cloister-0.1.0", "vcpu": 1, "memory": 2048, "disk_size": 40,
        "compose_manifest": {
            "docker_compose_file": "services:\n  web:\n    image: nginx:1\n",
            "docker_config": {"url": "", "username": "", "password": ""},
            "features": ["kms", "tproxy-net"], "kms_enabled": true, "manifest_version": 2, "name": name,
            "public_logs": true, "public_sysinfo": true, "runner": "docker-compose", "tproxy_enabled": true,
        },
        "listed": false,
    })
}

fn with(mut body: Value, members: Value) -> Value {
    let Value::Object(members) = members else { panic!("no object") };
    for (name, value) in members {
        body[name] = value;
    }
    body
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_of_a_configuration_opens_what_its_cvm_is_created_with() {
    let cloud = Cloud::new().await;
    let installation = &cloud.installation;
    let asked = async |path: &str, body: Value| installation.call("POST", path, body).await;
    let sealed_for = asked(PUBKEY, configuration("older-app")).await.expect(200).json();
    // Seals `{"env":[]}`, as the command line does without variables.
    let sealed = json!({"encrypted_env": hex::encode([7; 70])});
    let body = with(with(configuration("older-app"), sealed), sealed_for.clone());
    for (member, value, words) in [
        ("app_env_encrypt_pubkey", json!("00".repeat(32)), "is not the one that the key was asked for"),
        ("app_id_salt", json!("salt"), "is not the one that the key was asked for"),
        ("vcpu", json!(0), ""),
        ("encrypted_env", json!(hex::encode([7; 71])), "the document allows none of them"),
    ] {
        let refused = asked(CREATE, with(body.clone(), json!({member: value}))).await;
        assert!(refused.status.as_u16() == 400 && refused.text.contains(words), "{member}: {}", refused.text);
    }
    let login = json!({"username": "ada", "password": "secret"});
    let mut readable = body.clone();
    readable["compose_manifest"]["docker_config"] = login;
    for path in [PUBKEY, CREATE] {
        let refused = asked(path, readable.clone()).await;
        assert_eq!(refused.summary(), "400 ERR-02-008");
        assert!(!refused.text.contains("secret"));
    }

    let vm = asked(CREATE, body.clone()).await.expect(200).json();
    let row = cloud.at_rest(&vm, CvmStatus::Running).await;
    assert_eq!((row.vcpu, row.memory_mb, row.disk_gb, row.listed), (1, 2048, 40, 0));
    assert_eq!(row.encrypted_env, Some(hex::encode([7; 70])));
    assert_eq!(row.compose_hash.to_string(), sealed_for["app_id_salt"].as_str().unwrap());
    // The key is that of the application, and the service's root vouches for it.
    let key = cloud.get(&format!("/kms/local/pubkey/{}", row.app_id)).await;
    assert_eq!(key["public_key"], sealed_for["app_env_encrypt_pubkey"]);
    let bytes = |name: &str| hex::decode(key[name].as_str().unwrap()).unwrap();
    let public_key = bytes("public_key").try_into().unwrap();
    verify_env_key(&row.app_id, &public_key, &bytes("signature"), &cloud.root).unwrap();

    assert_eq!(asked(CREATE, body.clone()).await.summary(), "409 ERR-01-004");
    // With names, variables reach the application. The same request under the same name happens once.
    let named = json!({"name": "named-app", "env_keys": ["API_KEY"], "encrypted_env": blob(1).repeat(2)});
    let body = with(configuration("named-app"), named);
    let headers = [("x-api-key", installation.tenant.as_str()), ("idempotency-key", "once")];
    let made = installation.call_with(&headers, "POST", CREATE, body.clone()).await.expect(200);
    assert_eq!(installation.call_with(&headers, "POST", CREATE, body).await.expect(200).text, made.text);
    let row = cloud.at_rest(&made.json(), CvmStatus::Running).await;
    assert!(row.app_compose.contains(r#""allowed_envs":["API_KEY"]"#), "{}", row.app_compose);
}

#[tokio::test]
async fn without_a_service_there_is_no_key_and_a_cvm_all_the_same() {
    let installation = Installation::new().await;
    let refused = installation.call("POST", PUBKEY, configuration("older-app")).await;
    assert_eq!(refused.json()["error_code"], "ERR-02-011", "{}", refused.text);
    let sealed = with(configuration("older-app"), json!({"encrypted_env": blob(1)}));
    assert_eq!(installation.call("POST", CREATE, sealed).await.summary(), "400 ERR-02-009");
    let vm = installation.call("POST", CREATE, configuration("older-app")).await.expect(200).json();
    for member in ["app_url", "manifest_version", "version", "runner", "features", "docker_compose_file"] {
        assert!(vm.get(member).is_some(), "{member}: {vm}");
    }
    assert_eq!(installation.row(&vm).await.memory_mb, 2048);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_a_contract_decides_the_other_way_is_named() {
    let cloud = Cloud::under_contract(Some(KMS_CONTRACT)).await;
    for path in [PUBKEY, CREATE] {
        let refused = cloud.installation.call("POST", path, configuration("older-app")).await;
        assert_eq!(refused.summary(), "400 ERR-02-009");
        assert!(refused.text.contains("/cvms/provision"), "{}", refused.text);
    }
}
