//! What keys of each scope may do.

use std::fmt::Write as _;

use axum::body::Body;
use axum::http::Request;
use cloister_management_api::KeyScope;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{Answer, Installation};
use crate::api::access::{self, Access};
use crate::api::document;

async fn key(installation: &Installation, scope: KeyScope) -> String {
    let body = json!({"name": format!("{scope}-key"), "scope": scope});
    let made = installation.call("POST", "/tokens", body).await.expect(201).json();
    assert_eq!(made["scope"], scope.as_str());
    made["token"].as_str().unwrap().to_owned()
}

/// Method, path below the prefix and name of every operation of the document.
fn operations() -> Vec<(String, String, String)> {
    let document = serde_json::to_value(document()).unwrap();
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let path = path.strip_prefix("/api/v1").unwrap();
        for (method, operation) in item.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap();
            all.push((method.to_uppercase(), path.to_owned(), name.to_owned()));
        }
    }
    all
}

/// Whether a request was refused for the scope of its key, and for which scope.
fn refused_for(answer: &Answer) -> Option<String> {
    let body: Value = serde_json::from_str(&answer.text).unwrap_or_default();
    let detail = body["detail"].as_str().filter(|_| answer.status.as_u16() == 403)?;
    let (_, rest) = detail.split_once("this needs a key of scope '")?;
    Some(rest.split('\'').next()?.to_owned())
}

#[test]
fn every_operation_has_exactly_one_rule() {
    let operations = operations();
    for (method, path, name) in &operations {
        let rules = access::rules().iter().filter(|rule| rule.operation == name).collect::<Vec<_>>();
        assert_eq!(rules.len(), 1, "{name} needs one row in api/access/table.rs");
        assert_eq!((rules[0].method, rules[0].path), (method.as_str(), path.as_str()), "{name}");
    }
    for rule in access::rules() {
        let is_there = operations.iter().any(|(.., name)| name == rule.operation);
        assert!(is_there, "{} is no operation", rule.operation);
        // What changes something is never within the reach of a key that may only read. Every key ends itself.
        let is_reading = rule.changes.is_none();
        assert!(is_reading || rule.access != Access::Key(KeyScope::Read), "{}", rule.operation);
        assert!(rule.changes.is_none() || rule.method != "GET", "{}", rule.operation);
    }
}

#[tokio::test]
async fn the_matrix_of_scopes_is_the_reviewed_one() {
    let installation = Installation::new().await;
    let mut keys = Vec::new();
    for scope in KeyScope::ALL {
        keys.push((scope, key(&installation, scope).await));
    }
    let mut table =
        String::from("operation | needs | changes | inference key | read key | deploy key | admin key\n");
    for rule in access::rules() {
        let needs = match rule.access {
            Access::Key(scope) => scope.to_string(),
            other => format!("{other:?}"),
        };
        let mut cells = vec![
            format!("{} {}", rule.method, rule.operation),
            needs,
            rule.changes.unwrap_or("-").to_owned(),
        ];
        // Whoever may follow events would do so for minutes.
        let path = rule.path.replace(['{', '}'], "").replace("/events/stream", "/events/stream?after=x");
        for (scope, key) in &keys {
            // A key that ends itself is one that nothing else needs.
            let key = match rule.operation {
                "delete_own_token" => &self::key(&installation, *scope).await,
                _ => key,
            };
            let request = Request::builder()
                .method(rule.method)
                .uri(format!("/api/v1{path}"))
                .header("x-api-key", key)
                .header("content-type", "application/json");
            let request = request.body(Body::from("{}")).unwrap();
            let response = installation.router.clone().oneshot(request).await.unwrap();
            // A stream has no end, and is none that was refused.
            let refused = match response.status().as_u16() {
                403 => refused_for(&Answer::read(response).await),
                _ => None,
            };
            if let Access::Key(needed) = rule.access {
                let expected = (!scope.includes(needed)).then(|| needed.to_string());
                assert_eq!(refused, expected, "{} with {scope}", rule.operation);
            } else {
                assert_eq!(refused, None, "{} with {scope}", rule.operation);
            }
            cells.push(if refused.is_some() { "403" } else { "passes" }.to_owned());
        }
        writeln!(table, "{}", cells.join(" | ")).unwrap();
    }
    insta::assert_snapshot!(table);
}

