//! One request from its body to its last byte: the walk over routes, the relay, the record.
//!
//! | Step | Where |
//! |---|---|
//! | the key, encryption, the body, the constraints, leave to answer, the routes | `asked` |
//! | route by route, until one answers | `walk`, `attempt`, `judge` for what a failure means, `watch` for who hears it |
//! | a stream, as whole events | `feed` |
//! | to the client, hashed as it goes | `relay`, `outlet`, `wire`, `respond` |
//! | after the client, if it leaves or reads a stream | `attended` |
//! | the record, before the last byte | `exchange` |

mod asked;
mod attempt;
mod attended;
mod exchange;
mod failure;
mod feed;
mod judge;
mod outlet;
mod relay;
mod respond;
#[cfg(test)]
mod tests;
mod walk;
mod watch;
mod wire;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::accounting::Tokens;
use crate::admission::KeyHash;
use crate::door::{Share, ending, refusal};
use crate::e2ee;
use crate::error::{GatewayError, Kind};
use crate::format::Whole;
use crate::gateway::Gateway;
use crate::ids;
use crate::in_place;
use crate::observe::RequestSpan;
use crate::surface::Surface;
use asked::{Denied, ask};
use attempt::{Begun, Committed, Trace};
use attended::Attended;
use exchange::{CLIENT, Exchange, Outcome, STOPPED};
use failure::Spent;
use outlet::Outlet;
use relay::Streaming;
pub use respond::denial;
use walk::{Current, Exhausted, Tried, Walk};
use wire::Wire;

/// A request that came in by a surface, with its whole body.
#[derive(Debug)]
pub struct Incoming {
    /// The surface.
    pub surface: Surface,
    /// Its headers.
    pub headers: HeaderMap,
    /// Who asks.
    pub key: KeyHash,
    /// Whether its host name serves confidential models only.
    pub is_tee_host: bool,
    /// The body, as it came.
    pub body: Bytes,
    /// `req_` and 32 hex digits.
    pub request_id: String,
    /// Its span, where there are traces.
    pub span: Option<Box<RequestSpan>>,
}

impl Incoming {
    /// How often a byte of the answer counts in memory: what is encrypted goes out as hexadecimal digits.
    fn weight(&self) -> usize {
        if e2ee::is_asked(&self.headers) { 2 } else { 1 }
    }
}

/// Answers a request. The response is complete but for the headers that every response has.
///
/// A client that leaves does not take the record with it: the work goes on without one. The token, one of
/// [`Gateway::requests`], stands for the request until the work has ended.
pub async fn answer(gateway: Arc<Gateway>, incoming: Incoming, token: TaskTrackerToken) -> Response {
    let (head, response) = oneshot::channel();
    let (surface, request_id) = (incoming.surface, incoming.request_id.clone());
    // A stream that stays open should take little memory: what comes before has its own, which goes back, and so has all
    // that is seldom, here and below.
    let begun = in_place::boxed(|| begin(gateway, incoming, head));
    let work = Box::pin(async move {
        if let Some(streaming) = begun.await {
            in_place::boxed(|| streaming.relay()).await;
        }
        drop(token);
    });
    Attended::new(work, response).await.unwrap_or_else(|| {
        let error = GatewayError::new(Kind::Internal, "The request failed");
        respond::denial(surface, &request_id, &error, &[])
    })
}

/// All that comes before a stream, and what is no stream.
async fn begin(
    gateway: Arc<Gateway>,
    incoming: Incoming,
    head: oneshot::Sender<Response>,
) -> Option<Box<Streaming>> {
    let (exchange, outlet) = admit(gateway, incoming, head).await?;
    carry_out(exchange, outlet).await
}

