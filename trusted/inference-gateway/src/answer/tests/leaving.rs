//! Clients that leave, or do not read.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::json;
use tokio::sync::Semaphore;

use super::support::*;
use crate::upstream::fake::{Act, Fake, chunk, stream_head, until};

#[tokio::test]
async fn a_client_that_leaves_a_stream_is_recorded_with_what_it_got() {
    let fake = Fake::start(|_, _| {
        let mut acts = begun(&answer()[..3]);
        acts.push(Act::Hang);
        acts
    })
    .await;
    let bench = Bench::alone(&fake).await;
    let mut response = bench.request("/v1/chat/completions", &chat(true)).send().await.unwrap();
    let receipt_id = response.headers()["x-receipt-id"].to_str().unwrap().to_owned();
    let mut got = Vec::new();
    while !String::from_utf8_lossy(&got).contains("two") {
        got.extend_from_slice(&response.chunk().await.unwrap().unwrap());
    }
    drop(response);
    let row = bench.rows_of(1).await[0].row.clone();
    assert_eq!((row.status, row.selected_route_id.as_deref()), (499, Some("one:vendor/model")));
    // Nobody told: of the prompt 15 characters, and two words that came one by one.
    assert_eq!((row.prompt_tokens, row.completion_tokens), (4, 2), "what was produced is billed");
    assert_eq!(row.cost.normalize().to_string(), "0.008");
    let found =
        bench.running.gateway().store.receipt(&receipt_id, crate::admission::KeyHash::of(KEY)).unwrap();
    let crate::record::Lookup::Found(document) = found else { panic!("no receipt") };
    let receipt: serde_json::Value = serde_json::from_slice(&document).unwrap();
    assert_eq!(event(&receipt, "response.returned").unwrap()["body_hash"], hash(&got));
    until(|| fake.counts.left.load(Ordering::Relaxed) == 1).await;
    until(|| bench.running.gateway().requests.is_empty()).await;
}

/// A client that leaves when it has everything but the figures pays what the upstream tells.
#[tokio::test]
async fn leaving_before_the_usage_is_no_discount() {
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let fake = Fake::start(move |_, _| {
        let mut acts = begun(&[role(), word("one"), stop()]);
        acts.push(Act::Wait(Arc::clone(&held)));
        acts.extend([usage(), done()].map(|event| Act::Send(chunk(&event))));
        acts.push(Act::Send(chunk(b"")));
        acts
    })
    .await;
    let bench = Bench::alone(&fake).await;
    let mut response = bench.request("/v1/chat/completions", &chat(true)).send().await.unwrap();
    let mut got = Vec::new();
    while !String::from_utf8_lossy(&got).contains("\"stop\"") {
        got.extend_from_slice(&response.chunk().await.unwrap().unwrap());
    }
    drop(response);
    gate.add_permits(1);
    let row = bench.rows_of(1).await[0].row.clone();
    assert_eq!((row.prompt_tokens, row.completion_tokens), (10, 3));
    assert_eq!(row.cost.normalize().to_string(), "0.016");
}

/// It is read on for so long as the configuration says, and no longer.
#[tokio::test]
async fn nobody_reads_on_for_ever() {
    let fake = Fake::start(|_, _| {
        let mut acts = begun(&[role(), word("one"), stop()]);
        acts.push(Act::Hang);
        acts
    })
    .await;
    let one = upstream("one", &fake.url(), 0, &json!({}));
    for read_on_ms in [0, 50] {
        let bench = Bench::new(vec![one.clone()], json!({"read_on_ms": read_on_ms})).await;
        let mut response = bench.request("/v1/chat/completions", &chat(true)).send().await.unwrap();
        let mut got = Vec::new();
        while !String::from_utf8_lossy(&got).contains("\"stop\"") {
            got.extend_from_slice(&response.chunk().await.unwrap().unwrap());
        }
        drop(response);
        let row = bench.rows_of(1).await[0].row.clone();
        assert_eq!((row.status, row.prompt_tokens, row.completion_tokens), (499, 4, 1), "{read_on_ms}");
    }
    until(|| fake.counts.left.load(Ordering::Relaxed) == 2).await;
}

