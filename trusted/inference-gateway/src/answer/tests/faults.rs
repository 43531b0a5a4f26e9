//! The catalogue of what upstreams do wrong, each with a fallback, and alone where that differs.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::json;

use super::support::*;
use crate::upstream::fake::{Act, Fake, chunk, json as json_reply, reply, until};

const ERROR: &str = r#"{"error":{"message":"the engine at 10.1.2.3 died","type":"server_error"}}"#;

fn busy(seconds: &str) -> Vec<u8> {
    reply(429, &format!("content-type: application/json\r\nretry-after: {seconds}\r\n"), ERROR.as_bytes())
}

/// With a fallback, the client gets the fallback's answer and nothing of what went wrong.
async fn falls_back(first: &Fake) -> Bench {
    let second = good().await;
    let bench = Bench::pair(first, &second).await;
    let reply = bench.ask(&chat(true)).await;
    assert_eq!(seen(&reply), complete());
    let receipt = bench.checked_receipt(&reply);
    assert_eq!(event(&receipt, "route.selected").unwrap()["target_route_id"], "two:vendor/model");
    let rows = bench.rows();
    assert_eq!(rows.len(), 2);
    assert!(rows[0].row.cost.is_zero() && rows[0].row.error_message.is_some());
    assert_eq!(rows[0].row.selected_route_id.as_deref(), Some("one:vendor/model"));
    assert_eq!(rows[1].row.cost.normalize().to_string(), "0.016");
    bench
}

/// The same of an answer at once; the attempt that failed is recorded with a status.
async fn falls_back_whole(first: &Fake, status: u16) {
    let bench = Bench::pair(first, &good().await).await;
    let reply = bench.ask(&chat(false)).await;
    assert!(reply.status == 200 && reply.text().contains("one two three"), "{}", reply.text());
    let rows = bench.rows();
    assert_eq!((rows.len(), rows[0].row.status), (2, status));
}

async fn always(acts: Vec<Act>) -> Fake {
    Fake::start(move |_, _| acts.clone()).await
}

#[tokio::test]
async fn f1_busy_once() {
    falls_back(&always(vec![Act::Send(busy("2"))]).await).await;
    let fake = Fake::start(|number, _| match number {
        0 => vec![Act::Send(busy("1"))],
        _ => streamed(&answer()),
    })
    .await;
    let one = upstream("one", &fake.url(), 0, &json!({}));
    let bench = Bench::new(vec![one], json!({"capacity_retry_ms": 1})).await;
    assert_eq!(seen(&bench.ask(&chat(true)).await), complete());
    let times: Vec<Instant> = fake.seen.lock().iter().map(|seen| seen.at).collect();
    assert!(times[1] - times[0] >= SECOND, "never earlier than told");
}

#[tokio::test]
async fn f2_busy_for_ever() {
    let fake = always(vec![Act::Send(busy("7"))]).await;
    falls_back(&fake).await;
    let bench = Bench::alone(&fake).await;
    for stream in [true, false] {
        let failed = bench.ask(&chat(stream)).await;
        assert_eq!(failed.error(), (429, "rate_limit_error".to_owned()));
        assert_eq!(failed.header("retry-after"), Some("7"));
        bench.checked_receipt(&failed);
    }
}

#[tokio::test]
async fn f3_one_internal_error() {
    falls_back(&always(vec![Act::Send(json_reply(500, ERROR))]).await).await;
}

#[tokio::test]
async fn f4_unavailable_for_ever() {
    let fake = always(vec![Act::Send(json_reply(503, ERROR))]).await;
    falls_back(&fake).await;
    let bench = Bench::alone(&fake).await;
    assert_eq!(bench.ask(&chat(true)).await.error(), (502, "upstream_error".to_owned()));
}

#[tokio::test]
async fn f5_closed_before_the_head() {
    falls_back(&always(vec![Act::Close]).await).await;
    let fake =
        Fake::start(|number, _| if number == 0 { vec![Act::Close] } else { streamed(&answer()) }).await;
    let bench = Bench::alone(&fake).await;
    assert_eq!(seen(&bench.ask(&chat(true)).await), complete());
}

#[tokio::test]
async fn f6_and_f7_too_slow_for_the_first_byte() {
    let head = vec![Act::Send(crate::upstream::fake::stream_head()), Act::Hang];
    for acts in [vec![Act::Hang], head] {
        let (first, second) = (always(acts).await, good().await);
        let limits = json!({"timeouts": {"connect": 1, "first_byte": 1, "idle": 5}});
        let bench = Bench::new(
            vec![upstream("one", &first.url(), 0, &limits), upstream("two", &second.url(), 1, &json!({}))],
            json!({}),
        )
        .await;
        assert_eq!(seen(&bench.ask(&chat(true)).await), complete());
        assert_eq!(bench.rows()[0].row.status, 502);
        until(|| first.counts.left.load(Ordering::Relaxed) == 1).await;
        let alone = Bench::new(vec![upstream("one", &first.url(), 0, &limits)], json!({})).await;
        assert_eq!(alone.ask(&chat(true)).await.error(), (502, "upstream_error".to_owned()));
    }
}

