//! Requests: read once, freed of what is the gateway's own, and made ready for a route.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::json;
use serde_json::value::RawValue;

use super::features::{self, MAX_ENTRIES};
use super::{Shaped, capacity, parameters, reasoning, unpriced};
use crate::body::{Body, Change, Constraints, Few, Raw, members, object, refuse_repeated, to_json};
use crate::config::ProviderKind;
use crate::error::GatewayError;
use crate::routing::{Model, Route};
use crate::surface::Surface;

/// The two names of the limit on what comes out.
const LIMITS: [&str; 2] = ["max_tokens", "max_completion_tokens"];
/// What a Responses request may not ask for: nothing of it is kept that could be found again.
const STATEFUL: [(&str, Option<&str>); 4] = [
    ("previous_response_id", None),
    ("conversation", None),
    ("background", Some("false")),
    ("store", Some("false")),
];

/// Member changes.
pub(super) type Changes = Vec<(&'static str, Change)>;

/// The model that a request asks for. Fails for none, naming the member.
pub fn asked_model(body: &Body<'_>) -> Result<String, GatewayError> {
    required(body, "model")?;
    let model: Option<String> = body.get("model", "a string")?;
    Ok(model.unwrap_or_default())
}

fn required<'a>(body: &Body<'a>, name: &str) -> Result<&'a RawValue, GatewayError> {
    body.raw(name).ok_or_else(|| GatewayError::parameter(name, format!("'{name}' is required")))
}

/// Reads and shapes a request: checks its types, takes out what is the gateway's own, refuses parameters that the
/// model is known not to have.
pub fn shape(surface: Surface, bytes: &Bytes, model: &Model) -> Result<Shaped, GatewayError> {
    shape_parsed(surface, bytes, &Body::parse(bytes)?, model)
}

/// The same of a body that [`Body::parse`] made of exactly these bytes.
pub(crate) fn shape_parsed(
    surface: Surface,
    bytes: &Bytes,
    body: &Body<'_>,
    model: &Model,
) -> Result<Shaped, GatewayError> {
    refuse_repeated(bytes)?;
    let asked = asked_model(body)?;
    let supported = model.config.supported_parameters.as_deref();
    let parameters = parameters::check(surface, body, supported)?;
    capacity::check(surface, body)?;
    unpriced::check(surface, body, supported)?;
    let needed: &[&str] = match surface {
        Surface::Chat => &["messages"],
        Surface::Completions => &["prompt"],
        Surface::Embeddings | Surface::Responses => &["input"],
        Surface::Messages => &["messages", "max_tokens"],
    };
    for name in needed {
        required(body, name)?;
    }
    let is_streaming = surface.streams() && body.get("stream", "true or false")?.unwrap_or(false);
    let (mut changes, wants_usage) = (Changes::new(), wants_usage(body)?);
    if body.has("provider") {
        changes.push(Constraints::change());
    }
    let mut is_hidden = false;
    match surface {
        Surface::Chat | Surface::Completions => {
            let wish = reasoning::Wish::of(body)?;
            is_hidden = wish.is_hidden;
            changes.extend(without_exclusion(body)?);
            changes.extend(limit(body, supported)?);
            if surface == Surface::Chat {
                changes.extend(messages(body)?);
            }
            if is_streaming {
                changes.extend(with_usage(body)?);
            }
        }
        Surface::Embeddings if body.has("stream") => changes.push(("stream", Change::Remove)),
        Surface::Responses => changes.extend(stateless(body)?),
        Surface::Embeddings | Surface::Messages => {}
    }
    if surface == Surface::Messages {
        messages(body)?;
        is_hidden = reasoning::wish(body) != "enabled";
    }
    let (shaped, model_at) = if changes.is_empty() {
        (bytes.clone(), body.place(bytes, "model"))
    } else {
        let (shaped, model_at) = body.rewrite_and_find(&changes, "model");
        (Bytes::from(shaped), model_at)
    };
    Ok(Shaped {
        surface,
        body: shaped,
        model: asked,
        is_streaming,
        wants_usage,
        hides_reasoning: is_hidden,
        choices: choices(surface, body)?,
        texts: capacity::texts(surface, body),
        parameters,
        prompt_estimate: features::estimate(body),
        max_output: model.config.max_output_length,
        created: 0,
        limit_name: limit_name(supported),
        model_at,
    })
}

