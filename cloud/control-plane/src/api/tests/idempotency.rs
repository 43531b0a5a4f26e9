//! What is asked for again under the same name happens once.

use std::collections::HashSet;
use std::fs;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::handler::Handler;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use cloister_management_api::KeyScope;
use futures_util::future::join_all;
use futures_util::stream;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{Answer, Installation};
use crate::api::auth::{Auth, hash_key};
use crate::api::error::{ApiError, ApiResult};
use crate::api::{Api, PREFIX, REQUEST_TIMEOUT, document, for_keys, guarded, once};
use crate::operations::CvmStatus;
use crate::store::{Caller, NewApiKey};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

impl Installation {
    async fn named(&self, name: &str, method: &str, path: &str, body: Value) -> Answer {
        self.call_with(&[("x-api-key", &self.tenant), ("idempotency-key", name)], method, path, body).await
    }

    /// Names of the tenant's keys but the first.
    async fn key_names(&self) -> Vec<String> {
        let keys = self.call("GET", "/tokens", Value::Null).await.expect(200).json();
        let names = keys.as_array().unwrap().iter().map(|key| key["name"].as_str().unwrap().to_owned());
        names.filter(|name| name != "first").collect()
    }
}

fn token(name: &str) -> Value {
    json!({"name": name, "scope": "read"})
}

#[tokio::test]
async fn the_same_request_gets_the_same_answer_for_a_day() {
    let installation = Installation::new().await;
    let made = installation.named("a", "POST", "/tokens", token("ci")).await.expect(201);
    assert!(made.headers.get("idempotency-replayed").is_none());
    for _ in 0..2 {
        let again = installation.named("a", "POST", "/tokens", token("ci")).await.expect(201);
        assert_eq!((&again.text, again.header("idempotency-replayed")), (&made.text, "true"));
        assert_eq!(again.header("content-type"), made.header("content-type"));
        assert_eq!(again.header("x-phala-version"), made.header("x-phala-version"));
    }
    assert_eq!(installation.key_names().await, ["ci"]);
    installation.app.clock.advance_ms(DAY_MS + 1);
    let other = installation.named("a", "POST", "/tokens", token("ci")).await.expect(201);
    assert_ne!(other.text, made.text);
}

#[tokio::test]
async fn a_name_is_for_one_request_of_one_key() {
    let installation = Installation::new().await;
    installation.named("a", "POST", "/tokens", token("ci")).await.expect(201);
    let version = [
        ("x-api-key", installation.tenant.as_str()),
        ("idempotency-key", "a"),
        ("x-phala-version", "2025-10-28"),
    ];
    for answer in [
        installation.named("a", "POST", "/tokens", token("other")).await,
        installation.named("a", "POST", "/tokens?x=1", token("ci")).await,
        installation.named("a", "POST", "/user/ssh-keys", token("ci")).await,
        installation.call_with(&version, "POST", "/tokens", token("ci")).await,
    ] {
        assert!(answer.expect(422).json()["detail"].as_str().unwrap().contains("take a new one"));
    }
    let other = [("x-api-key", installation.admin.as_str()), ("idempotency-key", "a")];
    installation.call_with(&other, "POST", "/tokens", token("ci")).await.expect(201);
    assert_eq!(installation.key_names().await, ["ci"]);
}

#[tokio::test]
async fn names_are_printable_and_short_and_only_changes_have_one() {
    let installation = Installation::new().await;
    for name in ["", "\u{e4}", &"x".repeat(256)] {
        let answer = installation.named(name, "POST", "/tokens", token("ci")).await.expect(422);
        assert_eq!(answer.json()["detail"][0]["loc"], json!(["header", "Idempotency-Key"]));
    }
    let name = "x".repeat(255);
    installation.named(&name, "POST", "/tokens", token("ci")).await.expect(201);
    for _ in 0..2 {
        let read = installation.named(&name, "GET", "/tokens", Value::Null).await.expect(200);
        assert!(read.headers.get("idempotency-replayed").is_none());
    }
}

