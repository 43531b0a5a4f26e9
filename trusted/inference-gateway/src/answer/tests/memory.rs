//! Memory of answers that nobody takes.

use serde_json::json;

use super::support::*;
use crate::upstream::fake::{Act, Fake, chunk, json as json_reply, until};

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

/// Whoever takes nothing keeps memory from itself.
#[tokio::test]
async fn answers_to_one_key_leave_room_for_those_to_others() {
    let answer = long(24 << 20);
    let fake = Fake::start(move |_, _| vec![Act::Send(answer.clone())]).await;
    let keys = ["sk-one", "sk-other"]
        .map(|key| json!({"name": key, "sha256": crate::admission::KeyHash::of(key).to_string()}));
    let one = upstream("one", &fake.url(), 0, &json!({}));
    let bench = Bench::new(vec![one], json!({"keys": keys, "body_memory_mib": 64})).await;
    let ask = |key: &'static str| {
        let url = format!("http://{}/v1/chat/completions", bench.running.address());
        bench.client.post(url).bearer_auth(key).json(&chat(false)).send()
    };
    let untaken = ask("sk-one").await.unwrap();
    for (key, status) in [("sk-one", 503), ("sk-other", 200)] {
        assert_eq!(ask(key).await.unwrap().status(), status, "{key}");
    }
    drop(untaken);
    // Who makes upstreams work for answers that its own leave no room for pays for them.
    let rows = bench.rows_of(3).await;
    let of = |status| rows.iter().map(|row| &row.row).find(|row| row.status == status).unwrap();
    assert!(of(503).completion_tokens > 1000 && of(503).prompt_tokens > 0, "{:?}", of(503));
}

#[tokio::test]
async fn pieces_of_a_stream_keep_their_memory_until_they_were_taken() {
    let long = "x".repeat(1 << 20);
    let fake = Fake::start(move |_, _| {
        let mut acts = begun(&[role()]);
        acts.extend((0..24).map(|_| Act::Send(chunk(&word(&long)))));
        acts.extend([stop(), done()].iter().map(|event| Act::Send(chunk(event))));
        acts.push(Act::Send(chunk(b"")));
        acts
    })
    .await;
    let bench = Bench::alone(&fake).await;
    let bodies = &bench.running.gateway().bodies;
    let all = bodies.left();
    let response = bench.request("/v1/chat/completions", &chat(true)).send().await.unwrap();
    until(|| bodies.left() + (1 << 20) <= all).await;
    let headers = response.headers().clone();
    let reply = Reply { status: 200, headers, body: response.bytes().await.unwrap() };
    assert!(seen(&reply).is_done);
    bench.checked_receipt(&reply);
    until(|| bodies.left() == all).await;
}

/// The beginning of an event that does not end, before the first content or after it.
#[tokio::test]
async fn half_an_event_counts_for_as_long_as_it_waits_for_its_end() {
    const LENGTH: usize = 1 << 20;
    let half = format!("data: {}", "x".repeat(LENGTH)).into_bytes();
    for before in [vec![role()], vec![role(), word("one")]] {
        let half = half.clone();
        let fake = Fake::start(move |_, _| {
            let mut acts = begun(&before);
            acts.extend([Act::Send(chunk(&half)), Act::Hang]);
            acts
        })
        .await;
        let one = upstream("one", &fake.url(), 0, &json!({}));
        let bench = Bench::new(vec![one], json!({"read_on_ms": 0})).await;
        let bodies = &bench.running.gateway().bodies;
        let all = bodies.left();
        let asking = tokio::spawn(bench.request("/v1/chat/completions", &chat(true)).send());
        until(|| bodies.left() + LENGTH <= all).await;
        asking.abort();
        drop(asking.await);
        until(|| bodies.left() == all).await;
    }
}

