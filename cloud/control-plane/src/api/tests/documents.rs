//! Documents that clients keep, and changes of the one that was looked at.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use super::{Answer, Installation};
use crate::api::document;
use crate::operations::CvmStatus;

/// Asks for a document, with a header of its client's.
async fn get(installation: &Installation, method: &str, path: &str, header: Option<(&str, &str)>) -> Answer {
    let mut request = Request::builder().method(method).uri(path).header("x-api-key", &installation.tenant);
    if let Some((name, value)) = header {
        request = request.header(name, value);
    }
    installation.send(request.body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn who_has_a_document_is_told_so() {
    let installation = Installation::new().await;
    let vm = installation.create("tenant-app").await;
    let below = format!("/api/v1/cvms/{}", vm["id"]);
    for (path, keeping) in [
        (format!("{below}/compose_file"), "private, no-cache"),
        (format!("{below}/compose_file?raw=1"), "private, no-cache"),
        (format!("{below}/docker-compose.yml"), "private, no-cache"),
        (format!("{below}/pre-launch-script"), "private, no-cache"),
        (format!("{below}/user_config"), "private, no-cache"),
        ("/openapi.json".to_owned(), "public, no-cache"),
        ("/api/v1/openapi.json".to_owned(), "public, no-cache"),
    ] {
        let whole = get(&installation, "GET", &path, None).await.expect(200);
        let tag = whole.header("etag").to_owned();
        assert!(tag.len() == 66 && tag.starts_with('"'), "{path} {tag}");
        assert_eq!(whole.header("cache-control"), keeping, "{path}");
        assert_eq!(whole.header("vary").contains("X-API-Key"), keeping.starts_with("private"), "{path}");
        let head = get(&installation, "HEAD", &path, None).await.expect(200);
        assert_eq!((head.header("etag"), head.text.as_str()), (tag.as_str(), ""), "{path}");
        for known in [tag.clone(), format!("W/{tag}"), format!("\"a\", {tag}"), "*".to_owned()] {
            let unchanged =
                get(&installation, "GET", &path, Some(("if-none-match", known.as_str()))).await.expect(304);
            assert_eq!(unchanged.text, "", "{path} {known}");
            for name in ["etag", "cache-control", "vary"] {
                assert_eq!(unchanged.header(name), whole.header(name), "{path} {known} {name}");
            }
            assert!(!unchanged.headers.contains_key("content-type"), "{path} {known}");
            assert!(!unchanged.header("x-request-id").is_empty());
        }
        for other in ["\"a\"", "W/\"a\"", "nothing", &tag.replace('"', "")] {
            let again = get(&installation, "GET", &path, Some(("if-none-match", other))).await.expect(200);
            assert_eq!(again.text, whole.text, "{path} {other}");
        }
    }
    // What is refused is no document.
    let missing = get(&installation, "GET", "/api/v1/cvms/nobody/compose_file", Some(("if-none-match", "*")));
    let missing = missing.await.expect(404);
    assert!(missing.header("etag").is_empty() && missing.json()["error_code"].is_string());
}

#[tokio::test]
async fn another_document_has_another_tag() {
    let installation = Installation::new().await;
    let vm = installation.create("tenant-app").await;
    installation.settle(&vm, CvmStatus::Stopped).await;
    let script = format!("/api/v1/cvms/{}/pre-launch-script", vm["id"]);
    let tag = get(&installation, "GET", &script, None).await.expect(200).header("etag").to_owned();
    let change = Request::patch(&script).header("x-api-key", &installation.tenant);
    let change = change.header("content-type", "text/plain").body(Body::from("echo hello"));
    installation.send(change.unwrap()).await.expect(200);
    installation.carry_out(&vm).await;
    let other = get(&installation, "GET", &script, Some(("if-none-match", tag.as_str()))).await.expect(200);
    assert_eq!(other.text, "echo hello");
    assert_ne!(other.header("etag"), tag);
}

#[tokio::test]
async fn a_change_can_be_bound_to_the_document_that_was_looked_at() {
    let installation = Installation::new().await;
    let vm = installation.create("tenant-app").await;
    installation.settle(&vm, CvmStatus::Stopped).await;
    let below = format!("/api/v1/cvms/{}", vm["id"]);
    let tag = async |path: &str| {
        let path = format!("{below}/{path}");
        get(&installation, "GET", &path, None).await.expect(200).header("etag").to_owned()
    };
    let document =
        installation.call("GET", &format!("/cvms/{}/compose_file", vm["id"]), Value::Null).await.json();
    let apply = json!({"compose_hash": "ab".repeat(32)}).to_string();
    let replace = json!({"compose_file": document, "compose_hash": "ab".repeat(32)}).to_string();
    let shown = tag("compose_file").await;
    let raw = tag("compose_file?raw=1").await;
    let file = tag("docker-compose.yml").await;
    let script = tag("pre-launch-script").await;
    let operation = installation.row(&vm).await.operation_id;
    let send = async |method: &str, path: &str, content_type: &str, body: &str, expected: &str| {
        let request = Request::builder().method(method).uri(format!("{below}/{path}"));
        let request = request.header("x-api-key", &installation.tenant).header("if-match", expected);
        let request = request.header("content-type", content_type).body(Body::from(body.to_owned()));
        installation.send(request.unwrap()).await
    };
    for (method, path, content_type, body, tags, passes) in [
        ("PATCH", "compose_file", "application/json", apply.as_str(), vec![&shown, &raw], "400 plain"),
        ("POST", "compose_file", "application/json", replace.as_str(), vec![&shown, &raw], "400 plain"),
        ("PATCH", "docker-compose", "text/yaml", "", vec![&file], "400 plain"),
        ("PATCH", "pre-launch-script", "text/plain", "", vec![&script], "400 plain"),
    ] {
        for tag in tags {
            // What the change itself is refused for is looked at behind it.
            for fits in [tag.clone(), format!("\"a\", {tag}"), "*".to_owned()] {
                let answer = send(method, path, content_type, body, &fits).await;
                assert_eq!(answer.summary(), passes, "{path} {fits}: {}", answer.text);
            }
            // Strong comparison: a weak tag is none of a document's.
            for other in ["\"a\"".to_owned(), format!("W/{tag}"), "nothing".to_owned()] {
                let answer = send(method, path, content_type, body, &other).await;
                assert_eq!(answer.summary(), "412 plain", "{path} {other}");
            }
        }
    }
    assert_eq!(installation.row(&vm).await.operation_id, operation, "nothing was begun");
    send("PATCH", "pre-launch-script", "text/plain", "echo hello", &script).await.expect(200);
}

/// Whatever the document describes with a tag has one, and nothing else does.
#[test]
fn the_document_says_which_documents_have_a_tag() {
    let document = serde_json::to_value(document()).unwrap();
    let mut tagged = Vec::new();
    for item in document["paths"].as_object().unwrap().values() {
        for operation in item.as_object().unwrap().values() {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let takes = parameters.into_iter().any(|parameter| parameter["name"] == "If-None-Match");
            assert_eq!(takes, operation["responses"]["304"].is_object(), "{}", operation["operationId"]);
            assert_eq!(takes, operation["responses"]["200"]["headers"]["ETag"].is_object());
            if takes {
                tagged.push(operation["operationId"].as_str().unwrap());
            }
        }
    }
    tagged.sort_unstable();
    assert_eq!(
        tagged,
        [
            "download_quote",
            "get_cvm_compose_file",
            "get_cvm_docker_compose",
            "get_cvm_pre_launch_script",
            "get_cvm_user_config",
            "get_quote_collateral",
        ]
    );
}
