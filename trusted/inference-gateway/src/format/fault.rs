//! Errors of upstreams: read in whatever shape they come, and told to clients without a word about the upstream.

use http::StatusCode;
use serde_json::value::RawValue;

use super::UpstreamFault;
use super::scrub::scrub;
use crate::body::{Raw, members, object};
use crate::error::{GatewayError, Kind};
use crate::routing::Route;

/// Longest text of an upstream that is read, in bytes.
const MAX_TEXT: usize = 16 << 10;

/// Kinds by which upstreams say that the operator's account is empty.
const QUOTA_KINDS: [&str; 4] =
    ["insufficient_quota", "credit_balance_exhausted", "billing_error", "billing_not_active"];
/// The same in their words.
const QUOTA_WORDS: [&str; 3] =
    ["credit balance is too low", "exceeded your current quota", "no credits remaining"];
/// Kinds by which upstreams refuse what the request says, for its length or by their policy, whatever the status.
const REFUSAL_KINDS: [&str; 7] = [
    "request_too_large",
    "invalid_prompt",
    "context_length_exceeded",
    "content_filter",
    "content_policy_violation",
    "image_content_policy_violation",
    "string_above_max_length",
];
/// Kinds by which upstreams say that the request is at fault in another way. Some say so, too, where it is not.
const REQUEST_KINDS: [&str; 3] = ["invalid_request_error", "invalid_request", "BadRequestError"];
/// Kinds by which upstreams say that they do not know the operator's key, or not the route's model.
const ROUTE_KINDS: [&str; 5] =
    ["model_not_found", "invalid_api_key", "authentication_error", "permission_error", "permission_denied"];
/// Words and kinds by which a chained gateway says that none of its own upstreams has room.
const EXHAUSTED: [&str; 5] = [
    "all targets are exhausted",
    "all targets exhausted",
    "all_targets_exhausted",
    "all providers are exhausted",
    "no available capacity",
];

/// The type of an event that is an error, and says nothing of its kind.
const EVENT: &str = "error";

members! {
    struct Outer { error, message, detail, kind as "type", code, param }
    struct Inner { message, kind as "type", code, param }
}

/// Reads the body of an error, in any of the usual shapes: `{"error":{"message",…}}`, `{"error":"…"}`,
/// `{"message":…}`, `{"detail":…}`. What has none of them has no message.
#[must_use]
pub fn read(body: &[u8]) -> UpstreamFault {
    let outer = std::str::from_utf8(body).ok().and_then(object::<Outer<'_>>);
    let Some(outer) = outer else { return UpstreamFault::default() };
    match outer.error.text() {
        Some(error) if !matches!(error, "true" | "false") => of_member(error),
        _ => UpstreamFault {
            message: text(outer.message).or_else(|| text(outer.detail)).unwrap_or_default(),
            kind: kind(outer.kind, outer.code),
            param: text(outer.param),
        },
    }
}

/// What an upstream reports instead of an answer, with a status of success; `None` for a body without an `error`.
#[must_use]
pub fn reported(body: &[u8]) -> Option<UpstreamFault> {
    let outer: Outer<'_> = std::str::from_utf8(body).ok().and_then(object)?;
    outer.error.value().map(|error| of_member(error.get()))
}

/// Reads an `error` member, JSON: an object or a text.
pub(super) fn of_member(error: &str) -> UpstreamFault {
    let Some(inner) = object::<Inner<'_>>(error) else {
        let message = serde_json::from_str::<&RawValue>(error).ok().and_then(|raw| text(Raw::of(raw)));
        return UpstreamFault { message: message.unwrap_or_default(), ..UpstreamFault::default() };
    };
    UpstreamFault {
        message: text(inner.message).unwrap_or_default(),
        kind: kind(inner.kind, inner.code),
        param: text(inner.param),
    }
}

fn text(value: Raw<'_>) -> Option<String> {
    value.read::<String>().filter(|text| text.len() <= MAX_TEXT)
}

/// The code says more than the type, where both are words and the code is a known one, or the type is that of an event.
fn kind(kind: Raw<'_>, code: Raw<'_>) -> Option<String> {
    let (kind, code) = (text(kind).filter(|kind| kind != EVENT), text(code));
    let telling: [&[&str]; 4] = [&QUOTA_KINDS, &EXHAUSTED, &ROUTE_KINDS, &REFUSAL_KINDS];
    let is_telling =
        code.as_deref().is_some_and(|code| telling.into_iter().any(|kinds| kinds.contains(&code)));
    if is_telling { code } else { kind.or(code) }
}

/// Whether an upstream declares, by kind, that the operator's account with it is empty. Words do not count here: they
/// can repeat a prompt, and this may influence what is thought of a route.
#[must_use]
pub fn declares_quota(fault: &UpstreamFault) -> bool {
    fault.kind.as_deref().is_some_and(|kind| QUOTA_KINDS.contains(&kind))
}

/// Whether an upstream declares, by kind, that the request is at fault.
#[must_use]
pub fn is_about_request(fault: &UpstreamFault) -> bool {
    let is_declared = fault.kind.as_deref().is_some_and(|kind| REQUEST_KINDS.contains(&kind));
    is_refusal(fault) || (is_declared && !is_quota(fault))
}

