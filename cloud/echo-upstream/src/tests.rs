//! Each path once, whole and as a stream.

use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::{Manner, router};

async fn ask(path: &str, request: &Value) -> (StatusCode, String) {
    let request = Request::post(path)
        .header("content-type", "application/json")
        .body(Body::from(request.to_string()))
        .unwrap();
    let response = router(Manner::default()).oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn whole(path: &str, request: Value) -> Value {
    let (status, body) = ask(path, &request).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    serde_json::from_str(&body).unwrap()
}

/// The data of all events but the terminator.
async fn stream(path: &str, mut request: Value) -> Vec<Value> {
    request["stream"] = json!(true);
    request["stream_options"] = json!({ "include_usage": true });
    let (status, body) = ask(path, &request).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

fn joined(events: &[Value], pointer: &str) -> String {
    events.iter().filter_map(|event| event.pointer(pointer)?.as_str()).collect()
}

#[tokio::test]
async fn chat() {
    let parts = json!([{ "type": "text", "text": "hello" }, { "type": "text", "text": "there" }]);
    let request = json!({ "model": "m", "messages": [
        { "role": "system", "content": "be brief" },
        { "role": "user", "content": parts },
    ]});
    let answer = whole("/v1/chat/completions", request.clone()).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "hello there");
    assert_eq!(answer["usage"], json!({ "prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6 }));
    let events = stream("/v1/chat/completions", request.clone()).await;
    assert_eq!(joined(&events, "/choices/0/delta/content"), "hello there");
    assert_eq!(events.last().unwrap()["usage"], answer["usage"]);
    let mut short = request;
    short["max_tokens"] = json!(1);
    let answer = whole("/v1/chat/completions", short).await;
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    let (status, _) = ask("/v1/chat/completions", &json!({ "messages": [] })).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn completions() {
    let request = json!({ "model": "m", "prompt": ["one two", " three\n"] });
    let answer = whole("/v1/completions", request.clone()).await;
    assert_eq!(answer["choices"][1]["text"], " three\n");
    let events = stream("/v1/completions", request).await;
    assert_eq!(joined(&events, "/choices/0/text"), "one two three\n");
}

#[tokio::test]
async fn embeddings() {
    let ask = |input: Value, format: &str| {
        let request = json!({ "model": "m", "input": input, "dimensions": 4, "encoding_format": format });
        async move { whole("/v1/embeddings", request).await["data"].clone() }
    };
    let both = ask(json!(["a", "b"]), "float").await;
    assert_eq!(ask(json!("a"), "float").await[0], both[0]);
    assert_ne!(both[0]["embedding"], both[1]["embedding"]);
    assert_eq!(both[0]["embedding"].as_array().unwrap().len(), 4);
    assert_eq!(ask(json!([1, 2]), "base64").await[0]["embedding"].as_str().unwrap().len(), 24);
}

#[tokio::test]
async fn responses() {
    let request = json!({ "model": "m", "input": [{ "role": "user", "content": "hello there" }] });
    let answer = whole("/v1/responses", request.clone()).await;
    assert_eq!(answer["output"][0]["content"][0]["text"], "hello there");
    let events = stream("/v1/responses", request).await;
    assert_eq!(joined(&events, "/delta"), "hello there");
    assert_eq!(events.last().unwrap()["response"]["status"], "completed");
    assert!(events.iter().enumerate().all(|(number, event)| event["sequence_number"] == number));
}

#[tokio::test]
async fn messages() {
    let request = json!({
        "model": "m",
        "max_tokens": 10,
        "messages": [{ "role": "user", "content": "hello there" }],
    });
    let answer = whole("/v1/messages", request.clone()).await;
    assert_eq!(answer["content"][0]["text"], "hello there");
    let events = stream("/v1/messages", request).await;
    assert_eq!(joined(&events, "/delta/text"), "hello there");
    assert_eq!(events.last().unwrap()["type"], "message_stop");
}
