//! One connection: HTTP/1.1 or HTTP/2 over it, until it ends or has to.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;

use http::Request;
use http::header::{CONNECTION, HeaderValue};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::answer::Answer;
use super::limits::{Limits, MAX_HEAD_BYTES, MAX_HEADERS};

/// Whether a connection is in use.
pub(crate) struct Activity {
    state: Mutex<State>,
    end: Notify,
}

struct State {
    requests: usize,
    since: Instant,
    ending: bool,
}

/// A request that is being answered.
struct Busy<'a>(&'a Activity);

impl Activity {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State { requests: 0, since: Instant::now(), ending: false }),
            end: Notify::new(),
        }
    }

    /// Ends the connection after the answers that are on their way.
    pub(crate) fn end(&self) {
        self.state.lock().ending = true;
        self.end.notify_one();
    }

    fn is_ending(&self) -> bool {
        self.state.lock().ending
    }

    fn begin(&self) -> Busy<'_> {
        self.state.lock().requests += 1;
        Busy(self)
    }

    /// When the connection is idle for too long, if nothing happens until then.
    fn idle_at(&self, limits: &Limits) -> Option<Instant> {
        let state = self.state.lock();
        (state.requests == 0).then(|| state.since + limits.idle)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.requests = state.requests.saturating_sub(1);
        state.since = Instant::now();
    }
}

/// How a connection is served.
pub(crate) struct Manner<'a> {
    pub(crate) http2: bool,
    /// Ends after the first answer.
    pub(crate) once: bool,
    pub(crate) limits: &'a Limits,
    pub(crate) stop: &'a CancellationToken,
}

/// Serves a connection to its end.
pub(crate) async fn serve<S, F>(
    stream: S,
    manner: &Manner<'_>,
    activity: &Arc<Activity>,
    answer: impl Fn(Request<Incoming>) -> F,
) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let (once, http2) = (manner.once, manner.http2);
    let service = service_fn(move |request| {
        let (activity, answer) = (Arc::clone(activity), answer(request));
        async move {
            let _busy = activity.begin();
            let mut answer = answer.await;
            if once {
                activity.end();
            }
            if activity.is_ending() && !http2 {
                // A request that came right behind this one is not read any more.
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let (io, limits) = (TokioIo::new(stream), manner.limits);
    if manner.http2 {
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(limits.head)
            .max_concurrent_streams(limits.streams)
            .max_header_list_size(MAX_HEAD_BYTES)
            .serve_connection(io, service);
        until_told(connection, manner, activity, http2::Connection::graceful_shutdown).await
    } else {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .keep_alive(!once)
            .header_read_timeout(limits.head)
            .max_buf_size(MAX_HEAD_BYTES as usize)
            .max_headers(MAX_HEADERS)
            .serve_connection(io, service);
        until_told(connection, manner, activity, http1::Connection::graceful_shutdown).await
    }
}

/// Drives a connection, and tells it to end when the KMS does, when it is idle or too old, or when it was
/// said so.
async fn until_told<C>(
    connection: C,
    manner: &Manner<'_>,
    activity: &Activity,
    finish: impl FnOnce(Pin<&mut C>),
) -> hyper::Result<()>
where
    C: Future<Output = hyper::Result<()>>,
{
    let limits = manner.limits;
    let oldest = Instant::now() + limits.age;
    let mut connection = pin!(connection);
    loop {
        let look = activity.idle_at(limits).unwrap_or_else(|| Instant::now() + limits.idle).min(oldest);
        tokio::select! {
            ended = connection.as_mut() => return ended,
            () = manner.stop.cancelled() => break,
            () = activity.end.notified() => break,
            () = sleep_until(look) => {
                let now = Instant::now();
                if now >= oldest || activity.idle_at(limits).is_some_and(|end| now >= end) {
                    break;
                }
            }
        }
    }
    finish(connection.as_mut());
    // Whoever does not read its answer loses it.
    timeout(limits.farewell, connection).await.unwrap_or(Ok(()))
}
