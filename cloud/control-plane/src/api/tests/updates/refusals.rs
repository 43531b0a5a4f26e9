//! What every operation that changes a CVM answers when it may not or cannot.

use serde_json::{Value, json};

use super::super::account;
use super::{Site, YAML};
use crate::operations::Step;
use crate::operations::tests::fake_nodes::Fault;

/// Each operation with a request that is good otherwise.
fn operations() -> Vec<(&'static str, &'static str, &'static str, String)> {
    let json = |body: Value| body.to_string();
    vec![
        ("PATCH", "", "application/json", json(json!({"vcpu": 3}))),
        ("PATCH", "/docker-compose", "text/yaml", YAML.to_owned()),
        ("PATCH", "/pre-launch-script", "text/plain", "echo".to_owned()),
        ("PATCH", "/resources", "application/json", json(json!({"vcpu": 3}))),
        ("PATCH", "/os-image", "application/json", json(json!({"os_image_name": "cloister-dev-0.2.0"}))),
        (
            "PATCH",
            "/visibility",
            "application/json",
            json(json!({"public_logs": false, "public_sysinfo": false})),
        ),
        (
            "PUT",
            "/compose",
            "application/json",
            json(json!({"compose_manifest": {"docker_compose_file": YAML}})),
        ),
    ]
}

async fn summaries(site: &Site) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (method, below, content_type, body) in operations() {
        let answer = site.send(method, below, &[("content-type", content_type)], &body).await;
        all.push((answer.summary(), answer.header("retry-after").to_owned()));
    }
    let document = site.document().await;
    let hash = site.row().await.compose_hash.to_string();
    let whole = json!({"compose_file": document, "compose_hash": hash});
    let provisioned = site.call("POST", "/compose_file/provision", document).await.expect(200).json();
    let by_hash = json!({"compose_hash": provisioned["compose_hash"]});
    for answer in
        [site.call("POST", "/compose_file", whole).await, site.patch("/compose_file", by_hash).await]
    {
        all.push((answer.summary(), answer.header("retry-after").to_owned()));
    }
    all
}

#[tokio::test]
async fn a_busy_cvm_and_a_node_under_maintenance_ask_to_come_again() {
    let site = Site::new().await;
    site.report_images_in(true).await;
    for (summary, retry_after) in summaries(&site).await {
        assert_eq!((summary.as_str(), retry_after.as_str()), ("503 plain", "5"));
    }
    // Also one that is off: nothing on the node may be changed.
    site.stop().await;
    for (summary, retry_after) in summaries(&site).await {
        assert_eq!((summary.as_str(), retry_after.as_str()), ("503 plain", "5"));
    }
    site.report_images().await;
    site.nodes.set_fault(Step::AwaitBoot, Fault::Hang);
    site.call("POST", "/start", Value::Null).await.expect(200);
    for (summary, retry_after) in summaries(&site).await {
        assert_eq!((summary.as_str(), retry_after.as_str()), ("409 plain", "5"));
    }
}

#[tokio::test]
async fn foreign_and_unknown_cvms_are_neither_changed_nor_described() {
    let site = Site::new().await;
    let now_ms = site.installation.app.clock.now_ms();
    let (_, _, stranger) = account(&site.installation.app.store, "stranger", "user", 7, now_ms).await;
    let before = site.row().await;
    let more = [
        ("POST", "/compose_file/provision", "application/json", "{}".to_owned()),
        ("POST", "/compose_file", "application/json", "{}".to_owned()),
        ("PATCH", "/compose_file", "application/json", "{}".to_owned()),
        ("PATCH", "/envs", "application/json", "{}".to_owned()),
        ("PATCH", "/name", "application/json", "{\"name\": \"other-name\"}".to_owned()),
        ("PATCH", "/listed", "application/json", "{\"listed\": false}".to_owned()),
        (
            "PATCH",
            "/scheduled-delete",
            "application/json",
            "{\"scheduled_delete_at\": \"2030-01-01T00:00:00Z\"}".to_owned(),
        ),
        ("GET", "/docker-compose.yml", "", String::new()),
        ("GET", "/pre-launch-script", "", String::new()),
    ];
    for (method, below, content_type, body) in operations().into_iter().chain(more) {
        for (id, summary) in
            [(site.vm["id"].to_string(), "403 ERR-03-004"), ("nobody".to_owned(), "404 ERR-03-001")]
        {
            let request = axum::http::Request::builder()
                .method(method)
                .uri(format!("/api/v1/cvms/{id}{below}"))
                .header("x-api-key", &stranger)
                .header("content-type", content_type);
            let answer =
                site.installation.send(request.body(axum::body::Body::from(body.clone())).unwrap()).await;
            assert_eq!(answer.summary(), summary, "{method} {below}");
        }
    }
    assert_eq!(site.row().await, before);
}