/// The request for a route of the client's own format: the route's model id, its way to be told how much to think,
/// its name of the limit.
pub(super) fn for_route(shaped: &Shaped, route: &Route) -> Result<Bytes, GatewayError> {
    let supported = route.upstream.supported_parameters.as_deref();
    let dialect = route.upstream.reasoning_dialect;
    let has = |names: &[&str]| shaped.parameters.iter().any(|parameter| names.contains(&parameter.as_str()));
    let is_limit = supported.is_some() && has(&LIMITS);
    let is_thinking = dialect.is_some() && has(&["reasoning", "reasoning_effort"]);
    if matches!(shaped.surface, Surface::Chat | Surface::Completions) && (is_limit || is_thinking) {
        let body = Body::parse(&shaped.body)?;
        let mut changes = limit(&body, supported)?;
        if let Some(dialect) = dialect.filter(|_| is_thinking) {
            changes.extend(reasoning::Wish::of(&body)?.changes(dialect, &body)?);
        }
        changes.push(("model", Change::set(&route.upstream_model)?));
        return Ok(body.rewrite(&changes).into());
    }
    let model = to_json(&route.upstream_model);
    let (body, at) = (&shaped.body, &shaped.model_at);
    let [before, after] = [body.get(..at.start), body.get(at.end..)].map(Option::unwrap_or_default);
    Ok([before, model.as_slice(), after].concat().into())
}

/// How many choices are asked for: `n`, of text completions for each prompt.
fn choices(surface: Surface, body: &Body<'_>) -> Result<usize, GatewayError> {
    let each: Option<f64> = match surface {
        Surface::Chat | Surface::Completions => body.get("n", "an integer")?,
        Surface::Embeddings | Surface::Responses | Surface::Messages => None,
    };
    let each = each.and_then(parameters::whole).and_then(|each| usize::try_from(each).ok()).unwrap_or(1);
    // A list of numbers is one prompt in tokens.
    let prompts: Option<Few<&RawValue, MAX_ENTRIES>> =
        body.raw("prompt").filter(|_| surface == Surface::Completions).and_then(|list| Raw::of(list).read());
    let is_prompt = |entry: &&&RawValue| entry.get().starts_with(['"', '[']);
    let prompts = prompts.map_or(1, |prompts| prompts.0.iter().filter(is_prompt).count());
    Ok(each.max(1).saturating_mul(prompts.max(1)))
}

fn wants_usage(body: &Body<'_>) -> Result<bool, GatewayError> {
    let Some(options) = body.raw("stream_options") else { return Ok(true) };
    let options = inner(options, "stream_options")?;
    let wants = options
        .get("include_usage", "")
        .map_err(|_| wrong("stream_options.include_usage", "must be true or false"))?;
    Ok(wants.unwrap_or(true))
}

/// Usage is metered, whether the client wants it or not.
fn with_usage(body: &Body<'_>) -> Result<Option<(&'static str, Change)>, GatewayError> {
    let included = Change::set(&true)?;
    let options = match body.raw("stream_options") {
        None => json!({ "include_usage": true }).to_string().into_bytes(),
        Some(options) => {
            let options = inner(options, "stream_options")?;
            if options.raw("include_usage").is_some_and(|included| included.get() == "true") {
                return Ok(None);
            }
            options.rewrite(&[("include_usage", included)])
        }
    };
    Ok(Some(("stream_options", json_change(options)?)))
}

pub(super) fn json_change(bytes: Vec<u8>) -> Result<Change, GatewayError> {
    let internal = || GatewayError::new(crate::error::Kind::Internal, "The request could not be prepared");
    let text = String::from_utf8(bytes).map_err(|_| internal())?;
    RawValue::from_string(text).map(Change::Set).map_err(|_| internal())
}

fn inner<'a>(object: &'a RawValue, name: &str) -> Result<Body<'a>, GatewayError> {
    Body::parse(object.get().as_bytes()).map_err(|_| wrong(name, "must be an object with each member once"))
}

fn wrong(name: &str, what: &str) -> GatewayError {
    GatewayError::parameter(name, format!("'{name}' {what}"))
}

/// Whether reasoning is shown is the gateway's business; upstreams are not asked.
fn without_exclusion(body: &Body<'_>) -> Result<Changes, GatewayError> {
    let mut changes = Changes::new();
    if body.has("include_reasoning") {
        changes.push(("include_reasoning", Change::Remove));
    }
    if let Some(reasoning) = body.raw("reasoning") {
        let reasoning = inner(reasoning, "reasoning")?;
        if reasoning.has("exclude") {
            let rest = reasoning.rewrite(&[("exclude", Change::Remove)]);
            let change = if rest == b"{}" { Change::Remove } else { json_change(rest)? };
            changes.push(("reasoning", change));
        }
    }
    Ok(changes)
}