#[tokio::test]
async fn what_was_refused_can_be_mended_under_the_same_name() {
    let installation = Installation::new().await;
    installation.named("a", "POST", "/tokens", token("")).await.expect(422);
    installation.named("a", "POST", "/tokens", token("ci")).await.expect(201);
    // A key that may not is refused before anything is looked up.
    let read = installation.call("POST", "/tokens", token("reader")).await.expect(201).json();
    let headers = [("x-api-key", read["token"].as_str().unwrap()), ("idempotency-key", "a")];
    let refused = installation.call_with(&headers, "POST", "/tokens", token("ci")).await.expect(403);
    assert!(refused.headers.get("idempotency-replayed").is_none());
}

#[tokio::test]
async fn a_cvm_is_created_once() {
    let installation = Installation::new().await;
    let provision = installation.provision("hello").await;
    let body = json!({"app_id": provision["app_id"], "compose_hash": provision["compose_hash"]});
    let made = installation.named("a", "POST", "/cvms", body.clone()).await.expect(200);
    assert_eq!(installation.named("a", "POST", "/cvms", body).await.expect(200).text, made.text);
    let all = installation.call("GET", "/cvms", Value::Null).await.expect(200).json();
    assert_eq!(all.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn what_asks_to_be_repeated_leaves_the_name_free() {
    let installation = Installation::new().await;
    let vm = installation.create("hello").await;
    let path = format!("/cvms/{}/restart", vm["vm_uuid"].as_str().unwrap());
    let refused = installation.named("a", "POST", &path, Value::Null).await.expect(409);
    assert!(refused.headers.get("retry-after").is_some(), "{}", refused.text);
    installation.settle(&vm, CvmStatus::Running).await;
    let accepted = installation.named("a", "POST", &path, Value::Null).await;
    assert!(accepted.status.is_success(), "{}", accepted.text);
    assert_eq!(installation.named("a", "POST", &path, Value::Null).await.text, accepted.text);
}

#[tokio::test]
async fn a_secret_that_is_shown_is_shown_with_a_record_each_time() {
    let installation = Installation::new().await;
    let new = json!({"url": "https://hooks.example.org/", "events": ["cvm.created"]});
    let hook = installation.named("a", "POST", "/workspace/webhooks", new).await.expect(201).json();
    let path = format!("/workspace/webhooks/{}/reveal-secret", hook["id"].as_str().unwrap());
    for _ in 0..2 {
        let shown = installation.named("b", "POST", &path, Value::Null).await.expect(200);
        assert!(shown.headers.get("idempotency-replayed").is_none());
    }
    let audit = installation.call("GET", "/workspace/audit", Value::Null).await.json();
    let shown = audit["items"].as_array().unwrap().iter();
    assert_eq!(shown.filter(|record| record["operation"] == "reveal_webhook_secret").count(), 2);
}

#[tokio::test]
async fn what_a_key_was_answered_goes_with_it() {
    let installation = Installation::new().await;
    let made = installation.call("POST", "/tokens", json!({"name": "ci"})).await.expect(201).json();
    let headers = [("x-api-key", made["token"].as_str().unwrap()), ("idempotency-key", "of-the-key")];
    installation.call_with(&headers, "POST", "/tokens", token("other")).await.expect(201);
    let path = format!("/tokens/{}", made["id"].as_str().unwrap());
    installation.call("DELETE", &path, Value::Null).await.expect(204);
    let mut change = installation.app.store.upkeep().await.unwrap();
    assert_eq!(change.delete_old_requests(i64::MAX, std::time::Duration::ZERO, 10).await.unwrap(), 0);
}

/// Whatever the document says takes the header looks at it.
#[tokio::test]
async fn every_operation_that_is_described_with_the_header_knows_it() {
    let installation = Installation::new().await;
    let document = serde_json::to_value(document()).unwrap();
    let mut count = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            if !parameters.into_iter().any(|parameter| parameter["name"] == "Idempotency-Key") {
                continue;
            }
            count += 1;
            let path = path.strip_prefix("/api/v1").unwrap().replace(['{', '}'], "");
            let headers = [("x-api-key", installation.admin.as_str()), ("idempotency-key", "")];
            let answer = installation.call_with(&headers, &method.to_uppercase(), &path, json!({})).await;
            assert_eq!(
                answer.expect(422).json()["detail"][0]["loc"][1],
                "Idempotency-Key",
                "{method} {path}"
            );
        }
    }
    assert!(count > 40, "{count}");
}

