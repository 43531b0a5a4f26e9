//! Connections: accepted, limited in number and time, ended in an orderly way.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::{Request, Version};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use super::activity::{Activity, Busy};
use super::tls::Certificate;
use crate::gathering::Gathering;
use crate::in_place;

/// Most connections at a time; others wait to be accepted.
const MAX_CONNECTIONS: usize = 16_384;
/// How often a silent HTTP/2 connection is asked whether it lives, and how long it has to say so.
const PING: Duration = Duration::from_secs(20);
/// Most bytes of a request's head.
const MAX_HEAD_BYTES: u32 = 64 << 10;
/// Most requests at a time over one HTTP/2 connection.
const MAX_STREAMS: u32 = 256;
/// What may be sent to us over one HTTP/2 stream before we read it, in bytes.
const WINDOW: u32 = 1 << 20;
/// What a client begins with that speaks HTTP/2 without TLS (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// After this it is looked whether the rest of that has come; each look that follows waits twice as long.
const LOOK: Duration = Duration::from_millis(10);
/// Up to this.
const LONGEST_LOOK: Duration = Duration::from_secs(1);
/// Pause after connections could not be accepted, for want of files.
const PAUSE: Duration = Duration::from_millis(100);

/// What answers requests.
pub(crate) trait Answers: Clone + Send + Sync + 'static {
    /// The answer to one.
    fn answer(self, request: Request<Body>) -> impl Future<Output = Response> + Send;
}

impl Answers for Router {
    async fn answer(self, request: Request<Body>) -> Response {
        let Ok(response) = self.oneshot(request).await;
        response
    }
}

/// How long clients may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// For a TLS handshake.
    pub(super) handshake: Duration,
    /// For the head of a request.
    pub(super) head: Duration,
    /// Between requests.
    pub(super) idle: Duration,
    /// For a piece of an answer ([`PIECE`](super::pieces::PIECE)); what was given before it may lie in buffers.
    pub(super) piece: Duration,
    /// The same of one answer, while it takes others.
    pub(super) left: Duration,
    /// For what is under way when a connection should end.
    pub(super) farewell: Duration,
}

const PATIENCE: Patience = Patience {
    handshake: Duration::from_secs(10),
    head: Duration::from_secs(20),
    idle: Duration::from_secs(90),
    piece: Duration::from_mins(2),
    left: Duration::from_mins(10),
    farewell: Duration::from_secs(5),
};

/// Serves connections until it is told to stop; then ends each after the answers that are on their way.
pub(crate) async fn serve(
    listener: TcpListener,
    certificate: Option<Arc<Certificate>>,
    answers: impl Answers,
    stop: CancellationToken,
) {
    serve_with(PATIENCE, listener, certificate, answers, stop).await;
}

/// The same, for clients that may take so long.
pub(super) async fn serve_with(
    patience: Patience,
    listener: TcpListener,
    certificate: Option<Arc<Certificate>>,
    answers: impl Answers,
    stop: CancellationToken,
) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let connections = TaskTracker::new();
    loop {
        let accepted = async {
            // Closed is it never.
            let place = Arc::clone(&room).acquire_owned().await.ok();
            (place, listener.accept().await)
        };
        let (place, stream) = tokio::select! {
            () = stop.cancelled() => break,
            (place, accepted) = accepted => match accepted {
                Ok((stream, _)) => (place, stream),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(PAUSE).await;
                    continue;
                }
            },
        };
        let (answers, stop, certificate) = (answers.clone(), stop.clone(), certificate.clone());
        connections.spawn(async move {
            let _place = place;
            connection(stream, certificate.as_deref(), answers, patience, &stop).await;
        });
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

async fn connection(
    stream: TcpStream,
    certificate: Option<&Certificate>,
    answers: impl Answers,
    patience: Patience,
    stop: &CancellationToken,
) {
    // Small events must not wait for the acknowledgement of those before.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let Some(certificate) = certificate else {
        let spoken = tokio::select! {
            spoken = timeout(patience.idle, spoken(&stream)) => spoken,
            () = stop.cancelled() => return,
        };
        if let Ok(Ok(version)) = spoken {
            http(Gathering(stream), version, answers, patience, stop).await;
        }
        return;
    };
    // It is much larger than what a connection without TLS is.
    Box::pin(tls(stream, certificate, answers, patience, stop)).await;
}

