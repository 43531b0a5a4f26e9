//! One attempt to have one route answer, up to the point from which there is no way back.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use cloister_aci::receipt::{Event, Verification};
use cloister_aci::sha256;
use http::{HeaderName, HeaderValue, StatusCode};
use tokio::time::{Instant, timeout, timeout_at};

use super::Incoming;
use super::asked::Asked;
use super::failure::{Failure, Rank, Spent};
use super::feed::{Break, Fed, Feed};
use crate::config::ProviderKind;
use crate::door::{SMALL, Share};
use crate::error::{GatewayError, Kind};
use crate::format::{self, Outgoing, Translate, Whole, fault};
use crate::gateway::{Gateway, Live};
use crate::record::SessionHold;
use crate::routing::Route;
use crate::surface::Surface;
use crate::upstream::{Answer, MAX_BODY_BYTES, ReadFailure, SendFailure, Unanswered, Upstream};
use crate::verification::{Unverified, Verified};

/// Most bytes that are held back while nothing of the answer has come.
const MAX_HELD_BYTES: usize = 256 << 10;
/// Longest error that is read from an upstream, in bytes.
const MAX_ERROR_BYTES: usize = 256 << 10;
/// Longest time that is spent on reading one.
const ERROR_TIME: Duration = Duration::from_secs(5);
/// Longest name of a model that an upstream may have put into a receipt, in bytes.
const MAX_MODEL_BYTES: usize = 256;
/// Most events of a receipt, with that of what is returned.
const MAX_EVENTS: usize = 7;
/// How often a route is verified afresh because its TLS key is another one.
const MISMATCHES: usize = 2;

/// What receipts say about an attempt.
#[derive(Debug, Clone)]
pub(super) struct Trace {
    pub(super) route: Arc<Route>,
    /// When the attempt began.
    began: Instant,
    /// When the request went out, over the channel that the receipt names; before that, when the attempt began.
    pub(super) sent: Instant,
    /// Of the exact bytes that went out, or may have; `None` when none did.
    pub(super) forwarded_hash: Option<String>,
    pub(super) required: bool,
    /// What was found out about the upstream; `None` before that.
    pub(super) verification: Option<Verification>,
    /// Of what came back; `None` when nothing did.
    pub(super) received_hash: Option<String>,
    /// The model that the upstream says it used.
    pub(super) upstream_model: Option<String>,
    /// Keeps the session until there is a receipt that cites it.
    pub(super) session: Option<Arc<SessionHold>>,
}

/// An attempt that was begun. Times are since the request came in.
#[derive(Debug, Clone)]
pub(super) struct Begun {
    pub(super) route_id: String,
    pub(super) provider: ProviderKind,
    pub(super) began: Duration,
    /// When the request went out; `None` if it did not.
    pub(super) sent: Option<Duration>,
}

impl Trace {
    pub(super) fn new(route: Arc<Route>, required: bool) -> Self {
        let now = Instant::now();
        Self {
            route,
            began: now,
            sent: now,
            forwarded_hash: None,
            required,
            verification: None,
            received_hash: None,
            upstream_model: None,
            session: None,
        }
    }

    /// Whether bytes of the request may have gone out.
    pub(super) const fn may_be_out(&self) -> bool {
        self.forwarded_hash.is_some()
    }

    /// The attempt, with its times since the request came in.
    pub(super) fn begun(&self, came_in: Instant) -> Begun {
        Begun {
            route_id: self.route.id.clone(),
            provider: self.route.upstream.provider,
            began: self.began.duration_since(came_in),
            sent: self.may_be_out().then(|| self.sent.duration_since(came_in)),
        }
    }

    /// The events between a request and what is returned for it.
    pub(super) fn events(&self, asked: &Asked) -> Vec<Event> {
        let mut events = Vec::with_capacity(MAX_EVENTS);
        events.push(Event::RequestReceived { body_hash: asked.received_hash.clone() });
        if let Some(forwarded) = &self.forwarded_hash {
            events.push(Event::MiddlewareForwarded { body_hash: asked.shaped_hash.clone() });
            events.push(Event::RouteSelected { target_route_id: self.route.id.clone() });
            events.push(Event::RequestForwarded { body_hash: forwarded.clone() });
        }
        if let Some(verification) = &self.verification {
            let model_id = match (verification, &self.upstream_model) {
                (Verification::Verified { .. }, Some(model)) if model.len() <= MAX_MODEL_BYTES => {
                    model.clone()
                }
                (Verification::Verified { .. }, _) => self.route.upstream_model.clone(),
                (Verification::Failed { .. }, _) => asked.shaped.model.clone(),
            };
            events.push(Event::UpstreamVerified {
                model_id,
                required: self.required,
                upstream_name: Some(self.route.upstream.name.clone()),
                verification: verification.clone(),
            });
        }
        if let Some(received) = &self.received_hash {
            events.push(Event::ResponseReceived { body_hash: received.clone() });
        }
        events
    }
}

