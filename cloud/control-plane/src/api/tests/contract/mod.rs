//! Every answer that a test of the API gets is held against the documents of the interface: our own `openapi.json`,
//! and the reference that public clients were written for, where it is at hand.
//!
//! An answer keeps a document when its operation is described, its status is one of that operation, its content is of
//! a type that is described for it, and its body fits the schema. Bodies of ours may have no member that our document
//! does not name.

mod description;
mod deviations;
mod generate;
mod random;
mod reference;
mod walk;

use std::io::Write as _;
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use cloister_management_api::VERSION_HEADER;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde_json::json;

use self::description::{Answer, Description};
use crate::api::PREFIX;

/// Our own document, as it is checked in; bodies have to name all of their members.
static OURS: LazyLock<Description> = LazyLock::new(|| {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json")).unwrap();
    let mut document = serde_json::from_str(&text).unwrap();
    description::close(&mut document);
    Description::new(document)
});

/// What an installation answered, for tests of the contract itself.
pub(super) type Ledger = Arc<Mutex<Vec<Answer>>>;

/// A router whose answers are held against the documents. An answer that does not keep them is a panic: the request
/// and the test that sent it fail.
pub(super) fn checked(router: Router, ledger: &Ledger) -> Router {
    let ledger = Arc::clone(ledger);
    router.layer(from_fn(move |request, next| check(request, next, Arc::clone(&ledger))))
}

async fn check(request: Request, next: Next, ledger: Ledger) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = next.run(request).await;
    let is_described = path.starts_with(PREFIX) && path != "/api/v1/openapi.json";
    // Whatever the operation, some methods are none at a path, and some paths are no text.
    let is_none = response.status() == StatusCode::METHOD_NOT_ALLOWED || path.contains("%ff");
    if !is_described || is_none || OURS.operation(&method, &path).is_none() {
        // The router knows what is not described, too: nothing else is answered there, but to keys that may not even ask.
        assert!(
            !is_described || matches!(response.status().as_u16(), 403..=405),
            "{method} {path} is not described"
        );
        return response;
    }
    let (answer, response) = read(method, path, response).await;
    let broken = violations(&answer);
    if is_noted(&answer, &broken) {
        ledger.lock().push(answer);
        return response;
    }
    assert!(broken.is_empty(), "{answer} breaks the contract:\n{}", broken.join("\n"));
    ledger.lock().push(answer);
    response
}

/// What was answered, and the same for who asked.
async fn read(method: Method, path: String, response: Response) -> (Answer, Response) {
    let (parts, body) = response.into_parts();
    let text = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut answer = Answer {
        method,
        path,
        version: text(VERSION_HEADER).to_owned(),
        status: parts.status.as_u16(),
        content_type: text(CONTENT_TYPE.as_str()).to_owned(),
        body: Bytes::new(),
    };
    // Streams may have no end; of them only the head is described.
    let body = if answer.is_json() || answer.content_type.is_empty() {
        answer.body = body.collect().await.unwrap().to_bytes();
        Body::from(answer.body.clone())
    } else {
        body
    };
    (answer, Response::from_parts(parts, body))
}

/// What is wrong with an answer.
fn violations(answer: &Answer) -> Vec<String> {
    let mut all = OURS.violations(answer);
    all.extend(reference::check(answer));
    all
}

/// The method that describes a request: a `HEAD` is a `GET` without the body (RFC 9110, section 9.3.2).
fn described_method(method: &Method) -> &Method {
    if method == Method::HEAD { &Method::GET } else { method }
}

/// Writes down what is wrong with an answer, for looking at all of it at once: one line of JSON each in the file that
/// `CLOISTER_CONTRACT_REPORT` names. Nothing fails for it then.
fn is_noted(answer: &Answer, violations: &[String]) -> bool {
    let Some(report) = std::env::var_os("CLOISTER_CONTRACT_REPORT") else { return false };
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(report).unwrap();
    for violation in violations {
        let body = String::from_utf8_lossy(&answer.body);
        let line =
            json!({"violation": violation, "path": answer.path, "version": answer.version, "body": body});
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
    true
}
