//! Buffered answers.

use serde_json::{Value, json};

use super::support::*;
use crate::admission::KeyHash;
use crate::record::Lookup;
use crate::upstream::fake::{Act, Fake, json as reply, until};

#[tokio::test]
async fn an_answer_has_a_record_that_says_what_happened() {
    let fake = good().await;
    let bench = Bench::alone(&fake).await;
    let request = chat(false);
    let reply = bench.ask(&request).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.header("x-e2ee-applied"), Some("false"));
    let body = reply.json();
    assert_eq!(body["model"], MODEL);
    assert_eq!(body["choices"][0]["message"]["content"], "one two three");
    assert!(body["id"].as_str().unwrap().starts_with("req_"));
    assert!(body.get("system_fingerprint").is_none());

    let receipt = bench.checked_receipt(&reply);
    let kinds: Vec<&str> = receipt["event_log"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "request.received",
            "middleware.forwarded",
            "route.selected",
            "request.forwarded",
            "upstream.verified",
            "response.received",
            "response.returned"
        ]
    );
    assert_eq!(receipt["chat_id"], body["id"]);
    assert_eq!(receipt["model"], MODEL);
    assert_eq!(receipt["endpoint"], "/v1/chat/completions");
    assert_eq!(receipt["event_log"][0]["body_hash"], hash(&serde_json::to_vec(&request).unwrap()));
    assert_eq!(event(&receipt, "route.selected").unwrap()["target_route_id"], "one:vendor/model");
    let sent = fake.seen.lock()[0].clone();
    assert_eq!(event(&receipt, "request.forwarded").unwrap()["body_hash"], hash(&sent.body));
    assert_eq!(event(&receipt, "response.received").unwrap()["body_hash"], hash(WHOLE.as_bytes()));
    let verified = event(&receipt, "upstream.verified").unwrap();
    assert_eq!((&verified["result"], &verified["required"]), (&json!("failed"), &json!(false)));
    assert!(sent.head.contains("authorization: bearer s3cret-of-the-operator") && !sent.head.contains(KEY));
    assert_eq!(serde_json::from_slice::<Value>(&sent.body).unwrap()["model"], "own-name");

    let rows = bench.rows();
    assert_eq!(rows.len(), 1);
    let row = &rows[0].row;
    assert_eq!((row.status, row.prompt_tokens, row.completion_tokens), (200, 10, 3));
    assert_eq!(row.cost.normalize().to_string(), "0.016");
    assert_eq!(row.selected_route_id.as_deref(), Some("one:vendor/model"));
    assert_eq!(row.error_source, None);
}

#[tokio::test]
async fn who_has_no_key_learns_nothing() {
    let fake = good().await;
    let bench = Bench::alone(&fake).await;
    let url = format!("http://{}/v1/chat/completions", bench.running.address());
    for (key, model) in [(None, "absent"), (Some("sk-wrong"), "absent"), (Some("sk-wrong"), MODEL)] {
        let mut request = bench.client.post(&url).json(&json!({"model": model, "messages": []}));
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 401);
        let body: Value = response.json().await.unwrap();
        assert_eq!(body["error"]["type"], "authentication_error");
    }
    let unknown = bench.ask(&json!({"model": "absent", "messages": []})).await;
    assert_eq!(unknown.error(), (400, "model_not_found".to_owned()));
    let mut zdr = chat(false);
    zdr["provider"] = json!({"zdr": true});
    assert_eq!(bench.ask(&zdr).await.error(), (404, "not_found_error".to_owned()));
    assert!(fake.seen.lock().is_empty() && bench.rows().is_empty());
}

#[tokio::test]
async fn a_body_that_is_no_answer_goes_to_the_next_route() {
    for body in ["", "{", "[]", r#"{"error":{"message":"x"}}"#, r#"{"choices":3}"#] {
        let (bad, fine) = (Fake::start(move |_, _| vec![Act::Send(reply(200, body))]).await, good().await);
        let bench = Bench::pair(&bad, &fine).await;
        assert_eq!(bench.ask(&chat(false)).await.status, 200, "{body}");
        let rows = bench.rows();
        assert_eq!(rows.iter().map(|row| row.row.status).collect::<Vec<_>>(), [502, 200]);
        assert!(rows[0].row.cost.is_zero());
    }
}

