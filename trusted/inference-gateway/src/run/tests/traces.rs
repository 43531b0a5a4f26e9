//! What a collector is told of requests.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Attribute;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message as _;

use super::*;
use crate::upstream::fake::{Act, Fake, chunk, json as json_reply, reply as raw_reply, stream_head, until};

/// Says nothing to anybody.
const QUESTION: &str = "what-was-asked";
const ANSWER: &str = "what-was-answered";

async fn collector() -> Fake {
    Fake::start(|_, _| vec![Act::Send(raw_reply(200, "", b""))]).await
}

fn whole() -> Vec<Act> {
    vec![Act::Send(json_reply(200, &completion(ANSWER, (3, 2)).to_string()))]
}

/// A stream of one piece of content, with what follows.
fn begun(rest: &[Value]) -> Vec<Act> {
    let event = |delta: Value, reason: &Value| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": reason });
        json!({ "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice] })
    };
    let first = event(json!({ "role": "assistant", "content": ANSWER }), &Value::Null);
    let events = std::iter::once(first).chain(rest.iter().map(|reason| event(json!({}), reason)));
    let texts = events.map(|event| event.to_string()).chain((!rest.is_empty()).then(|| "[DONE]".to_owned()));
    let pieces = texts.map(|text| Act::Send(chunk(format!("data: {text}\n\n").as_bytes())));
    std::iter::once(Act::Send(stream_head())).chain(pieces).chain([Act::Send(chunk(b""))]).collect()
}

/// A gateway that tells a collector, with upstreams that it asks in this order. It reads nothing on for a client that left.
async fn gateway(endpoint: &str, upstreams: &[&Fake], more: Value) -> Bench {
    Bench::new(|config, dir| {
        let headers = dir.path().join("headers");
        std::fs::write(&headers, json!({ "Authorization": "Bearer of-the-collector" }).to_string()).unwrap();
        let mut traces = json!({ "endpoint": endpoint, "headers_file": headers });
        traces.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        config["traces"] = traces;
        config["models"] = json!([]);
        config["read_on_ms"] = json!(0);
        let entries = upstreams.iter().enumerate().map(|(index, fake)| {
            entry(&format!("u{index}"), &fake.url(), &["vendor/model"], &json!({ "priority": index }))
        });
        config["upstreams"] = entries.collect();
    })
    .await
}

fn asked(bench: &Bench, is_streaming: bool) -> reqwest::RequestBuilder {
    let messages = json!([{ "role": "user", "content": QUESTION }]);
    bench
        .request(Method::POST, "/v1/chat/completions")
        .bearer_auth(KEY)
        .body(json!({ "model": "vendor/model", "messages": messages, "stream": is_streaming }).to_string())
}

/// Ends the gateway and reads what the collector was told.
async fn told(bench: Bench, collector: &Fake) -> Vec<Span> {
    let gateway = Arc::clone(&bench.running.gateway);
    bench.running.stop(PATIENCE, std::future::pending()).await;
    let counted = gateway.traces.as_ref().unwrap().spans();
    let seen = collector.seen.lock().clone();
    let spans = seen.iter().flat_map(|seen| {
        assert!(seen.head.starts_with("post /v1/traces "), "{}", seen.head);
        assert!(seen.head.contains("authorization: bearer of-the-collector"), "{}", seen.head);
        for text in [QUESTION, ANSWER, KEY] {
            let is_there = seen.body.windows(text.len()).any(|window| window == text.as_bytes());
            assert!(!is_there, "{text}");
        }
        let request = ExportTraceServiceRequest::decode(seen.body.as_slice()).unwrap();
        let resources = request.resource_spans.into_iter().inspect(|spans| {
            let resource = attributes(&spans.resource.as_ref().unwrap().attributes);
            assert_eq!(resource["service.name"], "cloister-inference-gateway");
        });
        resources.flat_map(|spans| spans.scope_spans).flat_map(|spans| spans.spans)
    });
    let spans: Vec<_> = spans.collect();
    let count = spans.len() as u64;
    assert_eq!((counted.ended(), counted.taken(), counted.refused()), (count, count, 0));
    spans
}

/// Attributes as texts.
fn attributes(of: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: Attribute| match value {
        Attribute::StringValue(text) => text,
        Attribute::IntValue(number) => number.to_string(),
        Attribute::BoolValue(is) => is.to_string(),
        other => format!("{other:?}"),
    };
    of.iter().map(|pair| (pair.key.clone(), text(pair.value.clone().unwrap().value.unwrap()))).collect()
}

/// The span of the request, and those below it, in their order.
fn tree(spans: Vec<Span>) -> (Span, Vec<Span>) {
    let (mut roots, mut attempts): (Vec<_>, Vec<_>) =
        spans.into_iter().partition(|span| span.kind() == SpanKind::Server);
    assert_eq!(roots.len(), 1);
    let root = roots.remove(0);
    attempts.sort_by_key(|span| span.start_time_unix_nano);
    for attempt in &attempts {
        assert_eq!(attempt.kind(), SpanKind::Client);
        assert_eq!((&attempt.trace_id, &attempt.parent_span_id), (&root.trace_id, &root.span_id));
        let times = [attempt.start_time_unix_nano]
            .into_iter()
            .chain(attempt.events.iter().map(|event| event.time_unix_nano))
            .chain([attempt.end_time_unix_nano]);
        assert!(times.is_sorted(), "{attempt:?}");
    }
    (root, attempts)
}

#[tokio::test]
async fn a_request_is_a_span_and_each_attempt_one_below_it() {
    let collector = collector().await;
    let fails = Fake::start(|_, _| vec![Act::Send(json_reply(500, "{}"))]).await;
    let answers = Fake::start(|_, _| whole()).await;
    let endpoint = format!("{}/v1/traces", collector.url());
    let bench = gateway(&endpoint, &[&fails, &answers], json!({})).await;
    let request = asked(&bench, false)
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")
        .header("tracestate", "congo=t61rcWkgMzE")
        .header("baggage", "user=somebody");
    let reply = reply(request).await;
    assert_eq!(reply.status, StatusCode::OK);
    let request_id = reply.header("x-request-id").to_owned();
    for upstream in [&fails, &answers] {
        let head = upstream.seen.lock()[0].head.clone();
        assert!(!head.contains("trace") && !head.contains("baggage"), "{head}");
    }
    let (root, attempts) = tree(told(bench, &collector).await);
    assert_eq!(root.name, "POST /v1/chat/completions");
    assert_eq!(hex::encode(&root.trace_id), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(hex::encode(&root.parent_span_id), "b7ad6b7169203331");
    assert_eq!(root.trace_state, "");
    let size = reply.body.len().to_string();
    for (name, value) in [
        ("http.request.method", "POST"),
        ("http.route", "/v1/chat/completions"),
        ("http.response.status_code", "200"),
        ("http.response.body.size", &size),
        ("cloister.request_id", &request_id),
        ("cloister.response.is_whole", "true"),
    ] {
        assert_eq!(attributes(&root.attributes)[name], value, "{name}");
    }
    let [failed, answered] = &attempts[..] else { panic!("{attempts:?}") };
    assert_eq!((failed.name.as_str(), answered.name.as_str()), ("chat vendor/model", "chat vendor/model"));
    let of_failed = attributes(&failed.attributes);
    assert_eq!(
        (of_failed["cloister.route"].as_str(), of_failed["error.type"].as_str()),
        ("u0:vendor/model", "500")
    );
    assert_eq!(failed.status.as_ref().unwrap().code, 2);
    assert!(!failed.status.as_ref().unwrap().message.is_empty());
    let of_answered = attributes(&answered.attributes);
    for (name, value) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "openai"),
        ("gen_ai.request.model", "vendor/model"),
        ("gen_ai.usage.input_tokens", "3"),
        ("gen_ai.usage.output_tokens", "2"),
        ("cloister.route", "u1:vendor/model"),
        ("http.response.status_code", "200"),
    ] {
        assert_eq!(of_answered[name], value, "{name}");
    }
    for without in [&of_answered, &attributes(&root.attributes)] {
        assert!(!without.contains_key("error.type"));
    }
    assert_eq!(root.status.as_ref().map_or(0, |status| status.code), 0);
    assert!(root.start_time_unix_nano <= failed.start_time_unix_nano);
    assert!(answered.end_time_unix_nano <= root.end_time_unix_nano);
    let events: Vec<_> = answered.events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(events, ["sent", "first content"]);
}

