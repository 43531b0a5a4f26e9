//! Requests and what can go wrong with them.

use std::path::Path;
use std::time::Duration;

use reqwest::{Body, Method, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use tokio_util::io::ReaderStream;
use url::Url;

use super::{BaseUrl, Events, error_body, is_loopback, kept_on_this_machine};
use crate::credentials::ApiKey;
use crate::failure::{Exit, Failure};

/// Dated version of the documents that this program reads.
const API_VERSION: &str = "2026-01-21";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// An upload is sent to every node before the server answers.
const UPLOAD_TIMEOUT: Duration = Duration::from_hours(1);
const MAX_DOCUMENT_BYTES: usize = 32 * 1024 * 1024;

/// A management API together with a key for it.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    server: BaseUrl,
    key: ApiKey,
}

/// A file on its way to the server.
#[derive(Debug)]
pub(crate) struct Upload {
    file: tokio::fs::File,
    bytes: u64,
}

impl Upload {
    /// Opens the file.
    pub(crate) async fn open(path: &Path) -> Result<Self, Failure> {
        let failed = |error| Failure::local(format!("cannot read {}", path.display()), error);
        let file = tokio::fs::File::open(path).await.map_err(failed)?;
        let metadata = file.metadata().await.map_err(failed)?;
        if !metadata.is_file() {
            return Err(Failure::usage(format!("{} is not a file", path.display())));
        }
        Ok(Self { file, bytes: metadata.len() })
    }
}

impl Client {
    /// A client that sends `key` to `server` and to nobody else: it follows no redirects.
    pub(crate) fn new(server: BaseUrl, key: ApiKey) -> Result<Self, Failure> {
        Ok(Self { http: http_client(server.url())?, server, key })
    }

    /// The server.
    pub(crate) const fn server(&self) -> &BaseUrl {
        &self.server
    }

    /// The key.
    pub(crate) const fn key(&self) -> &ApiKey {
        &self.key
    }

    /// `GET` of a document.
    pub(crate) async fn get(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Value, Failure> {
        self.document(self.request(Method::GET, path).query(query)).await
    }

    /// `POST` with an optional document.
    pub(crate) async fn post(&self, path: &[&str], body: Option<&Value>) -> Result<Value, Failure> {
        let request = self.request(Method::POST, path);
        self.document(match body {
            Some(body) => request.json(body),
            None => request,
        })
        .await
    }

    /// `POST` with a document, a query and headers that say how it was allowed.
    pub(crate) async fn post_with(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Result<Value, Failure> {
        let request = self.request(Method::POST, path).query(query).json(body);
        self.document(headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)))
            .await
    }

    /// `GET` of a text, exactly as it is.
    pub(crate) async fn text(&self, path: &[&str], query: &[(&str, &str)]) -> Result<String, Failure> {
        let answer = self.send(self.request(Method::GET, path).query(query)).await?;
        let bytes = limited(answer).await.map_err(|error| self.unreachable(error))?;
        String::from_utf8(bytes).map_err(|error| {
            Failure::local(format!("{} did not answer with text", self.server.origin()), error)
        })
    }

    /// `GET` of something that may be longer than the memory: passed on piece by piece.
    pub(crate) async fn copy(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
        lifetime: Duration,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), Failure> {
        let request = self.request(Method::GET, path).query(query).timeout(lifetime);
        let mut answer = self.send(request).await?;
        while let Some(piece) = answer.chunk().await.map_err(|error| self.unreachable(error))? {
            take(&piece);
        }
        Ok(())
    }

    /// `PATCH` with a document.
    pub(crate) async fn patch(&self, path: &[&str], body: &Value) -> Result<Value, Failure> {
        self.patch_with(path, body, &[]).await
    }

