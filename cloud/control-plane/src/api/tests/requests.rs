//! What holds for every request: ids, versions, limits, forms of failure.

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::routing::get;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{Answer, Installation, provision_body};
use crate::api::guarded;

#[tokio::test]
async fn every_answer_carries_a_request_id_and_failures_repeat_it() {
    let installation = Installation::new().await;
    let key = installation.tenant.as_str();
    let ask = async |id: &str| -> Answer {
        let headers = [("x-api-key", key), ("x-request-id", id)];
        installation.call_with(&headers, "GET", "/cvms/nobody", Value::Null).await
    };
    let answer = ask("my-id.1").await.expect(404);
    assert_eq!(answer.header("x-request-id"), "my-id.1");
    assert_eq!(answer.json()["request_id"], "my-id.1");
    for id in ["", "with space", &"x".repeat(129)] {
        let answer = ask(id).await;
        assert_eq!(answer.header("x-request-id").len(), 36, "{id:?}");
    }
    let answer = installation.call("GET", "/cvms", Value::Null).await.expect(200);
    assert_eq!(answer.header("x-request-id").len(), 36);
}

#[tokio::test]
async fn coded_failures_link_to_their_page() {
    let installation = Installation::new().await;
    let headers = [("x-api-key", installation.tenant.as_str()), ("x-request-id", "r-1")];
    let answer = installation.call_with(&headers, "GET", "/cvms/nobody", Value::Null).await;
    insta::assert_json_snapshot!(answer.json());
    let request = Request::builder().uri("/errors/ERR-03-001").body(Body::empty()).unwrap();
    insta::assert_json_snapshot!(installation.send(request).await.expect(200).json());
}

#[tokio::test]
async fn unknown_paths_and_methods_get_json() {
    let installation = Installation::new().await;
    for (method, path, status) in [
        ("GET", "/api/v1/nothing", 404),
        ("GET", "/", 404),
        ("PATCH", "/api/v1/cvms", 405),
        ("DELETE", "/openapi.json", 405),
        ("GET", "/errors/ERR-99-999", 404),
    ] {
        let request = Request::builder().method(method).uri(path).header("x-api-key", &installation.tenant);
        let answer = installation.send(request.body(Body::empty()).unwrap()).await.expect(status);
        assert!(answer.json()["detail"].is_string(), "{path}");
        assert_eq!(answer.header("content-type"), "application/json");
    }
}

#[tokio::test]
async fn the_service_tells_how_it_is() {
    let installation = Installation::new().await;
    let get =
        async |path: &str| installation.send(Request::builder().uri(path).body(Body::empty()).unwrap()).await;
    get("/healthz").await.expect(200);
    get("/readyz").await.expect(200);
    assert_eq!(get("/openapi.json").await.expect(200).json()["openapi"], "3.1.0");
    get("/api/v1/openapi.json").await.expect(200);
    installation.stop.cancel();
    get("/readyz").await.expect(503);
}

#[tokio::test]
async fn a_panic_is_an_answer_without_its_words() {
    let installation = Installation::new().await;
    let broken = Router::new().route("/broken", get(async || -> () { panic!("a secret") }));
    let router = guarded(broken, installation.api.clone());
    let request = Request::builder().uri("/broken").body(Body::empty()).unwrap();
    let answer = Answer::read(router.oneshot(request).await.unwrap()).await.expect(500);
    assert!(answer.json()["detail"].is_string() && !answer.text.contains("secret"), "{}", answer.text);
    assert_eq!(answer.header("x-request-id").len(), 36);
}

#[tokio::test]
async fn versions_are_negotiated_and_named() {
    let installation = Installation::new().await;
    for (asked, given) in
        [("2025-10-28", "2025-10-28"), ("2026-02-01", "2026-01-21"), ("2030-01-01", "2026-06-23")]
    {
        let answer = installation.get_in(asked, "/cvms").await.expect(200);
        assert_eq!(answer.header("x-phala-version"), given);
    }
    assert_eq!(installation.get_in("newest", "/cvms").await.summary(), "400 plain");
    let answer = installation.call("GET", "/cvms", Value::Null).await;
    assert_eq!(answer.header("x-phala-version"), "2026-01-21", "the key's own version");
}

