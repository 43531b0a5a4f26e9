//! What counts for and against a route.

use serde_json::json;

use super::support::*;
use crate::routing::Health;
use crate::upstream::fake::{Act, Fake, chunk, json as json_reply, until};

/// Failures in a row after which a route rests.
const FAILURES: usize = 5;

fn health(bench: &Bench) -> Health {
    bench.running.gateway().live().catalogue.model(MODEL).unwrap().routes[0].breaker.health()
}

/// Breaks a stream, or answers with an error that is the client's own: which one a request says.
async fn breaking() -> Fake {
    Fake::start(|_, seen| {
        if String::from_utf8_lossy(&seen.body).contains("\"stream\":true") {
            broken(&[role(), word("one")])
        } else {
            vec![Act::Send(json_reply(400, r#"{"error":{"message":"too long"}}"#))]
        }
    })
    .await
}

#[tokio::test]
async fn a_route_that_breaks_its_streams_in_the_middle_rests() {
    let (first, second) = (breaking().await, good().await);
    let bench = Bench::pair(&first, &second).await;
    for _ in 0..FAILURES {
        assert_broken(&seen(&bench.ask(&chat(true)).await), "one");
    }
    assert_eq!(seen(&bench.ask(&chat(true)).await), complete());
    assert_eq!((first.seen.lock().len(), health(&bench)), (FAILURES, Health::Resting));
}

/// An error of the client's own is neither for nor against it, and so brings nothing back.
#[tokio::test]
async fn what_a_client_did_wrong_says_nothing_of_a_route() {
    let bench = Bench::pair(&breaking().await, &good().await).await;
    for _ in 0..2 * FAILURES {
        assert_eq!(bench.ask(&chat(false)).await.status, 400);
    }
    assert_eq!(health(&bench), Health::Healthy);
    for left in (0..FAILURES).rev() {
        assert_broken(&seen(&bench.ask(&chat(true)).await), "one");
        if left > 0 {
            assert_eq!(bench.ask(&chat(false)).await.status, 400);
        }
    }
    assert_eq!(health(&bench), Health::Resting);
}

#[tokio::test]
async fn clients_that_leave_say_nothing_of_a_route() {
    let fake = Fake::start(|_, _| {
        let mut acts = begun(&[role(), word("one")]);
        acts.push(Act::Hang);
        acts
    })
    .await;
    let bench = Bench::alone(&fake).await;
    for count in 1..=2 * FAILURES {
        let mut response = bench.request("/v1/chat/completions", &chat(true)).send().await.unwrap();
        assert!(response.chunk().await.unwrap().is_some());
        drop(response);
        bench.rows_of(count).await;
    }
    assert_eq!(health(&bench), Health::Healthy);
}

/// What an upstream says of the request, or lacks because of it, is no fault of the route.
#[tokio::test]
async fn what_clients_bring_about_opens_no_breaker() {
    const FILTERED: &str =
        r#"{"error":{"message":"no","type":"invalid_request_error","code":"content_filter"}}"#;
    let one = json!({"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"});
    let one = json!({"choices": [one]}).to_string();
    let twice = |stream| {
        let mut request = chat(stream);
        request["n"] = json!(2);
        request
    };
    for (acts, request) in [
        (streamed(&[role(), word("one"), data(FILTERED)]), chat(true)),
        (streamed(&[role(), data(FILTERED)]), chat(true)),
        (streamed(&answer()), twice(true)),
        (streamed(&answer()[..5]), twice(true)),
        (vec![Act::Send(json_reply(200, &one))], twice(false)),
        (vec![Act::Send(json_reply(403, r#"{"error":{"message":"flagged","code":403}}"#))], chat(false)),
        // A prompt may come back in an event, with all that a client wants to know of its tokens.
        (streamed(&[role(), word(&"x".repeat(5 << 20))]), chat(true)),
        (streamed(&[role(), word("one"), word(&"x".repeat(5 << 20))]), chat(true)),
    ] {
        let fake = Fake::start(move |_, _| acts.clone()).await;
        let bench = Bench::alone(&fake).await;
        for _ in 0..2 * FAILURES {
            bench.ask(&request).await;
        }
        assert_eq!((health(&bench), fake.seen.lock().len()), (Health::Healthy, 2 * FAILURES), "{request}");
    }
}

/// The total limit is the upstream's: the time in which a client takes nothing is not.
#[tokio::test]
async fn a_slow_client_is_not_a_slow_route() {
    let long = "x".repeat(64 << 10);
    let fake = Fake::start(move |_, _| {
        let mut acts = begun(&[role()]);
        // More than the buffers in between take.
        acts.extend((0..128).map(|_| Act::Send(chunk(&word(&long)))));
        acts.extend([stop(), done()].iter().map(|event| Act::Send(chunk(event))));
        acts.push(Act::Send(chunk(b"")));
        acts
    })
    .await;
    let limits = json!({"timeouts": {"connect": 5, "first_byte": 5, "idle": 9, "total": 4}});
    let bench = Bench::new(vec![upstream("one", &fake.url(), 0, &limits)], json!({})).await;
    let response = bench.request("/v1/chat/completions", &chat(true)).send().await.unwrap();
    // It takes nothing for longer than all of it may take.
    let clock = Fake::start(|_, _| vec![Act::Pause(SECOND * 5), Act::Send(json_reply(200, "{}"))]).await;
    bench.client.get(clock.url()).send().await.unwrap();
    let headers = response.headers().clone();
    let reply = Reply { status: 200, headers, body: response.bytes().await.unwrap() };
    let got = seen(&reply);
    assert!(got.is_done && got.error.is_none(), "{:?}", got.error);
    assert_eq!(health(&bench), Health::Healthy);
    until(|| bench.running.gateway().requests.is_empty()).await;
}
