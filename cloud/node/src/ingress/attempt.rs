//! Requests that may be sent a second time, and when they may.

use std::error::Error as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Uri, Version};
use http_body_util::{Either, Empty};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper_util::client::legacy::Error;

/// What a guest is sent: a client's body, or none.
pub(super) type RequestBody = Either<Lent, Empty<Bytes>>;

/// How far a failed attempt came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// There was no connection that took it: the app saw nothing of it.
    NotSent,
    /// The connection ended before the answer began: the app may have seen it.
    Unanswered,
    /// Something came back, and it was no answer.
    Answered,
}

impl Fate {
    /// Reads an error of the HTTP client.
    pub(super) fn of(error: &Error) -> Self {
        if error.is_connect() {
            return Self::NotSent;
        }
        match error.source().and_then(|source| source.downcast_ref::<hyper::Error>()) {
            // The client hands such a request back untouched.
            Some(error) if error.is_canceled() => Self::NotSent,
            Some(error) if error.is_parse() || error.is_user() => Self::Answered,
            _ => Self::Unanswered,
        }
    }
}

/// A request on its way to some replica.
pub(super) struct Outgoing {
    method: Method,
    uri: Uri,
    version: Version,
    headers: HeaderMap,
    body: Content,
}

enum Content {
    None,
    Some(Lender),
}

impl Outgoing {
    pub(super) fn new(request: Request<Incoming>) -> Self {
        let (head, body) = request.into_parts();
        let body = if body.is_end_stream() {
            Content::None
        } else {
            Content::Some(Arc::new(Mutex::new(Some(body))))
        };
        Self { method: head.method, uri: head.uri, version: head.version, headers: head.headers, body }
    }

    /// Whether it may be sent again after an attempt that ended so. What the app may have seen is repeated
    /// only if that makes no difference (RFC 9110, section 9.2.2) and nothing of a body is lost.
    pub(super) fn may_follow(&self, fate: Fate) -> bool {
        match (fate, &self.body) {
            (Fate::NotSent, Content::None) => true,
            (Fate::NotSent, Content::Some(lender)) => {
                lender.lock().unwrap_or_else(PoisonError::into_inner).is_some()
            }
            (Fate::Unanswered, Content::None) => self.method.is_idempotent(),
            (Fate::Unanswered, Content::Some(_)) | (Fate::Answered, _) => false,
        }
    }

    /// The request for an attempt; `None` when its body is gone.
    pub(super) fn request(&self) -> Option<Request<RequestBody>> {
        let body = match &self.body {
            Content::None => Either::Right(Empty::new()),
            Content::Some(lender) => Either::Left(Lent::take(lender)?),
        };
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.version_mut() = self.version;
        *request.headers_mut() = self.headers.clone();
        Some(request)
    }
}

/// Where a body lies while no attempt has it.
type Lender = Arc<Mutex<Option<Incoming>>>;

/// A client's body. It goes back to its lender when it ends before anybody began to read it.
pub(super) struct Lent {
    /// `None` only while it is dropped.
    body: Option<Incoming>,
    has_begun: bool,
    lender: Lender,
}

impl Lent {
    fn take(lender: &Lender) -> Option<Self> {
        let body = lender.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(Self { body: Some(body), has_begun: false, lender: Arc::clone(lender) })
    }
}

impl Body for Lent {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        self.has_begun = true;
        self.body.as_mut().map_or(Poll::Ready(None), |body| Pin::new(body).poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if !self.has_begun {
            *self.lender.lock().unwrap_or_else(PoisonError::into_inner) = self.body.take();
        }
    }
}
