//! What is sent to a real receiver by a real dispatcher, how that is shown, and sending it again.

use cloister_webhooks::{EventKind, Secret, verify_public, verify_standard};
use serde_json::{Value, json};

use super::super::Installation;
use super::{BASE, Receiver};

fn secret(webhook: &Value) -> Secret {
    Secret::parse(webhook["secret"].as_str().unwrap()).unwrap()
}

async fn deliveries(installation: &Installation, webhook: &Value) -> Value {
    installation.of_webhook("GET", webhook, "/deliveries", Value::Null).await.expect(200).json()
}

/// A test of a webhook that is sent, verified with both secrets of a rotation, and shown.
async fn sent(installation: Installation) {
    let mut receiver = Receiver::start(204).await;
    let dispatcher = installation.dispatcher();
    let old = installation.webhook(&receiver.url, &["cvm.deleted", "cvm.created"]).await;
    let new = installation.of_webhook("POST", &old, "/rotate-secret", Value::Null).await.expect(200).json();
    let pending = installation.of_webhook("POST", &old, "/test", Value::Null).await.expect(200).json();
    assert_eq!((&pending["status"], &pending["event_type"]), (&json!("pending"), &json!("cvm.deleted")));

    let got = receiver.next().await;
    let now_s = installation.app.clock.now_ms() / 1000;
    for webhook in [&old, &new] {
        assert_eq!(verify_public(&secret(webhook), &got.headers, &got.body, now_s), Ok(()));
        assert_eq!(verify_standard(&secret(webhook), &got.headers, &got.body, now_s), Ok(()));
    }
    let header = |name: &str| {
        got.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.clone()).unwrap()
    };
    assert_eq!(header("x-webhook-id"), old["id"].as_str().unwrap());
    let body: Value = serde_json::from_slice(&got.body).unwrap();
    assert_eq!((&body["id"], &body["event"]), (&pending["event_id"], &pending["event_type"]));
    assert_eq!(body["workspace"], json!({ "id": "tenant", "name": "tenant" }));

    dispatcher.stop().await;
    let shown = deliveries(&installation, &old).await;
    let expected = json!([{
        "snowflake_id": pending["snowflake_id"], "event_id": pending["event_id"], "event_type": "cvm.deleted",
        "status": "success", "attempts": 1, "request_url": receiver.url, "response_status": 204,
        "error_message": "", "created_at": "2026-01-21T10:00:00Z", "duration_ms": shown[0]["duration_ms"],
        "delivered_at": "2026-01-21T10:00:00Z", "original_event_id": "",
    }]);
    assert_eq!(shown, expected);
    assert!(shown[0]["duration_ms"].as_i64().is_some_and(|ms| (0..10_000).contains(&ms)));
    for name in ["event_id", "snowflake_id"] {
        let name = pending[name].to_string().replace('"', "");
        let path = format!("/deliveries/{name}/attempts");
        let attempts = installation.of_webhook("GET", &old, &path, Value::Null).await.expect(200).json();
        assert_eq!(attempts.as_array().unwrap().len(), 1);
        assert_eq!(
            (&attempts[0]["outcome"], &attempts[0]["response_status"]),
            (&json!("success"), &json!(204))
        );
    }
    let stats = installation.of_webhook("GET", &old, "/stats", Value::Null).await.expect(200).json();
    assert_eq!((&stats["total"], &stats["success_rate"]), (&json!(1), &json!(100.0)));
}

#[tokio::test]
async fn a_test_is_sent_verifies_and_is_shown() {
    sent(Installation::new().await).await;
}

#[tokio::test]
async fn a_test_is_sent_the_same_on_postgres() {
    sent(Installation::on_postgres().await).await;
}

#[tokio::test]
async fn a_failure_says_what_was_answered_and_waits_until_the_webhook_is_disabled() {
    let installation = Installation::new().await;
    let mut receiver = Receiver::start(500).await;
    let dispatcher = installation.dispatcher();
    let webhook = installation.webhook(&receiver.url, &["cvm.created"]).await;
    installation.of_webhook("POST", &webhook, "/test", Value::Null).await.expect(200);
    receiver.next().await;
    dispatcher.stop().await;
    let shown = deliveries(&installation, &webhook).await;
    assert_eq!((&shown[0]["status"], &shown[0]["response_status"]), (&json!("pending"), &json!(500)));
    assert_eq!((&shown[0]["attempts"], &shown[0]["delivered_at"]), (&json!(1), &Value::Null));
    assert_ne!(shown[0]["error_message"], "");

    installation.of_webhook("PUT", &webhook, "", json!({ "enabled": false })).await.expect(200);
    let shown = deliveries(&installation, &webhook).await;
    assert_eq!(shown[0]["status"], "failed");
    let stats = installation.of_webhook("GET", &webhook, "/stats", Value::Null).await.expect(200).json();
    assert_eq!((&stats["failed_count"], &stats["success_rate"]), (&json!(1), &json!(0.0)));
    let event = shown[0]["event_id"].as_str().unwrap();
    let replay = json!({ "since": "2026-01-01T00:00:00Z" });
    for (rest, body) in
        [("/test", Value::Null), (&*format!("/deliveries/{event}/resend"), Value::Null), ("/replay", replay)]
    {
        assert_eq!(
            installation.of_webhook("POST", &webhook, rest, body).await.summary(),
            "400 plain",
            "{rest}"
        );
    }
}

