//! Between what clients speak and what upstreams speak: the shape of requests, answers and streams.

mod anthropic;
mod capacity;
mod chat;
mod counts;
pub mod fault;
mod features;
mod frame;
mod metering;
mod object;
mod parameters;
pub mod reasoning;
mod request;
mod responses;
mod scrub;
mod unpriced;

use std::fmt;
use std::ops::Range;

use bytes::Bytes;

use crate::accounting::Tokens;
use crate::config::{Pricing, ProviderKind};
use crate::error::{GatewayError, Kind};
use crate::routing::Route;
use crate::stream::Event;
use crate::surface::Surface;

pub(crate) use capacity::{MAX_ANSWERS, count, limit, prompts};
pub(crate) use counts::only as counts_of;
pub use features::Characters;
pub(crate) use features::MAX_ENTRIES;
pub use parameters::supports;
pub(crate) use request::shape_parsed;
pub use request::{asked_model, keeps_limits, shape};

/// A request that was read and shaped, once, before routes are tried.
#[derive(Debug)]
pub struct Shaped {
    /// The surface that it came in by.
    pub surface: Surface,
    /// The body in the client's format, without what is the gateway's own: hashed as `middleware.forwarded`.
    pub body: Bytes,
    /// The model that the client asked for.
    pub model: String,
    /// Whether the answer streams.
    pub is_streaming: bool,
    /// Whether the client wants the usage at the end of a stream; false only where it said so.
    pub wants_usage: bool,
    /// Whether reasoning is taken out of the answer.
    pub hides_reasoning: bool,
    /// How many choices the answer has to have, from 1.
    pub choices: usize,
    /// How many texts an upstream is to read, or to write, from 1.
    pub texts: u64,
    /// Names of the parameters that the client sent and that not every model takes.
    pub parameters: Vec<String>,
    /// Tokens of the prompt, for where the upstream tells no usage: rather many than too few.
    pub prompt_estimate: u64,
    /// Tokens that may come out of the model, for formats that demand a limit.
    pub max_output: Option<u64>,
    /// When the request came, in seconds since the Unix epoch, for answers of upstreams that do not tell the time.
    /// [`shape`] leaves it 0: it has no clock.
    pub created: u64,
    /// The name of the limit on what comes out that the model knows.
    limit_name: &'static str,
    /// Where the value of `model` lies in the body.
    model_at: Range<usize>,
}

/// A request for one route.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// Path at the upstream.
    pub path: String,
    /// The exact bytes.
    pub body: Bytes,
}

/// A whole answer in the client's format.
#[derive(Debug, Clone)]
pub struct Whole {
    /// The bytes for the client.
    pub body: Bytes,
    /// What it used, as the upstream told.
    pub usage: Option<Box<serde_json::value::RawValue>>,
    /// The same, read; an estimate of the gateway's own where `usage` is `None`.
    pub tokens: Tokens,
    /// The model that the upstream says it used.
    pub upstream_model: Option<String>,
}

/// What one event of the upstream's stream is, and what the client gets for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Content; the first one commits the answer to its route. May be empty: reasoning that is taken out.
    Content(Bytes),
    /// Something around content: roles, usage, comments. May be empty.
    Frame(Bytes),
    /// The end of a whole answer, with the terminator.
    Done(Bytes),
    /// The upstream reports an error in the stream.
    Failed(UpstreamFault),
    /// Not what the format allows; nothing of it is passed on.
    Broken,
}

/// How a stream ends at which the upstream stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// It was whole; these bytes (maybe none) are its end.
    Whole(Bytes),
    /// It was cut.
    Truncated,
}

/// An error as an upstream tells it, not yet fit for a client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UpstreamFault {
    /// Its words.
    pub message: String,
    /// Its `type` or `code`.
    pub kind: Option<String>,
    /// The parameter that it names.
    pub param: Option<String>,
}

/// Follows one answer from a route to the client.
pub trait Translate: Send + fmt::Debug {
    /// A buffered answer with a status of success. Fails for one that cannot be an answer.
    fn whole(&mut self, body: &[u8]) -> Result<Whole, NotAnAnswer>;
    /// The next event of a stream.
    fn event(&mut self, event: &Event) -> Step;
    /// The upstream's stream ended, after no part of an event.
    fn end(&mut self) -> Ending;
    /// What ends a broken stream for the client: an error that no client can take for an end. Begins with a blank line.
    fn broken_tail(&mut self, message: &str) -> Bytes;
    /// What was used so far, as the upstream told last.
    fn usage(&self) -> Option<&serde_json::value::RawValue>;
    /// The same, read; where the upstream did not tell, an estimate from the prompt and from what came so far.
    fn tokens(&self) -> Tokens;
    /// Whether every choice has ended, so that nothing but usage can follow.
    fn has_finished(&self) -> bool {
        !self.finish_reasons().is_empty()
    }
    /// Whether the answer lacks nothing but some of several choices: not every upstream knows how to make them.
    fn lacks_choices(&self) -> bool {
        false
    }
    /// Why the choices ended, for the operator.
    fn finish_reasons(&self) -> Vec<String>;
    /// The model that the upstream says it used.
    fn upstream_model(&self) -> Option<&str>;
}

