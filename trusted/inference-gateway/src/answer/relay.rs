//! A stream on its way to the client: piece by piece, with comments in silence, and an end that says what it is.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until, timeout};

use super::attempt::{Opening, Trace};
use super::exchange::{CLIENT, Exchange, Outcome, STOPPED};
use super::failure::Failure;
use super::feed::{Break, Fed, Feed};
use super::outlet::{COMMENT, Outlet};
use super::walk::{Current, Tried};
use super::wire::written;
use crate::door::{SMALL, Share, ending};
use crate::format::fault::{is_about_request, public_in_stream};
use crate::routing::Route;

/// What a client is told about a stream that broke.
const BROKEN: &str = "The upstream provider returned an error";

/// A stream that has begun.
#[derive(Debug)]
pub(super) struct Streaming {
    pub(super) exchange: Box<Exchange>,
    /// The attempts before the one that answers.
    pub(super) tried: Vec<Tried>,
    pub(super) current: Current,
    pub(super) opening: Opening,
    pub(super) outlet: Outlet,
}

/// Who gets a stream.
#[derive(Debug)]
struct Relay<'a> {
    exchange: &'a Exchange,
    outlet: &'a mut Outlet,
    /// Longest time in which a client may take nothing.
    stall: Duration,
}

/// What is left of a stream that has ended.
#[derive(Debug)]
struct Ended<'a> {
    exchange: &'a Exchange,
    outlet: Outlet,
    /// When the first content came, since the request went to the upstream.
    first_content: Duration,
}

/// How a stream ended.
#[derive(Debug)]
enum End {
    /// Whole; these are its last bytes.
    Whole(Bytes),
    /// Broken: what the client is told, and the operator.
    Broken { message: String, source: &'static str, why: &'static str, is_fault: bool },
    /// The client is gone.
    Left,
}

impl End {
    /// The gateway ends.
    fn stopped() -> Self {
        Self::Broken { message: ending().message, source: "gateway", why: STOPPED, is_fault: false }
    }

    /// The gateway has no memory.
    fn no_room() -> Self {
        let Failure { error, source, why, .. } = Failure::no_room();
        Self::Broken { message: error.message, source, why, is_fault: false }
    }
}

impl Streaming {
    /// Relays the stream to its end, and records it before its last bytes. What is large stays in the box: a future has
    /// room for what it is given, and once more for where that moves.
    pub(super) async fn relay(mut self: Box<Self>) {
        let (exchange, trace) = (&*self.exchange, &mut self.current.trace);
        let Opening { held, feed, end } = &mut self.opening;
        self.current.watch.began();
        let first_content = trace.sent.elapsed();
        let stall = Duration::from_secs(trace.route.upstream.timeouts.idle.into());
        let mut relay = Relay { exchange, outlet: &mut self.outlet, stall };
        // The first bytes wait with the head, so that one write carries both.
        let ready = Instant::now();
        let passed = tokio::select! {
            passed = relay.pass(held, true) => passed,
            () = exchange.gateway.cut.cancelled() => Err(End::stopped()),
        };
        *held = Bytes::new();
        feed.was_kept_waiting(ready.elapsed());
        let is_taken = relay.outlet.open(exchange).is_ok();
        let relayed = async {
            match passed {
                _ if !is_taken => End::Left,
                Err(end) => end,
                Ok(()) => relay.run(&trace.route, feed, end).await,
            }
        };
        let end = tokio::select! {
            end = relayed => end,
            () = exchange.gateway.cut.cancelled() => End::stopped(),
        };
        if matches!(end, End::Left) {
            let time = Duration::from_millis(exchange.live.config.read_on_ms);
            tokio::select! {
                () = feed.read_on(time) => {}
                () = exchange.gateway.cut.cancelled() => {}
            }
        }
        trace.received_hash = Some(written(feed.received.clone()));
        trace.upstream_model = feed.translator.upstream_model().map(str::to_owned);
        match &end {
            End::Whole(_) => {
                let completion = exchange.asked.believable(feed.translator.tokens()).completion;
                trace.route.speed.note(first_content, completion, trace.sent.elapsed());
                self.current.watch.succeeded();
            }
            End::Broken { is_fault: true, .. } => self.current.watch.failed(),
            End::Broken { .. } | End::Left => drop(self.current.watch),
        }
        let is_whole = matches!(end, End::Whole(_));
        let ended = Ended { exchange, outlet: self.outlet, first_content };
        Box::pin(ended.finish(&self.tried, trace, feed, end)).await;
        // What did not end is not read for nobody: the upstream would go on.
        if is_whole {
            self.opening.feed.drain().await;
        }
    }
}

/// The share of a piece in the memory for bodies, which it keeps until the client has taken it; none for a small one.
/// Waits so long for it.
async fn room(exchange: &Exchange, length: usize, patience: Duration) -> Result<Option<Share>, End> {
    if length <= SMALL {
        return Ok(None);
    }
    let mut share = exchange.gateway.bodies.share_of(exchange.asked.key, exchange.weight);
    if matches!(timeout(patience, share.cover(length)).await, Ok(Ok(()))) {
        return Ok(Some(share));
    }
    Err(End::no_room())
}

