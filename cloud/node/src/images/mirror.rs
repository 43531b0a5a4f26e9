//! The registry that a CVM asks first: the pull half of the OCI distribution API over a Unix socket.
//!
//! The guest's container engine is configured by
//! [`REGISTRIES_CONF`](cloister_guest_channel::registries::REGISTRIES_CONF), written to
//! `/etc/containers/registries.conf` in the guest; see that module for how references become paths here.
//! In short, each registry is mirrored under its own name,
//!
//! ```toml
//! [[registry]]
//! prefix = "ghcr.io"
//! location = "ghcr.io"
//!
//! [[registry.mirror]]
//! location = "10.0.2.100:5000/ghcr.io"
//! insecure = true
//! ```
//!
//! | Request (`GET` or `HEAD`) | Answer |
//! |---|---|
//! | `/v2/` | 200 |
//! | `/v2/_catalog` | `{"repositories": ["<namespace>/<repository>", …]}` |
//! | `/v2/<namespace>/<repository>/manifests/<tag or digest>` | the manifest or index |
//! | `/v2/<namespace>/<repository>/blobs/<digest>` | the blob, or the one range that was asked for |
//!
//! Anything else is 404 with the error body of the specification, upon which the engine asks the
//! registry itself. Who has the socket reads the workspace's images: the node gives it to its VMs only.