    /// `PATCH` with a document and headers that say what it is to become.
    pub(crate) async fn patch_with(
        &self,
        path: &[&str],
        body: &Value,
        headers: &[(&str, &str)],
    ) -> Result<Value, Failure> {
        let request = self.request(Method::PATCH, path).json(body);
        self.document(headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)))
            .await
    }

    /// `PUT` with a document.
    pub(crate) async fn put_document(&self, path: &[&str], body: &Value) -> Result<Value, Failure> {
        self.document(self.request(Method::PUT, path).json(body)).await
    }

    /// `DELETE`.
    pub(crate) async fn delete(&self, path: &[&str]) -> Result<Value, Failure> {
        self.document(self.request(Method::DELETE, path)).await
    }

    /// `PUT` of a file.
    pub(crate) async fn put(&self, path: &[&str], upload: Upload) -> Result<Value, Failure> {
        self.upload(Method::PUT, path, upload).await
    }

    /// Sends a file.
    pub(crate) async fn upload(
        &self,
        method: Method,
        path: &[&str],
        upload: Upload,
    ) -> Result<Value, Failure> {
        let request = self
            .request(method, path)
            .timeout(UPLOAD_TIMEOUT)
            .header("content-type", "application/x-tar")
            .header("content-length", upload.bytes)
            .body(Body::wrap_stream(ReaderStream::with_capacity(upload.file, 1 << 16)));
        self.document(request).await
    }

    /// `GET` of a stream of server-sent events that lasts `lifetime` at most.
    pub(crate) async fn events(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
        lifetime: Duration,
    ) -> Result<Events, Failure> {
        let request = self.request(Method::GET, path).query(query).timeout(lifetime);
        let answer = self.send(request.header("accept", "text/event-stream")).await?;
        Ok(Events::new(answer))
    }

    /// `GET` of a URL that carries its own authorisation; the key is not sent. Lasts until the server
    /// ends it.
    pub(crate) async fn presigned(&self, url: Url) -> Result<Response, Failure> {
        let http = http_client(&url)?;
        let answer = http.get(url).send().await.map_err(|error| self.unreachable(error))?;
        accepted(answer).await
    }

    fn request(&self, method: Method, path: &[&str]) -> RequestBuilder {
        self.http
            .request(method, self.server.join(path))
            .timeout(ANSWER_TIMEOUT)
            .header("x-api-key", self.key.reveal())
            .header("x-phala-version", API_VERSION)
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, Failure> {
        accepted(request.send().await.map_err(|error| self.unreachable(error))?).await
    }

    async fn document(&self, request: RequestBuilder) -> Result<Value, Failure> {
        let answer = request.send().await.map_err(|error| self.unreachable(error))?;
        document_of(&self.server, answer).await
    }

    fn unreachable(&self, error: reqwest::Error) -> Failure {
        unreachable(&self.server, error)
    }
}

/// The document of an answer; its failure, if it is one.
pub(super) async fn document_of(server: &BaseUrl, answer: Response) -> Result<Value, Failure> {
    let answer = accepted(answer).await?;
    if answer.status() == StatusCode::NO_CONTENT {
        return Ok(Value::Null);
    }
    let bytes = limited(answer).await.map_err(|error| unreachable(server, error))?;
    serde_json::from_slice(&bytes).map_err(|error| {
        Failure::local(format!("{} did not answer with JSON", server.origin()), error)
            .hint("is this the URL of a Cloister management API?")
    })
}

/// No answer came.
pub(super) fn unreachable(server: &BaseUrl, error: reqwest::Error) -> Failure {
    let what = if error.is_timeout() { "did not answer in time" } else { "cannot be reached" };
    let failure =
        Failure::new(Exit::Unreachable, format!("{} {what}", server.origin())).caused_by(error.without_url());
    if server.is_loopback() {
        failure.hint("is `cloister up` running?")
    } else {
        failure.hint("check the URL and the network; the server's operator sees its state at /readyz")
    }
}

/// A client for the server of a URL. On this machine it needs no certificates.
pub(super) fn http_client(url: &Url) -> Result<reqwest::Client, Failure> {
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("cloister/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT);
    if is_loopback(url) {
        builder = builder.tls_certs_only([]);
    }
    kept_on_this_machine(builder, url).build().map_err(|error| {
        Failure::local("cannot prepare TLS", error).hint("install the package ca-certificates")
    })
}

async fn accepted(answer: Response) -> Result<Response, Failure> {
    if answer.status().is_success() {
        return Ok(answer);
    }
    let status = answer.status();
    let header = answer.headers().get("x-request-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
    let body = limited(answer).await.unwrap_or_default();
    Err(error_body::failure(status, &body, header))
}

pub(super) async fn limited(mut answer: Response) -> Result<Vec<u8>, reqwest::Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        let room = MAX_DOCUMENT_BYTES - bytes.len();
        bytes.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
        if bytes.len() == MAX_DOCUMENT_BYTES {
            break;
        }
    }
    Ok(bytes)
}
