//! A client for the engine's HTTP API.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// Largest answer that is read as a whole, in bytes.
const MAX_ANSWER_BYTES: usize = 8 << 20;
/// Longest wait for the beginning of an answer.
const PATIENCE: Duration = Duration::from_secs(15);
/// Version of the engine's own API.
const API: &str = "/v5.0.0/libpod";
/// Version of Docker's API that the engine speaks as well.
pub(super) const DOCKER_API: &str = "/v1.41";

/// The body of a streamed answer.
pub(crate) type Body = Incoming;

/// Handle on the engine; every call is a connection of its own.
#[derive(Debug, Clone)]
pub(crate) struct Engine {
    socket: PathBuf,
}

/// Why the engine did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    #[error("cannot reach the container engine")]
    Connect(#[source] io::Error),
    #[error("the connection to the container engine broke")]
    Http(#[from] hyper::Error),
    #[error("the container engine was asked something malformed")]
    Request(#[from] http::Error),
    #[error("the container engine answered {0}")]
    Status(StatusCode),
    #[error("the container engine's answer is unusable: {0}")]
    Answer(String),
}

/// A container as Docker's API lists it. Its command is left out: compose files put values of the sealed
/// environment into it, and containers are listed to the node and to anybody.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all(serialize = "snake_case", deserialize = "PascalCase"))]
pub(crate) struct Container {
    pub(crate) id: String,
    /// Each with a leading slash.
    pub(crate) names: Vec<String>,
    pub(crate) image: String,
    #[serde(rename(serialize = "image_id", deserialize = "ImageID"))]
    pub(crate) image_id: String,
    /// Unix time in seconds.
    pub(crate) created: i64,
    /// One word: `running`, `exited`, …
    pub(crate) state: String,
    /// For people: `Up 3 seconds`.
    pub(crate) status: String,
}

/// A container as the engine's own API lists it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Stored {
    id: String,
    state: String,
}

/// The state of a container that exists in the storage only.
const UNFINISHED: &str = "storage";

/// What an inspection tells that matters here.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Inspection {
    pub(crate) config: InspectedConfig,
}

/// The configured half of an [`Inspection`].
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct InspectedConfig {
    /// With a terminal, the log is one raw stream without frames.
    #[serde(default)]
    pub(crate) tty: bool,
    pub(crate) healthcheck: Option<Healthcheck>,
}

/// When a container's health is to be checked; times in nanoseconds, absent or 0 for the default.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Healthcheck {
    pub(crate) test: Vec<String>,
    pub(crate) interval: u64,
    pub(crate) start_period: u64,
}

impl Engine {
    /// An engine that listens, or will listen, on a socket.
    pub(crate) fn at(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into() }
    }

    /// Whether the engine answers.
    pub(crate) async fn ping(&self) -> Result<(), EngineError> {
        self.call(Method::GET, "/_ping").await.map(drop)
    }

    /// All containers, also those that do not run.
    pub(crate) async fn containers(&self) -> Result<Vec<Container>, EngineError> {
        self.json(&format!("{DOCKER_API}/containers/json?all=true")).await
    }

    /// Looks at one container, named by its name or the beginning of its id.
    pub(crate) async fn inspect(&self, container: &str) -> Result<Inspection, EngineError> {
        self.json(&format!("{DOCKER_API}/containers/{container}/json")).await
    }

    /// Streams a container's log; `query` is an encoded query string of Docker's API.
    pub(crate) async fn logs(&self, container: &str, query: &str) -> Result<Body, EngineError> {
        let path = format!("{DOCKER_API}/containers/{container}/logs?{query}");
        Ok(self.call(Method::GET, &path).await?.into_body())
    }

    /// Runs a container's health check once; the engine keeps the result.
    pub(crate) async fn check_health(&self, container: &str) -> Result<(), EngineError> {
        self.call(Method::GET, &format!("{API}/containers/{container}/healthcheck")).await.map(drop)
    }

    /// Stops a container: asked first, killed after `grace`.
    pub(crate) async fn stop(&self, container: &str, grace: Duration) -> Result<(), EngineError> {
        let path = format!("{API}/containers/{container}/stop?timeout={}", grace.as_secs());
        self.call(Method::POST, &path).await.map(drop)
    }

    /// Removes containers that were being made when the power went: their storage holds their names, but
    /// the engine does not know them.
    pub(crate) async fn remove_unfinished(&self) -> Result<(), EngineError> {
        let containers: Vec<Stored> =
            self.json(&format!("{API}/containers/json?all=true&external=true")).await?;
        for container in containers.iter().filter(|container| container.state == UNFINISHED) {
            self.call(Method::DELETE, &format!("{API}/containers/{}?force=true", container.id)).await?;
        }
        Ok(())
    }

    /// Removes images that no container uses.
    pub(crate) async fn prune_images(&self) -> Result<(), EngineError> {
        self.call(Method::POST, &format!("{API}/images/prune?all=true")).await.map(drop)
    }

    pub(super) async fn json<T: DeserializeOwned>(&self, path: &str) -> Result<T, EngineError> {
        let body = Limited::new(self.call(Method::GET, path).await?.into_body(), MAX_ANSWER_BYTES);
        let bytes = body.collect().await.map_err(|error| EngineError::Answer(error.to_string()))?.to_bytes();
        serde_json::from_slice(&bytes).map_err(|error| EngineError::Answer(error.to_string()))
    }

    async fn call(&self, method: Method, path: &str) -> Result<Response<Incoming>, EngineError> {
        let stream = UnixStream::connect(&self.socket).await.map_err(EngineError::Connect)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::builder().method(method).uri(path).header("host", "engine");
        let response = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
        match response.status() {
            // Stopping a stopped container and the like: the wanted state is there already.
            status if status.is_success() || status == StatusCode::NOT_MODIFIED => Ok(response),
            status => Err(EngineError::Status(status)),
        }
    }
}

/// The engine's answer, or that it does not begin one: its socket takes connections before it serves them, and
/// while it hangs.
pub(crate) async fn patiently<T>(
    answer: impl Future<Output = Result<T, EngineError>>,
) -> Result<T, EngineError> {
    timeout(PATIENCE, answer).await.unwrap_or_else(|elapsed| Err(EngineError::Connect(elapsed.into())))
}

/// A value as queries carry it.
pub(super) fn encoded(value: &str) -> String {
    form_urlencoded::byte_serialize(value.as_bytes()).collect()
}