#[tokio::test]
async fn f8_an_error_event_before_any_content() {
    for events in
        [vec![error_event()], vec![role(), error_event()], vec![b": x\n\n".to_vec(), role(), error_event()]]
    {
        falls_back(&always(streamed(&events)).await).await;
        let bench = Bench::alone(&always(streamed(&events)).await).await;
        let failed = bench.ask(&chat(true)).await;
        assert_eq!(failed.error(), (502, "upstream_error".to_owned()));
        assert!(!failed.text().contains("10.1.2.3"));
    }
}

#[tokio::test]
async fn f8_an_error_event_after_content_is_told_and_scrubbed() {
    let bench =
        Bench::pair(&always(streamed(&[role(), word("one"), error_event()])).await, &good().await).await;
    let reply = bench.ask(&chat(true)).await;
    assert_broken(&seen(&reply), "one");
    bench.checked_receipt(&reply);
    let row = bench.rows()[0].row.clone();
    assert_eq!((row.status, row.error_source.as_deref()), (502, Some("upstream")));
    assert!(row.completion_tokens > 0);
}

#[tokio::test]
async fn f9_and_f10_cut_in_the_middle() {
    let half = vec![role(), word("one"), word(" two")];
    let within = vec![role(), word("one"), word(" two"), word(" three")[..40].to_vec()];
    for acts in [broken(&half), broken(&within), streamed(&half), streamed(&within)] {
        let bench = Bench::pair(&always(acts).await, &good().await).await;
        let reply = bench.ask(&chat(true)).await;
        assert_broken(&seen(&reply), "one two");
        bench.checked_receipt(&reply);
        let rows = bench.rows();
        assert_eq!((rows.len(), rows[0].row.status), (1, 502), "a stream that began is never begun again");
        assert!(rows[0].row.completion_tokens > 0, "what was produced is metered");
    }
}

#[tokio::test]
async fn f11_silence_in_the_middle() {
    let mut acts = begun(&[role(), word("one")]);
    acts.push(Act::Hang);
    let fake = always(acts).await;
    let limits = json!({"timeouts": {"connect": 1, "first_byte": 1, "idle": 1}});
    let one = upstream("one", &fake.url(), 0, &limits);
    let bench = Bench::new(vec![one], json!({"sse_keepalive_ms": 100})).await;
    let reply = bench.ask(&chat(true)).await;
    let got = seen(&reply);
    assert!(got.comments > 1, "{got:?}");
    assert_broken(&got, "one");
    bench.checked_receipt(&reply);
    until(|| fake.counts.left.load(Ordering::Relaxed) == 1).await;
}

