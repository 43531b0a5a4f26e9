//! The administration, the log and the figures.

use cloister_kms_api::KmsErrorCode::{BadRequest, Unauthorized};
use cloister_kms_api::admin::{self, PolicyDocument, RotationStatus};
use cloister_kms_api::log::{Event, Records};
use serde_json::json;

use super::lab::{Client, Lab, Machine, app, post};

#[tokio::test(flavor = "multi_thread")]
async fn only_the_administrator_changes_anything_and_a_guess_ends_the_connection() {
    let lab = Lab::new().await;
    let allow = json!({"app_id": app(1), "compose_hash": hex::encode([1; 32])});
    for header in
        [None, Some("Bearer x"), Some("Bearer 0123456789abcdef0123456789abcdeF"), Some("Basic eA==")]
    {
        let mut client = Client::connect(lab.directory, None).await;
        let mut request = post(admin::ALLOW_APP, &allow);
        if let Some(header) = header {
            request.headers_mut().insert("authorization", header.parse().unwrap());
        }
        assert_eq!(client.try_send(request).await.unwrap().code(), Unauthorized);
        assert!(client.try_send(post(admin::ALLOW_APP, &allow)).await.is_err(), "the connection ends");
    }
    // Guesses right behind each other: the second one is not compared.
    let guess = format!(
        "POST {} HTTP/1.1\r\nhost: kms\r\nauthorization: Bearer x\r\ncontent-length: 2\r\n\r\n{{}}",
        admin::GET_POLICY
    );
    let told = Client::raw(lab.directory, &guess.repeat(3)).await;
    assert_eq!(told.matches("HTTP/1.1 401").count(), 1, "{told}");

    let mut client = Client::connect(lab.directory, None).await;
    assert_eq!(client.admin(admin::ALLOW_APP, &allow).await.json(), json!({}));
    assert_eq!(client.admin(admin::ALLOW_APP, &allow).await.json(), json!({}));
    let policy: PolicyDocument =
        serde_json::from_value(client.admin(admin::GET_POLICY, &json!({})).await.json()).unwrap();
    assert!(policy.apps.contains_key(&app(1)));
    assert_eq!(client.admin(admin::REVOKE_APP, &allow).await.json(), json!({}));
    assert_eq!(client.admin("/prpc/Admin.Other", &json!({})).await.code(), BadRequest);
    let status: RotationStatus =
        serde_json::from_value(client.admin(admin::START_ROTATION, &json!({})).await.json()).unwrap();
    assert_eq!(status.roots.len(), 2);
    let forgotten = client.admin(admin::FORGET_CVM, &json!({"app_id": app(1)})).await;
    assert_eq!(forgotten.json()["pending_total"], 0);
    let retired = client.admin(admin::RETIRE_ROOT, &json!({"version": 1})).await;
    assert_eq!(retired.status, 200, "{retired:?}");
    let changes: Vec<_> = lab.events().await;
    assert!(changes.iter().any(|event| matches!(event, Event::AppRevoked { .. })));
    assert!(changes.iter().any(|event| matches!(event, Event::Refusal { code: Unauthorized, .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn revoking_an_application_counts_on_open_connections() {
    let lab = Lab::new().await;
    let machine = Machine::of(1);
    lab.allow(&machine).await;
    let mut client = lab.machine(&machine).await;
    assert_eq!(client.key("a", &machine.vm_config()).await.status, 200);
    let revoke = json!({"app_id": app(1), "compose_hash": hex::encode([1; 32])});
    Client::connect(lab.directory, None).await.admin(admin::REVOKE_APP, &revoke).await;
    assert_eq!(client.key("a", &machine.vm_config()).await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_and_the_figures_are_for_anybody() {
    let lab = Lab::new().await;
    let machine = Machine::of(1);
    lab.allow(&machine).await;
    assert_eq!(lab.machine(&machine).await.app_key(&machine.vm_config()).await.status, 200);
    let mut client = Client::connect(lab.directory, None).await;
    let size = lab.keys.log().size();
    let checkpoint = client.get("/log/checkpoint").await;
    assert!(checkpoint.body.starts_with(b"kms.example/release-log\n"));
    let records: Records =
        serde_json::from_value(client.get("/log/records?start=1&limit=2").await.json()).unwrap();
    assert_eq!((records.start, records.records.len()), (1, 2));
    let inclusion = client.get(&format!("/log/inclusion?index=0&size={size}")).await.json();
    assert!(!inclusion["hashes"].as_array().unwrap().is_empty());
    assert_eq!(client.get(&format!("/log/consistency?from=1&to={size}")).await.status, 200);
    for bad in [
        "/log/inclusion",
        "/log/inclusion?index=9&size=900",
        "/log/records?start=x",
        "/log/records?start=1&start=2",
        "/log/records?start=900",
        "/log/other",
        "/other",
    ] {
        assert_eq!(client.get(bad).await.code(), BadRequest, "{bad}");
    }
    assert_eq!(client.get("/health").await.body, "OK\n");
    let figures = client.get("/metrics").await.body;
    let figures = std::str::from_utf8(&figures).unwrap();
    assert!(figures.contains("cloister_kms_releases_total{kind=\"app_keys\",outcome=\"released\"} 1\n"));
    assert!(figures.contains(&format!("cloister_kms_log_records {size}\n")));
    assert!(figures.contains("cloister_kms_root{version=\"1\"} 1\n"));
}