/// Whether an upstream declares, by kind, that it refuses what the request says: too much, or against its policy. No other
/// upstream is to be asked then.
#[must_use]
pub fn is_refusal(fault: &UpstreamFault) -> bool {
    fault.kind.as_deref().is_some_and(|kind| REFUSAL_KINDS.contains(&kind))
}

/// Whether a 403 or 404 is about the operator's key or the route's model: so it is declared, or nothing is said at all.
/// Otherwise a client may have brought it about, by what it says or refers to.
#[must_use]
pub fn is_about_route(fault: &UpstreamFault) -> bool {
    match fault.kind.as_deref() {
        Some(kind) => ROUTE_KINDS.contains(&kind),
        None => fault.message.is_empty(),
    }
}

/// Whether an upstream says, by kind or in words, that the operator's account with it is empty: nothing that clients
/// are to be told as their own state.
#[must_use]
pub fn is_quota(fault: &UpstreamFault) -> bool {
    declares_quota(fault) || says(fault, &QUOTA_WORDS)
}

/// Whether a 5xx of an upstream means that it is busy: all its own targets are exhausted.
#[must_use]
pub fn is_exhausted(fault: &UpstreamFault) -> bool {
    fault.kind.as_deref().is_some_and(|kind| EXHAUSTED.contains(&kind)) || says(fault, &EXHAUSTED)
}

fn says(fault: &UpstreamFault, words: &[&str]) -> bool {
    let message = fault.message.to_ascii_lowercase();
    words.iter().any(|words| message.contains(words))
}

/// Whether an error names a file or picture that the client's request refers to by address: then it is the client's,
/// whatever the status, and no other route would do better.
#[must_use]
pub fn names_media(fault: &UpstreamFault, request: &[u8]) -> bool {
    if fault.message.is_empty() {
        return false;
    }
    let request = String::from_utf8_lossy(request);
    let addresses = request
        .split('"')
        .filter(|text| text.len() <= 2048 && (text.starts_with("http://") || text.starts_with("https://")));
    addresses.take(64).any(|address| {
        let host = url::Url::parse(address).ok().and_then(|url| url.host_str().map(ToOwned::to_owned));
        fault.message.contains(address)
            || host.is_some_and(|host| host.contains('.') && fault.message.contains(&host))
    })
}

/// What a client is told of an upstream's answer that is no success, or that is one and says an error in its stream
/// (then with status 502).
#[must_use]
pub fn public(status: StatusCode, fault: &UpstreamFault, route: &Route) -> GatewayError {
    let kind = kind_of(status, fault);
    let is_about_the_request = matches!(kind, Kind::UpstreamRefused(_));
    let private = private(route);
    let allowed = |text: &str| scrub(text, private.iter().map(String::as_str));
    let words = if is_about_the_request { allowed(&fault.message) } else { None };
    let message = words.unwrap_or_else(|| generic(kind, status).to_owned());
    let mut error = GatewayError::new(kind, message);
    if is_about_the_request {
        error.param = fault.param.as_deref().and_then(allowed);
    }
    error
}

/// The words for an error in a stream that has begun: the upstream's, if nothing in them is private, or general ones.
#[must_use]
pub fn public_in_stream(fault: &UpstreamFault, route: &Route) -> String {
    let private = private(route);
    let words =
        if is_quota(fault) { None } else { scrub(&fault.message, private.iter().map(String::as_str)) };
    words.unwrap_or_else(|| GENERIC.to_owned())
}

/// What no client may read about a route.
fn private(route: &Route) -> Vec<String> {
    let upstream = &route.upstream;
    let host = upstream.base_url.host_str().map(ToOwned::to_owned);
    let token = upstream.bearer_token.as_ref().map(|token| token.expose().to_owned());
    let is_public = route.id.split_once(':').is_some_and(|(_, public)| public == route.upstream_model);
    let model = (!is_public).then(|| route.upstream_model.clone());
    host.into_iter().chain(token).chain(model).chain([upstream.name.clone()]).collect()
}

fn kind_of(status: StatusCode, fault: &UpstreamFault) -> Kind {
    match status.as_u16() {
        401..=403 | 408 => Kind::Upstream,
        // What is declared counts more than words, which can repeat a prompt.
        400..500 if is_quota(fault) && !is_refusal(fault) => Kind::Upstream,
        404 => Kind::UpstreamNotFound,
        429 => Kind::UpstreamBusy,
        400..500 => Kind::UpstreamRefused(status),
        500..600 if is_exhausted(fault) => Kind::UpstreamBusy,
        _ => Kind::Upstream,
    }
}

const GENERIC: &str = "The upstream provider returned an error";

/// What is said where the upstream's own words are not.
#[must_use]
pub fn generic(kind: Kind, status: StatusCode) -> &'static str {
    match (kind, status.as_u16()) {
        (Kind::UpstreamBusy, _) => "Rate limit exceeded. Please retry after some time.",
        (Kind::UpstreamNotFound, _) => "The requested model or resource was not found",
        (Kind::Upstream, 503) => "The model is currently unavailable. Please try again later.",
        (Kind::UpstreamRefused(_), 413) => "The request is too large",
        (Kind::UpstreamRefused(_), _) => "The request was rejected as invalid",
        (Kind::Upstream, 408 | 504) => "The upstream provider timed out",
        (Kind::Upstream, 400..500) => "The upstream provider is currently unavailable",
        _ => GENERIC,
    }
}
