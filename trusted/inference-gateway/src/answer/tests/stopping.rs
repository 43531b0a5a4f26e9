//! Requests that are under way when the gateway has to end.

use std::sync::Arc;
use std::time::Duration;

use super::support::*;
use crate::upstream::fake::{Act, Fake, until};

#[tokio::test]
async fn a_stream_that_is_cut_off_says_so_and_is_recorded() {
    let fake = Fake::start(|_, _| {
        let mut acts = begun(&answer()[..3]);
        acts.push(Act::Hang);
        acts
    })
    .await;
    let bench = Bench::alone(&fake).await;
    let mut response = bench.request("/v1/chat/completions", &chat(true)).send().await.unwrap();
    let headers = response.headers().clone();
    let mut got = Vec::new();
    while !String::from_utf8_lossy(&got).contains("two") {
        got.extend_from_slice(&response.chunk().await.unwrap().unwrap());
    }
    let ((store, _dir), rest) = tokio::join!(bench.stop(Duration::ZERO), response.bytes());
    got.extend_from_slice(&rest.unwrap());
    let reply = Reply { status: 200, headers, body: got.into() };
    assert_broken(&seen(&reply), "one two");
    checked_receipt(&store, &reply);
    let row = store.usage(0, 10).unwrap().remove(0).row;
    assert_eq!((row.status, row.error_source.as_deref()), (502, Some("gateway")));
    assert!(row.completion_tokens > 0 && !row.cost.is_zero(), "what was produced is billed");
}

/// However little a client reads, its stream does not keep the gateway from ending.
#[tokio::test]
async fn a_client_that_reads_nothing_holds_up_no_end() {
    let long = "x".repeat(64 << 10);
    let fake = Fake::start(move |_, _| {
        let mut acts = begun(&[role()]);
        acts.extend((0..1024).map(|_| Act::Send(crate::upstream::fake::chunk(&word(&long)))));
        acts
    })
    .await;
    let bench = Bench::alone(&fake).await;
    let response = bench.request("/v1/chat/completions", &chat(true)).send().await.unwrap();
    let gateway = Arc::clone(bench.running.gateway());
    let leave = async {
        until(|| gateway.requests.is_empty()).await;
        drop(response);
    };
    let ((store, _dir), ()) = tokio::join!(bench.stop(Duration::ZERO), leave);
    assert_eq!(store.usage(0, 10).unwrap().len(), 1);
}

#[tokio::test]
async fn a_request_without_an_answer_is_refused_and_recorded() {
    let fake = Fake::start(|_, _| vec![Act::Hang]).await;
    let bench = Bench::alone(&fake).await;
    let waiting = tokio::spawn(bench.request("/v1/chat/completions", &chat(false)).send());
    until(|| !fake.seen.lock().is_empty()).await;
    let (store, _dir) = bench.stop(Duration::ZERO).await;
    let response = waiting.await.unwrap().unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let reply = Reply { status, headers, body: response.bytes().await.unwrap() };
    assert_eq!(reply.error(), (503, "service_unavailable".to_owned()));
    let receipt = checked_receipt(&store, &reply);
    assert!(event(&receipt, "request.forwarded").is_some());
    let row = store.usage(0, 10).unwrap().remove(0).row;
    assert_eq!((row.status, row.selected_route_id.as_deref()), (503, Some("one:vendor/model")));
}

/// Who is told a second time to end cuts off what is under way, and records it.
#[tokio::test]
async fn an_urgent_end_is_recorded_too() {
    let fake = Fake::start(|_, _| vec![Act::Hang]).await;
    let bench = Bench::alone(&fake).await;
    let waiting = tokio::spawn(bench.request("/v1/chat/completions", &chat(false)).send());
    until(|| !fake.seen.lock().is_empty()).await;
    let store = bench.running.gateway().store.clone();
    bench.running.stop(Duration::MAX, async {}).await;
    assert_eq!(waiting.await.unwrap().unwrap().status().as_u16(), 503);
    assert_eq!(store.usage(0, 10).unwrap().remove(0).row.status, 503);
}

/// Not even over a connection that stands.
#[tokio::test]
async fn nothing_goes_out_once_everything_is_cut_off() {
    let fake = good().await;
    let bench = Bench::alone(&fake).await;
    let ask = async || bench.request("/v1/chat/completions", &chat(false)).send().await.unwrap();
    assert_eq!(ask().await.status().as_u16(), 200);
    bench.running.gateway().cut.cancel();
    assert_eq!((ask().await.status().as_u16(), fake.seen.lock().len()), (503, 1));
}
