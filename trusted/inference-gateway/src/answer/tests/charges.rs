//! What is charged when an answer cannot be passed on, and what is refused before anybody works for it.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::{Json, Router};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::support::*;
use crate::routing::Health;
use crate::upstream::fake::{Act, Fake, json as reply, until};

const USAGE: &str = r#""usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13}"#;

/// The upstream did its work, and the answer is of no use: it is charged once, tried nowhere else and blamed on nobody.
async fn is_charged(path: &str, request: &Value, answer: Vec<u8>, cost: &str) {
    let first = Fake::start(move |_, _| vec![Act::Send(answer.clone())]).await;
    let second = good().await;
    let bench = Bench::pair(&first, &second).await;
    for _ in 0..6 {
        let refused = bench.ask_at(path, request).await;
        assert_eq!(refused.error(), (422, "invalid_request_error".to_owned()), "{}", refused.text());
        bench.checked_receipt(&refused);
    }
    assert!(second.seen.lock().is_empty());
    let rows = bench.rows();
    assert_eq!((rows.len(), rows[0].row.status), (6, 422));
    assert_eq!(rows[0].row.selected_route_id.as_deref(), Some("one:vendor/model"));
    assert_eq!(rows[0].row.cost.normalize().to_string(), cost);
    let model = bench.running.gateway().live().catalogue.model(MODEL).unwrap().clone();
    assert_eq!(model.routes[0].breaker.health(), Health::Healthy);
}

