//! What clients see while nothing of an answer has come.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use super::support::*;
use crate::upstream::fake::{Act, Fake, chunk, json as json_reply, stream_head, until};

const CONTEXT: &str = r#"{"error":{"message":"This model's maximum context length is 8192 tokens","type":"invalid_request_error","param":"messages"}}"#;

/// A stream that begins, and says nothing for longer than it may.
async fn silent() -> Fake {
    Fake::start(|_, _| vec![Act::Send(stream_head()), Act::Send(chunk(&role())), Act::Hang]).await
}

/// Routes in their order, the first of which may be silent for a second; clients of all get comments early.
async fn waiting(fakes: &[&Fake]) -> Bench {
    let limits = json!({"timeouts": {"connect": 1, "first_byte": 1, "idle": 5}});
    let upstreams = fakes.iter().zip(["one", "two"]).zip(0..);
    let upstreams = upstreams.map(|((fake, name), priority)| upstream(name, &fake.url(), priority, &limits));
    Bench::new(upstreams.collect(), json!({"sse_keepalive_ms": 50})).await
}

#[tokio::test]
async fn a_stream_that_waits_begins_with_comments_and_another_route_may_still_answer() {
    let bench = waiting(&[&silent().await, &good().await]).await;
    let reply = bench.ask(&chat(true)).await;
    let got = seen(&reply);
    assert!(got.comments >= 2, "{got:?}");
    assert_eq!(Seen { comments: 0, ..got }, complete());
    let receipt = bench.checked_receipt(&reply);
    assert_eq!(event(&receipt, "route.selected").unwrap()["target_route_id"], "two:vendor/model");
    assert!(receipt["chat_id"].is_string());
    let told: Vec<_> = bench.rows().iter().map(|row| row.row.status).collect();
    assert_eq!(told, [502, 200]);
}

#[tokio::test]
async fn a_stream_that_waited_for_nothing_ends_with_an_error() {
    let bench = waiting(&[&silent().await]).await;
    let reply = bench.ask(&chat(true)).await;
    let got = seen(&reply);
    assert!(reply.status == 200 && got.comments >= 2, "{got:?}");
    assert_broken(&got, "");
    let receipt = bench.checked_receipt(&reply);
    assert_eq!(receipt["chat_id"], Value::Null);
    assert_eq!(bench.rows().last().unwrap().row.status, 502);
}

/// The error of each surface in a stream that has begun: what the upstream found wrong with the request.
#[tokio::test]
async fn a_late_error_is_an_event_in_the_words_of_its_surface() {
    let fake =
        Fake::start(|_, _| vec![Act::Pause(Duration::from_millis(300)), Act::Send(json_reply(400, CONTEXT))])
            .await;
    let bench = waiting(&[&fake]).await;
    let words = "This model's maximum context length is 8192 tokens";
    for (path, mut body, error) in [
        (
            "/v1/chat/completions",
            chat(true),
            json!({"error": {"message": words, "type": "invalid_request_error", "code": 400, "param": "messages"}}),
        ),
        (
            "/v1/messages",
            json!({"max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}),
            json!({"type": "error", "error": {"type": "invalid_request_error", "message": words}}),
        ),
        (
            "/v1/responses",
            json!({"input": "x"}),
            json!({"type": "error", "code": "invalid_request_error", "message": words, "param": "messages", "sequence_number": 0}),
        ),
    ] {
        body["model"] = json!(MODEL);
        body["stream"] = json!(true);
        let reply = bench.ask_at(path, &body).await;
        assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/event-stream")));
        let text = reply.text();
        assert!(text.starts_with(": keep-alive\n\n") && !text.contains("[DONE]"), "{text}");
        let mut told: Value =
            serde_json::from_str(text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap()).unwrap();
        if let Some(id) = told.as_object_mut().unwrap().remove("request_id") {
            assert!(id.as_str().unwrap().starts_with("req_"), "{id}");
        }
        assert_eq!(told, error);
        bench.checked_receipt(&reply);
    }
    assert!(bench.rows().iter().all(|row| row.row.status == 400));
}

#[tokio::test]
async fn a_client_that_leaves_while_it_waits_has_a_receipt_for_what_it_got() {
    let fake = silent().await;
    let one = upstream("one", &fake.url(), 0, &json!({}));
    let bench = Bench::new(vec![one], json!({"sse_keepalive_ms": 20})).await;
    let mut response = bench.request("/v1/chat/completions", &chat(true)).send().await.unwrap();
    let headers = response.headers().clone();
    assert_eq!(response.chunk().await.unwrap().unwrap(), ": keep-alive\n\n");
    drop(response);
    assert_eq!(bench.rows_of(1).await[0].row.status, 499);
    until(|| fake.counts.left.load(Ordering::Relaxed) == 1).await;
    let reply = Reply { status: 200, headers, body: bytes::Bytes::new() };
    let receipt = receipt(&bench.running.gateway().store, &reply);
    assert!(event(&receipt, "response.returned").is_some());
}

/// The first byte of an answer at once comes with its last: what limits it are silence, and the total.
#[tokio::test]
async fn an_answer_at_once_may_take_longer_than_the_first_byte_of_a_stream() {
    let slow =
        Fake::start(|_, _| vec![Act::Pause(Duration::from_millis(1200)), Act::Send(json_reply(200, WHOLE))])
            .await;
    let limited = |idle: u32, total: Option<u32>| {
        let timeouts = json!({"connect": 1, "first_byte": 1, "idle": idle, "total": total});
        vec![upstream("one", &slow.url(), 0, &json!({ "timeouts": timeouts }))]
    };
    for (idle, total, status) in [(5, None, 200), (1, None, 502), (5, Some(1), 502)] {
        let bench = Bench::new(limited(idle, total), json!({})).await;
        assert_eq!(bench.ask(&chat(false)).await.status, status, "{idle} {total:?}");
    }
}