/// Nor is what an upstream told before it began, on any surface that streams.
#[tokio::test]
async fn what_was_told_too_early_is_no_discount() {
    let early = data(r#"{"id":"up-1","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":0}}"#);
    let chat_events = [early, role(), word("one"), word(" two"), stop(), done()];
    let response_events = [
        r#"{"type":"response.created","sequence_number":0,"response":{"id":"r","status":"in_progress","output":[],"usage":{"input_tokens":10,"output_tokens":0}}}"#,
        r#"{"type":"response.output_text.delta","sequence_number":1,"delta":"one"}"#,
        r#"{"type":"response.output_text.delta","sequence_number":2,"delta":" two"}"#,
        r#"{"type":"response.completed","sequence_number":3,"response":{"id":"r","status":"completed","output":[]}}"#,
    ]
    .map(data);
    let asked = json!({"model": MODEL, "input": "a secret prompt", "stream": true});
    let mut message = chat(true);
    message["max_tokens"] = json!(9);
    for (path, request, events, ends) in [
        ("/v1/chat/completions", chat(true), chat_events.to_vec(), 2),
        ("/v1/messages", message, chat_events.to_vec(), 2),
        ("/v1/responses", asked, response_events.to_vec(), 1),
    ] {
        let fake =
            Fake::start(
                move |number, _| {
                    if number == 0 { broken(&events[..events.len() - ends]) } else { streamed(&events) }
                },
            )
            .await;
        let bench = Bench::alone(&fake).await;
        for count in 1..=2 {
            bench.ask_at(path, &request).await;
            let row = bench.rows_of(count).await[count - 1].row.clone();
            assert_eq!((row.prompt_tokens, row.completion_tokens), (10, 2), "{path}: {row:?}");
        }
    }
}

/// The answer to a request whose client left is waited for, to learn what it used.
#[tokio::test]
async fn a_buffered_answer_is_paid_for_whoever_waits() {
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let fake = Fake::start(move |_, _| {
        vec![Act::Wait(Arc::clone(&held)), Act::Send(crate::upstream::fake::json(200, WHOLE))]
    })
    .await;
    let bench = Bench::alone(&fake).await;
    let asked = tokio::spawn(bench.request("/v1/chat/completions", &chat(false)).send());
    until(|| !fake.seen.lock().is_empty()).await;
    asked.abort();
    assert!(asked.await.is_err());
    gate.add_permits(1);
    let row = bench.rows_of(1).await[0].row.clone();
    assert_eq!((row.prompt_tokens, row.completion_tokens), (10, 3));
    assert_eq!(row.cost.normalize().to_string(), "0.016");
}

/// A client that reads nothing holds the upstream back instead of filling the gateway's memory.
#[tokio::test]
async fn a_slow_client_costs_no_memory() {
    const PIECE: usize = 64 << 10;
    const PIECES: usize = 4096;
    let long = "x".repeat(PIECE);
    let fake = Fake::start(move |_, _| {
        let mut acts = vec![Act::Send(stream_head()), Act::Send(chunk(&role()))];
        acts.extend((0..PIECES).map(|_| Act::Send(chunk(&word(&long)))));
        acts
    })
    .await;
    let one =
        upstream("one", &fake.url(), 0, &json!({"timeouts": {"connect": 1, "first_byte": 5, "idle": 1}}));
    let bench = Bench::new(vec![one], json!({})).await;
    let response = bench.request("/v1/chat/completions", &chat(true)).send().await.unwrap();
    // It takes nothing for longer than it may, and is given up.
    let row = bench.rows_of(1).await[0].row.clone();
    assert_eq!(row.status, 499);
    let sent = row.completion_tokens * 5;
    assert!(sent < (PIECE * PIECES / 4) as u64, "{sent} bytes were read for nobody");
    // When it goes on after all, it sees that this is not the whole answer.
    let headers = response.headers().clone();
    let reply = Reply { status: 200, headers, body: response.bytes().await.unwrap() };
    let got = seen(&reply);
    assert!(got.error.is_some() && !got.is_done);
    bench.checked_receipt(&reply);
}