#[tokio::test]
async fn a_stream_that_breaks_is_an_error_of_its_attempt() {
    let collector = collector().await;
    let upstream = Fake::start(|_, _| begun(&[])).await;
    let bench = gateway(&format!("{}/v1/traces", collector.url()), &[&upstream], json!({})).await;
    let reply = reply(asked(&bench, true)).await;
    assert_eq!(reply.status, StatusCode::OK);
    let (root, attempts) = tree(told(bench, &collector).await);
    // A request without a trace of its own begins one.
    assert_eq!((root.trace_id.len(), root.parent_span_id.len()), (16, 0));
    let of_root = attributes(&root.attributes);
    assert_eq!(
        (of_root["http.response.status_code"].as_str(), of_root["error.type"].as_str()),
        ("200", "502")
    );
    assert_eq!(
        root.status.as_ref().unwrap().code,
        2,
        "what began well and broke is an error of the gateway, too"
    );
    let [attempt] = &attempts[..] else { panic!("{attempts:?}") };
    assert_eq!(attributes(&attempt.attributes)["error.type"], "502");
    assert_eq!(attempt.events.last().unwrap().name, "first content");
}

#[tokio::test]
async fn why_a_stream_ended_is_told_in_known_words_only() {
    let collector = Fake::start_tls(|_, _| vec![Act::Send(raw_reply(200, "", b""))]).await;
    let dir = tempfile::tempdir().unwrap();
    let authority = dir.path().join("authority.pem");
    std::fs::write(&authority, &collector.certificate.as_ref().unwrap().0).unwrap();
    let endpoint = format!("{}/v1/traces", collector.url());
    for (reason, word) in [("stop", "stop"), (QUESTION, "other")] {
        let upstream = Fake::start(move |_, _| begun(&[json!(reason)])).await;
        let bench = gateway(&endpoint, &[&upstream], json!({ "ca_file": &authority })).await;
        assert_eq!(reply(asked(&bench, true)).await.status, StatusCode::OK);
        let (_, attempts) = tree(told(bench, &collector).await);
        let [attempt] = &attempts[..] else { panic!("{attempts:?}") };
        let reasons = &attributes(&attempt.attributes)["gen_ai.response.finish_reasons"];
        assert!(reasons.contains(&format!("StringValue(\"{word}\")")), "{reasons}");
        assert_eq!(attempt.status.as_ref().map_or(0, |status| status.code), 0);
        collector.seen.lock().clear();
    }
}