/// So does what is held back until there is content.
#[tokio::test]
async fn what_is_held_back_counts() {
    const LENGTH: usize = 100 << 10;
    let long = role().repeat(LENGTH / role().len() + 1);
    let fake = Fake::start(move |_, _| {
        let mut acts = begun(std::slice::from_ref(&long));
        acts.push(Act::Hang);
        acts
    })
    .await;
    let one = upstream("one", &fake.url(), 0, &json!({}));
    let bench = Bench::new(vec![one], json!({"read_on_ms": 0})).await;
    let bodies = &bench.running.gateway().bodies;
    let all = bodies.left();
    let asking = tokio::spawn(bench.request("/v1/chat/completions", &chat(true)).send());
    until(|| bodies.left() + LENGTH <= all).await;
    asking.abort();
    drop(asking.await);
    until(|| bodies.left() == all).await;
}

/// It needs no more to go out: streams that wait for others' memory would keep their own.
#[tokio::test]
async fn what_was_held_back_goes_out_with_the_memory_it_has() {
    const LENGTH: usize = 100 << 10;
    let long = role().repeat(LENGTH / role().len() + 1);
    let fake = Fake::start(move |_, _| streamed(&[long.clone(), word("one"), stop(), done()])).await;
    let limits = json!({"timeouts": {"connect": 1, "first_byte": 5, "idle": 1}});
    let one = upstream("one", &fake.url(), 0, &limits);
    let bench = Bench::new(vec![one], json!({"body_memory_mib": 32})).await;
    let mut others = bench.running.gateway().bodies.share(1);
    others.try_cover((32 << 20) - LENGTH * 3 / 2).unwrap();
    let reply = bench.ask(&chat(true)).await;
    assert!(seen(&reply).is_done);
    bench.checked_receipt(&reply);
}

/// A stream whose next event has no room ends with an error, and no other route is asked.
#[tokio::test]
async fn half_an_event_that_has_no_room_ends_its_stream() {
    let half = format!("data: {}", "x".repeat(2 << 20)).into_bytes();
    // Signs of life in between change nothing.
    for (before, status, comments_ms) in
        [(vec![role()], 503, 0), (vec![role(), word("one")], 200, 0), (vec![role(), word("one")], 200, 200)]
    {
        let half = half.clone();
        let fake = Fake::start(move |_, _| {
            let mut acts = begun(&before);
            acts.extend([Act::Send(chunk(&half)), Act::Hang]);
            acts
        })
        .await;
        let limits = json!({"timeouts": {"connect": 1, "first_byte": 1, "idle": 1}});
        let routes = ["one", "two"].map(|name| upstream(name, &fake.url(), 0, &limits));
        let limits = json!({"body_memory_mib": 32, "sse_keepalive_ms": comments_ms});
        let bench = Bench::new(routes.to_vec(), limits).await;
        let mut others = bench.running.gateway().bodies.share(1);
        others.try_cover(31 << 20).unwrap();
        let reply = bench.ask(&chat(true)).await;
        assert_eq!((reply.status, fake.seen.lock().len()), (status, 1));
        if status == 200 {
            assert_broken(&seen(&reply), "one");
        }
        bench.checked_receipt(&reply);
        let row = bench.rows()[0].row.clone();
        assert_eq!(row.error_source.as_deref(), Some("gateway"));
    }
}

/// A stream whose pieces have no room ends with an error, and nothing is hashed that was not sent.
#[tokio::test]
async fn a_piece_that_has_no_room_ends_its_stream() {
    let long = "x".repeat(1 << 20);
    let fake = Fake::start(move |_, _| streamed(&[role(), word("one"), word(&long), stop(), done()])).await;
    let limits = json!({"timeouts": {"connect": 1, "first_byte": 5, "idle": 1}});
    let one = upstream("one", &fake.url(), 0, &limits);
    let bench = Bench::new(vec![one], json!({"body_memory_mib": 32})).await;
    let mut others = bench.running.gateway().bodies.share(1);
    others.try_cover(31 << 20).unwrap();
    let reply = bench.ask(&chat(true)).await;
    assert_broken(&seen(&reply), "one");
    bench.checked_receipt(&reply);
    let row = bench.rows()[0].row.clone();
    assert_eq!((row.status, row.error_source.as_deref()), (502, Some("gateway")));
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
