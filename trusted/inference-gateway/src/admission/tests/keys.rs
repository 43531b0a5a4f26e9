//! The keys of the configuration.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cloister_verifier::Clock;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::accounting::Tokens;
use crate::admission::{Admission, Ask, Control, KeyHash, Keys};
use crate::config::GatewayConfig;
use crate::error::{GatewayError, Kind};
use crate::record::{Finished, Row, Settings, Store};
use crate::surface::Surface;

struct Lab {
    dir: TempDir,
    seconds: Arc<AtomicU64>,
}

fn config(keys: &Value) -> GatewayConfig {
    let config = json!({
        "state_dir": "/nowhere",
        "keys": keys,
        "upstreams": [{"name": "one", "base_url": "http://127.0.0.1:1", "models": {"m": "m", "other": "m"}}],
        "models": [{
            "id": "m", "pricing": {"prompt": "0.001", "completion": "0.01"}, "max_output_length": 1000,
        }],
    });
    GatewayConfig::parse(config.to_string().as_bytes()).unwrap()
}

fn key(name: &str, members: &Value) -> Value {
    let mut key = json!({"name": name, "sha256": KeyHash::of(name).to_string()});
    key.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    key
}

impl Lab {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), seconds: Arc::default() }
    }

    fn store(&self) -> Store {
        Store::open(self.dir.path(), Settings::default(), Clock::system()).unwrap()
    }

    fn control(&self, keys: &Value, store: &Store) -> Control {
        let seconds = Arc::clone(&self.seconds);
        let now = move || Duration::from_secs(seconds.load(Ordering::Relaxed));
        Control::Keys(Keys::with_timer(&config(keys), store.clone(), now))
    }

    fn pass(&self, seconds: u64) {
        self.seconds.fetch_add(seconds, Ordering::Relaxed);
    }
}

async fn ask(control: &Control, key: &str, model: &str, body: &str) -> Result<Admission, GatewayError> {
    let config = config(&json!([]));
    let ask = Ask {
        key: KeyHash::of(key),
        request_id: "req_1",
        surface: Surface::Chat,
        model,
        known: &config.models[0],
        dearest: &config.models[0].pricing,
        keeps_limits: true,
        provider: None,
        is_tee_host: false,
        is_encrypted: false,
        body: body.as_bytes(),
    };
    control.admit(&ask).await
}

async fn spend(store: &Store, key: &str, cost: &str) {
    let row = json!({
        "requestId": "req_1", "endpoint": "/v1/chat/completions", "status": 200, "durationMs": 1,
        "isStreaming": false, "attemptIndex": 0, "selectedRouteId": null, "requestModel": "m", "usage": null,
        "promptTokens": 0, "completionTokens": 0, "cost": cost, "pricing": null, "endedAt": 1,
    });
    let row: Row = serde_json::from_str(&row.to_string()).unwrap();
    store.finish(Finished { key: KeyHash::of(key), rows: vec![row], receipt: None }).await.unwrap();
}

#[tokio::test]
async fn a_key_may_use_its_models() {
    let (lab, keys) = (Lab::new(), json!([key("all", &json!({})), key("some", &json!({"models": ["m"]}))]));
    let control = lab.control(&keys, &lab.store());
    assert!(ask(&control, "all", "other", "{}").await.is_ok());
    assert!(ask(&control, "some", "m", "{}").await.is_ok());
    assert_eq!(ask(&control, "some", "other", "{}").await.unwrap_err().kind, Kind::ModelNotAllowed);
    // Who has no key learns nothing about models.
    for model in ["m", "other", "unknown"] {
        assert_eq!(ask(&control, "none", model, "{}").await.unwrap_err().kind, Kind::Authentication);
    }
    assert!(control.identify(KeyHash::of("some")).await.is_ok());
    assert_eq!(control.identify(KeyHash::of("none")).await.unwrap_err().kind, Kind::Authentication);
}

