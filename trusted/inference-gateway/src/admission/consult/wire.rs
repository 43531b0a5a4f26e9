//! What is said between gateway and control plane.

use rust_decimal::Decimal;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::accounting::{Decision, Left};
use crate::admission::Admission;
use crate::admission::features::Features;
use crate::config::Pricing;
use crate::record::Row;

/// Longest text for a client, in characters.
const MAX_MESSAGE: usize = 500;
/// Longest name of a user, a key or a tier, in bytes.
const MAX_NAME: usize = 128;

/// `consult/pre`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Question<'a> {
    pub(super) api_key_hash: String,
    pub(super) model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) provider: Option<&'a RawValue>,
    /// True or absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tee: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request: Option<Features>,
    /// Under which the request is told of when it is over. This and what follows is beyond what every control plane
    /// knows; absent where it is only asked whose key it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_id: Option<&'a str>,
    /// What it may cost, by prices that no route goes beyond which it may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) estimated_cost: Option<Decimal>,
}

/// The answer to it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Verdict {
    pub(super) allow: bool,
    #[serde(default)]
    pub(super) status: Option<u16>,
    #[serde(default, deserialize_with = "message")]
    pub(super) message: Option<String>,
    #[serde(default, deserialize_with = "name")]
    pub(super) user_id: Option<String>,
    #[serde(default, deserialize_with = "name")]
    pub(super) virtual_key_id: Option<String>,
    #[serde(default, deserialize_with = "name")]
    spend_mode: Option<String>,
    #[serde(default, deserialize_with = "name")]
    user_tier: Option<String>,
    #[serde(default)]
    pub(super) rate_limit: Option<RateLimit>,
    #[serde(default)]
    pricing: Option<Rates>,
    #[serde(default)]
    candidates: Option<Vec<Candidate>>,
}

/// How many requests a key may begin.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RateLimit {
    pub(super) limit: u64,
    /// Seconds since the Unix epoch.
    pub(super) reset_at: u64,
    /// Not every control plane says it, or as a count.
    #[serde(default, deserialize_with = "count")]
    pub(super) remaining: Option<u64>,
}

impl RateLimit {
    /// The same at a time, in seconds since the Unix epoch; of a request that comes too early nothing is left.
    pub(super) fn decision(self, admitted: bool, now: u64) -> Decision {
        Decision {
            admitted,
            limit: self.limit,
            remaining: if admitted { self.remaining } else { Some(0) },
            reset_s: self.reset_at.saturating_sub(now).max(1),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate {
    route_id: String,
}

/// Prices of a token. The control plane writes texts or numbers; texts are written.
#[expect(clippy::struct_field_names, reason = "they are the interface's own members")]
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Rates {
    #[serde(deserialize_with = "rate")]
    input_cost_per_token: Option<Decimal>,
    #[serde(deserialize_with = "rate")]
    output_cost_per_token: Option<Decimal>,
    #[serde(deserialize_with = "rate")]
    cache_read_cost_per_token: Option<Decimal>,
    #[serde(deserialize_with = "rate")]
    cache_creation_cost_per_token: Option<Decimal>,
}

impl From<Rates> for Pricing {
    fn from(rates: Rates) -> Self {
        Self {
            prompt: rates.input_cost_per_token.unwrap_or_default(),
            completion: rates.output_cost_per_token.unwrap_or_default(),
            cache_read: rates.cache_read_cost_per_token,
            cache_creation: rates.cache_creation_cost_per_token,
        }
    }
}

impl From<&Pricing> for Rates {
    fn from(pricing: &Pricing) -> Self {
        Self {
            input_cost_per_token: Some(pricing.prompt),
            output_cost_per_token: Some(pricing.completion),
            cache_read_cost_per_token: pricing.cache_read,
            cache_creation_cost_per_token: pricing.cache_creation,
        }
    }
}

impl Verdict {
    /// Leave, as it was given at a time, in seconds since the Unix epoch.
    pub(super) fn admission(self, now: u64) -> Admission {
        let requests = self.rate_limit.map(|limit| limit.decision(true, now));
        Admission {
            left: Left { requests, tokens: None },
            user_id: self.user_id,
            virtual_key_id: self.virtual_key_id,
            spend_mode: self.spend_mode,
            user_tier: self.user_tier,
            pricing: self.pricing.map(Pricing::from),
            routes: self.candidates.map(|routes| routes.into_iter().map(|route| route.route_id).collect()),
            ..Admission::default()
        }
    }
}

/// A decimal, as a text or a number; never negative.
fn rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Decimal>, D::Error> {
    let Some(raw) = Option::<Box<RawValue>>::deserialize(deserializer)? else { return Ok(None) };
    let text = raw.get().trim_matches('"');
    let rate = Decimal::from_str_exact(text).or_else(|_| Decimal::from_scientific(text)).ok();
    let rate = rate.filter(|rate| *rate >= Decimal::ZERO);
    rate.map(Some).ok_or_else(|| D::Error::custom("a price is a decimal that is not negative"))
}

/// A number of requests; nothing where it is something else.
fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let raw = Option::<Box<RawValue>>::deserialize(deserializer)?;
    Ok(raw.and_then(|raw| raw.get().parse().ok()))
}

/// A text for the client, of one line.
fn message<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.map(|text| text.chars().filter(|char| !char.is_control()).take(MAX_MESSAGE).collect()))
}

