//! The way to a client: the head of its answer, the pieces of a stream, and a last piece that nobody can hold up.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

use super::exchange::Exchange;
use super::respond;
use super::wire::Wire;
use crate::door::refusal;
use crate::error::GatewayError;
use crate::format;

/// Pieces that wait for a slow client; the upstream is not read while all are taken.
const PIECES: usize = 4;
/// What a client gets in silence.
pub(super) const COMMENT: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// The client is gone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gone;

/// The way to one client.
#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) wire: Wire,
    /// The pieces of a stream.
    pub(super) pieces: mpsc::Sender<Bytes>,
    /// The end of a stream. It has a place of its own, which a client that reads nothing cannot keep it from.
    pub(super) last: oneshot::Sender<Bytes>,
    /// Until the head went out: whom it goes to, and the body of a stream.
    head: Option<(oneshot::Sender<Response>, Body)>,
}

impl Outlet {
    pub(super) fn new(wire: Wire, head: oneshot::Sender<Response>) -> Self {
        let (pieces, taken) = mpsc::channel(PIECES);
        let (last, rest) = oneshot::channel();
        // A stream without its last bytes, which a failure of the gateway itself could make, must not end cleanly.
        let taken = ReceiverStream::new(taken).map(Ok::<_, oneshot::error::RecvError>);
        let body = Body::from_stream(taken.chain(futures_util::stream::once(rest)));
        Self { wire, pieces, last, head: Some((head, body)) }
    }

    /// Whether the head of a stream went out.
    pub(super) const fn is_open(&self) -> bool {
        self.head.is_none()
    }

    /// Whether the client is gone.
    pub(super) fn is_closed(&self) -> bool {
        self.head.as_ref().map_or_else(|| self.pieces.is_closed(), |(head, _)| head.is_closed())
    }

    /// Lets the head of a stream go, unless it went.
    pub(super) fn open(&mut self, exchange: &Exchange) -> Result<(), Gone> {
        let Some((head, body)) = self.head.take() else { return Ok(()) };
        head.send(respond::stream(exchange, body)).map_err(|_| Gone)
    }

    /// Waits with the client, until it leaves. After a silence a stream begins without content: comments show the
    /// client, and whatever stands between, that it lives, and any route may still answer.
    pub(super) async fn wait(&mut self, exchange: &Exchange) {
        let pause = Duration::from_millis(exchange.live.config.sse_keepalive_ms);
        let comments = exchange.asked.shaped.is_streaming && !pause.is_zero();
        loop {
            tokio::select! {
                () = self.closed() => return,
                () = sleep(pause), if comments => {}
            }
            // The first comment waits with the head, so that one write carries both.
            let Ok(place) = self.pieces.reserve().await else { return };
            self.wire.own(&COMMENT);
            place.send(COMMENT);
            if self.open(exchange).is_err() {
                return;
            }
        }
    }

    async fn closed(&mut self) {
        match &mut self.head {
            Some((head, _)) => head.closed().await,
            None => self.pieces.closed().await,
        }
    }

    /// A whole response. A stream that has begun breaks off instead.
    pub(super) fn respond(self, response: Response) {
        if let Some((head, _)) = self.head {
            drop(head.send(response));
        }
    }

    /// What a failure is for this client: a body, or the end of the stream that it has begun to read.
    pub(super) fn failure(&self, exchange: &Exchange, error: &GatewayError) -> Bytes {
        let (surface, request_id) = (exchange.incoming.surface, &exchange.incoming.request_id);
        if self.is_open() {
            format::failed_tail(surface, request_id, error)
        } else {
            refusal(error, surface, request_id)
        }
    }

    /// Ends with such a failure, of which there is a record.
    pub(super) fn refuse(self, exchange: &Exchange, error: &GatewayError, body: Bytes) {
        match self.head {
            Some((head, _)) => drop(head.send(respond::recorded_error(exchange, error, body))),
            None => drop(self.last.send(body)),
        }
    }

    /// Ends with a failure of which there is no record.
    pub(super) fn deny(self, exchange: &Exchange, error: &GatewayError) {
        let Exchange { incoming, e2ee_headers, .. } = exchange;
        let (surface, request_id) = (incoming.surface, &incoming.request_id);
        match self.head {
            Some((head, _)) => {
                drop(head.send(respond::denial(surface, request_id, error, e2ee_headers)));
            }
            None => drop(self.last.send(format::failed_tail(surface, request_id, error))),
        }
    }
}
