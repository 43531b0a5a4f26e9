//! Streams: their bytes, their silence, their end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Semaphore;

use super::support::*;
use crate::upstream::fake::{Act, Fake, chunk, stream_head, until};

#[tokio::test]
async fn a_stream_has_a_record_that_hashes_what_was_sent() {
    let fake = good().await;
    let bench = Bench::alone(&fake).await;
    let reply = bench.ask(&chat(true)).await;
    assert_eq!(seen(&reply), complete());
    assert_eq!(reply.header("cache-control"), Some("no-cache"));
    let receipt = bench.checked_receipt(&reply);
    let upstream: Vec<u8> = answer().concat();
    assert_eq!(event(&receipt, "response.received").unwrap()["body_hash"], hash(&upstream));
    assert!(receipt["chat_id"].as_str().unwrap().starts_with("req_"));
    assert!(reply.text().contains(receipt["chat_id"].as_str().unwrap()));
    let rows = bench.rows();
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].row.status, rows[0].row.prompt_tokens, rows[0].row.completion_tokens), (200, 10, 3));
    assert_eq!(rows[0].row.cost.normalize().to_string(), "0.016");
    assert!(rows[0].row.is_streaming && rows[0].row.ttft_ms.is_some());
}

#[tokio::test]
async fn connections_to_upstreams_are_kept_after_streams() {
    let fake = good().await;
    let bench = Bench::alone(&fake).await;
    for _ in 0..5 {
        assert_eq!(seen(&bench.ask(&chat(true)).await), complete());
        // The rest of the stream is read after its last byte went out.
        until(|| bench.running.gateway().requests.is_empty()).await;
    }
    assert_eq!(fake.counts.connections.load(Ordering::Relaxed), 1);
}

/// F11, its first half: comments while nothing comes, which count as bytes that were sent.
#[tokio::test]
async fn silence_is_filled_with_comments() {
    let fake = Fake::start(|_, _| {
        let mut acts = begun(&answer()[..2]);
        acts.push(Act::Pause(SECOND / 2));
        acts.extend(answer()[2..].iter().map(|event| Act::Send(chunk(event))));
        acts.push(Act::Send(chunk(b"")));
        acts
    })
    .await;
    let one = upstream("one", &fake.url(), 0, &json!({}));
    let bench = Bench::new(vec![one], json!({"sse_keepalive_ms": 50})).await;
    let reply = bench.ask(&chat(true)).await;
    let got = seen(&reply);
    assert!(got.comments >= 2, "{got:?}");
    assert_eq!(Seen { comments: 0, ..got }, complete());
    bench.checked_receipt(&reply);
}

/// The head waits for the first content, so that the upstream's role chunk commits to nothing.
#[tokio::test]
async fn the_head_waits_for_content() {
    let (first, second) = (
        Fake::start(|_, _| {
            let mut acts = begun(&[b": processing\n\n".to_vec(), role()]);
            acts.push(Act::Hang);
            acts
        })
        .await,
        good().await,
    );
    let limits = json!({"timeouts": {"connect": 1, "first_byte": 1, "idle": 5}});
    let bench = Bench::new(
        vec![upstream("one", &first.url(), 0, &limits), upstream("two", &second.url(), 1, &json!({}))],
        json!({}),
    )
    .await;
    let reply = bench.ask(&chat(true)).await;
    assert_eq!(seen(&reply), complete());
    let receipt = bench.checked_receipt(&reply);
    assert_eq!(event(&receipt, "route.selected").unwrap()["target_route_id"], "two:vendor/model");
    until(|| first.counts.left.load(Ordering::Relaxed) == 1).await;
}

#[tokio::test]
async fn an_answer_without_content_is_one() {
    let fake = Fake::start(|_, _| streamed(&[role(), stop(), usage(), done()])).await;
    let bench = Bench::alone(&fake).await;
    let reply = bench.ask(&chat(true)).await;
    let got = seen(&reply);
    assert_eq!((got.text.as_str(), got.is_finished, got.is_done, &got.error), ("", true, true, &None));
    bench.checked_receipt(&reply);
}