async fn tls(
    stream: TcpStream,
    certificate: &Certificate,
    answers: impl Answers,
    patience: Patience,
    stop: &CancellationToken,
) {
    let handshake = TlsAcceptor::from(certificate.config()).accept(stream);
    let handshake = tokio::select! {
        handshake = timeout(patience.handshake, handshake) => handshake,
        () = stop.cancelled() => return,
    };
    if let Ok(Ok(stream)) = handshake {
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let version = if is_http2 { Version::HTTP_2 } else { Version::HTTP_11 };
        http(stream, version, answers, patience, stop).await;
    }
}

/// What a client speaks without TLS, by its first bytes; with TLS, it says so beforehand (ALPN; RFC 9113, 3.3). They stay
/// unread: whoever reads them needs no memory for more than one version.
pub(super) async fn spoken(stream: &TcpStream) -> io::Result<Version> {
    let (mut first, mut pause) = ([0; PREFACE.len()], LOOK);
    loop {
        let length = stream.peek(&mut first).await?;
        let first = first.get(..length).unwrap_or_default();
        if first.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if first == PREFACE {
            return Ok(Version::HTTP_2);
        }
        // What nothing follows is for the reader to refuse.
        if !PREFACE.starts_with(first) || stream.ready(Interest::READABLE).await?.is_read_closed() {
            return Ok(Version::HTTP_11);
        }
        sleep(pause).await;
        pause = LONGEST_LOOK.min(2 * pause);
    }
}

async fn http<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    version: Version,
    answers: impl Answers,
    patience: Patience,
    stop: &CancellationToken,
) {
    let activity = Arc::new(Activity::default());
    let answering = Arc::clone(&activity);
    let service = service_fn(move |request: Request<Incoming>| {
        let (answers, busy) = (answers.clone(), Busy::begin(&answering));
        // The connection keeps room for this as long as it stands, also when only a stream is left of it.
        let answer = in_place::boxed(|| answers.answer(request.map(Body::new)));
        async move { Ok::<_, Infallible>(busy.follow(answer.await)) }
    });
    let stream = TokioIo::new(stream);
    if version == Version::HTTP_2 {
        let mut server = http2::Builder::new(TokioExecutor::new());
        server
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING)
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEAD_BYTES)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(4 * WINDOW);
        // It is much larger than the others.
        let mut connection = Box::pin(server.serve_connection(stream, service));
        drive(connection.as_mut(), &activity, patience, stop).await;
    } else {
        let mut server = http1::Builder::new();
        server
            .timer(TokioTimer::new())
            .header_read_timeout(patience.head)
            .max_buf_size(MAX_HEAD_BYTES as usize)
            // Of 100 headers at most, which is hyper's limit: for one that is set it fills lists of that length with each request.
            .max_header_size(MAX_HEAD_BYTES as usize);
        let mut connection = pin!(server.serve_connection(stream, service));
        drive(connection.as_mut(), &activity, patience, stop).await;
    }
}

/// Lets a connection do its work until it ends, idles for too long or is told to stop, or takes nothing of its answers, or
/// of one of them, for too long: what they hold is others' memory.
async fn drive(
    mut connection: Pin<&mut impl GracefulConnection>,
    activity: &Activity,
    patience: Patience,
    stop: &CancellationToken,
) {
    loop {
        let idle_at = || activity.idle_since().map(|since| since + patience.idle);
        let stalled_at = || {
            let stalled_at = activity.stalled_since().map(|since| since + patience.piece);
            let left_at = activity.left_since().map(|since| since + patience.left);
            stalled_at.into_iter().chain(left_at).min()
        };
        let is_past = |end: Option<Instant>| end.is_some_and(|end| Instant::now() >= end);
        // What ends sooner may begin meanwhile.
        let soon = Instant::now() + patience.idle.min(patience.piece).min(patience.left);
        let look = [idle_at(), stalled_at()].into_iter().flatten().fold(soon, Instant::min);
        tokio::select! {
            // What clients do to their connections is theirs to know.
            _ = connection.as_mut() => return,
            () = stop.cancelled() => break,
            () = sleep_until(look) => {
                if is_past(stalled_at()) {
                    return;
                }
                if is_past(idle_at()) {
                    break;
                }
            }
        }
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(patience.farewell, connection).await;
}
