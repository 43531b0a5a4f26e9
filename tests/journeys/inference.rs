//! The published clients of inference interfaces, unmodified, against a gateway of the real command.

use cloister_tests::inference::{Inference, KEY, complaint_of, seen_by};
use serde_json::{Value, json};
use tempfile::TempDir;

/// What every client sees. Languages differ in the class of OpenAI's error for what is too large.
fn expected(too_large: &str) -> Value {
    json!({
        "finish_reason": "stop",
        "model": "echo",
        "stream_ids": 1,
        "embeddings": [true, true],
        "models": ["echo", "stored"],
        "stop_reason": "end_turn",
        "unknown_model": ["BadRequestError", 400, "model_not_found", "model_not_found"],
        "zdr": ["NotFoundError", 404, "not_found_error", null],
        "stranger": ["AuthenticationError", 401, "authentication_error", null],
        "malformed": ["BadRequestError", 400, "invalid_request_error", null],
        "anthropic_unknown": ["BadRequestError", 400, "invalid_request_error", null],
        "poor": ["PermissionDeniedError", 403, "permission_error", "insufficient_credits"],
        "anthropic_poor": ["PermissionDeniedError", 403, "permission_error", null],
        "narrow": ["PermissionDeniedError", 403, "permission_error", "model_not_allowed"],
        "anthropic_narrow": ["PermissionDeniedError", 403, "permission_error", null],
        "slow": ["RateLimitError", 429, "rate_limit_error", "rate_limit_exceeded"],
        "anthropic_slow": ["RateLimitError", 429, "rate_limit_error", null],
        "too_large": [too_large, 413, "invalid_request_error", null],
        "anthropic_too_large": ["ContentTooLargeError", 413, "request_too_large", null],
    })
}

async fn a_client_gets_everything(program: &str, too_large: &str) {
    let directory = TempDir::new().unwrap();
    let gateway = Inference::start(directory.path()).await;
    let seen = seen_by(program, &gateway).await;
    for (name, expected) in expected(too_large).as_object().unwrap() {
        assert_eq!(&seen[name], expected, "{name}: {seen:#}");
    }
    let words =
        ["chat", "stream", "completion", "responses", "responses_stream", "messages", "messages_stream"];
    for surface in words {
        let text = seen[surface].as_str().unwrap_or_else(|| panic!("{surface}: {seen:#}"));
        assert!(text.contains("hello"), "{surface}: {seen:#}");
    }
    assert!(seen["total_tokens"].as_u64() > Some(0), "{seen:#}");
    assert_eq!(seen["stream_usage"], seen["total_tokens"], "{seen:#}");
    let receipt = receipt(&gateway, seen["receipt_id"].as_str().unwrap()).await;
    let last = receipt["event_log"].as_array().unwrap().last().unwrap();
    assert_eq!(last["type"], "response.returned");
    assert_eq!(last["body_hash"], json!(format!("sha256:{}", seen["body_sha256"].as_str().unwrap())));
}

async fn receipt(gateway: &Inference, id: &str) -> Value {
    let asked = gateway.client().get(format!("{}/v1/aci/receipts/{id}", gateway.url));
    let answer = asked.bearer_auth(KEY).send().await;
    let answer = answer.unwrap().error_for_status().unwrap();
    serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn python_clients_get_everything() {
    a_client_gets_everything("client.py", "APIStatusError").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn javascript_clients_get_everything() {
    a_client_gets_everything("client.mjs", "APIError").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_ask_nobody_whose_certificate_they_did_not_keep() {
    let directories = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let [gateway, other] = &directories;
    let (gateway, other) = (Inference::start(gateway.path()).await, Inference::start(other.path()).await);
    for program in ["client.py", "client.mjs"] {
        let complaint = complaint_of(program, &gateway, other.certificate.as_deref().unwrap()).await;
        assert!(complaint.to_lowercase().contains("certificate"), "{program}: {complaint}");
    }
}