/// An answer that goes to the client, whatever happens to it from here on.
#[derive(Debug)]
pub(super) enum Committed {
    /// Whole, with its share of the memory for bodies.
    Whole(Box<Whole>, Share),
    /// A stream whose first content is there.
    Stream(Box<Opening>),
}

/// The beginning of a stream.
#[derive(Debug)]
pub(super) struct Opening {
    /// Whole events for the client, up to the first with content.
    pub(super) held: Bytes,
    /// What follows.
    pub(super) feed: Feed,
    /// The end, where it is there already.
    pub(super) end: Option<Fed>,
}

/// What was found out about an upstream, and the session, if there is one.
type WentOver = (Option<Verification>, Option<Arc<SessionHold>>);

/// What an attempt needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) live: &'a Live,
    pub(super) incoming: &'a Incoming,
    pub(super) asked: &'a Asked,
    pub(super) route: &'a Arc<Route>,
}

impl Attempt<'_> {
    /// Makes the attempt. `trace` says how far it came, also when it is given up on the way.
    pub(super) async fn make(&self, trace: &mut Trace) -> Result<Committed, Failure> {
        let upstream = self
            .live
            .upstreams
            .get(&self.route.upstream.name)
            .ok_or_else(|| Failure::new(Rank::Routing, internal(), "the upstream is not set up"))?;
        let outgoing = format::outgoing(&self.asked.shaped, self.route)
            .map_err(|error| Failure::new(Rank::Routing, error, "the route cannot answer such a request"))?;
        let timeouts = &self.route.upstream.timeouts;
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let (idle, total) = (seconds(timeouts.idle), timeouts.total.map(seconds));
        // The first byte of an answer at once comes with its last: until then it is silent.
        let first = if self.asked.shaped.is_streaming { seconds(timeouts.first_byte) } else { idle };
        let patience = total.map_or(first, |total| first.min(total));
        let answer = self.send(upstream, &outgoing, patience, trace).await?;
        let whole_until = total.map(|total| trace.sent + total);
        if !answer.status.is_success() {
            return Err(self.refused(answer, &outgoing, trace).await);
        }
        let answer_id = self.asked.answer_id.as_deref().unwrap_or(&self.incoming.request_id);
        let pricing = self.asked.pricing(Some(self.route));
        let translator = format::translator(&self.asked.shaped, self.route, answer_id, pricing)
            .ok_or_else(|| Failure::new(Rank::Routing, internal(), "the route has no translator"))?;
        if self.asked.shaped.is_streaming {
            if answer.status != StatusCode::OK || !answer.is_event_stream {
                return Err(Failure::malformed());
            }
            let until = trace.sent + first;
            let feed = Feed::new(answer, translator, idle, whole_until, self.share());
            open(feed, until, self.share(), trace).await
        } else {
            self.whole(answer, translator, (idle, whole_until), trace).await
        }
    }

    /// Sends the request, over the verified channel where there is one, and waits so long for the head of the answer.
    /// A channel that ends at another key is verified afresh. Of one that fails when the request went out, what was verified of
    /// the channel that it went over is told.
    async fn send(
        &self,
        upstream: &Upstream,
        outgoing: &Outgoing,
        patience: Duration,
        trace: &mut Trace,
    ) -> Result<Answer, Failure> {
        let mut went_over = None;
        let sent = self.try_send(upstream, outgoing, patience, trace, &mut went_over).await;
        sent.map_err(|failure| {
            let Some((verification, session)) = went_over else { return failure };
            (trace.verification, trace.session) = (verification, session);
            match failure.rank {
                Rank::Verification => Failure::transport().because(failure.why.to_owned()),
                Rank::Routing | Rank::Transport | Rank::Answered => failure,
            }
        })
    }

    /// The same; `went_over` is what was verified of the first channel that may have taken the request.
    async fn try_send(
        &self,
        upstream: &Upstream,
        outgoing: &Outgoing,
        patience: Duration,
        trace: &mut Trace,
        went_over: &mut Option<WentOver>,
    ) -> Result<Answer, Failure> {
        let headers = self.headers();
        let mut mismatches = 0;
        loop {
            let channel = self.channel(trace).await?;
            if self.asked.is_left() {
                return Err(Failure::new(Rank::Routing, internal(), "the client left"));
            }
            trace.sent = Instant::now();
            self.gateway.note_activity();
            let body = outgoing.body.clone();
            let hash = || {
                if body == self.asked.shaped.body { self.asked.shaped_hash.clone() } else { sha256(&body) }
            };
            let was_out = trace.may_be_out();
            trace.forwarded_hash.get_or_insert_with(hash);
            let posted = upstream.post(&outgoing.path, &headers, body, channel.as_deref(), patience).await;
            let Unanswered { why, cause, may_be_out } = match posted {
                Ok(answer) => return Ok(answer),
                Err(unanswered) => unanswered,
            };
            if may_be_out {
                went_over.get_or_insert_with(|| (trace.verification.clone(), trace.session.clone()));
            } else if !was_out {
                trace.forwarded_hash = None;
            }
            match why {
                SendFailure::Mismatch => {
                    if let Some(channel) = &channel {
                        self.gateway.verifications.mismatched(self.route, channel);
                    }
                    if mismatches == MISMATCHES {
                        return Err(Self::unverified(why.to_string(), trace));
                    }
                    mismatches += 1;
                }
                SendFailure::TimedOut => return Err(Failure::timed_out().because(cause)),
                SendFailure::Unreachable | SendFailure::Transport => {
                    return Err(Failure::transport().because(cause));
                }
            }
        }
    }

    /// The memory of an answer that is read as a whole.
    fn share(&self) -> Share {
        self.gateway.bodies.share_of(self.asked.key, self.incoming.weight())
    }

    fn headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        let tier = self.asked.admission.user_tier.as_ref();
        tier.and_then(|tier| HeaderValue::from_str(tier).ok())
            .map(|tier| (HeaderName::from_static("x-user-tier"), tier))
            .into_iter()
            .collect()
    }

    /// The verified channel of the route; `None` where nothing is proved and nothing has to be.
    async fn channel(&self, trace: &mut Trace) -> Result<Option<Arc<Verified>>, Failure> {
        let accepted = &self.asked.constraints.session_ids;
        if self.route.is_own {
            let message = "The models run in this gateway's own machine: it has no sessions";
            return if accepted.is_empty() { Ok(None) } else { Err(Self::not_accepted(message)) };
        }
        if !self.route.is_tee() {
            let reason = "the upstream proves nothing about itself".to_owned();
            if trace.required {
                return Err(Self::unverified(reason, trace));
            }
            trace.verification = Some(Verification::Failed { reason });
            return Ok(None);
        }
        match self.gateway.verifications.channel(self.route, accepted).await {
            Ok(verified) => {
                trace.session = Some(Arc::new(self.gateway.store.hold_session(&verified.session_id)));
                trace.verification = Some(Verification::Verified {
                    session_id: verified.session_id.clone(),
                    channel_bindings: verified.channel_bindings.clone(),
                    claims: Box::new(verified.claims.clone()),
                });
                Ok(Some(verified))
            }
            Err(Unverified::NotAccepted) => {
                trace.verification =
                    Some(Verification::Failed { reason: Unverified::NotAccepted.to_string() });
                Err(Self::not_accepted("None of the accepted sessions is current; list the sessions again"))
            }
            Err(Unverified::Failed(reason)) if trace.required => Err(Self::unverified(reason, trace)),
            Err(Unverified::Failed(reason)) => {
                trace.verification = Some(Verification::Failed { reason });
                Ok(None)
            }
        }
    }

    fn not_accepted(message: &str) -> Failure {
        let error = GatewayError::new(Kind::SessionNotAccepted, message);
        Failure::new(Rank::Verification, error, "no accepted session is current")
    }

    fn unverified(reason: String, trace: &mut Trace) -> Failure {
        trace.verification = Some(Verification::Failed { reason });
        let kind = if trace.required { Kind::VerificationFailed } else { Kind::Upstream };
        let error = GatewayError::new(kind, "No upstream could prove what this request demands");
        Failure::new(Rank::Verification, error, "the upstream was not verified")
    }

    /// Reads a whole answer, within the limits of its silence and of all of it.
    async fn whole(
        &self,
        mut answer: Answer,
        mut translator: Box<dyn Translate>,
        (idle, until): (Duration, Option<Instant>),
        trace: &mut Trace,
    ) -> Result<Committed, Failure> {
        let mut share = self.share();
        let read = answer.whole(MAX_BODY_BYTES, idle, &mut share);
        let body = match until {
            None => read.await,
            Some(until) => timeout_at(until, read).await.unwrap_or(Err(SendFailure::TimedOut.into())),
        };
        let writes = self.asked.shaped.surface != Surface::Embeddings;
        let most = || if writes { self.asked.most_completion() } else { 0 };
        let unread = |bytes| Spent::unread(translator.as_ref(), bytes, most());
        let body = body.map_err(|failure| match failure {
            ReadFailure::Broken(SendFailure::TimedOut) => Failure::timed_out(),
            ReadFailure::Broken(_) => Failure::transport(),
            ReadFailure::TooLong => Failure::unusable(unread(MAX_BODY_BYTES)),
            // Whose own answers leave no room for this one pays for what was done in vain.
            ReadFailure::NoRoom(_) => {
                Failure { spent: share.lacked_by_own_key().map(unread), ..Failure::no_room() }
            }
        })?;
        trace.received_hash = Some(sha256(&body));
        let whole = translator.whole(&body).map_err(|_| {
            let is_cut =
                translator.finish_reasons().iter().any(|why| matches!(why.as_str(), "length" | "max_tokens"));
            match Spent::of(&body, translator.as_ref()).filter(|_| is_cut) {
                Some(spent) => Failure::unusable(spent),
                None if translator.lacks_choices() => Failure::of_client(Break::Fewer),
                // Whatever it says that it used: nobody asked for that.
                None => match fault::reported(&body) {
                    Some(fault) => Failure::reported(&trace.route, &fault),
                    None => Failure::malformed(),
                },
            }
        })?;
        trace.upstream_model.clone_from(&whole.upstream_model);
        Ok(Committed::Whole(Box::new(whole), share))
    }

    async fn refused(&self, mut answer: Answer, outgoing: &Outgoing, trace: &mut Trace) -> Failure {
        let mut share = self.share();
        let read = timeout(ERROR_TIME, answer.whole(MAX_ERROR_BYTES, ERROR_TIME, &mut share)).await;
        let body = match read.ok().and_then(Result::ok) {
            Some(body) => {
                trace.received_hash = Some(sha256(&body));
                body
            }
            // It may be a refusal, for which no other route is to be asked.
            None if share.lacks_room() && answer.is_json => return Failure::no_room(),
            // What does not come soon is not waited for: the status says enough. What came of it is not all that was sent.
            None => Bytes::new(),
        };
        Failure::answered(self.route, &answer, &body, &outgoing.body)
    }
}