#[tokio::test]
async fn a_stream_has_its_total_limit() {
    let fake = Fake::start(|_, _| {
        let mut acts = vec![Act::Send(stream_head()), Act::Send(chunk(&role()))];
        for _ in 0..200 {
            acts.extend([Act::Send(chunk(&word("x"))), Act::Pause(Duration::from_millis(50))]);
        }
        acts
    })
    .await;
    let limits = json!({"timeouts": {"connect": 1, "first_byte": 1, "idle": 1, "total": 1}});
    let bench = Bench::new(vec![upstream("one", &fake.url(), 0, &limits)], json!({})).await;
    let reply = bench.ask(&chat(true)).await;
    let got = seen(&reply);
    assert!(got.error.is_some() && !got.is_done && !got.text.is_empty(), "{got:?}");
    bench.checked_receipt(&reply);
    let row = bench.rows()[0].row.clone();
    assert_eq!(row.status, 502);
    assert!(row.completion_tokens > 0, "what was produced is metered");
}

#[tokio::test]
async fn other_surfaces_go_the_same_way() {
    const TEXT: &str = r#"{"id":"t","object":"text_completion","created":1,"model":"own-name","choices":[{"index":0,"text":"hi","logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#;
    const VECTOR: &str = r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5]}],"model":"own-name","usage":{"prompt_tokens":1,"total_tokens":1}}"#;
    let fake = Fake::start(|_, seen| {
        let body = if seen.head.contains("/v1/embeddings") { VECTOR } else { TEXT };
        vec![Act::Send(crate::upstream::fake::json(200, body))]
    })
    .await;
    let bench = Bench::alone(&fake).await;
    let text = bench.ask_at("/v1/completions", &json!({"model": MODEL, "prompt": "x"})).await;
    assert_eq!((text.status, &text.json()["choices"][0]["text"]), (200, &json!("hi")));
    assert_eq!(bench.checked_receipt(&text)["endpoint"], "/v1/completions");
    let vector = bench.ask_at("/v1/embeddings", &json!({"model": MODEL, "input": "x"})).await;
    assert_eq!((vector.status, &vector.json()["data"][0]["embedding"]), (200, &json!([0.5])));
    assert_eq!(bench.checked_receipt(&vector)["chat_id"], serde_json::Value::Null);
}

/// Whatever the configuration becomes, a stream ends as it began.
#[tokio::test]
async fn another_configuration_drops_no_stream() {
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let first = Fake::start(move |_, _| {
        let mut acts = begun(&answer()[..3]);
        acts.push(Act::Wait(Arc::clone(&held)));
        acts.extend(answer()[3..].iter().map(|event| Act::Send(chunk(event))));
        acts.push(Act::Send(chunk(b"")));
        acts
    })
    .await;
    let second = good().await;
    let bench = Bench::alone(&first).await;
    let mut response = bench.request("/v1/chat/completions", &chat(true)).send().await.unwrap();
    let headers = response.headers().clone();
    let mut got = Vec::new();
    while !String::from_utf8_lossy(&got).contains("two") {
        got.extend_from_slice(&response.chunk().await.unwrap().unwrap());
    }
    bench.reconfigure(vec![upstream("other", &second.url(), 0, &json!({}))]).await;
    assert_eq!(seen(&bench.ask(&chat(true)).await), complete());
    assert_eq!((first.seen.lock().len(), second.seen.lock().len()), (1, 1), "it holds");
    gate.add_permits(1);
    got.extend_from_slice(&response.bytes().await.unwrap());
    let reply = Reply { status: 200, headers, body: got.into() };
    assert_eq!(seen(&reply), complete());
    bench.checked_receipt(&reply);
}
