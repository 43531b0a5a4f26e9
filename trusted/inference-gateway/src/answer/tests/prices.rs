//! What upstreams cost that have prices of their own: what is charged, what is set aside, what is shown.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::charges::{controlled, health_of};
use super::support::*;
use crate::accounting::{Tokens, cost};
use crate::routing::Health;
use crate::upstream::fake::{Act, Fake, json as reply, until};

/// Each route has its price: what answered is charged, what failed is not, and what may be charged is set aside.
#[tokio::test]
async fn the_route_that_answers_has_its_price() {
    let bad = Fake::start(|_, _| vec![Act::Send(reply(500, "{}"))]).await;
    let good = good().await;
    let priced = |prompt: &str, completion: &str| json!({"pricing": {MODEL: {"prompt": prompt, "completion": completion}}});
    let dear = upstream("dear", &good.url(), 1, &priced("0.01", "0.02"));
    let cheap = |url: &str| upstream("cheap", url, 0, &priced("0.0001", "0.0002"));
    let bench = Bench::new(vec![cheap(&bad.url()), dear.clone()], json!({})).await;
    let answer = bench.ask(&chat(false)).await;
    assert_eq!(answer.json()["usage"]["cost"].as_f64(), Some(0.16), "{}", answer.text());
    let rows: Vec<_> = bench.rows().into_iter().map(|row| row.row).collect();
    let told = |index: usize| {
        (rows[index].cost.normalize().to_string(), rows[index].pricing.clone().unwrap().prompt.to_string())
    };
    assert_eq!((told(0), told(1)), (("0".into(), "0.0001".into()), ("0.16".into(), "0.01".into())));
    // Without fallback it fails, and by its price none is left.
    let mut request = chat(false);
    request["provider"] = json!({"max_price": {"prompt": 100, "completion": 200}});
    assert_eq!(bench.ask(&request).await.status, 502);
    request["provider"] = json!({"max_price": {"prompt": 99}});
    assert_eq!(bench.ask(&request).await.error(), (404, "not_found_error".to_owned()));
    // A cheaper route costs less, also what is streamed.
    bench.reconfigure(vec![cheap(&good.url()), dear]).await;
    assert_eq!(bench.ask(&chat(false)).await.json()["usage"]["cost"].as_f64(), Some(0.0016));
    assert!(seen(&bench.ask(&chat(true)).await).is_done);
    let streamed = bench.rows().pop().unwrap().row;
    assert!(streamed.is_streaming && streamed.completion_tokens > 0);
    let tokens = Tokens {
        prompt: streamed.prompt_tokens,
        completion: streamed.completion_tokens,
        ..Tokens::default()
    };
    assert_eq!(streamed.cost, cost(tokens, streamed.pricing.as_ref().unwrap()));
    assert_eq!(streamed.pricing.unwrap().completion.to_string(), "0.0002");
    let list = async |path: &str| {
        let url = format!("http://{}{path}", bench.running.address());
        let list: Value = bench.client.get(url).bearer_auth(KEY).send().await.unwrap().json().await.unwrap();
        list["data"][0]["pricing"]["prompt"].clone()
    };
    assert_eq!(list("/v1/models").await, "0.01");
    assert_eq!(list("/v1/models/providers/cheap").await, "0.0001");
}

/// Whatever is asked for, the price is that of the route.
#[tokio::test]
async fn every_surface_has_the_price_of_the_route() {
    let texts = r#"{"id":"t","object":"text_completion","created":1,"model":"own-name","choices":[{"index":0,"text":"hi","logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13}}"#;
    let vectors = r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5]}],"model":"own-name","usage":{"prompt_tokens":10,"total_tokens":10}}"#;
    let response = r#"{"id":"r","object":"response","created_at":1,"status":"completed","model":"own-name","output":[{"type":"message","id":"m","status":"completed","role":"assistant","content":[{"type":"output_text","text":"hi","annotations":[]}]}],"usage":{"input_tokens":10,"output_tokens":3,"total_tokens":13}}"#;
    let fake = Fake::start(move |_, seen| {
        let is_at = |path: &str| seen.head.contains(path);
        let body = match () {
            () if is_at("/v1/embeddings") => vectors,
            () if is_at("/v1/completions") => texts,
            () if is_at("/v1/responses") => response,
            () => WHOLE,
        };
        vec![Act::Send(reply(200, body))]
    })
    .await;
    let priced = json!({"pricing": {MODEL: {"prompt": "0.01", "completion": "0.02"}}});
    let bench = Bench::new(vec![upstream("one", &fake.url(), 0, &priced)], json!({})).await;
    let says = json!([{"role": "user", "content": "x"}]);
    for (path, request, cost) in [
        ("/v1/chat/completions", json!({"model": MODEL, "messages": says}), "0.16"),
        ("/v1/completions", json!({"model": MODEL, "prompt": "x"}), "0.16"),
        ("/v1/embeddings", json!({"model": MODEL, "input": "x"}), "0.1"),
        ("/v1/responses", json!({"model": MODEL, "input": "x"}), "0.16"),
        ("/v1/messages", json!({"model": MODEL, "max_tokens": 9, "messages": says}), "0.16"),
    ] {
        let answer = bench.ask_at(path, &request).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let row = bench.rows().pop().unwrap().row;
        assert_eq!((row.endpoint.as_str(), row.cost.normalize().to_string().as_str()), (path, cost));
    }
}