/// Finds out what is asked and whether it may be; tells the client if not.
async fn admit(
    gateway: Arc<Gateway>,
    incoming: Incoming,
    head: oneshot::Sender<Response>,
) -> Option<(Box<Exchange>, Outlet)> {
    let began = Instant::now();
    let live = gateway.live();
    let id = &incoming.request_id;
    let Some((receipt_id, random)) = ids::receipt_of(id).zip(ids::random_of(id)) else {
        tracing::error!("the request has an id that is none of the gateway's");
        let error = GatewayError::new(Kind::Internal, "The request failed");
        drop(head.send(respond::denial(incoming.surface, &incoming.request_id, &error, &[])));
        return None;
    };
    let asked = {
        let asking = pin!(ask(&gateway, &live, &incoming, random));
        tokio::select! {
            // Most often it is ready at once, which saves asking to be told of the end.
            biased;
            asked = asking => asked,
            () = gateway.cut.cancelled() => Err(Denied { error: ending(), sealer: None }),
        }
    };
    let (asked, sealer) = match asked {
        Ok(asked) => asked,
        Err(denied) => {
            let e2ee = denied.sealer.as_ref().map(e2ee::Sealer::headers).unwrap_or_default();
            let response = respond::denial(incoming.surface, &incoming.request_id, &denied.error, &e2ee);
            drop(head.send(response));
            return None;
        }
    };
    let identity = gateway.notary.identity();
    let e2ee_headers = sealer.as_ref().map(e2ee::Sealer::headers).unwrap_or_default();
    let weight = incoming.weight();
    let outlet = Outlet::new(Wire::new(sealer), head);
    let exchange = Exchange {
        gateway,
        live,
        identity,
        incoming,
        asked,
        weight,
        receipt_id,
        e2ee_headers,
        began,
        random,
    };
    Some((Box::new(exchange), outlet))
}

/// Has a request answered, and records it; but for a stream, which is only begun.
async fn carry_out(mut exchange: Box<Exchange>, mut outlet: Outlet) -> Option<Box<Streaming>> {
    let mut walk = Walk::new(&exchange);
    let walked = {
        let mut walking = in_place::boxed(|| walk.run());
        tokio::select! {
            biased;
            walked = &mut walking => Some(walked),
            () = outlet.wait(&exchange) => {
                // What the upstream was made to do is paid for: it is waited for, to learn what that is.
                exchange.asked.leave();
                let time = Duration::from_millis(exchange.live.config.read_on_ms);
                tokio::select! {
                    walked = timeout(time, walking) => walked.ok(),
                    () = exchange.gateway.cut.cancelled() => None,
                }
            }
            () = exchange.gateway.cut.cancelled() => None,
        }
    };
    let (mut tried, current) = (walk.tried, walk.current);
    exchange.forget_request();
    match (walked, current) {
        (None, current) if outlet.is_closed() => Box::pin(left(&exchange, &tried, current, outlet)).await,
        (None, current) => Box::pin(cut_off(&exchange, &tried, current, outlet)).await,
        (Some(Ok(Committed::Stream(opening))), Some(current)) => {
            return Some(Box::new(Streaming { exchange, tried, current, opening: *opening, outlet }));
        }
        (Some(Ok(Committed::Whole(whole, _))), Some(Current { trace, watch }))
            if exchange.asked.is_left() =>
        {
            watch.succeeded();
            let spent = Spent { usage: whole.usage, tokens: whole.tokens };
            let last = Some(trace.begun(exchange.began));
            Box::pin(record_left(&exchange, &tried, (last, Some(&trace)), spent, outlet)).await;
        }
        (Some(Ok(Committed::Whole(whole, share))), Some(Current { trace, watch })) => {
            watch.succeeded();
            let response = deliver(&exchange, &tried, &trace, *whole, share, &mut outlet.wire).await;
            outlet.respond(response);
        }
        (Some(Err(exhausted)), _) if exchange.asked.is_left() => {
            let last = tried.pop().map(|tried| tried.attempt);
            let (trace, spent) =
                exhausted.map(|exhausted| (exhausted.trace, exhausted.failure.spent)).unzip();
            let spent = spent.flatten().unwrap_or_default();
            Box::pin(record_left(&exchange, &tried, (last, trace.as_ref()), spent, outlet)).await;
        }
        (Some(Err(exhausted)), _) => Box::pin(refuse(&exchange, tried, exhausted, outlet)).await,
        // A walk commits to the attempt that is under way.
        (Some(Ok(_)), None) => {}
    }
    None
}

/// The client left before anything was answered. If the request went out, the upstream has read it.
async fn left(exchange: &Exchange, tried: &[Tried], current: Option<Current>, outlet: Outlet) {
    let trace = current.map(|current| current.trace);
    let last = trace.as_ref().map(|trace| trace.begun(exchange.began));
    let is_read = trace.as_ref().is_some_and(Trace::may_be_out);
    let prompt = if is_read { exchange.asked.shaped.prompt_estimate } else { 0 };
    let spent = Spent { usage: None, tokens: Tokens { prompt, ..Tokens::default() } };
    record_left(exchange, tried, (last, trace.as_ref()), spent, outlet).await;
}

