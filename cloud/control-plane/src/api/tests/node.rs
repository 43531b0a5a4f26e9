//! What is passed on to a node, with a node that answers over mutual TLS.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Path, RawQuery};
use axum::http::{Request, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{get, put};
use axum::{Json, Router};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cloister_fleet_tls::{Identity, TlsListener, server_config};
use cloister_node_api::{ImportedImage, NodeError, NodeErrorCode, NodeReport};
use futures_util::stream;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{Installation, report};
use crate::operations::CvmStatus;

/// What the node was given, in order.
type Seen = Arc<Mutex<Vec<String>>>;

async fn import(seen: Seen, workspace: String, query: String, body: Body) -> axum::response::Response {
    let bytes = axum::body::to_bytes(body, usize::MAX).await;
    let Ok(bytes) = bytes else { return StatusCode::BAD_REQUEST.into_response() };
    seen.lock().push(format!("image of workspace {workspace}, {query}, {} bytes", bytes.len()));
    if bytes.starts_with(b"broken") {
        let error = NodeError { code: NodeErrorCode::Invalid, message: "not an image archive".into() };
        return (StatusCode::BAD_REQUEST, Json(error)).into_response();
    }
    let size = bytes.len() as u64;
    Json(ImportedImage { reference: "x".into(), digest: "sha256:ab".into(), size }).into_response()
}

/// Starts a node, which reports itself to the installation.
async fn node(installation: &Installation) -> Seen {
    let seen = Seen::default();
    let (of_logs, of_images) = (Arc::clone(&seen), Arc::clone(&seen));
    let containers = json!({"containers": [{
        "id": "abc123", "names": ["/web"], "image": "nginx", "image_id": "sha256:1", "created": 5,
        "state": "running", "status": "Up", "more": 1,
    }]});
    let router = Router::new()
        .route("/v1/vms/{vm}/containers", get(async move || Json(containers)))
        .route(
            "/v1/vms/{vm}/serial",
            get(async |RawQuery(query): RawQuery| format!("{}\nbooted\n", query.unwrap())),
        )
        .route(
            "/v1/vms/{vm}/logs/{container}",
            get(async move |Path((_, container)): Path<(String, String)>, RawQuery(query): RawQuery| {
                of_logs.lock().push(format!("log of {container}, {}", query.unwrap_or_default()));
                ([("content-type", "text/html")], "<script>")
            }),
        )
        .route(
            "/v1/workspaces/{workspace}/images",
            put(async move |Path(workspace): Path<String>, RawQuery(query): RawQuery, body: Body| {
                import(of_images, workspace, query.unwrap_or_default(), body).await
            }),
        );
    serve(installation, router, |_| {}).await;
    seen
}

/// Starts a node that answers like this, and reports itself to the installation.
pub(super) async fn serve(installation: &Installation, router: Router, change: impl FnOnce(&mut NodeReport)) {
    let names = ["127.0.0.1".to_owned()];
    let identity = Identity::Node("local".to_owned());
    let credentials =
        installation.app.authority.issue(&identity, &names, installation.app.clock.now()).unwrap();
    let tls = Arc::new(server_config(&credentials, true).unwrap());
    let listener = TlsListener::bind("127.0.0.1:0".parse().unwrap(), tls).await.unwrap();
    let mut here = report(65536, false);
    here.endpoint = listener.address().to_string();
    change(&mut here);
    tokio::spawn(async move { axum::serve(listener, router).await });
    installation.report(&here).await;
}

async fn installation() -> (Installation, Seen, Value) {
    // Certificates are checked against the machine's clock, so the installation's must agree with it.
    let installation = Installation::with_clock(crate::clock::Clock::system()).await;
    let seen = node(&installation).await;
    let vm = installation.create("my-app-01").await;
    installation.settle(&vm, CvmStatus::Running).await;
    (installation, seen, vm)
}

async fn push(installation: &Installation, reference: &str, body: Body) -> super::Answer {
    let request = Request::builder().method("PUT").uri(format!("/api/v1/images/{reference}"));
    installation.send(request.header("x-api-key", &installation.tenant).body(body).unwrap()).await
}

#[tokio::test]
async fn containers_and_their_logs() {
    let (installation, seen, vm) = installation().await;
    let path = format!("/cvms/{}/composition", vm["id"]);
    let composition = installation.call("GET", &path, Value::Null).await.expect(200).json();
    let container = &composition["containers"][0];
    assert_eq!((&composition["is_online"], &container["names"][0]), (&json!(true), &json!("/web")));
    assert!(container.get("more").is_none(), "what a guest adds is not passed on");

    let url = container["log_endpoint"].as_str().unwrap().replace("https://cloud.example/api/v1", "");
    let log =
        installation.call_with(&[], "GET", &format!("{url}&text&tail=5"), Value::Null).await.expect(200);
    assert_eq!(log.text, "<script>");
    assert_eq!(log.header("content-type"), "text/plain; charset=utf-8", "never a page for browsers");
    assert_eq!(log.header("x-content-type-options"), "nosniff");
    assert_eq!(*seen.lock(), ["log of abc123, text=&tail=5"], "the signature stays here");
}

#[tokio::test]
async fn the_serial_console() {
    let (installation, _, vm) = installation().await;
    let detail = installation.get_in("2026-01-21", &format!("/cvms/{}", vm["id"])).await.json();
    let url = detail["logs"]["serial"].as_str().unwrap().replace("https://cloud.example/api/v1", "");
    let get = async |flags: &str| {
        installation.call_with(&[], "GET", &format!("{url}{flags}"), Value::Null).await.expect(200).text
    };
    for plain in ["", "&ch=serial", "&bare", "&text&bare"] {
        assert_eq!(get(plain).await, "tail=1000\nbooted\n", "{plain}");
    }
    assert_eq!(get("&bare&tail=7").await, "tail=7\nbooted\n");
    assert_eq!(
        get("&bare&tail=1").await,
        "booted\n",
        "no more lines than asked for, whatever the node sends"
    );
    assert!(get("&text").await.ends_with("{\"channel\":\"stdout\",\"message\":\"booted\\n\"}\n"));
}

#[tokio::test]
async fn channels_of_all_containers_are_read_together() {
    let installation = Installation::with_clock(crate::clock::Clock::system()).await;
    let containers = json!({"containers": [{"id": "a"}, {"id": "../x"}, {"id": "b"}]});
    let line = |channel: &str, message: &str| {
        let message = BASE64_STANDARD.encode(message);
        json!({"channel": channel, "message": message}).to_string() + "\n"
    };
    let router = Router::new().route("/v1/vms/{vm}/containers", get(async move || Json(containers))).route(
        "/v1/vms/{vm}/logs/{container}",
        get(async move |Path((_, name)): Path<(String, String)>, RawQuery(query): RawQuery| {
            let asked = format!("{name} {}\n", query.unwrap_or_default());
            line("stdout", &asked) + &line("stderr", "oops\n")
        }),
    );
    serve(&installation, router, |_| {}).await;
    let vm = installation.create("my-app-01").await;
    let detail = installation.get_in("2026-01-21", &format!("/cvms/{}", vm["id"])).await.json();
    let get = async |channel: &str, flags: &str| {
        let url = detail["logs"][channel].as_str().unwrap().replace("https://cloud.example/api/v1", "");
        installation.call_with(&[], "GET", &format!("{url}{flags}"), Value::Null).await.expect(200).text
    };
    assert_eq!(get("stdout", "&text&bare&tail=5").await, "a tail=5\nb tail=5\n");
    let expected = "{\"channel\":\"stderr\",\"message\":\"oops\\n\"}\n".repeat(2);
    assert_eq!(get("stderr", "&text").await, expected);
    for plain in ["", "&follow", "&follow&bare"] {
        assert_eq!(get("stderr", plain).await, "oops\noops\n", "{plain}");
    }
}

#[tokio::test]
async fn an_image_goes_to_the_node() {
    let (installation, seen, _) = installation().await;
    let pieces = stream::iter((0..40).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![7; 100_000]))));
    let pushed = push(&installation, "cloister.local/hello:1", Body::from_stream(pieces)).await.expect(200);
    insta::assert_json_snapshot!(pushed.json());
    let expected = "image of workspace 2, reference=cloister.local%2Fhello%3A1, 4000000 bytes";
    assert_eq!(*seen.lock(), [expected]);

    let refused = push(&installation, "hello", Body::from("broken")).await.expect(200).json();
    assert_eq!(refused["nodes"][0]["error"], "not an image archive");
    assert_eq!(push(&installation, "a/../b", Body::empty()).await.summary(), "400 ERR-02-008");
}

#[tokio::test]
async fn half_an_image_reaches_no_node() {
    let (installation, seen, _) = installation().await;
    let broken = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
    let pieces = stream::iter([Ok(Bytes::from(vec![7; 100_000])), Err(broken)]);
    assert_eq!(push(&installation, "hello", Body::from_stream(pieces)).await.summary(), "400 plain");
    assert!(seen.lock().is_empty());
}

#[tokio::test]
async fn without_a_node_nothing_is_pushed() {
    let installation = Installation::new().await;
    installation.report(&report(1024, true)).await;
    assert_eq!(push(&installation, "hello", Body::from("x")).await.summary(), "400 ERR-02-002");
}
