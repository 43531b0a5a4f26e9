//! GPUs and model servers through the interface. The GPUs are those of a report; no hardware is there.

use cloister_app_compose::OsImageHash;
use cloister_node_api::{GpuConfidentialMode, NodeGpu, NodeImage, NodeReport};
use serde_json::{Value, json};

use super::{Installation, provision_body, report};

pub(super) fn with_gpus(count: usize) -> NodeReport {
    let mut report = report(8 * 256 * 1024, false);
    report.capacity.vcpu = 8 * 24;
    report.capacity.disk_gb = 10_000;
    report.images[0].supports_gpu = true;
    report.gpus = (0..count)
        .map(|number| NodeGpu {
            slot: format!("0000:4{number}:00.0"),
            product_id: "10de:2335".into(),
            product_name: "NVIDIA H200 SXM 141GB".into(),
            confidential_computing: GpuConfidentialMode::Unknown,
            assignable: true,
        })
        .collect();
    report
}

async fn provision(installation: &Installation, name: &str, gpus: Value) -> super::Answer {
    let mut body = provision_body(name);
    body["gpus"] = gpus;
    installation.call("POST", "/cvms/provision", body).await
}

#[tokio::test]
async fn gpus_are_wished_for_in_every_form() {
    let installation = Installation::new().await;
    let none = provision(&installation, "my-app", json!({"count": 1})).await;
    assert_eq!(none.summary(), "400 ERR-02-007", "{}", none.text);
    let mut undriven = with_gpus(2);
    undriven.images[0].supports_gpu = false;
    installation.report(&undriven).await;
    let none = provision(&installation, "my-app", json!({"count": 1})).await;
    assert_eq!(none.summary(), "400 ERR-02-013", "{}", none.text);
    installation.report(&with_gpus(2)).await;
    for (gpus, expected) in [
        (
            json!({"gpus": [{"slot": "0000:41:00.0", "product_id": "10de:2335"}], "attach_mode": "listed"}),
            "200",
        ),
        (json!({"gpus": [{"product_id": "10de:2335"}, {"product_id": "10de:2335"}]}), "200"),
        (json!({"count": 2, "product_name": "nvidia h200 sxm 141gb"}), "200"),
        (json!({"attach_mode": "all", "gpus": []}), "200"),
        (json!({"count": 0}), "200"),
        (json!({"count": 3}), "400 ERR-02-007"),
        (json!({"count": 1, "product_name": "10de:ffff"}), "400 ERR-02-007"),
        (json!({"count": 99}), "400 ERR-02-008"),
        (json!({"gpus": [{"slot": "0000:99:00.0"}]}), "400 ERR-02-007"),
        (json!({"gpus": [{"slot": "0000:41:00.0"}, {"slot": "0000:41:00.0"}]}), "400 ERR-02-008"),
        (json!({"gpus": [{"slot": "0000:41:00.0"}, {}]}), "400 ERR-02-008"),
        (json!({"gpus": [{}], "attach_mode": "all"}), "400 ERR-02-008"),
        (json!({"gpus": [{}], "attach_mode": "some"}), "400 ERR-02-008"),
        (json!({"gpus": [{}], "count": 1}), "400 ERR-02-008"),
    ] {
        let answer = provision(&installation, "my-app", gpus.clone()).await;
        assert_eq!(answer.summary(), expected, "{gpus}: {}", answer.text);
    }
}