#[tokio::test]
async fn limits_hold_over_a_reload() {
    let limits = json!({"requests_per_minute": 2, "tokens_per_minute": 100});
    let (lab, keys) = (Lab::new(), json!([key("one", &limits), key("two", &limits)]));
    let control = lab.control(&keys, &lab.store());
    let left = ask(&control, "one", "m", "{}").await.unwrap().left;
    assert_eq!(left.requests.map(|left| (left.limit, left.remaining)), Some((2, Some(1))));
    assert_eq!(left.tokens.map(|left| (left.limit, left.remaining)), Some((100, Some(100))));
    control.used(KeyHash::of("one"), Tokens { prompt: 60, completion: 30, ..Tokens::default() }, 0.into());
    let left = ask(&control, "one", "m", "{}").await.unwrap().left;
    assert_eq!(left.tokens.and_then(|left| left.remaining), Some(10));
    let Control::Keys(inner) = &control else { unreachable!() };
    inner.configure(&config(&keys));
    let refused = ask(&control, "one", "m", "{}").await.unwrap_err();
    assert_eq!((refused.kind, refused.retry_after), (Kind::RateLimited, Some(61)));
    assert_eq!(refused.left.unwrap().requests.and_then(|left| left.remaining), Some(0));
    assert!(ask(&control, "two", "m", "{}").await.is_ok(), "each key has its own");
    lab.pass(61);
    assert!(ask(&control, "one", "m", "{}").await.is_ok());
    // A limit that is another one begins anew, a key that is gone is gone.
    inner.configure(&config(&json!([key("one", &json!({"requests_per_minute": 3}))])));
    let left = ask(&control, "one", "m", "{}").await.unwrap().left;
    assert_eq!((left.requests.and_then(|left| left.remaining), left.tokens), (Some(2), None));
    assert_eq!(ask(&control, "two", "m", "{}").await.unwrap_err().kind, Kind::Authentication);
}

#[tokio::test]
async fn credit_ends_and_survives_a_restart() {
    let (lab, keys) = (Lab::new(), json!([key("one", &json!({"credit": "1.5"})), key("two", &json!({}))]));
    let store = lab.store();
    let control = lab.control(&keys, &store);
    spend(&store, "one", "1.4999").await;
    spend(&store, "two", "100").await;
    let admission = ask(&control, "one", "m", "{}").await.unwrap();
    spend(&store, "one", "0.0001").await;
    drop(admission);
    assert_eq!(ask(&control, "one", "m", "{}").await.unwrap_err().kind, Kind::NoCredit);
    assert!(ask(&control, "two", "m", "{}").await.is_ok());
    drop((control, store));
    let store = lab.store();
    let control = lab.control(&keys, &store);
    assert_eq!(ask(&control, "one", "m", "{}").await.unwrap_err().kind, Kind::NoCredit);
    let control = lab.control(&json!([key("one", &json!({"credit": "1.6"}))]), &store);
    assert!(ask(&control, "one", "m", "{}").await.is_ok(), "credit that was raised");
}

#[tokio::test]
async fn a_thousand_requests_at_once_do_not_overspend() {
    let (lab, keys) = (Lab::new(), json!([key("one", &json!({"credit": "10.01"}))]));
    let control = lab.control(&keys, &lab.store());
    // A hundred tokens at most come back: 1 each, and a thousandth for what goes out.
    let body = r#"{"messages":[],"max_tokens":100}"#;
    let asked = futures_util::future::join_all((0..1000).map(|_| ask(&control, "one", "m", body))).await;
    let (admitted, refused): (Vec<_>, Vec<_>) = asked.into_iter().partition(Result::is_ok);
    assert_eq!(admitted.len(), 10);
    for refusal in refused {
        let refusal = refusal.unwrap_err();
        assert_eq!((refusal.kind, refusal.retry_after), (Kind::RateLimited, Some(1)));
    }
    let Control::Keys(inner) = &control else { unreachable!() };
    inner.configure(&config(&keys));
    assert!(ask(&control, "one", "m", body).await.is_err(), "what is set aside stays over a reload");
    drop(admitted);
    assert!(ask(&control, "one", "m", body).await.is_ok());
    // What the model allows bounds what a request may ask for, and several answers cost several times as much.
    let one = ask(&control, "one", "m", r#"{"max_tokens":1000000}"#).await.unwrap();
    assert!(ask(&control, "one", "m", r#"{"max_tokens":1}"#).await.is_err());
    drop(one);
    let one = ask(&control, "one", "m", r#"{"max_tokens":10,"n":99}"#).await.unwrap();
    assert!(ask(&control, "one", "m", body).await.is_err());
    drop(one);
}

#[tokio::test]
async fn requests_that_are_refused_count() {
    let lab = Lab::new();
    let store = lab.store();
    let control = lab.control(&json!([key("some", &json!({"requests_per_minute": 2}))]), &store);
    let some = KeyHash::of("some");
    for _ in 0..2 {
        control.count_refused(some, "req_1").await.unwrap();
    }
    assert_eq!(control.count_refused(some, "req_1").await.unwrap_err().kind, Kind::RateLimited);
    assert_eq!(ask(&control, "some", "m", "{}").await.unwrap_err().kind, Kind::RateLimited);
    assert!(control.recognise(some).await.is_ok());
    assert_eq!(control.recognise(KeyHash::of("none")).await.unwrap_err().kind, Kind::Authentication);
    lab.pass(120);
    assert!(ask(&control, "some", "m", "{}").await.is_ok());
}
