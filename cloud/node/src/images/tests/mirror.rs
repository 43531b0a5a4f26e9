use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};
use tokio::net::UnixStream;

use super::archives::docker_archive;
use super::open;
use crate::images::{AppImages, Digest, Mirror};

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

async fn ask(socket: &Path, method: Method, path: &str, range: Option<&str>) -> Answer {
    let stream = UnixStream::connect(socket).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path).header("host", "10.0.2.100:5000");
    if let Some(range) = range {
        request = request.header("range", range);
    }
    let response = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
    let (head, body) = response.into_parts();
    Answer { status: head.status, headers: head.headers, body: body.collect().await.unwrap().to_bytes() }
}

async fn get(socket: &Path, path: &str) -> Answer {
    ask(socket, Method::GET, path, None).await
}

/// What must outlive a mirror.
type Setup = (TempDir, AppImages);

/// A mirror for workspace 1, which has two images; workspace 2 has one of another layer.
async fn mirror() -> (Setup, PathBuf, Mirror) {
    let dir = tempdir().unwrap();
    let store = open(dir.path());
    for (workspace, reference, layer) in
        [(1, "hello:1", "layer"), (1, "registry.example:5000/team/app:2", "layer"), (2, "hello:1", "secret")]
    {
        let archive = docker_archive(&[], layer.as_bytes()).finish();
        store.import(workspace, Some(reference), &archive[..]).await.unwrap();
    }
    let socket = dir.path().join("mirror.sock");
    std::fs::write(&socket, "left over").unwrap();
    let mirror = Mirror::serve(&socket, 1, &store).unwrap();
    ((dir, store), socket, mirror)
}

#[tokio::test]
async fn an_image_is_pulled_as_an_engine_does_it() {
    let (_setup, socket, _mirror) = mirror().await;
    assert_eq!(get(&socket, "/v2/").await.status, 200);
    let by_tag = get(&socket, "/v2/docker.io/library/hello/manifests/1?ns=docker.io").await;
    assert_eq!(by_tag.status, 200);
    assert_eq!(by_tag.header("content-type"), "application/vnd.oci.image.manifest.v1+json");
    let digest = Digest::of(&by_tag.body).to_string();
    assert_eq!(by_tag.header("docker-content-digest"), digest);
    let path = format!("/v2/registry.example_5000/team/app/manifests/{digest}");
    assert_eq!(get(&socket, &path).await.body, by_tag.body);
    let head = ask(&socket, Method::HEAD, &path, None).await;
    assert_eq!((head.status, head.body.len()), (StatusCode::OK, 0));
    assert_eq!(head.header("content-length"), by_tag.body.len().to_string());

    let manifest = by_tag.json();
    let layers = manifest["layers"].as_array().unwrap();
    assert_eq!((layers.len(), &layers[0]), (2, &layers[1]));
    for blob in [&manifest["config"], &layers[0]] {
        let digest = blob["digest"].as_str().unwrap();
        let answer = get(&socket, &format!("/v2/docker.io/library/hello/blobs/{digest}")).await;
        assert_eq!(Digest::of(&answer.body).to_string(), digest);
        assert_eq!(json!(answer.body.len()), blob["size"]);
    }
}

#[tokio::test]
async fn parts_of_a_blob() {
    let (_setup, socket, _mirror) = mirror().await;
    let path = format!("/v2/docker.io/library/hello/blobs/{}", Digest::of(b"layer"));
    let part = ask(&socket, Method::GET, &path, Some("bytes=1-2")).await;
    assert_eq!((part.status, &part.body[..]), (StatusCode::PARTIAL_CONTENT, &b"ay"[..]));
    assert_eq!(part.header("content-range"), "bytes 1-2/5");
    let beyond = ask(&socket, Method::GET, &path, Some("bytes=5-")).await;
    assert_eq!(beyond.status, StatusCode::RANGE_NOT_SATISFIABLE);
    assert_eq!(beyond.header("content-range"), "bytes */5");
    assert_eq!(ask(&socket, Method::GET, &path, Some("lines=1")).await.body, "layer");
}

#[tokio::test]
async fn what_the_workspace_does_not_have_is_not_found() {
    let (_setup, socket, _mirror) = mirror().await;
    let secret = Digest::of(b"secret");
    for (path, code) in [
        ("/v2/docker.io/library/hello/manifests/2".to_owned(), "MANIFEST_UNKNOWN"),
        ("/v2/quay.io/library/hello/manifests/1".to_owned(), "MANIFEST_UNKNOWN"),
        ("/v2/library/hello/manifests/1".to_owned(), "MANIFEST_UNKNOWN"),
        ("/v2/hello/manifests/1".to_owned(), "MANIFEST_UNKNOWN"),
        (format!("/v2/docker.io/library/hello/manifests/{}", Digest::of(b"layer")), "MANIFEST_UNKNOWN"),
        (format!("/v2/docker.io/library/hello/blobs/{secret}"), "BLOB_UNKNOWN"),
        ("/v2/docker.io/library/hello/blobs/../../lock".to_owned(), "BLOB_UNKNOWN"),
        ("/v2/docker.io/library/hello/tags/list".to_owned(), "NAME_UNKNOWN"),
        ("/".to_owned(), "NAME_UNKNOWN"),
    ] {
        let answer = get(&socket, &path).await;
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(answer.json()["errors"][0]["code"], code, "{path}");
    }
    assert_eq!(ask(&socket, Method::PUT, "/v2/a/manifests/1", None).await.status, 405);
}

#[tokio::test]
async fn the_catalog_tells_which_registries_to_mirror() {
    let (_setup, socket, _mirror) = mirror().await;
    let repositories = get(&socket, "/v2/_catalog").await.json();
    assert_eq!(
        repositories,
        json!({ "repositories": ["docker.io/library/hello", "registry.example_5000/team/app"] })
    );
}

#[tokio::test]
async fn a_dropped_mirror_is_gone() {
    let (_setup, socket, mirror) = mirror().await;
    drop(mirror);
    assert!(UnixStream::connect(&socket).await.is_err());
}

#[tokio::test]
async fn a_mirror_does_not_keep_the_store_open() {
    let ((dir, store), socket, _mirror) = mirror().await;
    drop(store);
    let reopened = open(dir.path());
    assert_eq!(get(&socket, "/v2/").await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(reopened.list(1).len(), 2);
}
