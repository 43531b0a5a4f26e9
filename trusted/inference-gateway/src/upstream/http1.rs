//! HTTP/1.1 to one upstream: connections that carry one request at a time, and are kept for the next one.
//!
//! Who waits for an answer drives the connection that it comes over: a connection with a task of its own would cost each request
//! the switches to it and back. Those that nobody uses are looked after by one task for all.

#[cfg(test)]
mod tests;

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_rustls::MaybeHttpsStream;
use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};
use tower::Service as _;
use url::Url;

use super::client::{Broken, Connector, IDLE_CONNECTION, Tcp};
use crate::unattended::unattended;

/// How often unused connections are looked after. One that the upstream closes within this time after its last use is noticed no
/// later, others at once.
const ROUND: Duration = Duration::from_secs(10);
/// In so many rounds an unused connection has had its time.
const ROUNDS: u64 = IDLE_CONNECTION.as_secs() / ROUND.as_secs();

/// A pool of connections; cheap to clone.
#[derive(Clone)]
pub(super) struct Http1 {
    connector: Connector,
    origin: Uri,
    host: HeaderValue,
    round: Duration,
    idle: Arc<Idle>,
}

/// Connections that nobody uses.
#[derive(Default)]
struct Idle {
    /// The last used one last.
    lines: Mutex<Vec<Resting>>,
    /// Set when there is one.
    attendant: OnceLock<()>,
}

struct Resting {
    line: Box<Line>,
    rounds: u64,
}

/// A connection.
struct Line {
    requests: SendRequest<Full<Bytes>>,
    connection: Connection<MaybeHttpsStream<Tcp>, Full<Bytes>>,
}

impl Line {
    /// Lets it go on; false when it has ended.
    fn goes_on(&mut self, context: &mut Context<'_>) -> bool {
        Pin::new(&mut self.connection).poll(context).is_pending()
    }

    /// Lets it go on; whether it can take a request then.
    fn is_free(&mut self, context: &mut Context<'_>) -> bool {
        self.goes_on(context) && self.requests.is_ready()
    }

    /// Closes it in an orderly way.
    fn close(self) {
        drop(self.requests);
        unattended(async { drop(self.connection.await) });
    }
}

impl Idle {
    /// One that the upstream has not closed, as far as can be seen.
    fn take(&self, context: &mut Context<'_>) -> Option<Box<Line>> {
        loop {
            let mut line = self.lines.lock().pop()?.line;
            if line.is_free(context) {
                return Some(line);
            }
        }
    }

    /// Notices those that were closed, and will for those that stay. With another round, those go that have had their time.
    fn look_after(&self, context: &mut Context<'_>, rounds: u64) {
        let mut lines = self.lines.lock();
        for resting in lines.iter_mut() {
            resting.rounds += rounds;
        }
        for Resting { line, .. } in lines.extract_if(.., |resting| resting.rounds >= ROUNDS) {
            line.close();
        }
        lines.retain_mut(|resting| resting.line.is_free(context));
    }
}

/// Looks after those of a pool as long as there is the pool.
async fn attend(idle: Weak<Idle>, round: Duration) {
    let mut rounds = interval(round);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    poll_fn(|context| {
        let Some(idle) = idle.upgrade() else { return Poll::Ready(()) };
        let mut over = 0;
        while rounds.poll_tick(context).is_ready() {
            over += 1;
        }
        idle.look_after(context, over);
        Poll::Pending
    })
    .await;
}

/// A connection in use. Kept for the next request if it is free by the end, else closed: what was not read to its end, or not
/// waited for, is not wanted any more.
struct Lent {
    /// Until the end.
    line: Option<Box<Line>>,
    idle: Arc<Idle>,
}

impl Lent {
    /// Lets it go on until it has ended.
    fn drive(&mut self, context: &mut Context<'_>) {
        self.line.take_if(|line| !line.goes_on(context));
    }

    fn is_free(&self) -> bool {
        self.line.as_ref().is_none_or(|line| line.requests.is_ready())
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(mut line) = self.line.take() else { return };
        // It is to notice that nobody reads any more; the end of an answer may lie there already.
        if line.requests.is_ready() || line.is_free(&mut Context::from_waker(Waker::noop())) {
            self.idle.lines.lock().push(Resting { line, rounds: 0 });
        }
    }
}

impl Http1 {
    /// To the origin of a URL.
    pub(super) fn new(connector: Connector, url: &Url) -> Self {
        let origin = url.origin().ascii_serialization();
        let host = origin.split_once("://").map_or(origin.as_str(), |(_, host)| host);
        let host = HeaderValue::from_str(host).unwrap_or_else(|_| HeaderValue::from_static(""));
        // What is none cannot be connected to.
        let origin = origin.parse().unwrap_or_default();
        Self { connector, origin, host, round: ROUND, idle: Arc::default() }
    }

    /// Sends a request, and waits for the head of its answer.
    pub(super) async fn send(&self, mut request: Request<Full<Bytes>>) -> Result<Response<Body>, Broken> {
        let idle = poll_fn(|context| Poll::Ready(self.idle.take(context))).await;
        let mut line = match idle {
            Some(line) => line,
            None => Box::pin(self.connect()).await?,
        };
        request.headers_mut().insert(HOST, self.host.clone());
        // RFC 9112, 3.2.1: the origin stands in `Host`.
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = path.map(Uri::from).unwrap_or_default();
        let answered = line.requests.send_request(request);
        let mut lent = Lent { line: Some(line), idle: Arc::clone(&self.idle) };
        // Dropped before the connection.
        let mut answered = pin!(answered);
        let head = poll_fn(|context| {
            lent.drive(context);
            answered.as_mut().poll(context)
        });
        let response = head.await.map_err(|error| Broken::Exchange(error.into()))?;
        // A short answer was read with its head: its body needs the connection no more.
        let lent = if lent.is_free() { None } else { Some(lent) };
        Ok(response.map(|incoming| Body { incoming, lent }))
    }

    async fn connect(&self) -> Result<Box<Line>, Broken> {
        let mut connector = self.connector.clone();
        poll_fn(|context| connector.poll_ready(context)).await.map_err(Broken::Connect)?;
        let stream = connector.call(self.origin.clone()).await.map_err(Broken::Connect)?;
        let handshake = Builder::new().handshake(stream).await;
        let (requests, connection) = handshake.map_err(|error| Broken::Connect(error.into()))?;
        let attend = || drop(tokio::spawn(attend(Arc::downgrade(&self.idle), self.round)));
        self.idle.attendant.get_or_init(attend);
        Ok(Box::new(Line { requests, connection }))
    }
}

impl fmt::Debug for Http1 {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Http1").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// The body of an answer.
pub(super) struct Body {
    // Dropped before the connection, which is free only when nobody reads from it.
    incoming: Incoming,
    /// What it comes over, if the reader is to drive that.
    lent: Option<Lent>,
}

impl Body {
    /// One that comes over a connection that others drive.
    pub(super) const fn driven(incoming: Incoming) -> Self {
        Self { incoming, lent: None }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Body").field(&self.incoming).finish()
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(lent) = &mut self.lent {
            lent.drive(context);
        }
        let frame = Pin::new(&mut self.incoming).poll_frame(context);
        if matches!(frame, Poll::Ready(None)) {
            self.lent = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
