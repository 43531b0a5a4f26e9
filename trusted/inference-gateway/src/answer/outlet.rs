//! The way to a client: the head of its answer, the pieces of a stream, and a last piece that nobody can hold up.

use std::future::poll_fn;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_channel::mpsc;
use futures_util::StreamExt as _;
use tokio::sync::oneshot;
use tokio::task::coop::cooperative;
use tokio::time::sleep;

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
    pub(super) pieces: Pieces,
    /// The end of a stream. It has a place of its own, which a client that reads nothing cannot keep it from.
    pub(super) last: oneshot::Sender<Bytes>,
    /// Until the head went out: whom it goes to, and the body of a stream.
    head: Option<(oneshot::Sender<Response>, Body)>,
}

/// The pieces of a stream. The list of those that wait is as long as they are many, at the price of a piece of memory for
/// each: an open stream would keep two kilobytes of empty places in a channel that is made of blocks.
#[derive(Debug)]
pub(super) struct Pieces(mpsc::Sender<Bytes>);

/// A place for one piece.
#[derive(Debug)]
pub(super) struct Place<'a>(&'a mut mpsc::Sender<Bytes>);

impl Pieces {
    /// Waits until there is a place.
    pub(super) async fn place(&mut self) -> Result<Place<'_>, Gone> {
        // A stream that always has one is not to keep its thread from others.
        cooperative(poll_fn(|context| self.0.poll_ready(context))).await.map_err(|_| Gone)?;
        Ok(Place(&mut self.0))
    }

    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

impl Place<'_> {
    /// A client that has left meanwhile is noticed by whoever waits next.
    pub(super) fn send(self, piece: Bytes) {
        let sent = self.0.try_send(piece);
        debug_assert!(!sent.is_err_and(|error| error.is_full()), "there was a place for it");
    }
}

impl Outlet {
    pub(super) fn new(wire: Wire, head: oneshot::Sender<Response>) -> Self {
        let (pieces, last, body) = stream();
        Self { wire, pieces, last, head: Some((head, body)) }
    }

    /// Whether the head of a stream went out.
    pub(super) const fn is_open(&self) -> bool {
        self.head.is_none()
    }

    /// Whether the client is gone.
    pub(super) fn is_closed(&self) -> bool {
        let is_body_gone = || self.pieces.is_closed() || self.last.is_closed();
        self.head.as_ref().map_or_else(is_body_gone, |(head, _)| head.is_closed())
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
            let Ok(place) = self.pieces.place().await else { return };
            self.wire.own(&COMMENT);
            place.send(COMMENT);
            if self.open(exchange).is_err() {
                return;
            }
        }
    }

    /// Waits until the client leaves.
    pub(super) async fn closed(&mut self) {
        match &mut self.head {
            Some((head, _)) => head.closed().await,
            None => self.last.closed().await,
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

/// The body of a stream, and both ways into it.
fn stream() -> (Pieces, oneshot::Sender<Bytes>, Body) {
    // A sender has one place of its own.
    let (pieces, taken) = mpsc::channel(PIECES - 1);
    let (last, rest) = oneshot::channel();
    // A stream without its last bytes, which a failure of the gateway itself could make, must not end cleanly.
    let taken = taken.map(Ok::<_, oneshot::error::RecvError>);
    (Pieces(pieces), last, Body::from_stream(taken.chain(futures_util::stream::once(rest))))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use http_body_util::BodyExt as _;

    use super::*;

    async fn piece(body: &mut Body) -> Option<Bytes> {
        body.frame().await.map(|frame| frame.unwrap().into_data().unwrap())
    }

    #[tokio::test]
    async fn as_many_pieces_wait_as_there_are_places_and_the_last_has_one_of_its_own() {
        let (mut pieces, last, mut body) = stream();
        for number in 0..PIECES {
            pieces.place().now_or_never().unwrap().unwrap().send(number.to_string().into());
        }
        assert!(pieces.place().now_or_never().is_none());
        last.send("last".into()).unwrap();
        assert_eq!(piece(&mut body).await.unwrap(), "0");
        pieces.place().now_or_never().unwrap().unwrap().send("more".into());
        assert!(pieces.place().now_or_never().is_none());
        drop(pieces);
        for wanted in ["1", "2", "3", "more", "last"] {
            assert_eq!(piece(&mut body).await.unwrap(), wanted);
        }
        assert_eq!(piece(&mut body).await, None);
    }

    #[tokio::test]
    async fn who_waits_for_a_place_hears_that_the_client_left() {
        let (mut pieces, mut last, body) = stream();
        for _ in 0..PIECES {
            pieces.place().await.unwrap().send(COMMENT);
        }
        let left = tokio::spawn(async move {
            tokio::task::yield_now().await;
            drop(body);
        });
        pieces.place().await.unwrap_err();
        assert!(pieces.is_closed());
        left.await.unwrap();
        last.closed().await;
    }

    #[tokio::test]
    async fn without_its_last_piece_a_stream_breaks_off() {
        let (mut pieces, last, mut body) = stream();
        pieces.place().await.unwrap().send(COMMENT);
        drop((pieces, last));
        assert_eq!(piece(&mut body).await.unwrap(), COMMENT);
        assert!(body.frame().await.unwrap().is_err());
    }
}