#[tokio::test]
async fn who_leaves_is_no_error_and_who_is_refused_is_no_attempt() {
    let collector = collector().await;
    let upstream = Fake::start(|_, _| vec![Act::Hang]).await;
    let bench = gateway(&format!("{}/v1/traces", collector.url()), &[&upstream], json!({})).await;
    let request = tokio::spawn(asked(&bench, false).send());
    until(|| !upstream.seen.lock().is_empty()).await;
    request.abort();
    until(|| upstream.counts.left.load(Ordering::Relaxed) == 1).await;
    assert_eq!(bench.get("/v1/models", None).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(bench.get("/nothing", None).await.status, StatusCode::NOT_FOUND);
    assert_eq!(bench.get("/health", None).await.status, StatusCode::OK);
    let odd = bench.request(Method::from_bytes(b"BREW").unwrap(), "/v1/models/secret-name");
    assert_eq!(reply(odd).await.status, StatusCode::METHOD_NOT_ALLOWED);
    let figures = bench.get("/v1/metrics", Some(TOKEN)).await;
    let figures = String::from_utf8(figures.body.to_vec()).unwrap();
    for name in ["ended", "taken", "refused"] {
        assert!(figures.contains(&format!("\nprivate_ai_gateway_spans_{name}_total ")), "{figures}");
    }
    let spans = told(bench, &collector).await;
    let mut found: Vec<(String, String, bool)> = spans
        .iter()
        .map(|span| {
            let status = attributes(&span.attributes)["http.response.status_code"].clone();
            (span.name.clone(), status, span.status.as_ref().is_some_and(|status| status.code == 2))
        })
        .collect();
    found.sort();
    let expected = [
        ("GET /v1/metrics", "200"),
        ("GET /v1/models", "401"),
        ("GET", "404"),
        ("POST /v1/chat/completions", "499"),
        ("HTTP /v1/models/{namespace}", "405"),
        ("chat vendor/model", "499"),
    ];
    for (name, status) in expected {
        assert!(found.contains(&(name.to_owned(), status.to_owned(), false)), "{name}: {found:?}");
    }
    assert_eq!(found.len(), expected.len(), "{found:?}");
}

#[tokio::test]
async fn a_share_of_the_traces_is_told() {
    let collector = collector().await;
    let upstream = Fake::start(|_, _| whole()).await;
    let endpoint = format!("{}/v1/traces", collector.url());
    let bench = gateway(&endpoint, &[&upstream], json!({ "sample_ratio": 0.5 })).await;
    // Neither the flag decides nor the id by itself: these are the first to be told where the id does.
    let flags = ["00", "01"];
    for (id, flag) in (1..=64).zip(flags.into_iter().cycle()) {
        let parent = format!("00-{id:032x}-b7ad6b7169203331-{flag}");
        assert_eq!(reply(asked(&bench, false).header("traceparent", parent)).await.status, StatusCode::OK);
    }
    let spans = told(bench, &collector).await;
    let roots = spans.iter().filter(|span| span.kind() == SpanKind::Server).count();
    assert!((1..64).contains(&roots), "{roots}");
    assert_eq!(spans.len(), 2 * roots, "what is told, is told with its attempts");
}

#[tokio::test]
async fn of_a_client_that_left_is_told_what_it_was_given() {
    let text = "x".repeat(24 << 20);
    let collector = collector().await;
    let answer = json_reply(200, &completion(&text, (3, 2)).to_string());
    let upstream = Fake::start(move |_, _| vec![Act::Send(answer.clone())]).await;
    let bench = gateway(&format!("{}/v1/traces", collector.url()), &[&upstream], json!({})).await;
    let response = asked(&bench, false).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    // More than the kernel holds for it.
    drop(response);
    let (root, _) = tree(told(bench, &collector).await);
    let of_root = attributes(&root.attributes);
    let size: usize = of_root["http.response.body.size"].parse().unwrap();
    assert!(size < text.len(), "{size}");
    assert_eq!(of_root["cloister.response.is_whole"], "false");
}

#[tokio::test]
async fn a_collector_that_takes_nothing_holds_nobody_up() {
    let hangs = Fake::start(|_, _| vec![Act::Hang]).await;
    let refuses = Fake::start(|_, _| vec![Act::Send(raw_reply(503, "retry-after: 3600\r\n", b""))]).await;
    let upstream = Fake::start(|_, _| whole()).await;
    for endpoint in [hangs.url(), refuses.url(), "http://127.0.0.1:1".to_owned()] {
        let bench = gateway(&format!("{endpoint}/v1/traces"), &[&upstream], json!({})).await;
        for _ in 0..3 {
            assert_eq!(reply(asked(&bench, false)).await.status, StatusCode::OK);
        }
        let gateway = Arc::clone(&bench.running.gateway);
        bench.running.stop(PATIENCE, std::future::pending()).await;
        let spans = gateway.traces.as_ref().unwrap().spans();
        assert_eq!((spans.ended(), spans.taken()), (6, 0), "a request and an attempt, each time");
    }
    assert!(!hangs.seen.lock().is_empty() && !refuses.seen.lock().is_empty());
}

/// The status alone says what became of a batch: nothing is sent again for what follows it.
#[tokio::test]
async fn what_a_collector_says_beside_its_status_does_not_count() {
    const SPANS: u64 = 2;
    for (status, taken) in [(200, SPANS), (400, 0)] {
        let broken = raw_reply(status, "", &[b'x'; 100])[..60].to_vec();
        for rest in [broken, raw_reply(status, "", &vec![b'x'; 1 << 20])] {
            let collector = Fake::start(move |_, _| vec![Act::Send(rest.clone()), Act::Close]).await;
            let upstream = Fake::start(|_, _| whole()).await;
            let bench = gateway(&format!("{}/v1/traces", collector.url()), &[&upstream], json!({})).await;
            assert_eq!(reply(asked(&bench, false)).await.status, StatusCode::OK);
            let gateway = Arc::clone(&bench.running.gateway);
            bench.running.stop(PATIENCE, std::future::pending()).await;
            let spans = gateway.traces.as_ref().unwrap().spans();
            assert_eq!(
                (spans.ended(), spans.taken(), spans.refused()),
                (SPANS, taken, SPANS - taken),
                "{status}"
            );
            assert_eq!(collector.seen.lock().len(), 1, "{status}");
        }
    }
}

#[tokio::test]
async fn settings_of_no_use_are_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let (bad, good) = (dir.path().join("bad"), dir.path().join("good"));
    std::fs::write(&bad, r#"{"authorization": "two\nlines, and a secret"}"#).unwrap();
    std::fs::write(&good, r#"{"authorization": "x"}"#).unwrap();
    let endpoint = "http://127.0.0.1:4318/v1/traces";
    for (traces, said) in [
        (json!({ "endpoint": "http://127.0.0.1:4318" }), "/v1/traces"),
        (json!({ "endpoint": "http://user:password@127.0.0.1:4318/v1/traces" }), "without credentials"),
        (json!({ "endpoint": "grpc://127.0.0.1:4317/v1/traces" }), "http or https"),
        (json!({ "endpoint": endpoint, "sample_ratio": 1.1 }), "between 0 and 1"),
        (json!({ "endpoint": endpoint, "headers_file": &bad }), "JSON object of headers"),
        (json!({ "endpoint": endpoint, "headers_file": dir.path().join("none") }), "JSON object of headers"),
        (json!({ "endpoint": endpoint, "headers_file": &good, "ca_file": &good }), "traces"),
    ] {
        let config = json!({
            "bind": "127.0.0.1:0",
            "state_dir": dir.path().join("state"),
            "traces": traces,
            "upstreams": [entry("open", "http://127.0.0.1:1", &["m"], &json!({}))],
        });
        let file = dir.path().join("gateway.json");
        std::fs::write(&file, config.to_string()).unwrap();
        let error = start(&file).await.unwrap_err();
        let error = crate::error::chain(&error);
        assert!(error.contains(said) && !error.contains("secret"), "{error}");
    }
}