/// Records a request whose client left, with the last attempt. There is a receipt for what it got of a stream that had
/// begun.
async fn record_left(
    exchange: &Exchange,
    tried: &[Tried],
    (last, trace): (Option<Begun>, Option<&Trace>),
    spent: Spent,
    outlet: Outlet,
) {
    let begun = trace.filter(|_| outlet.is_open());
    let account = begun.map(|trace| exchange.account(trace, &outlet.wire, false));
    let left = Outcome::nothing(499, last, (CLIENT, "the client left"));
    let outcome = Outcome { usage: spent.usage, tokens: spent.tokens, ..left };
    drop(exchange.finish(tried, outcome, account).await);
}

/// The gateway ends before anything was answered.
async fn cut_off(exchange: &Exchange, tried: &[Tried], current: Option<Current>, outlet: Outlet) {
    let error = ending();
    let last = current.as_ref().map(|current| current.trace.begun(exchange.began));
    let outcome = Outcome::nothing(error.status().as_u16(), last, ("gateway", STOPPED));
    let Some(current) = current else {
        let recorded = exchange.finish(tried, outcome, None).await;
        return outlet.deny(exchange, &recorded.err().unwrap_or(error));
    };
    tell(exchange, tried, outcome, &current.trace, &error, outlet).await;
}

/// Tells a failure, once it is recorded.
async fn tell(
    exchange: &Exchange,
    tried: &[Tried],
    outcome: Outcome,
    trace: &Trace,
    error: &GatewayError,
    mut outlet: Outlet,
) {
    let body = outlet.failure(exchange, error);
    outlet.wire.own(&body);
    let account = exchange.account(trace, &outlet.wire, false);
    match exchange.finish(tried, outcome, Some(account)).await {
        Ok(()) => outlet.refuse(exchange, error, body),
        Err(error) => outlet.deny(exchange, &error),
    }
}

/// A whole answer.
async fn deliver(
    exchange: &Exchange,
    tried: &[Tried],
    trace: &Trace,
    whole: Whole,
    share: Share,
    wire: &mut Wire,
) -> Response {
    let age = trace.sent.elapsed();
    trace.route.speed.note(age, exchange.asked.believable(whole.tokens).completion, age);
    let sealed = wire.body(&whole.body).await;
    let (status, failure) = match &sealed {
        Ok(_) => (200, None),
        Err(_) => (500, Some(("gateway", "the answer could not be encrypted"))),
    };
    let outcome = Outcome {
        status,
        last: Some(trace.begun(exchange.began)),
        first_content: Some(age),
        usage: whole.usage,
        tokens: whole.tokens,
        finish_reasons: Vec::new(),
        failure,
    };
    match sealed {
        Ok(body) => {
            let account = exchange.account(trace, wire, true);
            match exchange.finish(tried, outcome, Some(account)).await {
                // A client that does not read keeps the memory: others wait for it.
                Ok(()) => respond::whole(exchange, share.hold(body)),
                Err(error) => unrecorded(exchange, &error),
            }
        }
        Err(error) => {
            let body = refusal(&error, exchange.incoming.surface, &exchange.incoming.request_id);
            wire.own(&body);
            let account = exchange.account(trace, wire, false);
            match exchange.finish(tried, outcome, Some(account)).await {
                Ok(()) => respond::recorded_error(exchange, &error, body),
                Err(error) => unrecorded(exchange, &error),
            }
        }
    }
}

/// No route answered, or one did with an error that is the client's.
async fn refuse(exchange: &Exchange, mut tried: Vec<Tried>, exhausted: Option<Exhausted>, outlet: Outlet) {
    let Some(Exhausted { failure, trace }) = exhausted else {
        let error = GatewayError::new(Kind::Internal, "The request could not be routed");
        return outlet.deny(exchange, &error);
    };
    let error = if outlet.wire.encrypts() { failure.in_general() } else { failure.error };
    // An error that is passed on is the last attempt's; after a total failure there is a row of its own.
    let passed_on = (failure.judgement.then == judge::Then::Answer).then(|| tried.pop()).flatten();
    let status = passed_on.as_ref().map_or_else(|| error.status().as_u16(), |attempt| attempt.status);
    let nothing =
        Outcome::nothing(status, passed_on.map(|tried| tried.attempt), (failure.source, failure.why));
    let outcome = match failure.spent {
        Some(Spent { usage, tokens }) => Outcome { usage, tokens, ..nothing },
        None => nothing,
    };
    tell(exchange, &tried, outcome, &trace, &error, outlet).await;
}

/// What could not be recorded is not answered, and has no receipt.
fn unrecorded(exchange: &Exchange, error: &GatewayError) -> Response {
    respond::denial(exchange.incoming.surface, &exchange.incoming.request_id, error, &exchange.e2ee_headers)
}