/// A list shows what those routes cost that it is about, and no others.
#[tokio::test]
async fn lists_show_the_prices_of_the_routes_that_they_are_about() {
    let fake = good().await;
    let priced = |name: &str, prompt: &str, more: Value| {
        let mut upstream = upstream(name, &fake.url(), 0, &more);
        upstream["pricing"] = json!({MODEL: {"prompt": prompt, "completion": "0"}});
        upstream
    };
    let upstreams = vec![
        priced("plain", "0.03", json!({})),
        priced("forgetful", "0.02", json!({"zdr": true})),
        priced("cheap", "0.01", json!({"zdr": true})),
    ];
    let bench = Bench::new(upstreams, json!({})).await;
    for (path, prices) in [
        ("/v1/models", json!(["0.03"])),
        ("/v1/models?zdr=true", json!(["0.02"])),
        ("/v1/models?tee=true", json!([])),
        ("/v1/models/providers/cheap", json!(["0.01"])),
        ("/v1/models/providers/plain?zdr=true", json!([])),
    ] {
        let url = format!("http://{}{path}", bench.running.address());
        let list: Value = bench.client.get(url).bearer_auth(KEY).send().await.unwrap().json().await.unwrap();
        let shown: Vec<&Value> =
            list["data"].as_array().unwrap().iter().map(|model| &model["pricing"]["prompt"]).collect();
        assert_eq!(json!(shown), prices, "{path}");
    }
}

/// Another price is no other upstream: what is known of its health stays.
#[tokio::test]
async fn a_price_changes_and_the_route_stays() {
    let bad = Fake::start(|_, _| vec![Act::Send(reply(500, "{}"))]).await;
    let priced = |prompt: &str| {
        let pricing = json!({"pricing": {MODEL: {"prompt": prompt, "completion": "0.02"}}});
        upstream("one", &bad.url(), 0, &pricing)
    };
    let bench = Bench::new(vec![priced("0.01")], json!({})).await;
    for _ in 0..5 {
        assert_eq!(bench.ask(&chat(false)).await.status, 502);
    }
    assert_eq!(health_of(&bench), Health::Resting);
    let connections = bad.counts.connections.load(Ordering::Relaxed);
    bench.reconfigure(vec![priced("0.03")]).await;
    assert_eq!(health_of(&bench), Health::Resting);
    let model = bench.running.gateway().live().catalogue.model(MODEL).unwrap().clone();
    assert_eq!(model.pricing(&model.routes[0]).prompt.to_string(), "0.03");
    assert_eq!(bench.ask(&chat(false)).await.status, 502);
    assert_eq!(bad.counts.connections.load(Ordering::Relaxed), connections);
}

/// Of a key's credit the price is set aside that a request may come to, by what it says itself.
#[tokio::test]
async fn what_a_request_rules_out_is_not_set_aside() {
    let slow = Fake::start(|_, _| vec![Act::Hang]).await;
    let priced = |completion: &str| json!({"pricing": {MODEL: {"prompt": "0", "completion": completion}}});
    let upstreams = vec![
        upstream("cheap", &slow.url(), 0, &priced("0.00001")),
        upstream("dear", &slow.url(), 1, &priced("0.01")),
    ];
    let keys = json!([{
        "name": "ci", "sha256": crate::admission::KeyHash::of(KEY).to_string(), "credit": "1",
    }]);
    let bench = Bench::new(upstreams, json!({"keys": keys})).await;
    let ask = |provider: Value| {
        let mut request = chat(false);
        request["provider"] = provider;
        let request = bench.request("/v1/chat/completions", &request);
        tokio::spawn(async move { request.send().await.map(|response| response.status().as_u16()) })
    };
    let under_way = [json!({"only": ["cheap"]}), json!({"max_price": {"completion": 10}})].map(ask);
    until(|| slow.seen.lock().len() == 2).await;
    assert_eq!(ask(json!({})).await.unwrap().unwrap(), 429);
    for request in under_way {
        request.abort();
    }
}

/// A control plane is asked for leave to spend what the dearest route would cost.
#[tokio::test]
async fn what_the_dearest_route_costs_is_set_aside() {
    let fake = good().await;
    let dear = json!({"pricing": {MODEL: {"prompt": "0.1", "completion": "0.2"}}});
    let upstreams = vec![upstream("one", &fake.url(), 0, &json!({})), upstream("two", &fake.url(), 1, &dear)];
    let (bench, calls, _dir) = controlled(upstreams, json!({"allow": true})).await;
    let answer = bench.ask(&chat(false)).await;
    assert_eq!(answer.json()["usage"]["cost"].as_f64(), Some(0.016), "{}", answer.text());
    until(|| calls.lock().len() == 3).await;
    // The first question is whose key it is.
    let calls = calls.lock().split_off(1);
    let estimate: f64 = calls[0].1["estimatedCost"].as_str().unwrap().parse().unwrap();
    assert!(estimate > 0.2 * 4096.0, "{estimate}");
    assert_eq!(calls[1].1["pricing"]["inputCostPerToken"], "0.001");
}
