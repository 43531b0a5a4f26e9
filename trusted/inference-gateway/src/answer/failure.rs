//! Why an attempt failed, and which of several failures the client is told.

use http::StatusCode;

use super::judge::{Judgement, Then, judge};
use crate::error::{GatewayError, Kind};
use crate::format::{UpstreamFault, fault};
use crate::routing::Route;
use crate::upstream::Answer;

/// Which failure of several is told: the greatest, and of equals the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// The route cannot take the request.
    Routing,
    /// Nothing came back.
    Transport,
    /// Nothing was proved.
    Verification,
    /// The upstream answered.
    Answered,
}

/// Why an attempt failed.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) rank: Rank,
    /// What the client is told.
    pub(super) error: GatewayError,
    /// What the operator is told: whose fault it is, `upstream` or `gateway`, and a sentence.
    pub(super) source: &'static str,
    pub(super) why: &'static str,
    pub(super) judgement: Judgement,
}

impl Failure {
    /// A failure that the route is not to blame for, after which the next one is tried.
    pub(super) fn new(rank: Rank, error: GatewayError, why: &'static str) -> Self {
        let recorded = error.status().as_u16();
        let judgement = Judgement { then: Then::Next, is_busy: false, is_fault_of_route: false, recorded };
        Self { rank, error, source: "upstream", why, judgement }
    }

    /// The route's own failure.
    fn of_route(rank: Rank, message: &str, why: &'static str) -> Self {
        let failure = Self::new(rank, GatewayError::new(Kind::Upstream, message), why);
        Self { judgement: Judgement { is_fault_of_route: true, ..failure.judgement }, ..failure }
    }

    pub(super) fn transport() -> Self {
        let message = "The upstream provider returned an error";
        Self::of_route(Rank::Transport, message, "the upstream could not be reached, or broke off")
    }

    pub(super) fn timed_out() -> Self {
        Self::of_route(Rank::Transport, "The upstream provider timed out", "the upstream timed out")
    }

    pub(super) fn malformed() -> Self {
        let message = "The upstream provider returned an error";
        Self::of_route(Rank::Transport, message, "the upstream's answer cannot be understood")
    }

    /// The gateway has no memory for the answer: that is nobody else's fault, and no other route would fare better.
    pub(super) fn no_room() -> Self {
        let error =
            GatewayError::new(Kind::Unavailable, "The gateway is busy. Please retry after some time.");
        let error = GatewayError { retry_after: Some(1), ..error };
        let failure = Self::new(Rank::Answered, error, "the gateway has no memory for the answer");
        let judgement = Judgement { then: Then::Answer, ..failure.judgement };
        Self { source: "gateway", judgement, ..failure }
    }

    /// The upstream answered with a status that is no success.
    pub(super) fn answered(route: &Route, answer: &Answer, body: &[u8], request: &[u8]) -> Self {
        let fault = fault::read(body);
        let judgement = judge(answer.status, &fault, request);
        let mut error = fault::public(answer.status, &fault, route);
        if judgement.then == Then::Answer && !matches!(error.kind, Kind::UpstreamRefused(_)) {
            // Whatever the upstream calls it, it is about what the client sent.
            error = fault::public(StatusCode::BAD_REQUEST, &fault, route);
        }
        if judgement.is_busy {
            error.retry_after = answer.retry_after;
        }
        let why = "the upstream answered with an error";
        Self { rank: Rank::Answered, error, source: "upstream", why, judgement }
    }

    /// The upstream reported a failure in a stream before anything of the answer.
    pub(super) fn reported(route: &Route, fault: &UpstreamFault) -> Self {
        let error = fault::public(StatusCode::BAD_GATEWAY, fault, route);
        let failure = Self::new(Rank::Answered, error, "the upstream reported an error in its stream");
        let recorded = if fault::is_quota(fault) { 402 } else { 502 };
        Self { judgement: Judgement { is_fault_of_route: true, recorded, ..failure.judgement }, ..failure }
    }

    /// Whether this failure is told rather than another that came before it.
    pub(super) fn outweighs(&self, other: &Self) -> bool {
        self.rank >= other.rank
    }
}