#[tokio::test]
async fn f12_broken_json() {
    let bad = data(r#"{"id":"up-1","choices":[{"index":0,"delta":{"content":"#);
    falls_back(&always(streamed(&[role(), bad.clone(), stop(), done()])).await).await;
    let bench =
        Bench::pair(&always(streamed(&[role(), word("one"), bad, stop(), done()])).await, &good().await)
            .await;
    let reply = bench.ask(&chat(true)).await;
    assert_broken(&seen(&reply), "one");
    bench.checked_receipt(&reply);
}

#[tokio::test]
async fn f13_everything_but_the_terminator() {
    let fake = always(streamed(&[role(), word("one"), word(" two"), word(" three"), stop(), usage()])).await;
    let bench = Bench::alone(&fake).await;
    let reply = bench.ask(&chat(true)).await;
    assert_eq!(seen(&reply), complete());
    bench.checked_receipt(&reply);
    assert_eq!(bench.rows()[0].row.cost.normalize().to_string(), "0.016");
}

#[tokio::test]
async fn f14_and_f15_the_requests_own_faults() {
    for body in [
        r#"{"error":{"message":"This model's maximum context length is 8192 tokens","type":"invalid_request_error","code":"context_length_exceeded","param":"messages"}}"#,
        r#"{"error":{"message":"Your request was rejected by the safety system","type":"invalid_request_error","code":"content_policy_violation"}}"#,
    ] {
        let (first, second) =
            (Fake::start(move |_, _| vec![Act::Send(json_reply(400, body))]).await, good().await);
        let bench = Bench::pair(&first, &second).await;
        for stream in [true, false] {
            let failed = bench.ask(&chat(stream)).await;
            assert_eq!(failed.error(), (400, "invalid_request_error".to_owned()));
            assert!(
                failed.text().contains("maximum context length") || failed.text().contains("safety system")
            );
            bench.checked_receipt(&failed);
        }
        assert!(second.seen.lock().is_empty());
        assert_eq!(first.seen.lock().len(), 2);
        let rows = bench.rows();
        assert_eq!(rows.len(), 2, "the attempt is its own summary");
        assert_eq!(rows[0].row.status, 400);
    }
}

/// Whatever the status of a refusal, no other route is asked; and no route is to blame.
#[tokio::test]
async fn refusals_never_fail_over() {
    const LONG: &str =
        r#"{"error":{"message":"too long","type":"invalid_request_error","code":"context_length_exceeded"}}"#;
    const POLICY: &str = r#"{"error":{"message":"against the rules","type":"permission_error","code":"content_policy_violation"}}"#;
    const FAILED: &str = r#"{"id":"r","object":"response","status":"failed","output":[],"error":{"code":"invalid_prompt","message":"against the rules"}}"#;
    let flat =
        data(r#"{"type":"error","code":"context_length_exceeded","message":"too long","sequence_number":1}"#);
    let input = |stream: bool| json!({"model": MODEL, "input": "a secret prompt", "stream": stream});
    for (path, request, reply) in [
        ("/v1/chat/completions", chat(false), vec![Act::Send(json_reply(403, POLICY))]),
        ("/v1/chat/completions", chat(true), vec![Act::Send(json_reply(500, LONG))]),
        ("/v1/chat/completions", chat(false), vec![Act::Send(json_reply(200, LONG))]),
        ("/v1/responses", input(false), vec![Act::Send(json_reply(200, FAILED))]),
        ("/v1/responses", input(true), streamed(&[flat])),
    ] {
        let (first, second) = (always(reply).await, good().await);
        let bench = Bench::pair(&first, &second).await;
        // More often than a route may fail.
        for _ in 0..6 {
            let refused = bench.ask_at(path, &request).await;
            assert_eq!(refused.error(), (400, "invalid_request_error".to_owned()), "{}", refused.text());
            bench.checked_receipt(&refused);
        }
        assert_eq!((first.seen.lock().len(), second.seen.lock().len()), (6, 0));
    }
}

/// A refusal is read although others have all the memory, and what may be one and cannot be read is passed to no other route.
#[tokio::test]
async fn refusals_without_room_never_fail_over() {
    let refusal = |padding: usize| {
        let error = json!({"message": "no", "code": "content_policy_violation", "more": "x".repeat(padding)});
        json_reply(403, &json!({ "error": error }).to_string())
    };
    let page = crate::upstream::fake::reply(403, "content-type: text/html\r\n", &[b' '; 8 << 10]);
    for (answer, status, fallbacks) in [(refusal(0), 400, 0), (refusal(8 << 10), 503, 0), (page, 200, 1)] {
        let (first, second) = (always(vec![Act::Send(answer)]).await, good().await);
        let bench = Bench::pair(&first, &second).await;
        let bodies = &bench.running.gateway().bodies;
        let mut others = bodies.share(1);
        // Room for the request is all there is.
        others.try_cover(bodies.left() - 4096).unwrap();
        let reply = bench.ask(&chat(false)).await;
        assert_eq!((reply.status, second.seen.lock().len()), (status, fallbacks), "{}", reply.text());
        bench.checked_receipt(&reply);
    }
}

/// A receipt says nothing of an error that was not read to its end.
#[tokio::test]
async fn an_error_that_is_not_read_is_not_hashed() {
    let error = |padding: usize| json!({"error": {"message": "x".repeat(padding)}}).to_string();
    for (padding, is_read) in [(100, true), (300 << 10, false)] {
        let body = error(padding);
        let bench = Bench::alone(&always(vec![Act::Send(json_reply(400, &body))]).await).await;
        let receipt = bench.checked_receipt(&bench.ask(&chat(false)).await);
        let received = event(&receipt, "response.received").map(|event| event["body_hash"].clone());
        assert_eq!(received, is_read.then(|| hash(body.as_bytes()).into()), "{padding}");
    }
}

/// Other errors with a status of success are the upstream's.
#[tokio::test]
async fn an_error_with_a_status_of_success_is_no_answer() {
    falls_back_whole(&always(vec![Act::Send(json_reply(200, ERROR))]).await, 502).await;
    let quota = r#"{"error":{"message":"no","code":"insufficient_quota"}}"#;
    falls_back_whole(&always(vec![Act::Send(json_reply(200, quota))]).await, 402).await;
}

/// An upstream that was too slow to read the request is no better than one that was too slow to answer it.
#[tokio::test]
async fn a_408_is_the_upstreams() {
    let first = always(vec![Act::Send(json_reply(408, "{}"))]).await;
    falls_back_whole(&first, 408).await;
    let failed = Bench::alone(&first).await.ask(&chat(false)).await;
    assert_eq!(failed.error(), (502, "upstream_error".to_owned()));
}

/// Whoever is told that it is too early is told until when.
#[tokio::test]
async fn every_429_says_when_to_come_back() {
    let full = r#"{"error":{"message":"all targets exhausted"}}"#;
    for reply in [json_reply(429, ERROR), json_reply(503, full)] {
        let failed = Bench::alone(&always(vec![Act::Send(reply)]).await).await.ask(&chat(false)).await;
        assert_eq!(failed.error(), (429, "rate_limit_error".to_owned()));
        assert_eq!(failed.header("retry-after"), Some("1"));
    }
}

#[tokio::test]
async fn f16_a_route_that_keeps_failing_rests() {
    let (first, second) = (always(vec![Act::Send(json_reply(500, ERROR))]).await, good().await);
    let bench = Bench::pair(&first, &second).await;
    for _ in 0..12 {
        assert_eq!(seen(&bench.ask(&chat(true)).await), complete());
    }
    assert_eq!(first.seen.lock().len(), 5, "then it rests");
    // Its rest is over: of many requests at once, one goes there to see.
    let model = bench.running.gateway().live().catalogue.model(MODEL).unwrap().clone();
    let later = bench.running.gateway().now() + Duration::from_hours(1);
    assert!(model.routes[0].breaker.admits(later) && !model.routes[0].breaker.admits(later));
}

#[tokio::test]
async fn when_all_rest_the_last_resort_is_to_try() {
    let fake = Fake::start(|number, _| match number {
        0..6 => vec![Act::Send(json_reply(500, ERROR))],
        _ => streamed(&answer()),
    })
    .await;
    let bench = Bench::alone(&fake).await;
    for _ in 0..6 {
        assert_eq!(bench.ask(&chat(true)).await.status, 502);
    }
    assert_eq!(seen(&bench.ask(&chat(true)).await), complete());
}

#[tokio::test]
async fn an_event_without_end_is_not_waited_for() {
    let endless = Fake::start(|_, _| {
        let mut acts = begun(&[role(), word("one")]);
        acts.extend((0..80).map(|_| Act::Send(chunk(&vec![b'x'; 64 << 10]))));
        acts.push(Act::Hang);
        acts
    })
    .await;
    let bench = Bench::alone(&endless).await;
    let reply = bench.ask(&chat(true)).await;
    assert_broken(&seen(&reply), "one");
    bench.checked_receipt(&reply);
}

#[tokio::test]
async fn a_stream_that_is_none_goes_to_the_next_route() {
    for first in
        [json_reply(200, WHOLE), reply(201, "content-type: text/event-stream\r\n", &answer().concat())]
    {
        falls_back(&always(vec![Act::Send(first)]).await).await;
    }
}

/// Figures say what happened.
#[tokio::test]
async fn what_happens_is_counted() {
    let first = Fake::start(|number, _| match number {
        0 => vec![Act::Send(json_reply(500, ERROR))],
        1 => broken(&[role(), word("one")]),
        _ => vec![Act::Send(json_reply(400, ERROR))],
    })
    .await;
    let second = good().await;
    let routes = [("one", &first, 0), ("two", &second, 1)]
        .map(|(name, fake, priority)| upstream(name, &fake.url(), priority, &json!({})));
    let bench = Bench::new(routes.to_vec(), json!({"metrics_bind": "127.0.0.1:0"})).await;
    for stream in [true, true, false] {
        bench.ask(&chat(stream)).await;
    }
    let names = ["requests_total", "responses_total", "upstream_", "receipts", "stream_errors"];
    let counted = bench.figures(&names).await.join("\n").replace("endpoint=\"/v1/chat/completions\",", "");
    let expected = r#"receipts_issued_total{mode="buffered",model_id="vendor/model"} 1
receipts_issued_total{mode="stream",model_id="vendor/model"} 2
requests_total{mode="buffered",e2ee="false"} 1
requests_total{mode="stream",e2ee="false"} 2
responses_total{status="200"} 2
responses_total{status="400"} 1
stream_errors_total{kind="upstream"} 1
upstream_responses_total{mode="buffered",status_class="4xx",model_id="vendor/model"} 1
upstream_responses_total{mode="stream",status_class="2xx",model_id="vendor/model"} 1
upstream_responses_total{mode="stream",status_class="5xx",model_id="vendor/model"} 2
upstream_verifications_total{result="failed",required="false"} 3"#;
    assert_eq!(counted, expected);
}
