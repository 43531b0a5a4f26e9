//! The gateway as a client of a control plane.

use std::sync::Arc;

use cloister_verifier::Clock;
use futures_util::future::join_all;
use jiff::Timestamp;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::task::AbortOnDropHandle;

use super::fake::{Answer, Fake, TOKEN};
use super::told::keep;
use crate::admission::{Admission, Ask, Control, ControlPlane, Hooks, KeyHash};
use crate::config::{ControlConfig, ModelConfig, Pricing};
use crate::error::{GatewayError, Kind};
use crate::record::{Settings, Store};
use crate::surface::Surface;
use crate::upstream::fake::until;

pub(super) const NOW: i64 = 1_750_000_000;

pub(super) struct Lab {
    pub(super) dir: TempDir,
    pub(super) fake: Fake,
    pub(super) store: Store,
}

pub(super) fn clock() -> Clock {
    Clock::fixed(Timestamp::from_second(NOW).unwrap())
}

fn open(dir: &TempDir) -> Store {
    let settings = Settings { is_posting: true, ..Settings::default() };
    Store::open(&dir.path().join("state"), settings, clock()).unwrap()
}

impl Lab {
    pub(super) async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir);
        Self { fake: Fake::start().await, store, dir }
    }

    pub(super) fn control(&self) -> Control {
        self.control_with(&self.fake.config(self.dir.path()))
    }

    pub(super) fn control_with(&self, config: &ControlConfig) -> Control {
        Control::ControlPlane(ControlPlane::start(config, self.store.clone(), clock()).unwrap())
    }
}

pub(super) async fn ask(control: &Control) -> Result<Admission, GatewayError> {
    ask_as(control, "req_7").await
}

async fn ask_as(control: &Control, request_id: &str) -> Result<Admission, GatewayError> {
    const BODY: &[u8] = br#"{"messages":[{"role":"user","content":"secret words"}]}"#;
    ask_with(control, request_id, BODY, false).await
}

