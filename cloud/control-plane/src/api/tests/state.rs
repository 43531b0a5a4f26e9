//! The state and its stream.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use axum::response::IntoResponse;
use axum::response::sse::Sse;
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

use super::{Answer, Installation};
use crate::api::cvms::state::{Pace, Watch};
use crate::operations::CvmStatus;

fn request(installation: &Installation, vm: &Value, query: &str) -> Request<Body> {
    let uri = format!("/api/v1/cvms/{}/state?{query}", vm["id"]);
    Request::builder().uri(uri).header("x-api-key", &installation.tenant).body(Body::empty()).unwrap()
}

/// Names and statuses of the events of a finished stream.
fn events(answer: &Answer) -> Vec<(String, Value)> {
    let block = |block: &str| {
        let (name, data) = block.split_once('\n').unwrap();
        let data = data.strip_prefix("data: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        (name.strip_prefix("event: ").unwrap().to_owned(), data)
    };
    answer.text.split("\n\n").filter(|text| !text.is_empty() && !text.starts_with(':')).map(block).collect()
}

#[tokio::test]
async fn the_state_has_no_nulls() {
    let installation = Installation::new().await;
    let vm = installation.create("my-app-01").await;
    let answer = installation.send(request(&installation, &vm, "target=")).await.expect(200);
    assert!(!answer.text.contains("null"), "{}", answer.text);
    assert_eq!(answer.json()["status"], "creating");
}

#[tokio::test]
async fn a_watcher_sees_each_state_and_the_target_twice() {
    let installation = Installation::new().await;
    let vm = installation.create("my-app-01").await;
    let response =
        installation.router.clone().oneshot(request(&installation, &vm, "target=running")).await.unwrap();
    let mut body = response.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(first.starts_with(b"event: state\ndata: {"), "the state comes at once");
    installation.settle(&vm, CvmStatus::Running).await;
    let rest = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8([first, rest].concat()).unwrap();
    let answer = Answer { status: 200.try_into().unwrap(), headers: axum::http::HeaderMap::new(), text };
    let seen: Vec<_> =
        events(&answer).into_iter().map(|(name, data)| (name, data["status"].clone())).collect();
    let expected = [("state", "creating"), ("state", "running"), ("complete", "running")];
    assert_eq!(seen, expected.map(|(name, status)| (name.to_owned(), status.into())));
}

#[tokio::test]
async fn a_watcher_is_told_once_an_interval_and_when_time_is_up() {
    let installation = Installation::new().await;
    let vm = installation.create("my-app-01").await;
    let (row, target) = (installation.row(&vm).await, Some("running".to_owned()));
    let pace = Pace {
        look_every: Duration::from_millis(5),
        interval: Duration::from_millis(20),
        timeout: Duration::from_millis(500),
    };
    let watch = Watch::open(installation.api.clone(), 1, row.id, target, pace).unwrap();
    let response = Sse::new(watch.into_stream()).into_response();
    let names: Vec<_> = events(&Answer::read(response).await).into_iter().map(|(name, _)| name).collect();
    let (last, states) = names.split_last().unwrap();
    assert_eq!(last, "timeout");
    assert!(states.iter().all(|name| name == "state") && (3..=26).contains(&states.len()), "{names:?}");
}

#[tokio::test]
async fn at_the_target_already_the_stream_ends_at_once() {
    let installation = Installation::new().await;
    let vm = installation.create("my-app-01").await;
    let answer = installation.send(request(&installation, &vm, "target=creating")).await;
    let events = events(&answer);
    assert_eq!(events[0].0, "state");
    assert_eq!(events[1].0, "complete");
    assert_eq!(events[0].1, events[1].1, "the end repeats the whole state");
}

#[tokio::test]
async fn a_user_has_five_streams_and_gets_them_back() {
    let installation = Installation::new().await;
    let vm = installation.create("my-app-01").await;
    let open = async || {
        let request = request(&installation, &vm, "target=running");
        installation.router.clone().oneshot(request).await.unwrap()
    };
    let mut streams = Vec::new();
    for _ in 0..5 {
        streams.push(open().await);
    }
    let refused = Answer::read(open().await).await;
    assert_eq!(refused.summary(), "429 plain");
    streams.pop();
    assert_eq!(open().await.status(), 200);
}

#[tokio::test]
async fn streams_end_with_the_service_and_with_the_cvm() {
    let installation = Installation::new().await;
    let vm = installation.create("my-app-01").await;
    let row = installation.row(&vm).await;
    let watching = installation.router.clone().oneshot(request(&installation, &vm, "target=running")).await;
    let mut change = installation.app.store.change().await.unwrap();
    change.delete_cvm(&row, 0).await.unwrap();
    change.commit().await.unwrap();
    let events = events(&Answer::read(watching.unwrap()).await);
    let (name, data) = events.last().unwrap();
    assert!(name == "error" && data["error"].is_string(), "{events:?}");

    let vm = installation.create("my-app-02").await;
    let watching = installation.send(request(&installation, &vm, "target=running"));
    installation.stop.cancel();
    tokio::time::timeout(Duration::from_secs(10), watching).await.unwrap();
}
