//! Several changes at once.

use serde_json::{Value, json};

use super::{Site, YAML};
use crate::operations::CvmStatus;

#[tokio::test]
async fn all_changes_come_with_one_operation_and_one_restart() {
    let site = Site::new().await;
    site.report_images().await;
    let body = json!({
        "docker_compose_file": YAML, "pre_launch_script": "echo", "allowed_envs": ["B", "A"],
        "public_logs": false, "public_sysinfo": 0, "public_tcbinfo": false, "user_config": "{\"hostname\":\"x\"}",
        "vcpu": 3.0, "memory": 6144, "disk_size": 25, "image": "cloister-dev-0.2.0", "shutdown_timeout": 10,
        "allow_force_stop": true, "gpus": null, "encrypted_env": "", "rollback_on_failure": false,
        "health_timeout": 3600, "unknown": {},
    });
    let accepted = site.patch("", body.clone()).await.expect(202).json();
    assert_eq!(accepted["status"], "in_progress");
    let row = site.at_rest(CvmStatus::Running).await;
    assert_eq!((row.vcpu, row.memory_mb, row.disk_gb), (3, 6144, 25));
    assert_eq!(
        (row.os_image_name.as_str(), row.user_config.as_deref()),
        ("cloister-dev-0.2.0", Some("{\"hostname\":\"x\"}"))
    );
    assert_eq!((row.rollback_on_failure, row.health_timeout_s), (0, 3600));
    let document = site.document().await;
    assert_eq!(
        (&document["docker_compose_file"], &document["pre_launch_script"]),
        (&json!(YAML), &json!("echo"))
    );
    assert_eq!((&document["allowed_envs"], &document["public_sysinfo"]), (&json!(["B", "A"]), &json!(false)));
    assert_eq!(site.history().await, ["update completed", "create completed"]);
    assert_eq!(site.nodes.power_ons(), 2);

    let again = site.patch("", json!({"allowed_envs": ["A", "B"], "vcpu": 3, "public_logs": false})).await;
    let again = again.expect(200).json();
    assert_eq!((&again["status"], &again["correlation_id"]), (&json!("no_change"), &json!("")));
}

#[tokio::test]
async fn the_history_shows_what_kind_of_change_it_was() {
    let site = Site::new().await;
    site.report_images().await;
    for (body, kind) in [
        (json!({"docker_compose_file": YAML}), "compose_update"),
        (json!({"pre_launch_script": "echo"}), "compose_update"),
        (json!({"allowed_envs": ["A"]}), "compose_update"),
        (json!({"memory": 5120}), "resize"),
        (json!({"image": "cloister-dev-0.2.0"}), "os_upgrade"),
        (json!({"user_config": "{}"}), "update"),
        (json!({"public_logs": false, "disk_size": 30}), "update"),
    ] {
        site.patch("", body.clone()).await.expect(202);
        site.at_rest(CvmStatus::Running).await;
        assert_eq!(site.history().await[0], format!("{kind} completed"), "{body}");
    }
}

#[tokio::test]
async fn nothing_and_the_policy_restart_nothing() {
    let site = Site::new().await;
    for body in [Value::Null, json!({}), json!({"vcpu": null, "shutdown_timeout": null}), json!({"vcpu": 2})]
    {
        let answer = site.patch("", body).await.expect(200).json();
        assert_eq!((&answer["status"], &answer["correlation_id"]), (&json!("no_change"), &json!("")));
    }
    for (body, rollback, timeout) in [
        (json!({"rollback_on_failure": false}), 0, 300),
        (json!({"health_timeout": 30}), 0, 30),
        (json!({"rollback_on_failure": 1, "health_timeout": 3600}), 1, 3600),
    ] {
        let answer = site.patch("", body).await.expect(200).json();
        assert_eq!((&answer["status"], &answer["correlation_id"]), (&json!("completed"), &json!("")));
        let row = site.row().await;
        assert_eq!((row.rollback_on_failure, row.health_timeout_s), (rollback, timeout));
    }
    assert_eq!(site.history().await, ["create completed"]);
}

#[tokio::test]
async fn requests_that_are_refused_change_nothing() {
    let site = Site::new().await;
    let before = site.row().await;
    for (body, summary) in [
        (json!({"docker_compose_file": ""}), "400 ERR-01-002"),
        (json!({"docker_compose_file": "a: ["}), "422 ERR-01-003"),
        (json!({"docker_compose_file": 1}), "422 validation"),
        (json!({"allowed_envs": ["A B"]}), "400 ERR-01-003"),
        (json!({"allowed_envs": [1]}), "422 validation"),
        (json!({"encrypted_env": "zz"}), "422 validation"),
        (json!({"encrypted_env": "ab".repeat(61)}), "400 ERR-02-009"),
        (json!({"user_config": "{"}), "400 ERR-02-008"),
        (json!({"shutdown_timeout": 9}), "422 validation"),
        (json!({"shutdown_timeout": 1201}), "422 validation"),
        (json!({"health_timeout": 29}), "422 validation"),
        (json!({"health_timeout": 3601}), "422 validation"),
        (json!({"allow_force_stop": "no"}), "422 validation"),
        (json!({"image": "nothing"}), "400 ERR-02-010"),
        (json!({"vcpu": 64, "health_timeout": 60}), "400 ERR-02-003"),
        (json!({"public_logs": false, "allow_restart": false}), "400 ERR-02-009"),
        (json!([]), "422 validation"),
    ] {
        let answer = site.patch("", body.clone()).await;
        assert_eq!(answer.summary(), summary, "{body}: {}", answer.text);
    }
    assert_eq!(site.row().await, before);
}

#[tokio::test]
async fn of_two_changes_at_once_one_is_taken() {
    let site = Site::new().await;
    for round in 0..5_u32 {
        let change = |name: String| site.patch("", json!({"allowed_envs": [name]}));
        let (first, second) = (format!("A{round}"), format!("B{round}"));
        let answers = tokio::join!(change(first.clone()), change(second.clone()));
        let summaries = [answers.0.summary(), answers.1.summary()];
        let accepted = summaries.iter().filter(|summary| summary.starts_with("202")).count();
        let busy = summaries.iter().filter(|summary| *summary == "409 plain").count();
        assert_eq!((accepted, busy), (1, 1), "{summaries:?}");
        site.at_rest(CvmStatus::Running).await;
        let winner = if summaries[0].starts_with("202") { first } else { second };
        assert_eq!(site.document().await["allowed_envs"], json!([winner]));
    }
}

#[tokio::test]
async fn a_change_from_an_old_state_is_refused_for_now() {
    let site = Site::new().await;
    let old = site.row().await;
    site.patch("", json!({"vcpu": 3})).await.expect(202);
    site.at_rest(CvmStatus::Running).await;
    let caller =
        site.installation.app.store.caller(&super::super::hash_key(&site.installation.tenant), 0).await;
    let mut edit = crate::api::changes::Edit::of(&old);
    edit.members(vec![("public_logs", json!(false))]).unwrap();
    let kind = edit.kind().unwrap();
    let manner = crate::api::changes::Manner::default();
    let api = &site.installation.api;
    let refused = crate::api::changes::accept(api, &caller.unwrap().unwrap(), edit, kind, manner).await;
    assert_eq!(refused.unwrap_err().status(), 409);
    assert_eq!(site.row().await.vcpu, 3);
}