fn internal() -> GatewayError {
    GatewayError::new(Kind::Internal, "The request could not be routed")
}

/// Waits for the first content of a stream.
async fn open(
    mut feed: Feed,
    until: Instant,
    mut share: Share,
    trace: &mut Trace,
) -> Result<Committed, Failure> {
    let mut held = BytesMut::new();
    let end = loop {
        let Ok(next) = timeout_at(until, feed.next()).await else {
            return Err(if feed.lacks_room() { Failure::no_room() } else { Failure::timed_out() });
        };
        match next {
            Fed::Bytes { bytes, has_content } => {
                held.extend_from_slice(&bytes);
                if held.len() > SMALL
                    && !matches!(timeout_at(until, share.cover(held.len())).await, Ok(Ok(())))
                {
                    return Err(Failure::no_room());
                }
                if has_content || held.len() > MAX_HELD_BYTES {
                    break None;
                }
            }
            end @ Fed::Whole(_) => break Some(end),
            Fed::Failed(fault) => {
                trace.received_hash = Some(super::wire::written(feed.received.clone()));
                return Err(Failure::reported(&trace.route, &fault));
            }
            Fed::Broken(Break::TimedOut) => return Err(Failure::timed_out()),
            Fed::Broken(Break::Transport | Break::Truncated) => return Err(Failure::transport()),
            Fed::Broken(Break::Malformed) => return Err(Failure::malformed()),
            Fed::Broken(how @ (Break::Fewer | Break::TooLong)) => return Err(Failure::of_client(how)),
            Fed::Broken(Break::NoRoom) => return Err(Failure::no_room()),
        }
    };
    Ok(Committed::Stream(Box::new(Opening { held: share.hold(held.freeze()), feed, end })))
}