#[tokio::test]
async fn failures_of_all_routes_are_one_answer() {
    let busy = Fake::start(|_, _| {
        vec![Act::Send(reply(500, r#"{"error":{"message":"see https://internal.example"}}"#))]
    })
    .await;
    let bench = Bench::pair(&busy, &busy).await;
    let failed = bench.ask(&chat(false)).await;
    assert_eq!(failed.error(), (502, "upstream_error".to_owned()));
    assert!(!failed.text().contains("internal.example"));
    let receipt = bench.checked_receipt(&failed);
    assert_eq!(receipt["chat_id"], Value::Null);
    assert_eq!(event(&receipt, "route.selected").unwrap()["target_route_id"], "two:vendor/model");
    let rows = bench.rows();
    let told: Vec<_> =
        rows.iter().map(|row| (row.row.status, row.row.selected_route_id.as_deref())).collect();
    assert_eq!(told, [(500, Some("one:vendor/model")), (500, Some("two:vendor/model")), (502, None)]);
    assert_eq!(rows.iter().map(|row| row.row.attempt_index).collect::<Vec<_>>(), [0, 1, 2]);
}

#[tokio::test]
async fn what_could_be_read_in_two_ways_reaches_no_upstream() {
    let fake = good().await;
    let bench = Bench::alone(&fake).await;
    let twice = chat(false).to_string().replace("\"role\":", "\"content\":\"\",\"role\":");
    let request = bench.request("/v1/chat/completions", &Value::Null).body(twice);
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 400);
    assert!(answer.text().await.unwrap().contains("appears twice"));
    assert!(fake.seen.lock().is_empty());
}

#[tokio::test]
async fn a_dead_upstream_is_a_bad_gateway() {
    let bench = Bench::new(vec![upstream("one", "http://127.0.0.1:1", 0, &json!({}))], json!({})).await;
    for stream in [false, true] {
        let failed = bench.ask(&chat(stream)).await;
        assert_eq!(failed.error(), (502, "upstream_error".to_owned()));
        let receipt = bench.checked_receipt(&failed);
        assert!(event(&receipt, "request.forwarded").is_none(), "nothing was sent");
    }
}

#[tokio::test]
async fn the_operators_own_troubles_are_not_the_clients() {
    for (status, body) in [
        (401, r#"{"error":{"message":"bad key","type":"authentication_error"}}"#),
        (402, "{}"),
        (403, "{}"),
        (429, r#"{"error":{"message":"x","type":"insufficient_quota"}}"#),
        (400, r#"{"error":{"message":"Your credit balance is too low"}}"#),
    ] {
        let fake = Fake::start(move |_, _| vec![Act::Send(reply(status, body))]).await;
        let bench = Bench::alone(&fake).await;
        let failed = bench.ask(&chat(false)).await;
        assert_eq!(failed.error(), (502, "upstream_error".to_owned()), "{status}");
        assert!(!failed.text().contains("credit") && !failed.text().contains("key"), "{}", failed.text());
    }
}

#[tokio::test]
async fn a_client_that_leaves_takes_the_upstream_with_it() {
    for stream in [false, true] {
        let fake = Fake::start(|_, _| vec![Act::Hang]).await;
        let one = upstream("one", &fake.url(), 0, &json!({}));
        let bench = Bench::new(vec![one], json!({"read_on_ms": 0})).await;
        let request = bench.request("/v1/chat/completions", &chat(stream)).timeout(SECOND / 5);
        assert!(request.send().await.is_err());
        let row = bench.rows_of(1).await[0].row.clone();
        assert_eq!((row.status, row.selected_route_id.as_deref()), (499, Some("one:vendor/model")));
        // What was sent was read: 15 characters.
        assert_eq!((row.prompt_tokens, row.completion_tokens), (4, 0));
        assert_eq!((row.cost.normalize().to_string().as_str(), row.error_source), ("0.004", None));
        until(|| fake.counts.left.load(std::sync::atomic::Ordering::Relaxed) == 1).await;
    }
}

#[tokio::test]
async fn nothing_is_sent_for_a_client_that_left() {
    // The first route fails when the client is gone.
    let fake = Fake::start(|_, _| vec![Act::Hang]).await;
    let second = good().await;
    let limits = json!({"timeouts": {"connect": 1, "first_byte": 1, "idle": 1}});
    let one = upstream("one", &fake.url(), 0, &limits);
    let two = upstream("two", &second.url(), 1, &json!({}));
    let bench = Bench::new(vec![one, two], json!({})).await;
    let request = bench.request("/v1/chat/completions", &chat(false)).timeout(SECOND / 5);
    assert!(request.send().await.is_err());
    let rows = bench.rows_of(1).await;
    assert_eq!((rows.len(), rows[0].row.status), (1, 499));
    assert!(second.seen.lock().is_empty());
}

#[tokio::test]
async fn answers_are_recorded_before_they_are_given() {
    let fake = good().await;
    let bench = Bench::alone(&fake).await;
    for count in 1..=5 {
        assert_eq!(bench.ask(&chat(false)).await.status, 200);
        assert_eq!(bench.rows().len(), count, "recorded before it is answered");
    }
}

/// Whatever upstreams say, nothing of a conversation is kept.
#[tokio::test]
async fn no_word_of_a_conversation_reaches_the_disk() {
    const SAID: &str = "a secret prompt";
    let usage = format!(r#"{{"prompt_tokens":10,"completion_tokens":3,"debug":"{SAID}","{SAID}":1}}"#);
    let whole = WHOLE.replace("one two three", &format!("You said: {SAID}, one two three"));
    let told =
        format!(r#"{{"error":{{"message":"no {SAID}","type":"{SAID}","code":"{SAID}","param":"{SAID}"}}}}"#);
    let last = data(&format!(r#"{{"id":"{SAID}","choices":[],"usage":{usage}}}"#));
    let fake = Fake::start(move |number, _| match number {
        0 => vec![Act::Send(reply(
            200,
            &whole.replace(r#""total_tokens":13"#, &format!(r#""debug":"{SAID}""#)),
        ))],
        1 => streamed(&[role(), word(SAID), stop(), last.clone(), done()]),
        2 => streamed(&[role(), word(SAID)]),
        3 => streamed(&[data(&told)]),
        4 => vec![Act::Send(reply(400, &told))],
        5 => vec![Act::Send(reply(200, &told))],
        _ => vec![Act::Send(reply(500, &told))],
    })
    .await;
    let bench = Bench::alone(&fake).await;
    let mut headers = vec![];
    for number in 0..7 {
        headers.push(bench.ask(&chat((1..4).contains(&number))).await.headers);
    }
    assert!(bench.rows().len() >= 7);
    let (store, dir) = bench.stop(std::time::Duration::ZERO).await;
    for headers in headers {
        let reply = Reply { status: 200, headers, body: bytes::Bytes::new() };
        assert!(!receipt(&store, &reply).to_string().contains(SAID));
    }
    let rows = serde_json::to_string(
        &store.usage(0, 10).unwrap().into_iter().map(|row| row.row).collect::<Vec<_>>(),
    );
    assert!(!rows.unwrap().contains(SAID));
    drop(store);
    let (mut files, mut directories) = (0, vec![dir.path().join("state")]);
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            let is_in = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
            assert!(![SAID, "one two three"].into_iter().any(is_in), "{}", path.display());
            files += 1;
        }
    }
    assert!(files >= 2, "the journal and the database");
}

/// What cannot be signed for does not look whole, and costs what it cost.
#[tokio::test]
async fn without_a_signature_no_answer_looks_whole() {
    let fake = good().await;
    let bench = Bench::alone(&fake).await;
    let identity = bench.running.gateway().notary.identity();
    identity.fail_to_sign(true);
    let refused = bench.ask(&chat(false)).await;
    assert_eq!(refused.error(), (500, "internal_error".to_owned()));
    assert_eq!(refused.header("x-receipt-id"), None);
    assert!(!refused.text().contains("one two three"));
    let broken = bench.ask(&chat(true)).await;
    assert_broken(&seen(&broken), "one two three");
    let store = &bench.running.gateway().store;
    let promised = broken.header("x-receipt-id").unwrap();
    assert!(matches!(store.receipt(promised, KeyHash::of(KEY)), Ok(Lookup::Absent)));
    for (row, status) in bench.rows_of(2).await.iter().map(|row| &row.row).zip([500, 502]) {
        assert_eq!((row.status, row.cost.normalize().to_string().as_str()), (status, "0.016"));
        assert_eq!(row.error_source.as_deref(), Some("gateway"));
    }
    // The next one has its receipt again.
    identity.fail_to_sign(false);
    let whole = bench.ask(&chat(true)).await;
    assert_eq!(seen(&whole), complete());
    bench.checked_receipt(&whole);
}

/// Nor is anything told with a receipt that is none; a client that left stays one.
#[tokio::test]
async fn without_a_signature_failures_are_the_gateways_own() {
    let fake = Fake::start(|number, _| {
        if number == 0 {
            return vec![Act::Send(reply(400, r#"{"error":{"message":"too long"}}"#))];
        }
        let mut acts = begun(&answer()[..2]);
        acts.push(Act::Hang);
        acts
    })
    .await;
    let bench = Bench::alone(&fake).await;
    bench.running.gateway().notary.identity().fail_to_sign(true);
    let refused = bench.ask(&chat(false)).await;
    assert_eq!(refused.error(), (500, "internal_error".to_owned()));
    assert_eq!(refused.header("x-receipt-id"), None);
    let mut response = bench.request("/v1/chat/completions", &chat(true)).send().await.unwrap();
    response.chunk().await.unwrap().unwrap();
    drop(response);
    for (row, status) in bench.rows_of(2).await.iter().map(|row| &row.row).zip([500, 499]) {
        assert_eq!((row.status, row.error_source.as_deref()), (status, Some("gateway")));
        assert_eq!(row.selected_route_id.as_deref(), Some("one:vendor/model"));
    }
}