async fn ask_with(
    control: &Control,
    request_id: &str,
    body: &[u8],
    is_encrypted: bool,
) -> Result<Admission, GatewayError> {
    let provider = RawValue::from_string(r#"{"zdr": true}"#.to_owned()).unwrap();
    let known = json!({"id": "vendor/model", "pricing": {"prompt": "0.001", "completion": "0.002"}});
    let known: ModelConfig = serde_json::from_value(known).unwrap();
    let ask = Ask {
        key: KeyHash::of("key"),
        request_id,
        surface: Surface::Chat,
        model: "vendor/model",
        known: &known,
        dearest: &known.pricing,
        keeps_limits: true,
        provider: Some(&provider),
        is_tee_host: true,
        is_encrypted,
        body,
    };
    control.admit(&ask).await
}

#[tokio::test]
async fn the_question_and_the_leave() {
    let lab = Lab::new().await;
    lab.fake.then(Answer::Json(json!({
        "allow": true, "userId": "u1", "virtualKeyId": "k1", "spendMode": "subscription", "userTier": "gold",
        "pricing": {"inputCostPerToken": "0.000001", "outputCostPerToken": 2e-6, "cacheReadCostPerToken": null},
        "candidates": [{"routeId": "two:vendor/model", "format": "openai"}, {"routeId": "one:vendor/model", "format": "anthropic", "engine": "vllm"}],
        "somethingElse": {},
    })));
    let admission = ask(&lab.control()).await.unwrap();
    assert_eq!(
        lab.fake.calls(),
        [(
            "pre".to_owned(),
            format!("Bearer {TOKEN}"),
            json!({
                "apiKeyHash": KeyHash::of("key").to_string(), "model": "vendor/model", "provider": {"zdr": true},
                "tee": true,
                "request": {
                    "estimatedPromptTokens": 2, "hasTools": false, "inputModalities": ["text"],
                    "reasoning": "unspecified", "responseFormat": "text",
                },
                // Eleven tokens in, as it is written, and as many out as are usual.
                "requestId": "req_7", "estimatedCost": "8.203",
            })
        )]
    );
    let names = [&admission.user_id, &admission.virtual_key_id, &admission.spend_mode, &admission.user_tier];
    assert_eq!(names.map(|name| name.as_deref().unwrap()), ["u1", "k1", "subscription", "gold"]);
    let prices = Pricing {
        prompt: "0.000001".parse().unwrap(),
        completion: "0.000002".parse().unwrap(),
        cache_read: None,
        cache_creation: None,
    };
    assert_eq!(admission.pricing, Some(prices));
    assert_eq!(admission.routes.unwrap(), ["two:vendor/model", "one:vendor/model"]);
    let plain = ask(&lab.control()).await.unwrap();
    assert!(plain.pricing.is_none() && plain.routes.is_none() && plain.user_id.is_none());
}

/// What it may cost is told in any case: somebody sets that aside.
#[tokio::test]
async fn what_requests_are_like_may_stay_untold() {
    let lab = Lab::new().await;
    let silent = ControlConfig { send_request_features: false, ..lab.fake.config(lab.dir.path()) };
    let control = lab.control_with(&silent);
    ask(&control).await.unwrap();
    control.identify(KeyHash::of("key")).await.unwrap();
    control.count_refused(KeyHash::of("key"), "req_8").await.unwrap();
    let calls = lab.fake.calls();
    assert_eq!(calls.len(), 3);
    for (hook, _, asked) in &calls {
        assert_eq!((hook.as_str(), asked.get("request")), ("pre", None), "{asked}");
    }
    assert_eq!(calls[0].2["estimatedCost"], "8.203");
}

/// Nothing is said of what the control plane does not say.
#[tokio::test]
async fn what_is_left_of_a_limit_comes_with_the_leave() {
    let lab = Lab::new().await;
    let control = lab.control();
    for (limit, told) in [
        (json!({"limit": 60, "resetAt": NOW + 17, "remaining": 4}), Some((60, Some(4), 17))),
        (json!({"limit": 60, "resetAt": NOW + 17}), Some((60, None, 17))),
        (json!({"limit": 60, "resetAt": 0}), Some((60, None, 1))),
        (json!({"limit": 60, "resetAt": NOW + 17, "remaining": -1}), Some((60, None, 17))),
        (Value::Null, None),
    ] {
        lab.fake.then(Answer::Json(json!({"allow": true, "rateLimit": limit})));
        let left = ask(&control).await.unwrap().left;
        assert_eq!(left.requests.map(|left| (left.limit, left.remaining, left.reset_s)), told, "{limit}");
        assert!(left.refusal().is_none() && left.tokens.is_none());
    }
}

#[tokio::test]
async fn a_denial_is_passed_on() {
    let lab = Lab::new().await;
    let control = lab.control();
    for (status, kind) in [
        (401, Kind::Authentication),
        (402, Kind::NoCredit),
        (403, Kind::Denied(http::StatusCode::FORBIDDEN)),
        (429, Kind::RateLimited),
        (503, Kind::Denied(http::StatusCode::SERVICE_UNAVAILABLE)),
    ] {
        lab.fake.then(Answer::Json(json!({"allow": false, "status": status, "message": "No\n, because"})));
        let error = ask(&control).await.unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (kind, "No, because"));
    }
    lab.fake.then(Answer::Json(json!({
        "allow": false, "status": 429, "message": "Slowly", "rateLimit": {"limit": 60, "resetAt": NOW + 17},
    })));
    let error = ask(&control).await.unwrap_err();
    assert_eq!((error.retry_after, error.message.as_str()), (Some(17), "Slowly"));
    let left = error.left.as_ref().unwrap().refusal().unwrap();
    assert_eq!((left.limit, left.remaining, left.reset_s), (60, Some(0), 17));
    // Only that the key is none matters where no model is asked for.
    for (status, is_known) in [(401, false), (403, true), (429, true)] {
        lab.fake.then(Answer::Json(json!({"allow": false, "status": status})));
        assert_eq!(control.identify(KeyHash::of("key")).await.is_ok(), is_known, "{status}");
    }
}