/// A name that can stand in a header.
fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let name = Option::<String>::deserialize(deserializer)?;
    let is_name = |name: &String| {
        (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
    };
    if name.as_ref().is_none_or(is_name) {
        return Ok(name);
    }
    Err(D::Error::custom("a name is 1 to 128 visible ASCII characters"))
}

/// `consult/keep`, which not every control plane knows: requests that are under way.
#[derive(Debug, Serialize)]
pub(super) struct Kept<'a> {
    pub(super) requests: Vec<Lasting<'a>>,
}

/// One of them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Lasting<'a> {
    pub(super) request_id: &'a str,
    /// As admitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) user_id: Option<&'a str>,
}

/// `consult/post`. The members from `cost` on are beyond what every control plane knows.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Told<'a> {
    request_id: &'a str,
    endpoint: &'a str,
    status: u16,
    duration_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttft_ms: Option<u64>,
    is_streaming: bool,
    attempt_index: u32,
    selected_route_id: Option<&'a str>,
    request_model: &'a str,
    usage: Option<&'a RawValue>,
    pricing: Option<Rates>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spend_mode: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    virtual_key_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_source: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix_hash: Option<&'a str>,
    cost: Decimal,
    prompt_tokens: u64,
    completion_tokens: u64,
    ended_at: u64,
    /// Whether the request is over with it.
    is_last: bool,
}

impl<'a> From<&'a Row> for Told<'a> {
    fn from(row: &'a Row) -> Self {
        Self {
            request_id: &row.request_id,
            endpoint: &row.endpoint,
            status: row.status,
            duration_ms: row.duration_ms,
            ttft_ms: row.ttft_ms,
            is_streaming: row.is_streaming,
            attempt_index: row.attempt_index,
            selected_route_id: row.selected_route_id.as_deref(),
            request_model: &row.request_model,
            usage: row.usage.as_deref(),
            pricing: row.pricing.as_ref().map(Rates::from),
            spend_mode: row.spend_mode.as_deref(),
            user_id: row.user_id.as_deref(),
            virtual_key_id: row.virtual_key_id.as_deref(),
            error_source: row.error_source.as_deref(),
            error_message: row.error_message.as_deref(),
            prefix_hash: row.prefix_hash.as_deref(),
            cost: row.cost,
            prompt_tokens: row.prompt_tokens,
            completion_tokens: row.completion_tokens,
            ended_at: row.ended_at,
            is_last: row.is_last,
        }
    }
}