#[tokio::test]
async fn what_is_sent_again_has_a_new_id_and_names_the_first() {
    let installation = Installation::new().await;
    let webhook = installation.webhook("https://hooks.example.org/", &["cvm.created"]).await;
    installation.happen(installation.tenant_workspace, EventKind::CvmCreated, 1).await;
    let first = deliveries(&installation, &webhook).await[0].clone();
    assert_eq!(first["original_event_id"], "");
    let resend = async |event: &Value| {
        let path = format!("/deliveries/{}/resend", event["event_id"].as_str().unwrap());
        installation.of_webhook("POST", &webhook, &path, Value::Null).await.expect(200).json()
    };
    let second = resend(&first).await;
    let third = resend(&second).await;
    for again in [&second, &third] {
        assert_eq!(again["original_event_id"], first["event_id"]);
    }
    assert!(first["event_id"] != second["event_id"] && second["event_id"] != third["event_id"]);
    for unknown in ["evt_0000000000000000", "evt_x", "7"] {
        let path = format!("/deliveries/{unknown}/resend");
        assert_eq!(
            installation.of_webhook("POST", &webhook, &path, Value::Null).await.summary(),
            "404 plain"
        );
        let path = format!("/deliveries/{unknown}/attempts");
        assert_eq!(installation.of_webhook("GET", &webhook, &path, Value::Null).await.summary(), "404 plain");
    }
    // Pages, newest first; what is out of bounds is brought into them.
    let page = async |query: &str| {
        let path = format!("/deliveries?{query}");
        let page = installation.of_webhook("GET", &webhook, &path, Value::Null).await.expect(200).json();
        page.as_array().unwrap().iter().map(|item| item["event_id"].clone()).collect::<Vec<_>>()
    };
    let all = [&third, &second, &first].map(|delivery| delivery["event_id"].clone());
    assert_eq!(page("limit=100000&offset=-5").await, all);
    assert_eq!(page("limit=0&offset=1").await, all[1..2]);
    assert_eq!(
        installation.of_webhook("GET", &webhook, "/deliveries?limit=x", Value::Null).await.summary(),
        "422 validation"
    );
}

#[tokio::test]
async fn a_time_is_replayed_in_pieces_and_under_the_same_ids() {
    let installation = Installation::new().await;
    let workspace = installation.tenant_workspace;
    installation.happen(workspace, EventKind::CvmCreated, 1).await;
    let webhook = installation.webhook("https://hooks.example.org/", &["cvm.created"]).await;
    installation.happen(workspace, EventKind::CvmDeleted, 3).await;
    installation.happen(workspace, EventKind::CvmCreated, 1000).await;
    let replay = async |body: Value| installation.of_webhook("POST", &webhook, "/replay", body).await;
    let since = "2026-01-21T10:00:00Z";
    let mut body = json!({ "since": since, "until": "2026-01-21T10:00:01Z" });
    // Nothing failed.
    body["only_failed"] = json!(true);
    assert_eq!(replay(body.clone()).await.expect(200).json(), json!({ "count": 0, "next_after": null }));
    body["only_failed"] = json!(false);
    let first = replay(body.clone()).await.expect(200).json();
    // The one from before the webhook is among them, the three of another kind are not.
    assert_eq!(first["count"], 997);
    body["after"] = first["next_after"].clone();
    assert_eq!(replay(body).await.expect(200).json(), json!({ "count": 4, "next_after": null }));
    for (since, until, summary) in [
        (since, since, "422 validation"),
        (since, "2026-01-20T00:00:00Z", "422 validation"),
        ("yesterday", "2026-01-21T10:00:01Z", "422 validation"),
    ] {
        assert_eq!(replay(json!({ "since": since, "until": until })).await.summary(), summary, "{since}");
    }
    assert_eq!(replay(json!({})).await.summary(), "422 validation");
    assert_eq!(replay(json!({ "since": since, "after": "whc_x" })).await.summary(), "422 validation");
}

#[tokio::test]
async fn only_what_failed_is_replayed() {
    let installation = Installation::new().await;
    let webhook = installation.webhook("https://hooks.example.org/", &["cvm.created"]).await;
    installation.happen(installation.tenant_workspace, EventKind::CvmCreated, 2).await;
    let body =
        json!({ "since": "2026-01-21T10:00:00Z", "until": "2026-01-21T10:00:01Z", "only_failed": true });
    let replay =
        async || installation.of_webhook("POST", &webhook, "/replay", body.clone()).await.expect(200).json();
    assert_eq!(replay().await["count"], 0, "they still may succeed");
    // Disabling ends them.
    for enabled in [false, true] {
        installation.of_webhook("PUT", &webhook, "", json!({ "enabled": enabled })).await.expect(200);
    }
    assert_eq!(replay().await["count"], 2);
    assert_eq!(replay().await["count"], 0, "now they wait again");
    let shown = deliveries(&installation, &webhook).await;
    assert_eq!(shown.as_array().unwrap().len(), 4);
    assert_eq!(shown[0]["event_id"], shown[2]["event_id"]);
}

#[tokio::test]
async fn a_workspace_has_requests_sent_only_so_often() {
    let installation = Installation::new().await;
    let webhook = installation.webhook("https://hooks.example.org/", &["cvm.created"]).await;
    for _ in 0..60 {
        installation.of_webhook("POST", &webhook, "/test", Value::Null).await.expect(200);
    }
    let refused = installation.of_webhook("POST", &webhook, "/test", Value::Null).await.expect(429);
    assert_eq!(refused.header("retry-after"), "1", "they come back one by one");
    assert_eq!(refused.summary(), "429 plain");
    let other = [("x-api-key", installation.admin.as_str())];
    let body = json!({ "url": "https://hooks.example.org/", "events": ["cvm.created"] });
    let theirs = installation.call_with(&other, "POST", BASE, body).await.expect(201).json();
    let path = format!("{BASE}/{}/test", theirs["id"].as_str().unwrap());
    installation.call_with(&other, "POST", &path, Value::Null).await.expect(200);
}
