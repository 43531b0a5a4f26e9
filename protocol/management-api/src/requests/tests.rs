use cloister_app_compose::decode::{Decode, Source, decode};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::ValidationError;

fn read<T: Decode>(value: &Value) -> Result<T, ValidationError> {
    decode(value, Source::Json, &["body"]).map_err(ValidationError::from)
}

#[test]
fn accepts_what_public_clients_send() {
    let request: ProvisionAppRequest = read(&json!({
        "name": "my-app-01", "compose_file": {"name": "", "docker_compose_file": "services: {}"},
        "vcpu": 2.0, "memory": 4096.0, "kms": "PHALA", "node_id": 3, "listed": 0, "gpus": null,
        "env_keys": null, "ports": null, "something_new": [1],
        "custom_app_id": "0x6f809b3214eb9a69571ad008289d9551fa9a4272",
    }))
    .unwrap();
    assert_eq!((request.vcpu, request.memory, request.teepod_id), (Some(2), Some(4096), Some(3)));
    assert_eq!((request.kms, request.listed), (Some(KmsType::Phala), false));
    assert!(request.app_id.is_some());
}

#[test]
fn faults_of_a_provision() {
    let error = read::<ProvisionAppRequest>(&json!({
        "name": "ab--cd", "compose_file": {"allowed_envs": [1]}, "vcpu": 1.5, "memory": "much",
        "disk_size": -1, "kms": "mine", "ports": [{"protocol": "tcp"}], "listed": "yes",
    }))
    .unwrap_err();
    insta::assert_json_snapshot!(error);
    let error = read::<ProvisionAppRequest>(&json!([])).unwrap_err();
    assert_eq!(error.detail[0].loc, ["body"]);
}

#[test]
fn sealed_environments_are_hex_of_a_plausible_length() {
    let hex = |bytes: usize| "AB".repeat(bytes);
    let sealed: SealedEnv = hex(61).parse().unwrap();
    assert_eq!(sealed.as_hex(), "ab".repeat(61));
    assert_eq!(format!("{sealed:?}"), "[61 sealed bytes]");
    assert!(format!("0x{}", hex(61)).parse::<SealedEnv>().is_ok());
    for text in [hex(60), hex(MAX_SEALED_BYTES + 1), "zz".repeat(61), hex(61) + "a", String::new()] {
        assert_eq!(text.parse::<SealedEnv>(), Err(InvalidSealedEnv));
    }
}

#[test]
fn instants_without_an_offset_are_utc() {
    let at = |text: &str| text.parse::<Instant>().map(|instant| instant.0.to_string());
    for text in
        ["2026-01-21T10:00:00Z", "2026-01-21T10:00:00", "2026-01-21T11:00:00+01:00", "2026-01-21 10:00:00"]
    {
        assert_eq!(at(text).unwrap(), "2026-01-21T10:00:00Z", "{text}");
    }
    assert!(at("yesterday").is_err());
}

proptest! {
    #[test]
    fn no_document_panics(text in r#"[{}\[\]":,a-z_0-9. \\]{0,200}"#) {
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            let _: Result<ProvisionAppRequest, _> = read(&value);
            let _: Result<CreateCvmRequest, _> = read(&value);
        }
    }
}
