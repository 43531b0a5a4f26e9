//! Sessions as anybody reads them.

use std::sync::Arc;

use axum::body::Body;
use cloister_aci::session;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::World;
use super::service::{Service, Time};
use crate::admission::{Control, Keys};
use crate::door::{Answers as _, Door};
use crate::gateway::{Gateway, Live};
use crate::proof::Notary;
use crate::record::{Settings, Store};
use crate::verification::{Trust, Verifications};

async fn gateway(world: &World) -> Arc<Gateway> {
    let (config, clock) = (world.config(&json!({})), world.time.clock());
    let store = Store::open(&world.files.path().join("state"), Settings::default(), clock.clone()).unwrap();
    let trust = Trust::of_verifier(world.service.verifier(clock.clone()));
    let verifications = Verifications::new(trust, store.clone(), clock.clone());
    let control = Control::Keys(Keys::new(&config, store.clone()));
    let notary = Notary::start(&config, Vec::new(), clock).await.unwrap();
    Arc::new(Gateway::new(Live::new(config, None).unwrap(), control, store, notary, verifications, None))
}

async fn get(door: &Door, path: &str) -> (StatusCode, Value) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let answer = door.clone().answer(request).await;
    let status = answer.status();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn sessions_are_listed_and_read_by_anybody() {
    let world = World::trusting(Service::start().await, Time::new(), trust_nobody());
    let gateway = gateway(&world).await;
    let door = Door::new(Arc::clone(&gateway));
    let empty = json!({"api_version": "aci/1", "sessions": []});
    assert_eq!(get(&door, "/v1/aci/sessions").await, (StatusCode::OK, empty.clone()));

    let id = gateway.verifications.channel(&world.route(), &[]).await.unwrap().session_id.clone();
    let (_, all) = get(&door, "/v1/aci/sessions").await;
    assert_eq!(all["sessions"][0]["session_id"], id);
    assert!(all["sessions"][0]["evidence"].get("data").is_none());
    for (query, found) in [
        ("upstream_name=service", true),
        ("provider=service&model=public&other=1", true),
        ("upstream_name=other", false),
        ("provider=other", false),
        ("upstream_name=service&provider=other", false),
        ("model=own", false),
        ("model=", false),
    ] {
        let (status, list) = get(&door, &format!("/v1/aci/sessions?{query}")).await;
        assert_eq!((status, &list), (StatusCode::OK, if found { &all } else { &empty }), "{query}");
    }
    let (status, error) = get(&door, "/v1/aci/sessions?model=a&model=b").await;
    assert_eq!((status, &error["error"]["type"]), (StatusCode::BAD_REQUEST, &json!("invalid_request_error")));

    for path in ["/v1/aci/sessions/", "/v1/aci/sessions/as_", "/v1/audit/sessions/as_"] {
        let (status, record) = get(&door, &format!("{path}{id}")).await;
        assert_eq!((status, session::id(&record).unwrap()), (StatusCode::OK, id.clone()), "{path}");
    }
    let mut seen = Vec::new();
    for id in ["0".repeat(64), "x".to_owned(), id.to_uppercase(), format!("as_as_{id}")] {
        seen.push(get(&door, &format!("/v1/aci/sessions/{id}")).await);
    }
    assert!(seen.iter().all(|one| *one == seen[0]), "{seen:?}");
    assert_eq!((seen[0].0, &seen[0].1["error"]["type"]), (StatusCode::NOT_FOUND, &json!("not_found")));

    // It has ended: nobody is told of it, and whoever has a receipt of it can still read it.
    world.time.advance(300);
    assert_eq!(get(&door, "/v1/aci/sessions").await.1, empty);
    assert_eq!(get(&door, &format!("/v1/aci/sessions/{id}")).await.0, StatusCode::OK);
}

fn trust_nobody() -> Trust {
    Trust::new(&crate::config::TrustConfig::default(), cloister_verifier::Clock::system()).unwrap()
}
