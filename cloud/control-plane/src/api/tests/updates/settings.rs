//! What changes without a restart, and stopping many.

use cloister_management_api::CvmId;
use serde_json::{Value, json};

use super::{DAY_MS, Site};
use crate::operations::tests::fake_nodes::Fault;
use crate::operations::{CvmStatus, OperationKind, Step};
use crate::scheduled_deletes::begin_due;
use crate::store::OperationFilter;

#[tokio::test]
async fn a_cvm_is_renamed() {
    let site = Site::new().await;
    site.installation.create("my-app-02").await;
    let rename = async |name: Value| site.patch("/name", json!({"name": name})).await;
    let answer = rename(json!("MY-APP-02")).await;
    assert_eq!(answer.summary(), "400 plain");
    assert_eq!(answer.json()["detail"], "CVM name \"MY-APP-02\" is already in use in this workspace");
    for name in [
        json!("abcd"),
        json!("ab--cde"),
        json!("a".repeat(40)),
        json!("f47ac10b-58cc-4372-a567-0e02b2c3d479"),
        json!(5),
        Value::Null,
    ] {
        assert_eq!(rename(name.clone()).await.summary(), "422 validation", "{name}");
    }
    let renamed = rename(json!("My-App-01")).await.expect(204);
    assert!(renamed.text.is_empty() && renamed.header("content-type").is_empty());
    rename(json!("other-name")).await.expect(204);
    let found = site.installation.call("GET", "/cvms/OTHER-NAME", Value::Null).await.expect(200).json();
    assert_eq!((&found["name"], &found["status"]), (&json!("other-name"), &json!("running")));
    site.installation.call("GET", "/cvms/my-app-01", Value::Null).await.expect(404);
    site.installation.create("my-app-01").await;
    assert_eq!(site.history().await, ["create completed"], "no operation and no restart");
    assert_eq!(
        site.nodes.spec_of(site.row().await.vm_uuid).unwrap().name,
        "my-app-01",
        "until its next start"
    );
    site.call("POST", "/restart", Value::Null).await.expect(200);
    let row = site.at_rest(CvmStatus::Running).await;
    assert_eq!(site.nodes.spec_of(row.vm_uuid).unwrap().name, "other-name");
}

#[tokio::test]
async fn a_cvm_is_shown_and_hidden() {
    let site = Site::new().await;
    for listed in [json!(false), json!(1), json!(false)] {
        let answer = site.patch("/listed", json!({"listed": listed})).await.expect(200).json();
        assert_eq!(answer["id"], site.vm["id"]);
        let detail = site.call("GET", "", Value::Null).await.expect(200).json();
        assert_eq!(detail["listed"], json!(listed == json!(1)));
    }
    assert_eq!(site.patch("/listed", json!({})).await.summary(), "422 validation");
    assert_eq!(site.history().await.len(), 1);
}

#[tokio::test]
async fn a_deletion_is_scheduled_and_taken_back() {
    let site = Site::new().await;
    let schedule = async |body: Value| site.patch("/scheduled-delete", body).await;
    let shown = async || {
        let path = format!("/cvms/{}", site.vm["id"]);
        site.installation.get_in("2025-10-28", &path).await.expect(200).json()["scheduled_delete_at"].clone()
    };
    for (at, summary) in [
        ("2026-01-21T10:00:00Z", "400 ERR-02-008"),
        ("2020-01-01", "400 ERR-02-008"),
        ("2020-01-01T00:00:00Z", "400 ERR-02-008"),
        ("soon", "422 validation"),
    ] {
        let answer = schedule(json!({"scheduled_delete_at": at})).await;
        assert_eq!(answer.summary(), summary, "{at}");
    }
    let at = json!({"scheduled_delete_at": "2026-01-22T11:00:00+01:00"});
    for clear in [json!({"scheduled_delete_at": null}), json!({}), Value::Null] {
        assert_eq!(schedule(at.clone()).await.expect(200).json()["id"], site.vm["id"]);
        assert_eq!(shown().await, "2026-01-22T10:00:00Z");
        schedule(clear).await.expect(200);
        assert_eq!(shown().await, Value::Null);
    }
    site.installation.app.clock.advance_ms(2 * DAY_MS);
    assert_eq!(begin_due(&site.installation.app).await.unwrap(), 0);
    assert_eq!(site.row().await.status, CvmStatus::Running);
}

#[tokio::test]
async fn a_due_deletion_is_begun_once_also_after_a_pause() {
    let site = Site::new().await;
    let app = &site.installation.app;
    let body = json!({"scheduled_delete_at": "2026-01-21T10:00:10"});
    site.patch("/scheduled-delete", body).await.expect(200);
    assert_eq!(begin_due(app).await.unwrap(), 0, "it is not due");
    // Nothing ran when it came due.
    app.clock.advance_ms(20 * DAY_MS);
    let rounds = tokio::join!(begin_due(app), begin_due(app), begin_due(app));
    assert_eq!(rounds.0.unwrap() + rounds.1.unwrap() + rounds.2.unwrap(), 1);
    super::within("the CVM is gone", async || {
        app.store.cvm(site.vm["id"].as_i64().unwrap()).await.unwrap().is_none()
    })
    .await;
    assert_eq!(begin_due(app).await.unwrap(), 0);
    assert_eq!(site.nodes.vm_count(), 0);
    let filter = OperationFilter { kinds: vec![OperationKind::Delete], ..OperationFilter::default() };
    let deletions = app.store.list_operations(site.vm["id"].as_i64().unwrap(), &filter, 10).await.unwrap();
    assert_eq!(deletions.len(), 1);
}

#[tokio::test]
async fn many_are_stopped() {
    let site = Site::new().await;
    let busy = site.installation.create("my-app-02").await;
    let id = |vm: &Value| CvmId(vm["id"].as_i64().unwrap()).to_string();
    super::within("the second is up", async || site.installation.row(&busy).await.operation_id.is_none())
        .await;
    site.nodes.set_fault(Step::AwaitPowerOff, Fault::Hang);
    site.installation.call("POST", &format!("/cvms/{}/shutdown", busy["id"]), Value::Null).await.expect(200);
    let body = json!({"cvm_ids": [id(&site.vm), id(&busy), "cvm_nothing", "cvm_"]});
    let answer = site.installation.call("POST", "/cvms/batch-stop", body.clone()).await.expect(200).json();
    let expected = json!({
        "total": 4, "stopped": 1, "skipped": 1,
        "errors": [{"cvm_id": "cvm_nothing", "error": "CVM not found"}, {"cvm_id": "cvm_", "error": "CVM not found"}],
    });
    assert_eq!(answer, expected);
    site.at_rest(CvmStatus::Stopped).await;
    let again = site.installation.call("POST", "/cvms/batch-stop", body).await.expect(200).json();
    assert_eq!((&again["stopped"], &again["skipped"]), (&json!(0), &json!(2)));
    let stranger = [("x-api-key", site.installation.admin.as_str())];
    let foreign = json!({"cvm_ids": [id(&busy)]});
    let answer =
        site.installation.call_with(&stranger, "POST", "/cvms/batch-stop", foreign).await.expect(200);
    assert_eq!(answer.json()["errors"][0]["error"], "CVM not found");
    for (count, status) in [(50, 200), (51, 400)] {
        let body = json!({"cvm_ids": vec!["cvm_x"; count]});
        site.installation.call("POST", "/cvms/batch-stop", body).await.expect(status);
    }
}