impl Relay<'_> {
    /// Passes on what comes, until the end.
    async fn run(&mut self, route: &Route, feed: &mut Feed, end: &mut Option<Fed>) -> End {
        let pause = Duration::from_millis(self.exchange.live.config.sse_keepalive_ms);
        let mut silent_since = Instant::now();
        loop {
            let next = if let Some(end) = end.take() {
                Some(end)
            } else {
                tokio::select! {
                    () = self.outlet.closed() => return End::Left,
                    next = feed.next() => Some(next),
                    () = sleep_until(silent_since + pause), if !pause.is_zero() => None,
                }
            };
            let began = Instant::now();
            let passed = match next {
                None => self.comment().await,
                Some(Fed::Bytes { bytes, .. }) if bytes.is_empty() => continue,
                Some(Fed::Bytes { bytes, .. }) => self.pass(&bytes, false).await,
                Some(Fed::Whole(bytes)) => return End::Whole(bytes),
                Some(Fed::Failed(fault)) => {
                    // Words of the upstream go out in clear, and can repeat what an encrypted request says.
                    let is_sealed = self.outlet.wire.encrypts();
                    let message = if is_sealed { BROKEN.to_owned() } else { public_in_stream(&fault, route) };
                    return End::Broken {
                        message,
                        source: "upstream",
                        why: "the upstream reported an error in its stream",
                        is_fault: !is_about_request(&fault),
                    };
                }
                Some(Fed::Broken(Break::NoRoom)) => return End::no_room(),
                Some(Fed::Broken(how)) => {
                    let (message, is_fault) = (BROKEN.to_owned(), !how.is_of_client());
                    return End::Broken { message, source: "upstream", why: how.why(), is_fault };
                }
            };
            if let Err(end) = passed {
                return end;
            }
            silent_since = Instant::now();
            feed.was_kept_waiting(silent_since.duration_since(began));
        }
    }

    /// Whole events of the answer, which may have their share of the memory for bodies.
    async fn pass(&mut self, clear: &Bytes, has_share: bool) -> Result<(), End> {
        if clear.is_empty() {
            return Ok(());
        }
        let Ok(Ok(place)) = timeout(self.stall, self.outlet.pieces.place()).await else {
            return Err(End::Left);
        };
        // What is hashed is sent: so there has to be room for it before.
        let share = if has_share && !self.outlet.wire.encrypts() {
            None
        } else {
            room(self.exchange, clear.len(), self.stall).await?
        };
        match self.outlet.wire.events(clear) {
            Ok(bytes) => {
                place.send(match share {
                    Some(share) => share.hold(bytes),
                    None => bytes,
                });
                Ok(())
            }
            Err(_) => Err(End::Broken {
                message: "The answer could not be encrypted".to_owned(),
                source: "gateway",
                why: "the answer could not be encrypted",
                is_fault: false,
            }),
        }
    }

    /// Shows the client, and whatever stands between, that the stream lives.
    async fn comment(&mut self) -> Result<(), End> {
        let Ok(Ok(place)) = timeout(self.stall, self.outlet.pieces.place()).await else {
            return Err(End::Left);
        };
        self.outlet.wire.own(&COMMENT);
        place.send(COMMENT);
        Ok(())
    }
}

impl Ended<'_> {
    /// Records the stream, then lets its last bytes go.
    async fn finish(mut self, tried: &[Tried], trace: &Trace, feed: &mut Feed, end: End) {
        let (status, last, failure) = match end {
            End::Whole(clear) => {
                if let Ok(last) = self.outlet.wire.events(&clear) {
                    (200, last, None)
                } else {
                    let tail = feed.translator.broken_tail("The answer could not be encrypted");
                    self.outlet.wire.own(&tail);
                    (502, tail, Some(("gateway", "the answer could not be encrypted")))
                }
            }
            End::Broken { message, source, why, .. } => {
                let tail = feed.translator.broken_tail(&message);
                self.outlet.wire.own(&tail);
                (502, tail, Some((source, why)))
            }
            End::Left if self.outlet.is_closed() => (499, Bytes::new(), Some((CLIENT, "the client left"))),
            End::Left => {
                // A client that only stopped reading learns it when it goes on.
                let tail = feed.translator.broken_tail("The answer was not taken in time");
                self.outlet.wire.own(&tail);
                (499, tail, Some((CLIENT, "the client stopped reading")))
            }
        };
        let outcome = Outcome {
            status,
            last: Some(trace.begun(self.exchange.began)),
            first_content: Some(self.first_content),
            usage: feed.translator.usage().map(ToOwned::to_owned),
            tokens: feed.translator.tokens(),
            finish_reasons: feed.translator.finish_reasons(),
            failure,
        };
        let account = self.exchange.account(trace, &self.outlet.wire, true);
        let last = match self.exchange.finish(tried, outcome, Some(account)).await {
            Ok(()) => last,
            // An answer without a record must not look whole.
            Err(error) => feed.translator.broken_tail(&error.message),
        };
        drop(self.outlet.last.send(last));
    }
}
