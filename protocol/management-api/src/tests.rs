//! What answers look like on the wire, and that no member that a client needs gets lost.

use serde::Serialize;
use serde_json::{Value, json};

use crate::{v20251028, v20260121, *};

fn keys(value: &impl Serialize) -> Vec<String> {
    serde_json::to_value(value).unwrap().as_object().unwrap().keys().cloned().collect()
}

fn vm(id: VmId) -> Vm {
    serde_json::from_value(json!({
        "id": id, "name": "my-app-01", "status": "creating", "teepod_id": 1,
        "teepod": {"id": 1, "name": "local"}, "user_id": 1,
        "app_id": "6f809b3214eb9a69571ad008289d9551fa9a4272",
        "vm_uuid": "f47ac10b-58cc-4372-a567-0e02b2c3d479", "instance_id": null, "app_url": null,
        "base_image": "cloister-0.1.0", "vcpu": 2, "memory": 4096, "disk_size": 20,
        "manifest_version": 2, "version": "1.0.0", "runner": "docker-compose",
        "docker_compose_file": "services: {}", "features": ["kms", "tproxy-net"],
        "created_at": "2026-01-21T10:00:00Z", "encrypted_env_pubkey": null,
    }))
    .unwrap()
}

#[test]
fn a_vm_has_all_members_of_the_specification_and_both_forms_of_id() {
    let value = vm(VmId::Integer(7));
    assert_eq!(keys(&value).len(), 21);
    insta::assert_json_snapshot!(value);
    let hashed = serde_json::to_value(vm(VmId::Hashed(CvmId(7)))).unwrap();
    assert_eq!(hashed["id"], CvmId(7).to_string());
}

#[test]
fn the_state_leaves_unknown_members_out() {
    let state = CvmState {
        health: None,
        health_detail: None,
        id: uuid::Uuid::nil(),
        name: "my-app-01".into(),
        status: "starting".into(),
        in_progress: true,
        vm_uuid: uuid::Uuid::nil(),
        instance_id: None,
        uptime: None,
        exited_at: None,
        exit_reason: None,
        boot_progress: Some("booting".into()),
        boot_error: None,
        shutdown_progress: None,
        correlation_id: None,
    };
    insta::assert_json_snapshot!(state);
}

#[test]
fn a_structured_error_has_no_detail_and_no_empty_members() {
    let body = ErrorBody {
        error_code: ErrorCode::CvmNotFound.to_string(),
        message: ErrorCode::CvmNotFound.title().into(),
        details: vec![],
        suggestions: vec![],
        links: vec![],
        request_id: "r-1".into(),
    };
    assert_eq!(keys(&body), ["error_code", "message", "request_id"]);
    let body = ErrorBody {
        details: vec![ErrorDetail { field: "name".into(), value: json!("x"), message: None }],
        suggestions: vec!["Choose another".into()],
        links: vec![ErrorLink { url: "https://example.org".into(), label: "Errors".into() }],
        ..body
    };
    insta::assert_json_snapshot!(body);
}

#[test]
fn a_kms_always_shows_seven_members() {
    let kms = KmsInfo {
        id: KmsId(1),
        slug: None,
        url: "https://kms.example".into(),
        version: "0.1.0".into(),
        chain_id: None,
        kms_contract_address: None,
        gateway_app_id: None,
    };
    assert_eq!(keys(&kms).len(), 7);
}

#[test]
fn references_carry_their_fixed_type() {
    let node: Value = serde_json::to_value(NodeType::default()).unwrap();
    assert_eq!(node, "node");
    assert_eq!(serde_json::to_value(UserType::default()).unwrap(), "user");
    assert_eq!(serde_json::to_value(WorkspaceType::default()).unwrap(), "workspace");
    assert_eq!(serde_json::to_value(NodeStatus::Maintenance).unwrap(), "MAINTENANCE");
}

/// Every member of a schema that the public clients know under both dated versions.
#[test]
fn dated_forms_keep_their_members() {
    use utoipa::PartialSchema;
    let members = |schema: Value| -> Vec<String> {
        let own = schema["properties"].as_object().into_iter().flatten();
        let parts = schema["allOf"].as_array().into_iter().flatten();
        let joined = parts.flat_map(|part| part["properties"].as_object().into_iter().flatten());
        own.chain(joined).map(|(name, _)| name.clone()).collect()
    };
    let of = |schema| members(serde_json::to_value(schema).unwrap()).join(" ");
    insta::assert_snapshot!(
        [
            format!("HostedCvm: {}", of(v20251028::HostedCvm::schema())),
            format!("VmInfo: {}", of(v20251028::VmInfo::schema())),
            format!("CvmDetail: {}", of(v20251028::CvmDetail::schema())),
            format!("CurrentUser 2025-10-28: {}", of(v20251028::CurrentUser::schema())),
            format!("CvmInfo: {}", of(v20260121::CvmInfo::schema())),
            format!("CvmInfoDetail adds: {}", of(v20260121::CvmInfoDetail::schema())),
            format!("Vm: {}", of(Vm::schema())),
            format!("Operation: {}", of(Operation::schema())),
            format!("ProvisionResponse: {}", of(ProvisionResponse::schema())),
            format!("Composition: {}", of(Composition::schema())),
        ]
        .join("\n")
    );
}
