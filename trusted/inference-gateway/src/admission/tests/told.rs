//! What a control plane is told of what was used, and what is owed to it.

use serde_json::{Value, json};

use super::consult::{Lab, NOW, ask, clock};
use super::fake::{Answer, TOKEN};
use crate::admission::{Control, Hooks, KeyHash};
use crate::config::ControlConfig;
use crate::error::Kind;
use crate::record::{Finished, Row, Settings, Store};
use crate::upstream::fake::until;

fn row(number: usize) -> Row {
    let row = json!({
        "requestId": format!("req_{number}"), "endpoint": "/v1/chat/completions", "status": 200,
        "durationMs": 31, "ttftMs": 7, "isStreaming": true, "attemptIndex": 1, "selectedRouteId": "one:m",
        "requestModel": "m", "usage": {"prompt_tokens": 3, "odd": [1.5]}, "promptTokens": 3,
        "completionTokens": 4, "cost": "0.0000110",
        "pricing": {"prompt": "0.000001", "completion": "0.000002", "cache_read": "0.0000005", "cache_creation": null},
        "spendMode": "regular", "userId": "u1", "virtualKeyId": "k1", "endedAt": NOW, "isLast": true,
    });
    serde_json::from_str(&row.to_string()).unwrap()
}

pub(super) async fn keep(store: &Store, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let finished = Finished { key: KeyHash::of("key"), rows: vec![row(number)], receipt: None };
        store.finish(finished).await.unwrap();
    }
}

#[tokio::test]
async fn a_row_as_it_is_told() {
    let lab = Lab::new().await;
    let _control = lab.control();
    keep(&lab.store, 1..2).await;
    let mut failed = row(2);
    (failed.usage, failed.pricing, failed.selected_route_id, failed.ttft_ms) = (None, None, None, None);
    (failed.spend_mode, failed.user_id, failed.virtual_key_id) = (None, None, None);
    (failed.error_source, failed.error_message) = (Some("upstream".to_owned()), Some("it failed".to_owned()));
    let told = lab.fake.told(1).await;
    assert_eq!(
        told[0],
        json!({
            "requestId": "req_1", "endpoint": "/v1/chat/completions", "status": 200, "durationMs": 31,
            "ttftMs": 7, "isStreaming": true, "attemptIndex": 1, "selectedRouteId": "one:m", "requestModel": "m",
            "usage": {"prompt_tokens": 3, "odd": [1.5]},
            "pricing": {
                "inputCostPerToken": "0.000001", "outputCostPerToken": "0.000002",
                "cacheReadCostPerToken": "0.0000005", "cacheCreationCostPerToken": null,
            },
            "spendMode": "regular", "userId": "u1", "virtualKeyId": "k1", "cost": "0.0000110", "promptTokens": 3,
            "completionTokens": 4, "endedAt": NOW, "isLast": true,
        })
    );
    lab.store.finish(Finished { key: KeyHash::of("key"), rows: vec![failed], receipt: None }).await.unwrap();
    let told = lab.fake.told(2).await;
    let members: Vec<_> = told[1].as_object().unwrap().iter().filter(|(_, value)| value.is_null()).collect();
    assert_eq!(members.len(), 3, "{members:?}");
    assert_eq!((&told[1]["errorSource"], &told[1]["usage"]), (&json!("upstream"), &Value::Null));
    assert!(told[1].get("userId").is_none() && told[1].get("ttftMs").is_none());
    assert_eq!(lab.fake.calls()[0].1, format!("Bearer {TOKEN}"));
}

