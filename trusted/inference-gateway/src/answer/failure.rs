//! Why an attempt failed, and which of several failures the client is told.

use http::StatusCode;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::feed::Break;
use super::judge::{Judgement, Then, judge};
use crate::accounting::Tokens;
use crate::door::no_room;
use crate::error::{GatewayError, Kind};
use crate::format::{Translate, UpstreamFault, counts_of, fault};
use crate::routing::Route;
use crate::upstream::Answer;

/// For the operator, where memory for an answer is lacking.
pub(super) const NO_ROOM: &str = "the gateway has no memory for the answer";

/// What a token of a text takes, in bytes, where nobody counted. Of what is no text it takes more.
const BYTES_OF_TOKEN: usize = 4;

/// How much a failure says, the least first.
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
    /// Whether it may be in the upstream's words, which can repeat what the request says.
    pub(super) is_quoted: bool,
    /// What the operator is told: whose fault it is, `upstream` or `gateway`, and a sentence.
    pub(super) source: &'static str,
    pub(super) why: &'static str,
    /// More of it where there is more, for the operator's log alone: it may name hosts.
    pub(super) cause: Option<String>,
    pub(super) judgement: Judgement,
    /// What the upstream was made to do all the same.
    pub(super) spent: Option<Spent>,
}

/// What an answer used that nobody gets.
#[derive(Debug, Clone, Default)]
pub(super) struct Spent {
    /// As the upstream told.
    pub(super) usage: Option<Box<RawValue>>,
    /// The same, read, or an estimate.
    pub(super) tokens: Tokens,
}

impl Spent {
    /// As far as a translator read an answer.
    pub(super) fn read(translator: &dyn Translate) -> Self {
        Self { usage: translator.usage().map(ToOwned::to_owned), tokens: translator.tokens() }
    }

    /// Of an answer with so many bytes of what models write, which nobody read: no more than so many tokens.
    pub(super) fn unread(translator: &dyn Translate, bytes: usize, most: u64) -> Self {
        let tokens = translator.tokens();
        let completion = u64::try_from(bytes / BYTES_OF_TOKEN).unwrap_or(u64::MAX).min(most);
        Self { usage: None, tokens: Tokens { completion: tokens.completion.max(completion), ..tokens } }
    }

    /// Of a body that is no answer as it should be. `None` where nothing says that anything was done for it.
    pub(super) fn of(body: &[u8], translator: &dyn Translate) -> Option<Self> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Told {
            usage: Option<Box<RawValue>>,
            error: Option<IgnoredAny>,
        }
        let told: Told = serde_json::from_slice(body).unwrap_or_default();
        let usage = told.usage.filter(|_| told.error.is_none());
        let tokens = usage.as_ref().and_then(|usage| Tokens::parse(usage.get()));
        match tokens.filter(|tokens| tokens.total() > 0) {
            Some(tokens) => Some(Self { usage: usage.as_deref().map(counts_of), tokens }),
            None => Some(Self::read(translator)).filter(|spent| spent.tokens.completion > 0),
        }
    }
}

impl Failure {
    /// A failure that the route is not to blame for, after which the next one is tried.
    pub(super) fn new(rank: Rank, error: GatewayError, why: &'static str) -> Self {
        let recorded = error.status().as_u16();
        let judgement = Judgement { then: Then::Next, is_busy: false, is_fault_of_route: false, recorded };
        Self { rank, error, is_quoted: false, source: "upstream", why, cause: None, judgement, spent: None }
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

    /// The same, with what the operator is told of it besides.
    pub(super) fn because(self, cause: String) -> Self {
        Self { cause: Some(cause).filter(|cause| !cause.is_empty()), ..self }
    }

    pub(super) fn timed_out() -> Self {
        Self::of_route(Rank::Transport, "The upstream provider timed out", "the upstream timed out")
    }

    pub(super) fn malformed() -> Self {
        let message = "The upstream provider returned an error";
        Self::of_route(Rank::Transport, message, "the upstream's answer cannot be understood")
    }

    /// An answer that cannot be understood for what clients bring about: more choices than an upstream knows how to make, or
    /// events that are too long.
    pub(super) fn of_client(how: Break) -> Self {
        let failure = Self::malformed();
        let judgement = Judgement { is_fault_of_route: false, ..failure.judgement };
        Self { judgement, why: how.why(), ..failure }
    }

    /// The gateway has no memory for the answer: that is nobody else's fault, and no other route would fare better.
    pub(super) fn no_room() -> Self {
        let failure = Self::new(Rank::Answered, no_room(), NO_ROOM);
        let judgement = Judgement { then: Then::Answer, ..failure.judgement };
        Self { source: "gateway", judgement, ..failure }
    }

    /// The upstream answered, with what cannot be passed on. Any other route would cost the same again, and no route is
    /// to blame: the client asked for more than fits.
    pub(super) fn unusable(spent: Spent) -> Self {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        let message = "The answer is charged and cannot be passed on: it was cut short, or is too large";
        let error = GatewayError::new(Kind::UpstreamRefused(status), message);
        let failure = Self::new(Rank::Answered, error, "the answer cannot be passed on");
        let judgement = Judgement { then: Then::Answer, ..failure.judgement };
        Self { judgement, spent: Some(spent), ..failure }
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
        let failure = Self::new(Rank::Answered, error, "the upstream answered with an error");
        Self { judgement, is_quoted: true, ..failure }.because(status_and_hint(answer.status))
    }

    /// The upstream reported a failure with a status of success: instead of the answer, or in a stream before anything of
    /// it.
    pub(super) fn reported(route: &Route, fault: &UpstreamFault) -> Self {
        let is_own = fault::is_about_request(fault);
        let status = if is_own { StatusCode::BAD_REQUEST } else { StatusCode::BAD_GATEWAY };
        let error = fault::public(status, fault, route);
        let failure = Self::new(Rank::Answered, error, "the upstream reported an error in its answer");
        let failure = Self { is_quoted: true, ..failure };
        if is_own {
            let judgement = Judgement { then: Then::Answer, recorded: status.as_u16(), ..failure.judgement };
            return Self { judgement, ..failure };
        }
        let recorded = if fault::is_quota(fault) { 402 } else { 502 };
        Self { judgement: Judgement { is_fault_of_route: true, recorded, ..failure.judgement }, ..failure }
    }

    /// What a client is told whose request came encrypted: nothing in the upstream's words, which go out in clear.
    pub(super) fn in_general(&self) -> GatewayError {
        let error = self.error.clone();
        match error.kind {
            Kind::UpstreamRefused(status) if self.is_quoted => {
                GatewayError { message: fault::generic(error.kind, status).to_owned(), param: None, ..error }
            }
            _ => error,
        }
    }
}

/// A status, and what of the configuration it may be about.
fn status_and_hint(status: StatusCode) -> String {
    let hint = match status.as_u16() {
        401 | 403 => ": does it take the bearer_token that is configured?",
        402 => ": has its account credit left?",
        404 | 405 => ": are its base_url and path right, and does it have the model?",
        _ => "",
    };
    format!("it answered {status}{hint}")
}
