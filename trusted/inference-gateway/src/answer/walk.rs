//! The walk over the routes of a request, until one answers or none is left.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::attempt::{Attempt, Begun, Committed, Trace};
use super::exchange::Exchange;
use super::failure::Failure;
use super::judge::Then;
use super::watch::Watch;
use crate::observe::shown;
use crate::routing::Route;
use crate::verification::is_required_by;

/// Busy upstreams are asked again only while a request is younger than this.
const BUSY_WITHIN: Duration = Duration::from_secs(10);

/// An attempt that is over, for the record.
#[derive(Debug)]
pub(super) struct Tried {
    pub(super) attempt: Begun,
    pub(super) status: u16,
    pub(super) why: &'static str,
    /// Since the request came in.
    pub(super) ended: Duration,
}

/// How far a walk came.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    exchange: &'a Exchange,
    /// Attempts that failed.
    pub(super) tried: Vec<Tried>,
    /// The attempt that is under way, or that was committed to.
    pub(super) current: Option<Current>,
    /// The failure that is told if all fail, and its attempt.
    failed: Option<(Failure, Trace)>,
    busy: Vec<(Arc<Route>, u64)>,
}

/// An attempt.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) trace: Trace,
    /// Hears how it ends.
    pub(super) watch: Watch,
}

/// Why a walk ended without an answer.
#[derive(Debug)]
pub(super) struct Exhausted {
    pub(super) failure: Failure,
    pub(super) trace: Trace,
}

impl<'a> Walk<'a> {
    pub(super) fn new(exchange: &'a Exchange) -> Self {
        Self { exchange, tried: Vec::new(), current: None, failed: None, busy: Vec::new() }
    }

    /// Walks. What it found out stays when it is given up on the way.
    pub(super) async fn run(&mut self) -> Result<Committed, Option<Exhausted>> {
        let exchange = self.exchange;
        let routes = &exchange.asked.routes;
        for route in routes.iter().filter(|route| route.breaker.admits(exchange.gateway.now())) {
            if let Some(end) = self.attempt(route).await {
                return end.map_err(|()| self.exhausted());
            }
        }
        if self.tried.is_empty() {
            // All of them rest: the last resort is to try.
            for route in routes {
                if let Some(end) = self.attempt(route).await {
                    return end.map_err(|()| self.exhausted());
                }
            }
        }
        for route in self.wait_for_busy().await {
            if let Some(end) = self.attempt(&route).await {
                return end.map_err(|()| self.exhausted());
            }
        }
        Err(self.exhausted())
    }

    fn exhausted(&mut self) -> Option<Exhausted> {
        self.failed.take().map(|(failure, trace)| Exhausted { failure, trace })
    }

    /// One attempt. `None` is to go on.
    async fn attempt(&mut self, route: &Arc<Route>) -> Option<Result<Committed, ()>> {
        let Exchange { gateway, live, incoming, asked, .. } = self.exchange;
        // From here on its breaker hears of it: also that nothing is sent.
        let watch = Watch::new(gateway, route);
        if asked.is_left() {
            return Some(Err(()));
        }
        if gateway.cut.is_cancelled() {
            // The walk is polled before `cut` is: it must not send anything in between.
            return pending().await;
        }
        let required = asked.is_verified_only || is_required_by(route);
        let trace = Trace::new(Arc::clone(route), required);
        let Current { trace, .. } = self.current.insert(Current { trace, watch });
        let failure = match (Attempt { gateway, live, incoming, asked, route }).make(trace).await {
            Ok(committed) => return Some(Ok(committed)),
            Err(failure) => failure,
        };
        let Current { trace, watch } = self.current.take()?;
        if failure.judgement.is_fault_of_route {
            watch.failed();
        }
        let status = failure.judgement.recorded;
        tracing::info!(
            request_id = incoming.request_id,
            route = route.id,
            status,
            why = failure.why,
            cause = failure.cause.as_deref().map(shown),
            "an attempt failed"
        );
        self.tried.push(Tried {
            attempt: trace.begun(self.exchange.began),
            status,
            why: failure.why,
            ended: self.exchange.began.elapsed(),
        });
        if failure.judgement.is_busy {
            self.busy.push((Arc::clone(route), failure.error.retry_after.unwrap_or(0)));
        }
        let then = failure.judgement.then;
        self.note(failure, trace);
        (then == Then::Answer).then_some(Err(()))
    }

    /// Keeps the failure that is told if all fail, with the attempt that the receipt is about: of those that sent the request
    /// anywhere, if there are any, the greatest, and of equals the last. So who is told that nothing was proved knows that
    /// nothing was sent, and a receipt says where the request went.
    fn note(&mut self, failure: Failure, trace: Trace) {
        let weight = |failure: &Failure, trace: &Trace| (trace.may_be_out(), failure.rank);
        let is_outweighed =
            self.failed.as_ref().is_some_and(|(told, about)| weight(told, about) > weight(&failure, &trace));
        if !is_outweighed {
            self.failed = Some((failure, trace));
        }
    }

    /// Waits until upstreams that were merely busy may be asked again, and says which: those that did not ask for
    /// more time. None when the request is too old for that.
    async fn wait_for_busy(&mut self) -> Vec<Arc<Route>> {
        let busy = std::mem::take(&mut self.busy);
        let left = BUSY_WITHIN.saturating_sub(self.exchange.began.elapsed());
        let pause = Duration::from_millis(self.exchange.live.config.capacity_retry_ms);
        let Some(least) = busy.iter().map(|(_, seconds)| Duration::from_secs(*seconds)).min() else {
            return Vec::new();
        };
        if pause.is_zero() || left.is_zero() || least > left {
            return Vec::new();
        }
        // Those who were sent away together do not come back together.
        let spread = pause.mul_f64(f64::from(self.exchange.random_byte()) / 256.0);
        let pause = (pause + spread).max(least);
        sleep(pause).await;
        busy.into_iter()
            .filter(|(_, seconds)| Duration::from_secs(*seconds) <= pause)
            .map(|(route, _)| route)
            .collect()
    }
}