#[tokio::test]
async fn rows_are_told_when_the_control_plane_is_back() {
    let mut lab = Lab::new().await;
    let config = lab.fake.config(lab.dir.path());
    let nowhere = ControlConfig { url: "http://127.0.0.1:1".parse().unwrap(), ..config.clone() };
    let control = lab.control_with(&nowhere);
    keep(&lab.store, 0..40).await;
    assert_eq!(lab.store.next_to_post().unwrap(), Some(0));
    // The gateway is started again meanwhile; one row is refused for good, one at first.
    drop(control);
    lab.fake.then(Answer::Status(422, ""));
    lab.fake.then(Answer::Status(503, ""));
    // The worker's handle of the store is gone when its task is.
    let path = lab.dir.path().join("other");
    lab.store = Store::open(&path, Settings::default(), clock()).unwrap();
    let mut turn = 0;
    lab.store = loop {
        let settings = Settings { is_posting: true, ..Settings::default() };
        match Store::open(&lab.dir.path().join("state"), settings, clock()) {
            Ok(store) => break store,
            Err(error) => assert!(turn < 1000, "{error}"),
        }
        turn += 1;
        tokio::task::yield_now().await;
    };
    let _control = lab.control_with(&config);
    keep(&lab.store, 40..50).await;
    let told = lab.fake.told(51).await;
    let mut names: Vec<_> = told.iter().map(|row| row["requestId"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 50, "each was told");
    let mut kept = lab.store.kept();
    while lab.store.next_to_post().unwrap() != Some(50) {
        let _ = tokio::time::timeout(std::time::Duration::from_millis(20), kept.changed()).await;
    }
    assert_eq!(lab.store.set_aside_count().unwrap(), 1);
}

#[tokio::test]
async fn a_row_that_is_not_taken_holds_up_no_other_and_is_told_again() {
    let lab = Lab::new().await;
    let config =
        ControlConfig { untold_limit: "0.00002".parse().unwrap(), ..lab.fake.config(lab.dir.path()) };
    lab.fake.fails_at("req_1", 422);
    lab.fake.fails_at("req_2", 500);
    keep(&lab.store, 0..10).await;
    let control = lab.control_with(&config);
    let Control::ControlPlane(inner) = &control else { unreachable!() };
    until(|| lab.store.next_to_post().unwrap() == Some(10)).await;
    let aside = || -> Vec<String> {
        let rows = lab.store.set_aside(0, 100).unwrap();
        rows.into_iter().map(|row| row.row.request_id).collect()
    };
    assert_eq!(aside(), ["req_1", "req_2"]);
    let told = lab.fake.told(14).await;
    let times = |id: &str| told.iter().filter(|row| row["requestId"] == id).count();
    assert_eq!((told.len(), times("req_1"), times("req_2")), (14, 1, 5));
    // What nobody takes is still owed, and more than may be.
    until(|| inner.untold().normalize().to_string() == "0.000022").await;
    let refused = ask(&control).await.unwrap_err();
    assert_eq!((refused.kind, refused.status().as_u16()), (Kind::Unavailable, 503));
    assert!(lab.fake.calls().iter().all(|(hook, ..)| hook == "post"), "nobody is asked");

    // The control plane is mended, and the gateway started again.
    lab.fake.fails_nowhere();
    drop(control);
    let control = lab.control_with(&config);
    let Control::ControlPlane(inner) = &control else { unreachable!() };
    until(|| inner.untold().is_zero()).await;
    assert!(aside().is_empty());
    assert!(ask(&control).await.is_ok());
    // What is spent counts from the moment on in which it is.
    control.used(KeyHash::of("key"), crate::accounting::Tokens::default(), "0.00003".parse().unwrap());
    assert_eq!(ask(&control).await.unwrap_err().kind, Kind::Unavailable);
    let more = ControlConfig { untold_limit: 1.into(), ..config };
    inner.configure(Hooks::new(&more).unwrap());
    assert!(ask(&control).await.is_ok(), "a limit that was raised");
}

/// A process may die after it set rows aside, and before it noted how far it had told.
#[tokio::test]
async fn a_row_that_is_set_aside_and_still_owed_is_owed_once() {
    let lab = Lab::new().await;
    keep(&lab.store, 0..10).await;
    until(|| lab.store.to_post(10).unwrap().len() == 10).await;
    for row in lab.store.to_post(3).unwrap() {
        lab.store.put_aside(&row).await.unwrap();
    }
    assert_eq!((lab.store.set_aside_count().unwrap(), lab.store.next_to_post().unwrap()), (3, Some(0)));
    let control = lab.control();
    let Control::ControlPlane(inner) = &control else { unreachable!() };
    // Nothing else runs before the first question is asked.
    assert_eq!(inner.untold().normalize().to_string(), "0.00011");
    // It is told once, and nothing is owed then; what is spent after that is.
    until(|| lab.store.next_to_post().unwrap() == Some(10)).await;
    until(|| lab.store.set_aside_count().unwrap() == 0 && inner.untold().is_zero()).await;
    assert_eq!(lab.fake.told(10).await.len(), 10);
    control.used(KeyHash::of("key"), crate::accounting::Tokens::default(), "0.00003".parse().unwrap());
    assert_eq!(inner.untold().normalize().to_string(), "0.00003");
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_set_aside_and_holds_up_no_other() {
    let lab = Lab::new().await;
    keep(&lab.store, 0..4).await;
    until(|| lab.store.to_post(10).unwrap().len() == 4).await;
    lab.store.damage_rows(&[1, 3]);
    let _control = lab.control();
    until(|| lab.store.next_to_post().unwrap() == Some(3)).await;
    assert_eq!(lab.store.set_aside_count().unwrap(), 1);
    // The last one goes with the next that can be read.
    keep(&lab.store, 4..5).await;
    until(|| lab.store.next_to_post().unwrap() == Some(5)).await;
    assert_eq!(lab.store.set_aside_count().unwrap(), 2);
    let told = lab.fake.told(3).await;
    let told: Vec<_> = told.iter().map(|row| row["requestId"].as_str().unwrap()).collect();
    assert_eq!(told.len(), 3);
    assert!(["req_0", "req_2", "req_4"].iter().all(|id| told.contains(id)), "{told:?}");
}

/// What a batch costs is owed until the store knows that all of it was told: what it does not know is told again.
#[tokio::test]
async fn a_batch_is_owed_until_all_of_it_is_told() {
    let lab = Lab::new().await;
    lab.fake.fails_at("req_2", 503);
    keep(&lab.store, 0..3).await;
    let control = lab.control();
    let Control::ControlPlane(inner) = &control else { unreachable!() };
    let times = |id: &str| lab.fake.calls().iter().filter(|(_, _, row)| row["requestId"] == id).count();
    until(|| times("req_2") >= 2 && times("req_0") == 1 && times("req_1") == 1).await;
    assert_eq!(inner.untold().normalize().to_string(), "0.000033");
    lab.fake.fails_nowhere();
    until(|| inner.untold().is_zero()).await;
}
