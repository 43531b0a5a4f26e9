//! Memory of answers that nobody takes.

use serde_json::json;

use super::support::*;
use crate::upstream::fake::{Act, Fake, json as json_reply, until};

/// An answer of so many bytes, and a little more.
fn long(bytes: usize) -> Vec<u8> {
    json_reply(200, &WHOLE.replace("one two three", &"x".repeat(bytes)))
}

#[tokio::test]
async fn an_answer_keeps_its_memory_until_it_was_taken() {
    const LENGTH: usize = 24 << 20;
    let answer = long(LENGTH);
    let fake = Fake::start(move |_, _| vec![Act::Send(answer.clone())]).await;
    let bench = Bench::alone(&fake).await;
    let bodies = &bench.running.gateway().bodies;
    let all = bodies.left();
    let response = bench.request("/v1/chat/completions", &chat(false)).send().await.unwrap();
    assert!(bodies.left() <= all - LENGTH, "{} of {all}", bodies.left());
    assert!(response.bytes().await.unwrap().len() > LENGTH);
    until(|| bodies.left() == all).await;
    // A client that goes away gives it back, too.
    drop(bench.request("/v1/chat/completions", &chat(false)).send().await.unwrap());
    until(|| bodies.left() == all).await;
}

/// What has no room is the gateway's own trouble: no other route is asked.
#[tokio::test]
async fn an_answer_waits_for_room_and_is_refused_without() {
    let answer = long(2 << 20);
    let fake = Fake::start(move |_, _| vec![Act::Send(answer.clone())]).await;
    let limits = json!({"timeouts": {"connect": 1, "first_byte": 1, "idle": 1}});
    let routes = ["one", "two"].map(|name| upstream(name, &fake.url(), 0, &limits));
    let bench = Bench::new(routes.to_vec(), json!({"body_memory_mib": 32})).await;
    let bodies = &bench.running.gateway().bodies;
    let mut others = bodies.share(1);
    others.try_cover(31 << 20).unwrap();
    let failed = bench.ask(&chat(false)).await;
    assert_eq!(failed.error(), (503, "service_unavailable".to_owned()));
    assert_eq!((failed.header("retry-after"), fake.seen.lock().len()), (Some("1"), 1));
    bench.checked_receipt(&failed);
    let row = bench.rows()[0].row.clone();
    assert_eq!((row.status, row.error_source.as_deref()), (503, Some("gateway")));
    let request = chat(false);
    let (reply, ()) = tokio::join!(bench.ask(&request), async {
        until(|| fake.seen.lock().len() == 2).await;
        drop(others);
    });
    assert_eq!(reply.status, 200);
    drop(reply);
    until(|| bodies.left() == 32 << 20).await;
}
