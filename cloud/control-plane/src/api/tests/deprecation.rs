//! Old versions and operations say so.

use axum::body::Body;
use axum::http::Request;
use cloister_management_api::ApiVersion;
use serde_json::{Value, json};

use super::{Answer, Installation};
use crate::api::document;

const LINK: &str = "<https://cloud.example/deprecations>; rel=\"deprecation\"; type=\"application/json\"";
const SUNSET_LINK: &str = "<https://cloud.example/deprecations>; rel=\"sunset\"; type=\"application/json\"";

fn headers(answer: &Answer) -> [&str; 3] {
    ["deprecation", "sunset", "link"].map(|name| answer.header(name))
}

#[tokio::test]
async fn answers_in_an_old_version_say_so() {
    let installation = Installation::new().await;
    // 2026-01-21 and 2027-03-31, each at midnight in UTC.
    let old = ["@1768953600", "Wed, 31 Mar 2027 00:00:00 GMT", &format!("{LINK}, {SUNSET_LINK}")];
    for version in ApiVersion::ALL {
        let answer = installation.get_in(version.as_str(), "/cvms").await.expect(200);
        let expected = if version == ApiVersion::V20251028 { old } else { ["", "", ""] };
        assert_eq!(headers(&answer), expected, "{version}");
        // So does what is refused.
        let answer = installation.get_in(version.as_str(), "/cvms/nobody").await.expect(404);
        assert_eq!(headers(&answer), expected, "{version}");
    }
    // A client that chose nothing learns nothing: without a key the oldest version is only what is left.
    let answer = installation.call_with(&[], "GET", "/instance-types", Value::Null).await.expect(200);
    assert_eq!((answer.header("x-phala-version"), headers(&answer)), ("2025-10-28", ["", "", ""]));
}

#[tokio::test]
async fn a_key_of_an_old_version_is_told_too() {
    let installation = Installation::new().await;
    let own = [("x-api-key", installation.tenant.as_str()), ("x-phala-version", "2025-10-28")];
    let made =
        installation.call_with(&own, "POST", "/tokens", json!({"name": "old"})).await.expect(201).json();
    assert_eq!(made["default_version"], "2025-10-28");
    let key = [("x-api-key", made["token"].as_str().unwrap())];
    let answer = installation.call_with(&key, "GET", "/cvms", Value::Null).await.expect(200);
    assert_eq!(
        (answer.header("x-phala-version"), answer.header("deprecation")),
        ("2025-10-28", "@1768953600")
    );
    let newer = [key[0], ("x-phala-version", "2026-01-21")];
    let answer = installation.call_with(&newer, "GET", "/cvms", Value::Null).await.expect(200);
    assert_eq!((answer.header("x-phala-version"), answer.header("deprecation")), ("2026-01-21", ""));
}

/// The document and the answers agree on which operations are deprecated.
#[tokio::test]
async fn deprecated_operations_say_so_and_no_other_does() {
    let installation = Installation::new().await;
    let document = serde_json::to_value(document()).unwrap();
    let mut deprecated = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap();
            if name == "delete_own_token" {
                continue;
            }
            // Whoever may follow events would do so for minutes.
            let path = path.replace(['{', '}'], "").replace("/events/stream", "/events/stream?after=x");
            let request = Request::builder().method(method.to_uppercase().as_str()).uri(path);
            let request = request.header("x-api-key", &installation.tenant).body(Body::empty()).unwrap();
            let answer = installation.send(request).await;
            assert_eq!(answer.header("deprecation").is_empty(), operation["deprecated"] != true, "{name}");
            assert_eq!(
                answer.header("link").contains("rel=\"deprecation\""),
                operation["deprecated"] == true
            );
            assert!(answer.header("sunset").is_empty(), "{name}: versions end, and operations with them");
            if operation["deprecated"] == true {
                deprecated.push(name.to_owned());
            }
        }
    }
    let known = ["create_cvm_from_configuration", "get_cvm_configuration_pubkey", "put_cvm_compose"];
    assert_eq!(deprecated, known);
    let page = Request::get("/deprecations").body(Body::empty()).unwrap();
    let page = installation.send(page).await.expect(200).json();
    assert_eq!(page["operations"][0]["operation"], "put_cvm_compose");
    assert_eq!(
        page["versions"][0],
        json!({"version": "2025-10-28", "deprecated_since": "2026-01-21", "sunset": "2027-03-31"})
    );
    assert_eq!(page["versions"][1]["deprecated_since"], Value::Null);
}