/// Of denials the control plane is told again where they are somebody's, or of its own making; of a stranger's key only
/// so often.
#[tokio::test]
async fn denials_are_told() {
    let lab = Lab::new().await;
    let control = lab.control();
    for (status, user, told) in [
        (401, None, None),
        (402, None, None),
        (402, Some("u1"), Some(403)),
        (404, Some("u1"), Some(404)),
        (429, None, Some(429)),
        (503, None, Some(503)),
    ] {
        let answer =
            json!({"allow": false, "status": status, "userId": user, "virtualKeyId": user.and(Some("k1"))});
        lab.fake.then_asked(Answer::Json(answer));
        let id = format!("req_{status}{}", user.unwrap_or_default());
        ask_as(&control, &id).await.unwrap_err();
        let Some(told) = told else { continue };
        until(|| lab.store.usage(0, 100).unwrap().last().is_some_and(|row| row.row.request_id == id)).await;
        let row = lab.store.usage(0, 100).unwrap().pop().unwrap().row;
        assert_eq!((row.status, row.error_source.as_deref(), row.is_last), (told, Some("control"), true));
        assert_eq!((row.user_id.as_deref(), row.virtual_key_id.is_some()), (user, user.is_some()));
        assert!(row.cost.is_zero() && row.selected_route_id.is_none());
    }
    assert_eq!(lab.store.usage(0, 100).unwrap().len(), 4);
    assert_eq!(lab.fake.told(4).await.iter().filter(|row| row["errorSource"] == "control").count(), 4);
    for _ in 0..100 {
        lab.fake.then_asked(Answer::Json(json!({"allow": false, "status": 429})));
        ask(&control).await.unwrap_err();
    }
    keep(&lab.store, 1..2).await;
    assert_eq!(lab.store.usage(0, 200).unwrap().len(), 60 + 1);
}

#[tokio::test]
async fn whatever_fails_lets_nobody_in() {
    let lab = Lab::new().await;
    let short = ControlConfig { timeout_ms: 200, ..lab.fake.config(lab.dir.path()) };
    let control = lab.control_with(&short);
    for answer in [
        Answer::Status(500, "{\"allow\":true}"),
        Answer::Status(401, "{\"allow\":true}"),
        Answer::Status(201, "{\"allow\":true}"),
        Answer::Status(200, "not json"),
        Answer::Status(200, "{}"),
        Answer::Json(json!({"allow": "true"})),
        Answer::Json(json!({"allow": true, "pricing": {"inputCostPerToken": "free"}})),
        Answer::Json(json!({"allow": true, "pricing": {"inputCostPerToken": -1}})),
        Answer::Json(json!({"allow": true, "userTier": "gold\r\nx: y"})),
        Answer::Json(json!({"allow": true, "x": "y".repeat(1 << 20)})),
        Answer::Never,
    ] {
        lab.fake.then_asked(answer);
        let error = ask(&control).await.unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (Kind::Unavailable, "control plane unavailable"));
    }
    let nowhere = ControlConfig { url: "http://127.0.0.1:1".parse().unwrap(), ..short.clone() };
    assert_eq!(ask(&lab.control_with(&nowhere)).await.unwrap_err().kind, Kind::Unavailable);
    std::fs::write(&short.token_file, "two\nlines").unwrap();
    assert!(ControlPlane::start(&short, lab.store.clone(), clock()).is_err());
}

/// Whoever makes keys up does not make the control plane answer for all of them at once.
#[tokio::test]
async fn strangers_are_asked_about_some_at_a_time() {
    let lab = Lab::new().await;
    let control = Arc::new(lab.control());
    let strangers: Vec<_> = (0..200)
        .map(|number| {
            let control = Arc::clone(&control);
            tokio::spawn(async move { control.recognise(KeyHash::of(&number.to_string())).await.is_ok() })
        })
        .collect();
    for stranger in strangers {
        assert!(stranger.await.unwrap());
    }
    assert_eq!(lab.fake.calls().len(), 200);
    assert!((2..=64).contains(&lab.fake.most_at_once()), "{}", lab.fake.most_at_once());
    control.recognise(KeyHash::of("7")).await.unwrap();
    assert_eq!(lab.fake.calls().len(), 200, "it was known a moment ago");
}

