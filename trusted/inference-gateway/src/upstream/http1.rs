//! HTTP/1.1 to one upstream: connections that carry one request at a time, and are kept for the next one.
//!
//! Who waits for an answer drives the connection that it comes over: a connection with a task of its own would cost each request
//! the switches to it and back. Those that nobody uses are looked after by one task for all.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
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
use tokio::sync::{Notify, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::sleep;
use tower::Service as _;

use super::connector::{BoxError, Connector, IDLE_CONNECTION, Tcp};
use crate::unattended::unattended;

const UPKEEP: Upkeep = {
    let round = Duration::from_secs(10);
    Upkeep { round, rounds: IDLE_CONNECTION.as_secs() / round.as_secs() }
};

/// Most connections at a time that are waited for although who began them took another.
const MAX_LATE: usize = 4;

/// How unused connections are looked after.
#[derive(Debug, Clone, Copy)]
struct Upkeep {
    /// How often. One that the upstream has closed is noticed within this time, unless it should be used sooner.
    round: Duration,
    /// After how many rounds one has had its time.
    rounds: u64,
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// There was no connection that it could have gone out over.
    #[error("no connection stands")]
    Connect(#[source] BoxError),
    /// It may have gone out.
    #[error("the connection broke")]
    Exchange(#[source] BoxError),
}

/// A pool of connections.
pub(super) struct Http1 {
    connector: Connector,
    origin: Uri,
    host: HeaderValue,
    upkeep: Upkeep,
    /// Places for those of which there are [`MAX_LATE`].
    late: Arc<Semaphore>,
    idle: Arc<Idle>,
}

/// Connections that nobody uses.
#[derive(Default)]
struct Idle {
    /// The last used one last, but for those that were just looked after.
    lines: Mutex<VecDeque<Resting>>,
    /// Told of each that comes, or comes back.
    freed: Notify,
    /// Who looks after them.
    attendant: OnceLock<AbortHandle>,
}

struct Resting {
    line: Box<Line>,
    /// Since it was used.
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

    /// Lets it go on as far as it can at once; whether it can take a request then, and the upstream has not closed it.
    fn is_free(&mut self) -> bool {
        self.goes_on(&mut Context::from_waker(Waker::noop())) && self.requests.is_ready()
    }

    /// Closes it in an orderly way.
    fn close(self) {
        drop(self.requests);
        unattended(async { drop(self.connection.await) });
    }
}

impl Idle {
    /// One that was not closed, as far as can be seen at once.
    fn take(&self) -> Option<Box<Line>> {
        loop {
            let mut line = self.lines.lock().pop_back()?.line;
            if line.is_free() {
                return Some(line);
            }
        }
    }

    fn put(&self, line: Box<Line>) {
        self.rest(Resting { line, rounds: 0 });
    }

    fn rest(&self, resting: Resting) {
        self.lines.lock().push_back(resting);
        self.freed.notify_one();
    }

    /// Another round has passed: drops those that were closed, and closes those that have had their time.
    fn look_after(&self, rounds: u64) {
        let many = self.lines.lock().len();
        for _ in 0..many {
            // One after the other: requests find the others meanwhile.
            let Some(mut resting) = self.lines.lock().pop_front() else { return };
            resting.rounds += 1;
            if !resting.line.is_free() {
                continue;
            }
            if resting.rounds < rounds {
                self.rest(resting);
            } else {
                resting.line.close();
            }
        }
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        if let Some(attendant) = self.attendant.get() {
            attendant.abort();
        }
        for resting in self.lines.get_mut().drain(..) {
            resting.line.close();
        }
    }
}

/// Looks after those of a pool as long as there is the pool.
async fn attend(idle: Weak<Idle>, upkeep: Upkeep) {
    loop {
        sleep(upkeep.round).await;
        let Some(idle) = idle.upgrade() else { return };
        idle.look_after(upkeep.rounds);
    }
}

/// A connection in use. It is kept for the next request if it is free by the end, else dropped: nobody wants an answer any more
/// that was not waited for, or not read to its end.
struct Lent {
    /// Until it has ended.
    line: Option<Box<Line>>,
    /// Whether the head of the answer came.
    is_answered: bool,
    idle: Arc<Idle>,
}

impl Lent {
    fn drive(&mut self, context: &mut Context<'_>) {
        self.line.take_if(|line| !line.goes_on(context));
    }

    /// Whether nothing of the answer is still to come.
    fn is_done(&self) -> bool {
        self.line.as_ref().is_none_or(|line| line.requests.is_ready())
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(mut line) = self.line.take_if(|_| self.is_answered) else { return };
        // It may notice only now that nobody reads on, and find the end of the answer there already.
        if line.requests.is_ready() || line.is_free() {
            self.idle.put(line);
        }
    }
}

impl Http1 {
    /// To an origin.
    pub(super) fn new(connector: Connector, origin: Uri) -> Self {
        let host = origin.authority().map_or("", |authority| authority.as_str());
        let host = HeaderValue::from_str(host).unwrap_or_else(|_| HeaderValue::from_static(""));
        Self {
            connector,
            origin,
            host,
            upkeep: UPKEEP,
            late: Arc::new(Semaphore::new(MAX_LATE)),
            idle: Arc::default(),
        }
    }

    /// What requests say where they go.
    #[cfg(test)]
    pub(super) const fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// Sends a request, whose URI is a path, and waits for the head of its answer. One that a kept connection did not take,
    /// because it had been closed, goes over another.
    pub(super) async fn send(&self, mut request: Request<Full<Bytes>>) -> Result<Response<Body>, Broken> {
        // RFC 9112, 3.2.1: the origin stands here.
        request.headers_mut().insert(HOST, self.host.clone());
        loop {
            let (mut line, is_new) = match self.idle.take() {
                Some(line) => (line, false),
                None => Box::pin(self.line()).await?,
            };
            let answered = line.requests.try_send_request(request);
            let mut lent = Lent { line: Some(line), is_answered: false, idle: Arc::clone(&self.idle) };
            let mut answered = pin!(answered);
            let head = poll_fn(|context| {
                lent.drive(context);
                answered.as_mut().poll(context)
            });
            let mut error = match head.await {
                Ok(response) => {
                    lent.is_answered = true;
                    // A short answer came with its head: its body needs the connection no more.
                    let lent = (!lent.is_done()).then_some(lent);
                    return Ok(response.map(|incoming| Body { incoming, lent }));
                }
                Err(error) => error,
            };
            match error.take_message() {
                Some(unsent) if !is_new => request = unsent,
                Some(_) => return Err(Broken::Connect(error.into_error().into())),
                None => return Err(Broken::Exchange(error.into_error().into())),
            }
        }
    }

    /// A new connection, or one that becomes free sooner; and whether it is new.
    async fn line(&self) -> Result<(Box<Line>, bool), Broken> {
        let attend = || tokio::spawn(attend(Arc::downgrade(&self.idle), self.upkeep)).abort_handle();
        self.idle.attendant.get_or_init(attend);
        let mut connecting: Connecting = Box::pin(connect(self.connector.clone(), self.origin.clone()));
        let mut has_begun = false;
        loop {
            // From here on it hears of those that become free: also while it looks.
            let mut freed = pin!(self.idle.freed.notified());
            freed.as_mut().enable();
            if let Some(line) = self.idle.take() {
                if has_begun {
                    self.keep(connecting);
                }
                return Ok((line, false));
            }
            has_begun = true;
            tokio::select! {
                biased;
                connected = &mut connecting => return Ok((connected?, true)),
                () = freed => {}
            }
        }
    }

    /// Waits for a connection that nobody waits for any more, unless it does so for several: it is for the next.
    fn keep(&self, connecting: Connecting) {
        let Ok(place) = Arc::clone(&self.late).try_acquire_owned() else { return };
        let idle = Arc::downgrade(&self.idle);
        unattended(async move {
            if let (Ok(line), Some(idle)) = (connecting.await, idle.upgrade()) {
                idle.put(line);
            }
            drop(place);
        });
    }
}

type Connecting = Pin<Box<dyn Future<Output = Result<Box<Line>, Broken>> + Send>>;

async fn connect(mut connector: Connector, origin: Uri) -> Result<Box<Line>, Broken> {
    poll_fn(|context| connector.poll_ready(context)).await.map_err(Broken::Connect)?;
    let stream = connector.call(origin).await.map_err(Broken::Connect)?;
    let handshake = Builder::new().handshake(stream).await;
    let (requests, connection) = handshake.map_err(|error| Broken::Connect(error.into()))?;
    Ok(Box::new(Line { requests, connection }))
}

impl fmt::Debug for Http1 {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Http1").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// The body of an answer.
pub(super) struct Body {
    // Dropped first: the connection is free only when nobody reads from it.
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
