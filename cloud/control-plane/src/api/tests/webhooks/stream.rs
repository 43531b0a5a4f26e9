//! The stream of events.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use axum::response::IntoResponse;
use axum::response::sse::Sse;
use cloister_management_api::WebhookCursor;
use cloister_webhooks::{Envelope, EventKind};
use http_body_util::BodyExt;
use tower::ServiceExt;

use super::super::{Answer, Installation};
use crate::api::auth::hash_key;
use crate::api::webhooks::stream::{Follower, Pace};
use crate::store::Caller;

const SHORT: Pace = Pace { look_every: Duration::from_millis(5), lifetime: Duration::from_millis(200) };

async fn caller(installation: &Installation) -> Caller {
    let key = hash_key(&installation.tenant);
    installation.app.store.caller(&key, installation.app.clock.now_ms()).await.unwrap().unwrap()
}

/// Place, name and data of each event of a finished stream.
async fn told(
    installation: &Installation,
    last: Option<&str>,
    kinds: Vec<EventKind>,
) -> Vec<(String, String, String)> {
    let last = last.map(|text| text.parse::<WebhookCursor>().unwrap());
    let caller = caller(installation).await;
    let follower = Follower::open(installation.api.clone(), &caller, last, kinds, SHORT).await.unwrap();
    blocks(&Answer::read(Sse::new(follower.into_stream()).into_response()).await.text)
}

fn blocks(text: &str) -> Vec<(String, String, String)> {
    let field = |block: &str, name: &str| {
        block.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned()
    };
    let blocks = text.split("\n\n").filter(|block| !block.is_empty());
    blocks.map(|block| (field(block, "id: "), field(block, "event: "), field(block, "data: "))).collect()
}

/// The first events of a stream that goes on.
async fn first_of(installation: &Installation, from: &str, count: usize) -> Vec<(String, String, String)> {
    let lasting = Pace { lifetime: Duration::from_hours(1), ..SHORT };
    let from = from.parse().unwrap();
    let caller = caller(installation).await;
    let follower =
        Follower::open(installation.api.clone(), &caller, Some(from), Vec::new(), lasting).await.unwrap();
    let mut body = Sse::new(follower.into_stream()).into_response().into_body();
    let mut text = Vec::new();
    let is_whole = |text: &[u8]| text.windows(2).filter(|pair| pair == b"\n\n").count() > count;
    let read = async {
        while !is_whole(&text) {
            text.extend(body.frame().await.unwrap().unwrap().into_data().unwrap());
        }
    };
    tokio::time::timeout(Duration::from_mins(1), read).await.expect("events are missing");
    let mut told = blocks(std::str::from_utf8(&text).unwrap());
    assert_eq!(told.remove(0).1, "ready");
    told
}

fn names(told: &[(String, String, String)]) -> Vec<&str> {
    told.iter().map(|(_, name, _)| name.as_str()).collect()
}

async fn followed(installation: Installation) {
    let workspace = installation.tenant_workspace;
    installation.happen(workspace, EventKind::CvmCreated, 1).await;
    // From now on: nothing of before.
    let first = told(&installation, None, Vec::new()).await;
    assert_eq!(names(&first), ["ready", "end"]);
    assert_eq!(first[0].0, first[1].0, "the place to go on from");

    installation.happen(workspace - 1, EventKind::CvmStopped, 2).await;
    installation.happen(workspace, EventKind::CvmStarted, 1).await;
    installation.happen(workspace, EventKind::CvmDeleted, 150).await;
    let from = &first[1].0;
    let all = first_of(&installation, from, 151).await;
    assert_eq!(all.len(), 151, "more than are read at a time, and none of another workspace");
    assert_eq!(names(&all)[..2], ["cvm.started", "cvm.deleted"]);
    for (_, name, data) in &all {
        let envelope: Envelope = serde_json::from_str(data).unwrap();
        assert_eq!(envelope.event.as_str(), name);
        assert_eq!(envelope.workspace.id, "tenant");
        assert_eq!(String::from_utf8(envelope.to_bytes()).unwrap(), *data, "as webhooks get it");
    }
    // On from the middle, and only some kinds.
    let rest = first_of(&installation, &all[99].0, 51).await;
    assert_eq!(rest, all[100..]);
    // What was left out is not looked at again: by as many streams as a slow machine takes, the place goes on to the last.
    let (mut place, mut some) = (from.clone(), Vec::new());
    for _ in 0..300 {
        if place == all[150].0 {
            break;
        }
        let mut stream = told(&installation, Some(&place), vec![EventKind::CvmStarted]).await;
        place = stream.pop().unwrap().0;
        some.extend(stream.into_iter().skip(1));
    }
    assert_eq!((&place, names(&some)), (&all[150].0, vec!["cvm.started"]));
}

#[tokio::test]
async fn events_are_followed_from_a_place() {
    followed(Installation::new().await).await;
}

#[tokio::test]
async fn events_are_followed_the_same_on_postgres() {
    followed(Installation::on_postgres().await).await;
}

#[tokio::test]
async fn a_workspace_has_five_streams() {
    let installation = Installation::new().await;
    let open = async |query: &str, header: Option<&str>| {
        let uri = format!("/api/v1/workspace/webhooks/events/stream{query}");
        let mut request = Request::builder().uri(uri).header("x-api-key", &installation.tenant);
        if let Some(last) = header {
            request = request.header("last-event-id", last);
        }
        installation.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
    };
    let mut streams = Vec::new();
    for _ in 0..5 {
        let response = open("", None).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        streams.push(response);
    }
    assert_eq!(Answer::read(open("", None).await).await.summary(), "429 plain");
    let mut body = streams.remove(0).into_body();
    let ready = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(ready.starts_with(b"id: whc_"), "{ready:?}");
    drop(body);
    for (query, header) in
        [("?after=x", None), ("?after=cvm_1", None), ("", Some("x")), ("?events=cvm.exploded", None)]
    {
        assert_eq!(Answer::read(open(query, header).await).await.summary(), "422 validation", "{query}");
    }
    let last = WebhookCursor(0).to_string();
    let response = open("?after=whc_x", Some(&last)).await;
    assert_eq!(Answer::read(response).await.summary(), "422 validation");
    let response = open(&format!("?after={last}&events=cvm.created&events=cvm.deleted"), Some(&last)).await;
    assert_eq!(response.status(), 200);
    // The service ends: so do streams.
    installation.stop.cancel();
    drop(streams);
    let text = Answer::read(response).await.text;
    assert!(text.contains("event: ready"), "{text}");
}
