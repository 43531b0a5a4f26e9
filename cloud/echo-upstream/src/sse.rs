//! Streams of events.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use serde_json::Value;

/// One event, and whether it is worth a pause.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    text: String,
    is_token: bool,
}

impl Event {
    /// Data alone.
    pub(crate) fn data(data: &Value) -> Self {
        Self { text: format!("data: {data}\n\n"), is_token: false }
    }

    /// A named event: the name stands in the data, too.
    pub(crate) fn named(data: &Value) -> Self {
        let name = data["type"].as_str().unwrap_or_default();
        Self { text: format!("event: {name}\ndata: {data}\n\n"), is_token: false }
    }

    /// The end of streams in OpenAI's older formats.
    pub(crate) fn done() -> Self {
        Self { text: "data: [DONE]\n\n".to_owned(), is_token: false }
    }

    /// The same, as one that brings a token.
    pub(crate) fn token(self) -> Self {
        Self { is_token: true, ..self }
    }
}

/// A response that brings these events, with a pause before each token.
pub(crate) fn response(events: Vec<Event>, pause: Duration) -> Response {
    let pieces = stream::iter(events).then(move |event| async move {
        if event.is_token && !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        Ok::<_, Infallible>(Bytes::from(event.text))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}