#[tokio::test]
async fn strangers_do_not_wait_for_ever() {
    let lab = Lab::new().await;
    let patient = ControlConfig { timeout_ms: 60_000, ..lab.fake.config(lab.dir.path()) };
    let control = Arc::new(ControlPlane::start(&patient, lab.store.clone(), clock()).unwrap());
    (0..64).for_each(|_| lab.fake.then_asked(Answer::Never));
    let asked = |number: usize| {
        let control = Arc::clone(&control);
        async move { control.recognise(KeyHash::of(&number.to_string())).await }
    };
    let asking: Vec<_> = (0..64).map(|number| AbortOnDropHandle::new(tokio::spawn(asked(number)))).collect();
    until(|| lab.fake.calls().len() == 64).await;
    control.configure(Hooks::new(&ControlConfig { timeout_ms: 50, ..patient.clone() }).unwrap());
    for error in join_all((64..128).map(asked)).await.into_iter().map(Result::unwrap_err) {
        assert_eq!((error.kind, error.retry_after), (Kind::Unavailable, Some(1)));
        assert!(error.message.starts_with("Too many keys"), "{}", error.message);
    }
    assert_eq!(lab.fake.calls().len(), 64);
    drop(asking);
    control.configure(Hooks::new(&patient).unwrap());
    asked(128).await.unwrap();
}