#[tokio::test]
async fn a_gpu_has_one_owner() {
    let installation = Installation::new().await;
    installation.report(&with_gpus(2)).await;
    let offer = installation.call("GET", "/teepods/available", Value::Null).await.json();
    assert_eq!(offer["gpu_availability"]["public_gpu_count"], 2);
    // Both were promised the same: nothing is reserved before the CVM is created.
    let mut promised = Vec::new();
    for name in ["first-app", "second-app"] {
        promised.push(provision(&installation, name, json!({"count": 1})).await.expect(200).json());
    }
    let create = async |provision: &Value| {
        let body = json!({"app_id": provision["app_id"], "compose_hash": provision["compose_hash"]});
        installation.call("POST", "/cvms", body).await
    };
    let first = create(&promised[0]).await.expect(200).json();
    let second = create(&promised[1]).await;
    assert_eq!(second.summary(), "400 ERR-02-006", "{}", second.text);
    // The next provision gets the other one.
    let again = provision(&installation, "second-app", json!({"count": 1})).await.expect(200).json();
    let second = create(&again).await.expect(200).json();
    let slots = [installation.row(&first).await.gpus.0, installation.row(&second).await.gpus.0];
    assert_eq!(slots, [vec!["0000:40:00.0".to_owned()], vec!["0000:41:00.0".to_owned()]]);
    let shown = installation.get_in("2026-01-21", &format!("/cvms/{}", first["id"])).await.json();
    assert_eq!(shown["resource"]["gpus"], 1);
    let third = provision(&installation, "third-app", json!({"count": 1})).await;
    assert_eq!(third.summary(), "400 ERR-02-016", "{}", third.text);
    let offer = installation.call("GET", "/teepods/available", Value::Null).await.json();
    assert_eq!(
        offer["gpu_availability"],
        json!({
            "has_reserved_gpus": false, "reserved_gpu_count": 0, "has_public_gpus": false, "public_gpu_count": 0,
        })
    );
}

#[tokio::test]
async fn a_model_server_in_one_step() {
    let installation = Installation::new().await;
    installation.report(&with_gpus(4)).await;
    let call = async |body: Value| installation.call("POST", "/cvms/workload", body).await;
    let body = json!({"name": "my-model", "instance_type": "h200.medium", "model_id": "Qwen/Qwen3-8B",
                      "scheduled_delete_at": "2026-01-22T10:00:00Z"});
    assert_eq!(call(body.clone()).await.summary(), "400 ERR-02-013", "there is only a development image");
    let mut both = with_gpus(4);
    let dev = both.images[0].clone();
    both.images.push(NodeImage { is_dev: false, os_image_hash: OsImageHash::from_bytes([8; 32]), ..dev });
    installation.report(&both).await;
    let vm = call(body.clone()).await.expect(200).json();
    assert_eq!(
        (&vm["vcpu"], &vm["memory"], &vm["status"]),
        (&json!(48), &json!(524_288), &json!("creating"))
    );
    assert!(vm["docker_compose_file"].as_str().unwrap().contains("Qwen/Qwen3-8B"));
    let row = installation.row(&vm).await;
    assert_eq!(row.os_image_hash, OsImageHash::from_bytes([8; 32]), "nobody looks inside");
    assert_eq!((row.gpus.0.len(), row.instance_type.as_deref()), (2, Some("h200.medium")));
    let day_ms = 24 * 60 * 60 * 1000;
    assert_eq!(row.scheduled_delete_at_ms, Some(installation.app.clock.now_ms() + day_ms));

    let changed = |member: &str, value: Value| {
        let mut body = body.clone();
        body["name"] = json!("other-model");
        body[member] = value;
        body
    };
    for (body, expected) in [
        (body.clone(), "409 ERR-01-004"),
        (changed("instance_type", json!("h200.large")), "400 ERR-02-016"),
        (changed("instance_type", json!("h200.xlarge")), "400 ERR-02-007"),
        (changed("instance_type", json!("b200.small")), "400 ERR-02-007"),
        (changed("instance_type", json!("tdx.small")), "400 ERR-02-009"),
        (changed("instance_type", json!("none")), "400 ERR-02-001"),
        (changed("model_id", json!("a b")), "400 ERR-02-008"),
        (changed("scheduled_delete_at", json!("2020-01-01T00:00:00Z")), "400 ERR-02-008"),
        (changed("scheduled_delete_at", json!("soon")), "422 validation"),
        (json!({"name": "other-model"}), "422 validation"),
    ] {
        let answer = call(body.clone()).await;
        assert_eq!(answer.summary(), expected, "{body}: {}", answer.text);
    }
}