#[tokio::test]
async fn a_scope_is_looked_at_before_anything_else() {
    let installation = Installation::new().await;
    let vm = installation.create("my-app").await;
    let read = key(&installation, KeyScope::Read).await;
    let headers = [("x-api-key", read.as_str())];
    let mut answers = Vec::new();
    for cvm in
        [vm["vm_uuid"].as_str().unwrap(), "my-app", "none-such", "11111111-2222-4333-8444-555555555555"]
    {
        for body in [Value::Null, json!({"name": 7}), json!({"name": "other-app"})] {
            let answer = installation.call_with(&headers, "PATCH", &format!("/cvms/{cvm}/name"), body).await;
            answers.push(answer.expect(403).json());
        }
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
    installation.call_with(&headers, "GET", "/cvms/my-app", Value::Null).await.expect(200);
    // A method that no operation has needs everything, too.
    installation.call_with(&headers, "DELETE", "/cvms", Value::Null).await.expect(403);
    assert_eq!(installation.call("DELETE", "/cvms", Value::Null).await.status.as_u16(), 405);
}

#[tokio::test]
async fn scopes_are_given_shown_and_default_to_the_own_one() {
    let installation = Installation::new().await;
    let made = installation.call("POST", "/tokens", json!({"name": "default"})).await.expect(201).json();
    assert_eq!(made["scope"], "admin");
    let deploy = key(&installation, KeyScope::Deploy).await;
    let refused = installation.call("POST", "/tokens", json!({"name": "x", "scope": "root"})).await;
    assert_eq!(refused.summary(), "422 validation");
    let headers = [("x-api-key", deploy.as_str())];
    installation
        .call_with(&headers, "POST", "/tokens", json!({"name": "x", "scope": "read"}))
        .await
        .expect(403);
    let listed = installation.call_with(&headers, "GET", "/tokens", Value::Null).await.expect(200).json();
    let scopes: Vec<_> = listed.as_array().unwrap().iter().map(|key| &key["scope"]).collect();
    assert_eq!(scopes, ["admin", "admin", "deploy"]);
    // It does what it is for.
    installation
        .call_with(&headers, "POST", "/cvms/provision", super::provision_body("by-ci-01"))
        .await
        .expect(200);
}

#[tokio::test]
async fn a_key_of_any_scope_ends_itself_and_no_other() {
    let installation = Installation::new().await;
    for scope in KeyScope::ALL {
        let (own, other) = (key(&installation, scope).await, key(&installation, scope).await);
        let headers = [("x-api-key", own.as_str())];
        installation.call_with(&headers, "DELETE", "/tokens/self", Value::Null).await.expect(204);
        installation.call_with(&headers, "GET", "/auth/me", Value::Null).await.expect(401);
        let headers = [("x-api-key", other.as_str())];
        let looks = installation.call_with(&headers, "GET", "/auth/me", Value::Null).await;
        looks.expect(if scope.includes(KeyScope::Read) { 200 } else { 403 });
        let query = "/workspace/audit?operation=delete_own_token&limit=1";
        let page = installation.call("GET", query, Value::Null).await.expect(200).json();
        let record = &page["items"][0];
        assert_eq!(record["target"]["id"], record["actor"]["key_id"], "{scope}");
        assert!(own.starts_with(record["actor"]["key_prefix"].as_str().unwrap()), "{scope}");
    }
}

#[tokio::test]
async fn a_read_key_of_an_administrator_reads_figures_and_administers_nothing() {
    let installation = Installation::new().await;
    let admin = [("x-api-key", installation.admin.as_str())];
    let body = json!({"name": "scraper", "scope": "read"});
    let made = installation.call_with(&admin, "POST", "/tokens", body).await.expect(201).json();
    let key = made["token"].as_str().unwrap();
    let request = Request::builder().uri("/metrics").header("x-api-key", key).body(Body::empty()).unwrap();
    installation.send(request).await.expect(200);
    let headers = [("x-api-key", key)];
    for path in ["/admin/nodes", "/admin/audit"] {
        let answer = installation.call_with(&headers, "GET", path, Value::Null).await;
        assert_eq!(refused_for(&answer).as_deref(), Some("admin"), "{path}");
    }
}