/// The limit on what comes out, under the name that is supported. Fails when both names have different values.
pub(super) fn limit(body: &Body<'_>, supported: Option<&[String]>) -> Result<Changes, GatewayError> {
    let [old, new] = LIMITS;
    let values = (body.raw(old), body.raw(new));
    if let (Some(one), Some(other)) = values {
        let number = |value: &RawValue| value.get().parse::<f64>().ok();
        if number(one) != number(other) {
            return Err(wrong(new, &format!("contradicts '{old}'")));
        }
    }
    let Some(supported) = supported else { return Ok(Changes::new()) };
    let has = |name: &str| supported.iter().any(|supported| supported == name);
    let (known, other, value) = match (has(old), has(new)) {
        (true, false) => (old, new, values.1),
        (false, true) => (new, old, values.0),
        (true, true) | (false, false) => return Ok(Changes::new()),
    };
    Ok(value.map_or_else(Changes::new, |value| {
        vec![(known, Change::Set(value.to_owned())), (other, Change::Remove)]
    }))
}

/// Whether a limit on what comes out reaches each route of a model under a name that it is known to keep: one that the
/// model or the route declares, or that of a format which has but one. An upstream of which nothing is known may know
/// only the older name.
#[must_use]
pub fn keeps_limits(model: &Model) -> bool {
    let declares = |supported: Option<&[String]>| {
        supported.is_some_and(|names| names.iter().any(|name| LIMITS.contains(&name.as_str())))
    };
    let keeps = |route: &Route| {
        let upstream = &route.upstream;
        upstream.provider == ProviderKind::Anthropic || declares(upstream.supported_parameters.as_deref())
    };
    declares(model.config.supported_parameters.as_deref()) || model.routes.iter().all(|route| keeps(route))
}

members! {
    struct Message { role, tool_calls }
}

/// The name of the limit that a model knows.
fn limit_name(supported: Option<&[String]>) -> &'static str {
    let [old, new] = LIMITS;
    let has =
        |name: &str| supported.is_some_and(|supported| supported.iter().any(|supported| supported == name));
    if has(new) && !has(old) { new } else { old }
}

/// Messages are objects with a role. An empty list of tool calls is taken out: several engines refuse it.
fn messages(body: &Body<'_>) -> Result<Option<(&'static str, Change)>, GatewayError> {
    let list = required(body, "messages")?;
    let entries = serde_json::from_str::<Few<&RawValue, MAX_ENTRIES>>(list.get())
        .map_err(|_| wrong("messages", &format!("must be an array of at most {MAX_ENTRIES} messages")))?;
    let mut rewritten = None;
    for (index, entry) in entries.0.iter().enumerate() {
        let at = || format!("messages[{index}]");
        let message: Message<'_> =
            object(entry.get()).ok_or_else(|| wrong(&at(), "must be an object with each member once"))?;
        if !message.role.text().is_some_and(|role| role.starts_with('"')) {
            return Err(wrong(&format!("{}.role", at()), "must be a string"));
        }
        if message.tool_calls.is_empty_list() {
            let entries = rewritten.get_or_insert_with(|| {
                entries.0.iter().map(|entry| Cow::Borrowed(entry.get())).collect::<Vec<_>>()
            });
            let message = Body::parse(entry.get().as_bytes())?.rewrite(&[("tool_calls", Change::Remove)]);
            if let (Some(entry), Ok(message)) = (entries.get_mut(index), String::from_utf8(message)) {
                *entry = message.into();
            }
        }
    }
    let Some(entries) = rewritten else { return Ok(None) };
    Ok(Some(("messages", json_change(format!("[{}]", entries.join(",")).into_bytes())?)))
}

/// Nothing of a response is kept, here or at the upstream.
fn stateless(body: &Body<'_>) -> Result<Changes, GatewayError> {
    for (name, harmless) in STATEFUL {
        if body.raw(name).is_some_and(|value| Some(value.get()) != harmless) {
            return Err(wrong(name, "is not supported: responses are not stored"));
        }
    }
    // Upstreams keep them unless they are told otherwise.
    Ok(if body.raw("store").is_some() { Changes::new() } else { vec![("store", Change::set(&false)?)] })
}