/// What is no answer is not charged, whatever it says that it used: the route is at fault, and another one answers.
#[tokio::test]
async fn what_is_no_answer_costs_nothing() {
    let choice = |index| format!(r#"{{"index":{index},"message":{{"role":"assistant","content":"x"}}}}"#);
    let choices: Vec<String> = (0..129).map(choice).collect();
    for (choices, health) in [
        (String::new(), Health::Resting),
        (choices.join(","), Health::Resting),
        // It does not say why it ended.
        (choice(0), Health::Resting),
    ] {
        let answer = reply(200, &format!(r#"{{"id":"a","choices":[{choices}],{USAGE}}}"#));
        let first = Fake::start(move |_, _| vec![Act::Send(answer.clone())]).await;
        let bench = Bench::pair(&first, &good().await).await;
        for _ in 0..5 {
            assert_eq!(bench.ask(&chat(false)).await.status, 200);
        }
        let rows = bench.rows();
        assert_eq!((rows.len(), rows[0].row.status, rows[0].row.cost.is_zero()), (10, 502, true));
        assert_eq!(rows[1].row.cost.normalize().to_string(), "0.016");
        assert_eq!(health_of(&bench), health);
    }
}

pub(super) fn health_of(bench: &Bench) -> Health {
    bench.running.gateway().live().catalogue.model(MODEL).unwrap().routes[0].breaker.health()
}

#[tokio::test]
async fn arguments_that_were_cut() {
    let request = json!({
        "model": MODEL, "max_tokens": 3, "messages": [{"role": "user", "content": "a secret prompt"}],
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
    });
    let call = r#"{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\": 1"}}"#;
    let choice = format!(
        r#"{{"index":0,"message":{{"role":"assistant","tool_calls":[{call}]}},"finish_reason":"length"}}"#
    );
    let told = format!(r#"{{"id":"a","choices":[{choice}],{USAGE}}}"#);
    let first = Fake::start(move |_, _| vec![Act::Send(reply(200, &told))]).await;
    let second = good().await;
    let bench = Bench::pair(&first, &second).await;
    let refused = bench.ask_at("/v1/messages", &request).await;
    assert_eq!(refused.error(), (422, "invalid_request_error".to_owned()), "{}", refused.text());
    let rows = bench.rows();
    assert_eq!((rows.len(), rows[0].row.cost.normalize().to_string().as_str()), (1, "0.016"));
    assert!(second.seen.lock().is_empty());
    // Where nothing is told, what came is counted.
    let untold = format!(r#"{{"id":"a","choices":[{choice}]}}"#);
    let first = Fake::start(move |_, _| vec![Act::Send(reply(200, &untold))]).await;
    let bench = Bench::pair(&first, &second).await;
    assert_eq!(bench.ask_at("/v1/messages", &request).await.status, 422);
    let row = bench.rows()[0].row.clone();
    assert!(row.completion_tokens > 10 && row.prompt_tokens > 4, "{row:?}");
    assert!(second.seen.lock().is_empty());
}

#[tokio::test]
async fn embeddings_that_are_too_large() {
    let request = json!({"model": MODEL, "input": "a secret prompt"});
    let answer = vec![b'1'; (32 << 20) + 1];
    is_charged("/v1/embeddings", &request, crate::upstream::fake::reply(200, "", &answer), "0.004").await;
}

/// Of a text that is too large as many tokens are charged as there may be: it was written, and cannot be read.
#[tokio::test]
async fn texts_that_are_too_large() {
    let answer = reply(200, &"1".repeat((32 << 20) + 1));
    let fake = Fake::start(move |_, _| vec![Act::Send(answer.clone())]).await;
    let model = json!({
        "id": MODEL, "context_length": 1000, "max_output_length": 100,
        "pricing": {"prompt": "0.001", "completion": "0.002"},
    });
    let bench =
        Bench::new(vec![upstream("one", &fake.url(), 0, &json!({}))], json!({"models": [model]})).await;
    assert_eq!(bench.ask(&chat(false)).await.status, 422);
    let row = bench.rows()[0].row.clone();
    assert_eq!((row.status, row.completion_tokens), (422, 100));
    // No more than the request allowed.
    let mut short = chat(false);
    (short["max_tokens"], short["n"]) = (json!(7), json!(3));
    assert_eq!(bench.ask(&short).await.status, 422);
    assert_eq!(bench.rows_of(2).await[1].row.completion_tokens, 21);
}

/// An upstream that errs, or lies, uses up neither a key's credit nor what a control plane may be owed; what many answers, or an
/// upstream's own tools, honestly use is believed.
#[tokio::test]
async fn no_more_tokens_are_believed_than_there_can_be() {
    for (path, more, lengths, told, believed) in [
        ("/v1/chat/completions", json!({}), json!({"context_length": 1000}), 1_000_000_000_000_u64, 8000),
        (
            "/v1/chat/completions",
            json!({}),
            json!({"context_length": 9, "max_output_length": 50}),
            1_000_000_000,
            400,
        ),
        ("/v1/chat/completions", json!({"n": 1}), json!({"context_length": 1000}), 7999, 7999),
        (
            "/v1/completions",
            json!({"prompt": "x", "best_of": 100}),
            json!({"context_length": 1000}),
            90_000,
            90_000,
        ),
        ("/v1/chat/completions", json!({}), json!({}), 1_000_000_000_000, 8 * (4 << 20)),
    ] {
        let usage = format!(r#""usage":{{"prompt_tokens":{told},"completion_tokens":{told}}}"#);
        let answer = format!(
            r#"{{"id":"a","choices":[{{"index":0,"text":"x","message":{{"role":"assistant","content":"x"}},"finish_reason":"stop"}}],{usage}}}"#
        );
        let fake = Fake::start(move |_, _| vec![Act::Send(reply(200, &answer))]).await;
        let mut model = json!({"id": MODEL, "pricing": {"prompt": "0.001", "completion": "0.002"}});
        model.as_object_mut().unwrap().extend(lengths.as_object().unwrap().clone());
        let one = upstream("one", &fake.url(), 0, &json!({}));
        let bench = Bench::new(vec![one], json!({"models": [model]})).await;
        let mut request = chat(false);
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answered = bench.ask_at(path, &request).await;
        assert_eq!(answered.status, 200, "{}", answered.text());
        let row = bench.rows()[0].row.clone();
        assert_eq!(row.completion_tokens, believed, "{path} {more} {lengths}");
        assert!(row.prompt_tokens <= told && row.prompt_tokens < 100_000_000, "{}", row.prompt_tokens);
    }
}

#[tokio::test]
async fn what_cannot_be_taken_or_has_no_price_is_refused_at_once() {
    let fake = good().await;
    let bench = Bench::alone(&fake).await;
    for (path, member, value, param) in [
        ("/v1/chat/completions", "n", json!(129), "n"),
        ("/v1/completions", "prompt", json!(vec!["a"; 129]), "prompt"),
        ("/v1/completions", "best_of", json!(129), "best_of"),
        ("/v1/embeddings", "input", json!(vec!["a"; 2049]), "input"),
        ("/v1/chat/completions", "service_tier", json!("priority"), "service_tier"),
        ("/v1/chat/completions", "web_search_options", json!({}), "web_search_options"),
        ("/v1/chat/completions", "models", json!(["another/model"]), "models"),
        ("/v1/chat/completions", "fallbacks", json!([{"model": "another/model"}]), "fallbacks"),
        ("/v1/embeddings", "input", json!([]), "input"),
        ("/v1/responses", "store", json!(true), "store"),
        ("/v1/responses", "tools", json!([{"type": "web_search"}]), "tools[0]"),
        ("/v1/messages", "tools", json!([{"type": "web_search_20250305", "name": "w"}]), "tools[0]"),
    ] {
        let mut request = chat(false);
        (request["input"], request["prompt"], request["max_tokens"]) = (json!("x"), json!("x"), json!(9));
        request[member] = value;
        let refused = bench.ask_at(path, &request).await;
        assert_eq!(refused.error(), (400, "invalid_request_error".to_owned()), "{path} {member}");
        if path != "/v1/messages" {
            assert_eq!(refused.json()["error"]["param"], param);
        }
    }
    assert!(fake.seen.lock().is_empty() && bench.rows().is_empty());
}

/// Whoever sends encrypted requests is limited before anything is decrypted or remembered.
#[tokio::test]
async fn limits_come_before_decryption() {
    let fake = good().await;
    let keys = json!([{
        "name": "ci", "sha256": crate::admission::KeyHash::of(KEY).to_string(), "requests_per_minute": 1,
    }]);
    let one = upstream("one", &fake.url(), 0, &json!({}));
    let bench = Bench::new(vec![one], json!({"keys": keys})).await;
    let encrypted = || bench.request("/v1/chat/completions", &chat(false)).header("x-e2ee-version", "2");
    let statuses = [encrypted().send().await.unwrap().status(), encrypted().send().await.unwrap().status()];
    assert_eq!(statuses.map(|status| status.as_u16()), [400, 429]);
    assert!(fake.seen.lock().is_empty());
}

pub(super) type Calls = Arc<Mutex<Vec<(String, Value)>>>;

/// A control plane that answers one thing to each question.
async fn control_plane(verdict: Value) -> (String, Calls) {
    let calls = Calls::default();
    let consult = |State((calls, verdict)): State<(Calls, Value)>, Path(hook): Path<String>, Json(body)| async move {
        calls.lock().push((hook, body));
        Json(verdict)
    };
    let router = Router::new()
        .route("/consult/{hook}", axum::routing::post(consult))
        .with_state((Arc::clone(&calls), verdict));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, calls)
}

/// A gateway whose control plane answers one thing to each question.
pub(super) async fn controlled(upstreams: Vec<Value>, verdict: Value) -> (Bench, Calls, tempfile::TempDir) {
    let (url, calls) = control_plane(verdict).await;
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "control-token").unwrap();
    let control = json!({"url": url, "token_file": token});
    (Bench::new(upstreams, json!({"keys": [], "control": control})).await, calls, dir)
}

#[tokio::test]
async fn what_was_set_aside_for_a_refused_request_is_given_back() {
    let fake = good().await;
    let dear = json!({"inputCostPerToken": "0.01", "outputCostPerToken": "0.01"});
    let verdict = json!({"allow": true, "virtualKeyId": "k1", "pricing": dear});
    let (bench, calls, _dir) = controlled(vec![upstream("one", &fake.url(), 0, &json!({}))], verdict).await;
    // Cheap enough by the file's prices, and not by those that hold.
    let mut request = chat(false);
    request["provider"] = json!({"max_price": {"prompt": 2000, "completion": 3000}});
    assert_eq!(bench.ask(&request).await.error(), (404, "not_found_error".to_owned()));
    until(|| calls.lock().len() == 3).await;
    let told = calls.lock().split_off(1);
    assert_eq!((told[0].0.as_str(), told[1].0.as_str()), ("pre", "post"));
    assert_eq!(told[0].1["requestId"], told[1].1["requestId"]);
    assert_eq!(told[0].1["estimatedCost"], "8.204");
    let row = &told[1].1;
    assert_eq!(
        (&row["isLast"], &row["selectedRouteId"], &row["cost"]),
        (&json!(true), &Value::Null, &json!("0"))
    );
    assert_eq!((&row["status"], &row["virtualKeyId"]), (&json!(404), &json!("k1")));
    // What is wrong with a request is seen before anything is set aside: it is only asked whose key it is.
    request["n"] = json!(1000);
    assert_eq!(bench.ask(&request).await.status, 400);
    request["model"] = json!("absent");
    assert_eq!(bench.ask(&request).await.status, 400);
    let asked: Vec<Value> = calls.lock().iter().skip(1).map(|(_, body)| body["model"].clone()).collect();
    // And before anything of it was read, whose key it was; not again.
    assert_eq!(asked, ["", ""]);
    assert!(fake.seen.lock().is_empty());
}

#[tokio::test]
async fn the_last_of_several_attempts_settles_the_request() {
    let bad = Fake::start(|_, _| vec![Act::Send(reply(500, "{}"))]).await;
    let one = upstream("one", &bad.url(), 0, &json!({}));
    let (bench, calls, _dir) = controlled(vec![one], json!({"allow": true, "virtualKeyId": "k1"})).await;
    assert_eq!(bench.ask(&chat(false)).await.status, 502);
    until(|| calls.lock().len() == 4).await;
    let mut rows: Vec<(Value, Value)> = calls
        .lock()
        .iter()
        .skip(2)
        .map(|(_, row)| (row["attemptIndex"].clone(), row["isLast"].clone()))
        .collect();
    rows.sort_by_key(|(index, _)| index.as_u64());
    assert_eq!(rows, [(json!(0), json!(false)), (json!(1), json!(true))]);
}