/// A body with a status of success that is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the upstream's answer cannot be understood")]
pub struct NotAnAnswer;

/// The id of an answer, made of the id of its request (`req_…`); `None` for embeddings, which have none.
#[must_use]
pub fn answer_id(surface: Surface, request_id: &str) -> Option<String> {
    let unique = request_id.strip_prefix("req_").unwrap_or(request_id);
    match surface {
        Surface::Chat | Surface::Completions => Some(request_id.to_owned()),
        Surface::Responses => Some(format!("resp_{unique}")),
        Surface::Messages => Some(format!("msg_{unique}")),
        Surface::Embeddings => None,
    }
}

/// The request for one route: the upstream's format, its own model id, usage switched on. `Err` when the route cannot
/// answer on this surface (an Anthropic upstream has no embeddings).
pub fn outgoing(shaped: &Shaped, route: &Route) -> Result<Outgoing, GatewayError> {
    let body = match pairing(shaped.surface, route) {
        Pairing::Same | Pairing::Responses | Pairing::NativeMessages => request::for_route(shaped, route)?,
        Pairing::MessagesAtOpenAi => anthropic::chat_request(shaped, route)?,
        Pairing::ChatAtAnthropic => anthropic::messages_request(shaped, route)?,
        Pairing::None => return Err(cannot_answer(shaped.surface)),
    };
    Ok(Outgoing { path: path(shaped.surface, route), body })
}

/// Follows the answer of a route. `answer_id` becomes the answer's id; prices make `usage.cost`. `None` where
/// [`outgoing`] fails.
#[must_use]
pub fn translator(
    shaped: &Shaped,
    route: &Route,
    answer_id: &str,
    pricing: &Pricing,
) -> Option<Box<dyn Translate>> {
    Some(match pairing(shaped.surface, route) {
        Pairing::Same if shaped.surface == Surface::Embeddings => {
            Box::new(chat::Embeddings::new(shaped, pricing))
        }
        Pairing::Same => Box::new(chat::Chat::new(shaped, answer_id, pricing)),
        Pairing::Responses => Box::new(responses::Responses::new(shaped, answer_id, pricing)),
        Pairing::NativeMessages => Box::new(anthropic::Native::new(shaped, answer_id, pricing)),
        Pairing::MessagesAtOpenAi => Box::new(anthropic::ToMessages::new(shaped, answer_id, pricing)),
        Pairing::ChatAtAnthropic => Box::new(anthropic::ToChat::new(shaped, answer_id, pricing)),
        Pairing::None => return None,
    })
}

/// What ends a stream that has begun with comments alone and gets no answer: an error that no client can take for an
/// end. Begins with a blank line. `request_id` is `req_…`.
#[must_use]
pub fn failed_tail(surface: Surface, request_id: &str, error: &GatewayError) -> Bytes {
    frame::failed(surface, request_id, 0, error)
}

/// What stands between a surface and an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pairing {
    /// Chat, text completions and embeddings at their like.
    Same,
    Responses,
    NativeMessages,
    MessagesAtOpenAi,
    ChatAtAnthropic,
    /// Nothing does.
    None,
}

fn pairing(surface: Surface, route: &Route) -> Pairing {
    let is_anthropic = route.upstream.provider == ProviderKind::Anthropic;
    match (surface, is_anthropic) {
        (Surface::Chat | Surface::Completions | Surface::Embeddings, false) => Pairing::Same,
        (Surface::Responses, false) => Pairing::Responses,
        (Surface::Messages, false) => Pairing::MessagesAtOpenAi,
        (Surface::Messages, true) => Pairing::NativeMessages,
        (Surface::Chat, true) => Pairing::ChatAtAnthropic,
        (Surface::Completions | Surface::Embeddings | Surface::Responses, true) => Pairing::None,
    }
}

/// Where a surface is at an upstream: the configured path is that of its chat surface.
fn path(surface: Surface, route: &Route) -> String {
    match (surface, &route.upstream.path) {
        (Surface::Chat | Surface::Messages, Some(path)) => path.clone(),
        (Surface::Chat | Surface::Messages, None) => Surface::Chat.path().to_owned(),
        (surface, _) => surface.path().to_owned(),
    }
}

fn cannot_answer(surface: Surface) -> GatewayError {
    let message = format!("The model has no route that answers on {}", surface.path());
    GatewayError::new(Kind::NoRoute, message)
}

/// Reads a whole answer, which is not nested without end.
fn answer<'a, T: serde::Deserialize<'a>>(body: &'a [u8]) -> Result<T, NotAnAnswer> {
    if crate::body::is_too_deep(body) {
        return Err(NotAnAnswer);
    }
    std::str::from_utf8(body).ok().and_then(crate::body::object).ok_or(NotAnAnswer)
}

#[cfg(test)]
mod tests;