#[tokio::test]
async fn bodies_are_read_leniently_within_limits() {
    let installation = Installation::new().await;
    let key = installation.tenant.clone();
    let post = async |body: String| {
        let request =
            Request::builder().method("POST").uri("/api/v1/cvms/provision").header("x-api-key", &key);
        installation.send(request.body(Body::from(body)).unwrap()).await
    };
    // No content type at all, members that nobody knows.
    let mut body = provision_body("my-app-01");
    body["unknown"] = json!([1, 2]);
    post(body.to_string()).await.expect(200);
    for (body, summary) in [
        (String::new(), "422 validation"),
        ("null".to_owned(), "422 validation"),
        ("{".to_owned(), "422 validation"),
        ("[]".to_owned(), "422 validation"),
        ("[".repeat(100_000), "422 validation"),
        (" ".repeat(2 * 1024 * 1024), "413 plain"),
    ] {
        assert_eq!(post(body.clone()).await.summary(), summary, "{}", &body[..body.len().min(9)]);
    }
    let answer = post("{\"name\": \"x\",}".to_owned()).await;
    insta::assert_json_snapshot!(answer.json());
}

#[tokio::test]
async fn queries_are_checked() {
    let installation = Installation::new().await;
    let vm = installation.create("my-app-01").await;
    let cvm = format!("/cvms/{}", vm["id"]);
    for path in [
        "/cvms/paginated?page=0".to_owned(),
        "/cvms/paginated?page=two".to_owned(),
        "/cvms/paginated?page_size=101".to_owned(),
        format!("{cvm}/operations?limit=501"),
        format!("{cvm}/operations?limit=0"),
        format!("{cvm}/operations?cursor=nonsense"),
        format!("{cvm}/operations?start_time=yesterday"),
        format!("{cvm}/state?interval=4"),
        format!("{cvm}/state?timeout=601"),
        "/os-images?is_dev=perhaps".to_owned(),
    ] {
        let answer = installation.call("GET", &path, Value::Null).await;
        assert_eq!(answer.summary(), "422 validation", "{path}");
        assert_eq!(answer.json()["detail"][0]["loc"][0], "query", "{path}");
    }
    for path in ["/cvms?user_id=0", "/cvms?teepod_id=1", "/cvms/paginated?teepod_id=1"] {
        assert_eq!(installation.call("GET", path, Value::Null).await.summary(), "403 plain", "{path}");
    }
    let admin = [("x-api-key", installation.admin.as_str())];
    for (path, count) in [("/cvms?user_id=0", 0), ("/cvms?teepod_id=1", 1), ("/cvms", 0)] {
        let answer = installation.call_with(&admin, "GET", path, Value::Null).await.expect(200);
        assert_eq!(answer.json().as_array().unwrap().len(), count, "{path}");
    }
    let answer = installation.call_with(&admin, "GET", "/cvms?user_id=usr_x", Value::Null).await;
    assert_eq!(answer.summary(), "422 validation");
}

#[test]
fn no_input_gives_a_500() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let installation = runtime.block_on(Installation::new());
    let path = "/[a-z_]{0,6}(/[a-zA-Z0-9_.%-]{0,12}){0,3}";
    let query = "[a-z_=&0-9%.-]{0,30}";
    let body = r#"[{}\[\]":,a-z0-9_. \\-]{0,60}"#;
    let method = prop::sample::select(vec!["GET", "POST", "PUT", "DELETE", "PATCH"]);
    let inputs = (path, query, body, method);
    let mut runner = TestRunner::new(ProptestConfig::with_cases(256));
    let checked = runner.run(&inputs, |(path, query, body, method)| {
        for path in [path.clone(), format!("/cvms{path}"), "/cvms/provision".to_owned()] {
            let uri = format!("/api/v1{path}?{query}");
            let request =
                Request::builder().method(method).uri(uri).header("x-api-key", &installation.tenant);
            let Ok(request) = request.body(Body::from(body.clone())) else { continue };
            let answer = runtime.block_on(installation.send(request));
            prop_assert!(answer.status.as_u16() < 500, "{}: {}", path, answer.text);
        }
        Ok(())
    });
    checked.unwrap();
}

#[tokio::test]
async fn texts_that_no_database_stores_are_refused() {
    let installation = Installation::on_postgres().await;
    installation.call("GET", "/cvms/web%00app", Value::Null).await.expect(404);
    installation.call("GET", "/workspaces/web%00app", Value::Null).await.expect(404);
    installation.call("POST", "/tokens", json!({"name": "a\u{0}b"})).await.expect(422);
    installation.call("GET", "/cvms?user_id=%00", Value::Null).await.expect(422);
    installation.call("POST", "/status/batch", json!({"vm_uuids": ["\u{0}"]})).await.expect(200);
    let mut body = provision_body("my-app-01");
    body["compose_file"]["salt"] = "\u{0}".into();
    body["user_config"] = "{\"a\": \"\\u0000\"}".into();
    installation.call("POST", "/cvms/provision", body).await.expect(200);
    let admin = [("x-api-key", installation.admin.as_str())];
    installation.call_with(&admin, "DELETE", "/admin/nodes/a%00b", Value::Null).await.expect(404);
    installation.app.store.close().await;
}