#[tokio::test]
async fn what_prompts_begin_with_is_told_apart_where_there_is_a_secret() {
    let lab = Lab::new().await;
    let config = lab.fake.config(lab.dir.path());
    let secret = lab.dir.path().join("prefix-secret");
    std::fs::write(&secret, [b's'; 32]).unwrap();
    let with = ControlConfig { prefix_hash_secret_file: Some(secret.clone()), ..config.clone() };
    let long = json!({"messages": [{"role": "user", "content": "secret words ".repeat(400)}]}).to_string();
    for (config, body, is_encrypted, is_told) in [
        (&with, long.as_str(), false, true),
        (&with, long.as_str(), true, false),
        (&with, r#"{"messages":[{"role":"user","content":"secret words"}]}"#, false, false),
        (&config, long.as_str(), false, false),
    ] {
        let lab_calls = lab.fake.calls().len();
        lab.fake.then_asked(Answer::Json(json!({"allow": true})));
        let control = lab.control_with(config);
        let admission = ask_with(&control, "req_7", body.as_bytes(), is_encrypted).await.unwrap();
        let (hook, _, asked) = lab.fake.calls().into_iter().nth(lab_calls).unwrap();
        assert_eq!(hook, "pre");
        let told = asked["request"].get("prefixHash").map(|told| told.as_str().unwrap().to_owned());
        assert_eq!(told.is_some(), is_told, "{is_encrypted} {}", body.len());
        assert!(told.as_ref().is_none_or(|told| told.len() == 32 && hex::decode(told).is_ok()));
        assert_eq!(admission.prefix_hash, told, "and once more at its end");
    }
    std::fs::write(&secret, [b's'; 31]).unwrap();
    let refused = ControlPlane::start(&with, lab.store.clone(), clock()).unwrap_err().to_string();
    assert!(refused.ends_with("prefix-secret holds no secret of 32 to 4096 bytes"), "{refused}");
}

/// What the control plane may have set aside is free again, although nobody knows whether it did.
#[tokio::test]
async fn a_request_whose_leave_is_not_known_is_told_to_be_over() {
    let lab = Lab::new().await;
    let control = lab.control();
    for status in [401, 403, 422] {
        lab.fake.then_asked(Answer::Status(status, "{}"));
        assert_eq!(ask(&control).await.unwrap_err().kind, Kind::Unavailable);
    }
    for (count, answer) in [Answer::Status(500, ""), Answer::Status(200, "not json")].into_iter().enumerate()
    {
        lab.fake.then_asked(answer);
        assert_eq!(ask(&control).await.unwrap_err().kind, Kind::Unavailable);
        lab.fake.told(count + 1).await;
    }
    // The gateway ends while the control plane thinks about it.
    lab.fake.then_asked(Answer::Never);
    let asked = lab.fake.calls().len() + 1;
    tokio::select! {
        _ = ask(&control) => unreachable!("it is not answered"),
        () = until(|| lab.fake.calls().len() == asked) => {}
    }
    let told = lab.fake.told(3).await;
    assert_eq!(told.len(), 3);
    for row in told {
        assert_eq!(
            (&row["requestId"], &row["isLast"], &row["cost"]),
            (&json!("req_7"), &json!(true), &json!("0"))
        );
        assert!(row.get("virtualKeyId").is_none() && row["selectedRouteId"].is_null(), "{row}");
    }
}

/// What takes long keeps what is set aside for it: the control plane is told of it until it is over.
#[tokio::test]
async fn a_control_plane_is_told_of_what_is_under_way() {
    const OFTEN: std::time::Duration = std::time::Duration::from_millis(5);
    let lab = Lab::new().await;
    let config = lab.fake.config(lab.dir.path());
    let control = ControlPlane::start_with(&config, lab.store.clone(), clock(), OFTEN).unwrap();
    let control = Control::ControlPlane(control);
    let kept = || -> Vec<Value> {
        let calls = lab.fake.calls().into_iter();
        calls.filter(|(hook, ..)| hook == "keep").map(|(_, _, body)| body).collect()
    };
    lab.fake.then_asked(Answer::Json(json!({"allow": true, "userId": "wks_1"})));
    let first = ask_as(&control, "req_1").await.unwrap();
    until(|| !kept().is_empty()).await;
    assert_eq!(kept()[0], json!({"requests": [{"requestId": "req_1", "userId": "wks_1"}]}));
    // It is told again, whatever the control plane says, and of all that there are.
    lab.fake.then(Answer::Status(500, ""));
    lab.fake.then(Answer::Status(404, ""));
    lab.fake.then_asked(Answer::Json(json!({"allow": true})));
    let second = ask_as(&control, "req_2").await.unwrap();
    let of = |call: &Value| call["requests"].as_array().unwrap().len();
    until(|| kept().last().is_some_and(|call| of(call) == 2)).await;
    // Nobody is told of what is over, nor of nothing.
    drop((first, second));
    lab.fake.then_asked(Answer::Json(json!({"allow": true})));
    let third = ask_as(&control, "req_3").await.unwrap();
    until(|| kept().last().is_some_and(|call| call["requests"][0]["requestId"] == "req_3")).await;
    assert!(kept().iter().all(|call| of(call) > 0));
    assert_eq!(kept().last().unwrap(), &json!({"requests": [{"requestId": "req_3"}]}));
    drop(third);
}

/// A key is asked about once before its bodies are read, and no more for some time, unless it ends.
#[tokio::test]
async fn a_key_that_was_just_known_is_recognised() {
    let lab = Lab::new().await;
    let (control, key) = (lab.control(), KeyHash::of("key"));
    let denied = || Answer::Json(json!({"allow": false, "status": 401, "message": "No"}));
    lab.fake.then_asked(denied());
    assert_eq!(control.recognise(key).await.unwrap_err().kind, Kind::Authentication);
    for _ in 0..3 {
        control.recognise(key).await.unwrap();
    }
    assert_eq!(lab.fake.calls().len(), 2);
    lab.fake.then_asked(denied());
    assert_eq!(ask(&control).await.unwrap_err().kind, Kind::Authentication);
    control.recognise(key).await.unwrap();
    assert_eq!(lab.fake.calls().len(), 4);
    // Requests that are refused count, and there may be too many of them.
    for (status, is_taken) in [(403, true), (402, true), (401, false), (429, false)] {
        lab.fake.then_asked(Answer::Json(json!({"allow": false, "status": status})));
        assert_eq!(control.count_refused(key, "req_8").await.is_ok(), is_taken, "{status}");
    }
    let calls = lab.fake.calls();
    let asked: Vec<_> = calls.iter().map(|(_, _, asked)| (&asked["requestId"], &asked["model"])).collect();
    assert_eq!(asked[3], (&Value::Null, &json!("")));
    assert_eq!(asked[4], (&json!("req_8"), &json!("")));
}
