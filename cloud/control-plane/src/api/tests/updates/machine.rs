//! Other sizes and images.

use serde_json::{Value, json};

use super::Site;
use crate::api::tests::report;
use crate::operations::CvmStatus;

#[tokio::test]
async fn a_cvm_gets_another_size() {
    let site = Site::new().await;
    let accepted = site.patch("/resources", json!({"instance_type": "tdx.medium", "id": "cvm_x"})).await;
    assert_eq!(accepted.expect(202).json()["status"], "in_progress");
    let row = site.at_rest(CvmStatus::Running).await;
    assert_eq!((row.vcpu, row.memory_mb, row.disk_gb), (4, 8192, 20));
    assert_eq!(row.instance_type.as_deref(), Some("tdx.medium"));
    let spec = site.nodes.spec_of(row.vm_uuid).unwrap();
    assert_eq!((spec.vcpu, spec.memory_mb), (4, 8192));
    assert_eq!(site.history().await[0], "resize completed");

    let body = json!({"memory": 6144.0, "disk_size": 40.0, "allow_restart": 1});
    site.patch("/resources", body.clone()).await.expect(202);
    let row = site.at_rest(CvmStatus::Running).await;
    assert_eq!((row.vcpu, row.memory_mb, row.disk_gb), (4, 6144, 40));
    assert_eq!(row.instance_type, None);
    let unchanged = site.patch("/resources", body).await.expect(200).json();
    assert_eq!((&unchanged["status"], &unchanged["correlation_id"]), (&json!("no_change"), &json!("")));
    assert_eq!(site.nodes.power_ons(), 3);
    let usage = site.installation.app.store.node(site.installation.node).await.unwrap().unwrap().usage;
    assert_eq!((usage.vcpu, usage.memory_mb, usage.disk_gb), (4, 6144, 40));
}

#[tokio::test]
async fn a_cvm_that_is_off_gets_its_size_without_a_start() {
    let site = Site::new().await;
    site.stop().await;
    site.patch("/resources", json!({"vcpu": 3, "allow_restart": false})).await.expect(202);
    let row = site.at_rest(CvmStatus::Stopped).await;
    assert_eq!((row.vcpu, site.nodes.power_ons()), (3, 1));
    assert_eq!(site.nodes.spec_of(row.vm_uuid).unwrap().vcpu, 3);
}

#[tokio::test]
async fn sizes_that_are_refused() {
    let site = Site::new().await;
    for (body, summary) in [
        (json!({"instance_type": "tdx.huge"}), "400 ERR-02-001"),
        (json!({"instance_type": "h200.small"}), "400 ERR-02-009"),
        (json!({"disk_size": 19}), "400 ERR-02-008"),
        (json!({"vcpu": 0}), "400 ERR-02-008"),
        (json!({"memory": 1}), "400 ERR-02-008"),
        (json!({"vcpu": 17}), "400 ERR-02-003"),
        (json!({"memory": 65537}), "400 ERR-02-004"),
        (json!({"disk_size": 501}), "400 ERR-02-002"),
        (json!({"vcpu": 4, "allow_restart": 0}), "400 ERR-02-009"),
        (json!({"vcpu": 4, "allow_restart": false}), "400 ERR-02-009"),
        (json!({"vcpu": 2.5}), "422 validation"),
        (json!({"vcpu": "2"}), "422 validation"),
        (json!({"vcpu": -1}), "422 validation"),
        (json!({"allow_restart": "yes"}), "422 validation"),
        (Value::Null, "422 validation"),
    ] {
        let answer = site.patch("/resources", body.clone()).await;
        assert_eq!(answer.summary(), summary, "{body}: {}", answer.text);
        if !body.is_null() {
            assert_eq!(site.patch("", body.clone()).await.summary(), summary, "{body}");
        }
    }
    site.patch("/resources", json!({"disk_size": 30})).await.expect(202);
    site.at_rest(CvmStatus::Running).await;
    let shrink = site.patch("/resources", json!({"disk_size": 25})).await;
    assert_eq!(shrink.summary(), "400 ERR-02-008");
    assert_eq!(shrink.json()["details"][0]["field"], "disk_size");
    assert_eq!(site.nodes.power_ons(), 2);
}

#[tokio::test]
async fn a_cvm_gets_another_image_of_its_kind() {
    let site = Site::new().await;
    site.report_images().await;
    for (name, summary) in [
        (json!("nothing"), "400 ERR-02-010"),
        (json!("cloister-0.2.0"), "400 ERR-02-013"),
        (json!(""), "400 ERR-02-010"),
        (json!(7), "422 validation"),
        (Value::Null, "422 validation"),
    ] {
        let answer = site.patch("/os-image", json!({"os_image_name": name})).await;
        assert_eq!(answer.summary(), summary, "{name}: {}", answer.text);
    }
    let same = site.patch("/os-image", json!({"os_image_name": "cloister-0.1.0"})).await.expect(200).json();
    assert_eq!(same["status"], "no_change");
    site.patch("/os-image", json!({"os_image_name": "cloister-dev-0.2.0"})).await.expect(202);
    let row = site.at_rest(CvmStatus::Running).await;
    assert_eq!(row.os_image_name, "cloister-dev-0.2.0");
    assert_eq!(site.nodes.spec_of(row.vm_uuid).unwrap().os_image_hash, row.os_image_hash);
    assert_eq!(site.history().await[0], "os_upgrade completed");

    // The node lost the image: what it is of nobody knows, so it counts as production.
    site.installation.report(&report(65536, false)).await;
    let answer = site.patch("/os-image", json!({"os_image_name": "cloister-0.1.0"})).await;
    assert_eq!(answer.summary(), "400 ERR-02-013");
}

#[tokio::test]
async fn gpus_that_the_node_has_not() {
    let site = Site::new().await;
    for (gpus, summary) in [
        (json!({"count": 1}), "400 ERR-02-007"),
        (json!({"count": 1, "product_name": "H200"}), "400 ERR-02-007"),
        (json!({"attach_mode": "all"}), "400 ERR-02-007"),
        (json!({"gpus": [{"slot": "0000:01:00.0"}]}), "400 ERR-02-007"),
        (json!({"attach_mode": "some"}), "400 ERR-02-008"),
    ] {
        let answer = site.patch("", json!({"gpus": gpus})).await;
        assert_eq!(answer.summary(), summary, "{gpus}: {}", answer.text);
    }
    let none = site.patch("", json!({"gpus": {"gpus": []}})).await.expect(200).json();
    assert_eq!(none["status"], "no_change");
}