async fn of_many_one_runs(installation: Installation) {
    let names = 0..12;
    let all = join_all(names.map(|_| installation.named("a", "POST", "/tokens", token("ci")))).await;
    let mut answers = HashSet::new();
    for answer in all {
        match answer.status.as_u16() {
            201 => drop(answers.insert(answer.text)),
            409 => assert_eq!(answer.header("retry-after"), "1"),
            other => panic!("{other}: {}", answer.text),
        }
    }
    assert_eq!(answers.len(), 1);
    assert_eq!(installation.key_names().await, ["ci"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_that_come_together_one_runs() {
    of_many_one_runs(Installation::new().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_that_come_together_one_runs_on_postgres() {
    of_many_one_runs(Installation::on_postgres().await).await;
}

/// Wherever a client leaves, it gets the answer when it comes back, and there is one effect.
#[tokio::test]
async fn a_client_that_left_gets_the_answer_when_it_comes_back() {
    let installation = Installation::new().await;
    for polls in 0..16 {
        let name = format!("left-{polls}");
        let request = Request::post("/api/v1/tokens")
            .header("x-api-key", &installation.tenant)
            .header("idempotency-key", &name)
            .header("content-type", "application/json");
        let request = request.body(Body::from(token(&name).to_string())).unwrap();
        {
            let mut left = Box::pin(installation.router.clone().oneshot(request));
            for _ in 0..polls {
                if futures_util::poll!(&mut left).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        let mut answer = installation.named(&name, "POST", "/tokens", token(&name)).await;
        for _ in 0..1_000 {
            if answer.status != 409 {
                break;
            }
            tokio::task::yield_now().await;
            answer = installation.named(&name, "POST", "/tokens", token(&name)).await;
        }
        let answer = answer.expect(201);
        assert_eq!(answer.json()["name"], name);
        // The workspace makes ten keys in a minute.
        installation.app.clock.advance_ms(10_000);
    }
    let names = installation.key_names().await;
    assert_eq!(names.len(), 16);
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), 16);
}

/// The surface with one operation, another one for making keys.
fn surface_with<H, T>(installation: &Installation, time: Duration, handler: H) -> Router
where
    H: Handler<T, Api>,
    T: 'static,
{
    let (api, routes) = (&installation.api, Router::new().route("/tokens", post(handler)));
    guarded(Router::new().nest(PREFIX, for_keys(once(routes, api, time), api)), api.clone())
}

/// Asks it for a key.
async fn ask(installation: &Installation, router: &Router, body: Body) -> Answer {
    let request = Request::post("/api/v1/tokens").header("x-api-key", &installation.tenant);
    let request = request.header("idempotency-key", "a").body(body).unwrap();
    Answer::read(router.clone().oneshot(request).await.unwrap()).await
}

/// Has an effect: the caller's workspace has one more key.
async fn have_an_effect(api: &Api, caller: &Caller) {
    let new = NewApiKey {
        user_id: caller.user_id,
        workspace_id: caller.workspace_id,
        name: "effect".into(),
        key_hash: "effect".into(),
        key_prefix: String::new(),
        scope: KeyScope::Read,
        default_version: String::new(),
        expires_at_ms: None,
    };
    let mut change = api.store.change().await.unwrap();
    change.insert_api_key(&new, api.clock.now_ms()).await.unwrap();
    change.commit().await.unwrap();
}

#[tokio::test]
async fn a_body_that_never_ends_takes_no_name() {
    let installation = Installation::new().await;
    let never = async || -> StatusCode { panic!("it was never read to its end") };
    let router = surface_with(&installation, Duration::from_millis(20), never);
    let endless = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
    let answer = ask(&installation, &router, endless).await.expect(504);
    assert!(!answer.header("retry-after").is_empty(), "{}", answer.text);
    installation.named("a", "POST", "/tokens", token("ci")).await.expect(201);
}

#[tokio::test]
async fn a_failure_behind_an_effect_is_nobodys_answer_and_no_reason_for_another() {
    let installation = Installation::new().await;
    let fails = async |State(api): State<Api>, Auth(caller): Auth| -> ApiResult<StatusCode> {
        have_an_effect(&api, &caller).await;
        Err(ApiError::unexpected())
    };
    let router = surface_with(&installation, REQUEST_TIMEOUT, fails);
    ask(&installation, &router, Body::empty()).await.expect(500);
    for _ in 0..2 {
        let again = ask(&installation, &router, Body::empty()).await.expect(409);
        assert!(again.json()["detail"].as_str().unwrap().contains("its answer was lost"), "{}", again.text);
        assert!(again.headers.get("retry-after").is_none(), "nothing to wait for");
    }
    assert_eq!(installation.key_names().await, ["effect"]);
}

#[tokio::test]
async fn a_failure_without_an_effect_can_be_repeated() {
    let installation = Installation::new().await;
    let fails = async || -> ApiResult<StatusCode> { Err(ApiError::unexpected()) };
    let router = surface_with(&installation, REQUEST_TIMEOUT, fails);
    for _ in 0..2 {
        ask(&installation, &router, Body::empty()).await.expect(500);
    }
    let works = surface_with(&installation, REQUEST_TIMEOUT, async || StatusCode::CREATED);
    ask(&installation, &works, Body::empty()).await.expect(201);
}

#[tokio::test]
async fn an_answer_that_cannot_be_kept_is_given_and_its_effect_known() {
    let installation = Installation::new().await;
    let lasts = async |State(api): State<Api>, Auth(caller): Auth| {
        have_an_effect(&api, &caller).await;
        // Nothing is kept from here on.
        api.store.close().await;
        (StatusCode::CREATED, "made")
    };
    let router = surface_with(&installation, REQUEST_TIMEOUT, lasts);
    assert_eq!(ask(&installation, &router, Body::empty()).await.expect(201).text, "made");

    let again = installation.copy().await;
    let never = async || -> StatusCode { panic!("it was done") };
    let router = surface_with(&again, REQUEST_TIMEOUT, never);
    // As long as it may still run, its answer may come.
    assert_eq!(ask(&again, &router, Body::empty()).await.expect(409).header("retry-after"), "1");
    again.app.clock.advance_ms(60_000);
    let lost = ask(&again, &router, Body::empty()).await.expect(409);
    assert!(lost.json()["detail"].as_str().unwrap().contains("its answer was lost"), "{}", lost.text);
    assert!(lost.headers.get("retry-after").is_none());
    assert_eq!(again.key_names().await, ["effect"]);
}

#[tokio::test]
async fn what_was_answered_cannot_be_read_from_the_database() {
    let installation = Installation::new().await;
    let made = installation.named("my-secret-name", "POST", "/tokens", token("ci")).await.expect(201).json();
    let secret = made["token"].as_str().unwrap();
    let mut read = 0;
    for file in fs::read_dir(installation.data.path()).unwrap() {
        let Ok(bytes) = fs::read(file.unwrap().path()) else { continue };
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains(secret) && !text.contains("my-secret-name"));
        read += usize::from(text.contains(&hash_key("my-secret-name")));
    }
    assert!(read > 0, "the database was looked at");
}
