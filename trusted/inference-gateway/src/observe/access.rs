//! One line for every response, when it is over.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use http::Method;
use hyper::body::{Frame, SizeHint};

use super::shown;
use super::traces::{RequestSpan, Root};
use crate::door::Pieces;
use crate::error::Kind;
use crate::gateway::Gateway;

/// Path of a probe, which nobody wants to read about.
const HEALTH: &str = "/health";
/// What the log calls a path that is none of the gateway's.
const NO_ENDPOINT: &str = "none";
/// What is recorded of a client that left before its answer.
const LEFT: u16 = 499;
/// What is told of an answer that broke off within the gateway.
const BROKEN: u16 = 500;

/// What a response tells the log, as an extension: who asked, and for which model.
#[derive(Debug, Clone, Default)]
pub(crate) struct About {
    /// What the key is called, where it has a name.
    pub(crate) key: Option<String>,
    pub(crate) model: Option<String>,
}

/// A request, and what became of it. It is logged and counted when this is dropped.
pub(crate) struct Line {
    gateway: Arc<Gateway>,
    method: Method,
    endpoint: String,
    request_id: String,
    status: u16,
    began: Instant,
    bytes: u64,
    is_whole: bool,
    about: About,
    /// Why it got no answer.
    refusal: Option<Kind>,
    root: Option<Root>,
}

impl Line {
    /// A request that begins. `endpoint` is one of the gateway's own paths, if it is any.
    pub(crate) fn begin(
        gateway: &Arc<Gateway>,
        request: &Request,
        endpoint: Option<&str>,
        request_id: &str,
    ) -> Self {
        gateway.note_activity();
        let traces = gateway.traces.as_ref().filter(|_| endpoint != Some(HEALTH));
        Self {
            gateway: Arc::clone(gateway),
            method: request.method().clone(),
            root: traces.and_then(|traces| traces.begin(request.method(), endpoint, request.headers())),
            endpoint: endpoint.unwrap_or(NO_ENDPOINT).to_owned(),
            request_id: request_id.to_owned(),
            status: LEFT,
            began: Instant::now(),
            bytes: 0,
            is_whole: false,
            about: About::default(),
            refusal: None,
        }
    }

    /// The span of the request, if it has one, for those below it.
    pub(crate) fn span(&self) -> Option<RequestSpan> {
        self.root.as_ref().map(|root| root.request.clone())
    }

    /// Stays with the response until it was sent, or as much of it as the client took.
    pub(crate) fn follow(mut self, mut response: Response) -> Response {
        self.about = response.extensions_mut().remove().unwrap_or_default();
        self.refusal = response.extensions_mut().remove();
        self.status = response.status().as_u16();
        self.is_whole = response.body().is_end_stream();
        response.map(|body| Body::new(Followed { body: Pieces::of(body), line: self }))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.gateway.note_activity();
        self.gateway.metrics.responded(&self.endpoint, self.status);
        if self.endpoint == HEALTH {
            return;
        }
        tracing::info!(
            request_id = self.request_id,
            method = shown(self.method.as_str()),
            endpoint = self.endpoint,
            status = self.status,
            error = self.refusal.map(Kind::name),
            key = self.about.key,
            model = self.about.model.as_deref().map(shown),
            bytes = self.bytes,
            is_whole = self.is_whole,
            trace_id = self.root.as_ref().map(Root::trace_id),
            milliseconds = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            "answered"
        );
        if let Some(root) = self.root.take() {
            root.end(&self.request_id, self.status, self.bytes, self.is_whole);
        }
    }
}

struct Followed {
    body: Pieces<Body>,
    line: Line,
}

impl hyper::body::Body for Followed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                let length = frame.data_ref().map_or(0, Bytes::len);
                self.line.bytes = self.line.bytes.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
                self.line.is_whole = self.body.is_end_stream();
            }
            Poll::Ready(None) => self.line.is_whole = true,
            Poll::Ready(Some(Err(_))) => {
                if let Some(root) = &self.line.root {
                    root.request.note_failure(BROKEN);
                }
            }
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
