//! An upstream for development and tests: it speaks the formats of inference providers, and answers with what it is
//! asked. No model is behind it.
//!
//! | Path | Answer |
//! |---|---|
//! | `/v1/chat/completions` | the text of the last message |
//! | `/v1/completions` | each prompt |
//! | `/v1/embeddings` | numbers that depend on the input alone |
//! | `/v1/responses` | the text of the last input |
//! | `/v1/messages` | the text of the last message |
//! | `/v1/models` | the one model, [`MODEL`] |
//!
//! A token is a word with the space before it. Streams bring one token in each event.

#![expect(clippy::indexing_slicing, reason = "a JSON value is null where it has no such member")]

mod chat;
mod completions;
mod embeddings;
mod messages;
mod responses;
mod sse;
mod words;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::DefaultBodyLimit;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::StatusCode;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Id of the model that answers. Requests for others are answered alike.
pub const MODEL: &str = "echo";
/// Largest body, in bytes.
const MAX_BODY_BYTES: usize = 40 << 20;

/// How it answers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Manner {
    /// Pause before each token of a stream.
    pub pause: Duration,
}

/// Its endpoints.
pub fn router(manner: Manner) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat::answer))
        .route("/v1/completions", post(completions::answer))
        .route("/v1/embeddings", post(embeddings::answer))
        .route("/v1/responses", post(responses::answer))
        .route("/v1/messages", post(messages::answer))
        .route("/v1/models", get(models))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(Arc::new(manner))
}

async fn models() -> Response {
    let model = json!({ "id": MODEL, "object": "model", "created": 0, "owned_by": "cloister" });
    Json(json!({ "object": "list", "data": [model] })).into_response()
}

/// A request that it does not understand.
fn refused(message: &str) -> Response {
    let error = json!({ "message": message, "type": "invalid_request_error", "code": null, "param": null });
    (StatusCode::BAD_REQUEST, Json(json!({ "error": error }))).into_response()
}

/// One that serves.
#[derive(Debug)]
pub struct EchoUpstream {
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<io::Result<()>>,
}

impl EchoUpstream {
    /// Starts one.
    pub async fn start(listen: SocketAddr, manner: Manner) -> io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let told = stop.clone().cancelled_owned();
        let serve = axum::serve(listener, router(manner)).with_graceful_shutdown(told);
        Ok(Self { address, stop, task: tokio::spawn(async { serve.await }) })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it, when what it answers is answered.
    pub async fn stop(self) {
        self.stop.cancel();
        let _ = self.task.await;
    }
}

#[cfg(test)]
mod tests;
