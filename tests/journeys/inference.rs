//! The published clients of inference interfaces, unmodified, against a gateway of the real command; and that command in a
//! confidential VM.

use std::fs;

use cloister_tests::command::Up;
use cloister_tests::data_dir::DataDir;
use cloister_tests::http::{client_of, get_text, plain_client};
use cloister_tests::inference::{Inference, KEY, seen_by};
use cloister_tests::{PATIENCE, eventually, paths};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

/// `cloister verify` found a claim that fails.
const REFUTED: i32 = 8;

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
    let http = plain_client();
    let answer = http.get(format!("{}/v1/aci/receipts/{id}", gateway.url)).bearer_auth(KEY).send().await;
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

/// The gateway of the example has its keys from the KMS and its evidence from the machine that the model is in, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_in_a_cvm_answers_for_the_model_beside_it() {
    let dir = DataDir::new();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let up = Up::start(dir.path(), None).await;
    let pushed = up.run(&["--json", "image", "push", paths::cloister_image().to_str().unwrap()]).await;
    assert_eq!(pushed.code, 0, "{pushed:?}");
    let pushed = pushed.json();
    let compose = fs::read_to_string(paths::confidential_inference().join("compose.yaml")).unwrap();
    let compose = compose.replace("KEY_SHA256", &hex::encode(Sha256::digest(KEY)));
    let compose = compose.replace("IMAGE_DIGEST", pushed["nodes"][0]["digest"].as_str().unwrap());
    let compose = file("compose.yaml", compose.as_bytes());
    let deployed = up.run(&["--json", "deploy", "-n", "inference", "-c", &compose]).await;
    assert_eq!(deployed.code, 0, "{deployed:?}");
    let cvm = up.run(&["--json", "cvms", "get", "inference"]).await.json();
    let url = cvm["endpoints"][0]["app"].as_str().unwrap().trim_end_matches('/');
    eventually("the gateway in the guest answers", PATIENCE, async || get_text(url).await).await;

    let request = json!({
        "model": "demo/own", "stream": true, "messages": [{"role": "user", "content": "say hello"}],
        "provider": {"aci_verified": true},
    });
    let request = request.to_string();
    let ask = client_of(url, PATIENCE).unwrap().post(format!("{url}/v1/chat/completions"));
    let ask = ask.bearer_auth(KEY).header("content-type", "application/json").body(request.clone());
    let answer = ask.send().await.unwrap().error_for_status().unwrap();
    let receipt = answer.headers()["x-receipt-id"].to_str().unwrap().to_owned();
    let answer = answer.bytes().await.unwrap();
    let said = String::from_utf8_lossy(&answer);
    assert!(said.contains("hello") && said.ends_with("data: [DONE]\n\n"), "{said}");

    let root = up.data_dir().join("control-plane/development-root.pem");
    let (key, request, answer) =
        (file("key", KEY.as_bytes()), file("request.json", request.as_bytes()), file("answer.sse", &answer));
    let verify =
        ["--json", "verify", "receipt", &receipt, "--url", url, "--key-file", &key, "--request", &request];
    let evidence = ["--response", &answer, "--development-root", root.to_str().unwrap()];
    let judge = async |compose_hash: &str| {
        let demanded = ["--compose-hash", compose_hash];
        up.run(&[&verify[..], &evidence, &demanded].concat()).await
    };
    let other = judge(&"0".repeat(64)).await;
    assert_eq!(other.code, REFUTED, "{other:?}");
    let judged = judge(cvm["compose_hash"].as_str().unwrap()).await;
    assert_eq!(judged.code, 0, "{judged:?}");
    let checks = judged.json()["checks"].as_array().unwrap().clone();
    let outcome = |id: &str| checks.iter().find(|check| check["id"] == id).unwrap()["outcome"].clone();
    for check in ["signature", "keyset", "subject", "request", "response"] {
        assert_eq!(outcome(check), "holds", "{check}: {judged:?}");
    }
    assert_eq!(outcome("upstream"), "not-checked", "{judged:?}");
    assert_eq!(up.interrupt().await, 0);
}