use std::convert::Infallible;
use std::fs::{self, Permissions};
use std::io::{self, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use cloister_guest_channel::registries::{mirror_namespace, registry_of_namespace};
use futures_util::TryStreamExt;
use http::header::{
    ACCEPT_RANGES, ALLOW, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderName, HeaderValue, RANGE,
};
use http::{Method, Request, Response, StatusCode, response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::io::ReaderStream;

use super::store::WeakImages;
use super::{AppImages, Digest};

/// Connections of one VM at a time; further ones wait.
const MAX_CONNECTIONS: usize = 32;
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
const CHUNK_BYTES: usize = 128 * 1024;
const DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

type Body = BoxBody<Bytes, io::Error>;

/// A mirror that serves until it is dropped.
#[derive(Debug)]
pub struct Mirror(JoinHandle<()>);

impl Mirror {
    /// Serves the images of a workspace on a Unix socket, replacing a socket left over there, as long as
    /// somebody else keeps the store open. Needs a Tokio runtime. Fails when the socket cannot be made; its path is limited to 107 bytes.
    pub fn serve(socket: &Path, workspace: i64, store: &AppImages) -> io::Result<Self> {
        match fs::remove_file(socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(socket)?;
        fs::set_permissions(socket, Permissions::from_mode(0o600))?;
        Ok(Self(tokio::spawn(accept(listener, Source { workspace, store: store.downgrade() }))))
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        // The socket's name stays: another mirror may have it already.
        self.0.abort();
    }
}

async fn accept(listener: UnixListener, source: Source) {
    let places = std::sync::Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // Dropped with this task, and all connections with it.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let source = source.clone();
                connections.spawn(async move {
                    source.serve(stream).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection to the image mirror");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Where the images of one workspace are while the store is open. Connections of guests must not keep it
/// open: its next owner may be waiting.
#[derive(Clone)]
struct Source {
    workspace: i64,
    store: WeakImages,
}

impl Source {
    async fn serve(&self, stream: UnixStream) {
        let service = service_fn(|request| async move { Ok::<_, Infallible>(self.answer(&request).await) });
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service)
            .await;
        if let Err(error) = served {
            tracing::debug!(%error, "connection to the image mirror ended");
        }
    }

    async fn answer(&self, request: &Request<Incoming>) -> Response<Body> {
        let Some(store) = self.store.upgrade() else {
            return refusal(StatusCode::SERVICE_UNAVAILABLE, "UNKNOWN", "the image store is closed");
        };
        let images = Shelf { workspace: self.workspace, store };
        images.answer(request).await.unwrap_or_else(|error| {
            tracing::error!(workspace = self.workspace, %error, "cannot read the image store");
            refusal(StatusCode::INTERNAL_SERVER_ERROR, "UNKNOWN", "the image store cannot be read")
        })
    }
}

/// The images of one workspace.
struct Shelf {
    workspace: i64,
    store: AppImages,
}

impl Shelf {
    async fn answer(&self, request: &Request<Incoming>) -> io::Result<Response<Body>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response =
                refusal(StatusCode::METHOD_NOT_ALLOWED, "UNSUPPORTED", "this registry is read-only");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return Ok(response);
        }
        let path = request.uri().path().strip_prefix("/v2/").unwrap_or_default();
        if request.uri().path() == "/v2/" {
            return Ok(document(StatusCode::OK, &json!({})));
        }
        if path == "_catalog" {
            return Ok(self.catalog());
        }
        if let Some((name, wanted)) = path.rsplit_once("/manifests/") {
            return self.manifest(name, wanted).await;
        }
        if let Some((_, digest)) = path.rsplit_once("/blobs/") {
            return self.blob(digest, request.headers().get(RANGE)).await;
        }
        Ok(refusal(StatusCode::NOT_FOUND, "NAME_UNKNOWN", "this registry has manifests and blobs only"))
    }

    fn catalog(&self) -> Response<Body> {
        let names = self.store.names(self.workspace);
        let repositories: Vec<String> = names
            .iter()
            .filter_map(|name| name.split_once('/'))
            .filter_map(|(registry, repository)| {
                Some(format!("{}/{repository}", mirror_namespace(registry)?))
            })
            .collect();
        document(StatusCode::OK, &json!({ "repositories": repositories }))
    }

    async fn manifest(&self, name: &str, wanted: &str) -> io::Result<Response<Body>> {
        let found = name.split_once('/').and_then(|(namespace, repository)| {
            let name = format!("{}/{repository}", registry_of_namespace(namespace)?);
            let manifest = self.store.manifest(self.workspace, &name, wanted)?;
            Some((self.store.blob(self.workspace, &manifest.digest)?, manifest))
        });
        let Some(((path, size), manifest)) = found else {
            return Ok(refusal(
                StatusCode::NOT_FOUND,
                "MANIFEST_UNKNOWN",
                "this workspace pushed no such image",
            ));
        };
        let head = Response::builder().header(CONTENT_TYPE, manifest.media_type);
        contents(head, &manifest.digest, File::open(path).await?, size)
    }

    async fn blob(&self, digest: &str, range: Option<&HeaderValue>) -> io::Result<Response<Body>> {
        let found = digest.parse().ok().and_then(|digest: Digest| {
            self.store.blob(self.workspace, &digest).map(|(path, size)| (digest, path, size))
        });
        let Some((digest, path, size)) = found else {
            return Ok(refusal(StatusCode::NOT_FOUND, "BLOB_UNKNOWN", "this workspace pushed no such blob"));
        };
        let head = Response::builder()
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(ACCEPT_RANGES, "bytes");
        let mut file = File::open(path).await?;
        match range.and_then(|range| parse_range(range.to_str().ok()?, size)) {
            None => contents(head, &digest, file, size),
            Some(Err(Unsatisfiable)) => {
                let mut response =
                    refusal(StatusCode::RANGE_NOT_SATISFIABLE, "SIZE_INVALID", "the blob ends before");
                response.headers_mut().insert(CONTENT_RANGE, header(&format!("bytes */{size}"))?);
                Ok(response)
            }
            Some(Ok((first, last))) => {
                file.seek(SeekFrom::Start(first)).await?;
                let head = head
                    .status(StatusCode::PARTIAL_CONTENT)
                    .header(CONTENT_RANGE, format!("bytes {first}-{last}/{size}"));
                contents(head, &digest, file, last - first + 1)
            }
        }
    }
}

/// A range that begins after the end.
#[derive(Debug, PartialEq, Eq)]
struct Unsatisfiable;

/// The first and last byte of a range of `size` bytes. `None` for what a server may ignore: several
/// ranges, other units, nonsense.
fn parse_range(range: &str, size: u64) -> Option<Result<(u64, u64), Unsatisfiable>> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let end = size.checked_sub(1);
    let (first, last) = match (first, last) {
        ("", suffix) => {
            let count: u64 = suffix.parse().ok()?;
            (size.saturating_sub(count), end.filter(|_| count > 0))
        }
        (first, "") => (first.parse().ok()?, end),
        (first, last) => {
            let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
            if last < first {
                return None;
            }
            (first, end.map(|end| end.min(last)))
        }
    };
    Some(last.filter(|last| first <= *last).map(|last| (first, last)).ok_or(Unsatisfiable))
}

fn header(text: &str) -> io::Result<HeaderValue> {
    HeaderValue::from_str(text).map_err(io::Error::other)
}

/// A response with `length` bytes of a file. The HTTP server leaves the body of a `HEAD` out.
fn contents(head: response::Builder, digest: &Digest, file: File, length: u64) -> io::Result<Response<Body>> {
    let stream = ReaderStream::with_capacity(file.take(length), CHUNK_BYTES).map_ok(Frame::data);
    head.header(DIGEST, digest.to_string())
        .header(CONTENT_LENGTH, length)
        .body(BodyExt::boxed(StreamBody::new(stream)))
        .map_err(io::Error::other)
}

fn document(status: StatusCode, json: &serde_json::Value) -> Response<Body> {
    let body = Full::new(Bytes::from(json.to_string())).map_err(|never| match never {}).boxed();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The error body of the distribution specification.
fn refusal(status: StatusCode, code: &str, message: &str) -> Response<Body> {
    document(status, &json!({ "errors": [{ "code": code, "message": message }] }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges() {
        assert_eq!(parse_range("bytes=0-0", 10), Some(Ok((0, 0))));
        assert_eq!(parse_range("bytes=3-", 10), Some(Ok((3, 9))));
        assert_eq!(parse_range("bytes=3-99", 10), Some(Ok((3, 9))));
        assert_eq!(parse_range("bytes=-4", 10), Some(Ok((6, 9))));
        assert_eq!(parse_range("bytes=-40", 10), Some(Ok((0, 9))));
        for nothing in ["bytes=10-", "bytes=10-12", "bytes=-0"] {
            assert_eq!(parse_range(nothing, 10), Some(Err(Unsatisfiable)), "{nothing}");
        }
        assert_eq!(parse_range("bytes=0-", 0), Some(Err(Unsatisfiable)));
        for ignored in ["bytes=0-1,3-4", "lines=0-1", "bytes=5-4", "bytes=-", "bytes=a-b", ""] {
            assert_eq!(parse_range(ignored, 10), None, "{ignored}");
        }
    }

    proptest! {
        #[test]
        fn a_range_lies_within_the_blob(range in "bytes=[0-9]{0,20}-[0-9]{0,20}", size: u64) {
            if let Some(Ok((first, last))) = parse_range(&range, size) {
                prop_assert!(first <= last && last < size);
            }
        }
    }
}
