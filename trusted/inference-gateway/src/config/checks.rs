//! What has to hold in a configuration beyond its types.

use std::collections::HashSet;

use rust_decimal::Decimal;
use url::Url;

use super::{
    ConfigError, GatewayConfig, KeyConfig, ModelConfig, Pricing, ProviderKind, Timeouts, TlsConfig,
    TracesConfig, UpstreamConfig, identity, verification,
};
use crate::door::normal_form;

const MAX_NAME: usize = 128;
/// Longest limit in time, in seconds.
const MAX_SECONDS: u32 = 24 * 60 * 60;

/// How long things may be kept, in seconds.
const MIN_RETENTION_S: u64 = 60 * 60;
const MAX_RETENTION_S: u64 = 10 * 366 * 24 * 60 * 60;
/// Longest wait for a control plane, in milliseconds.
const MAX_CONTROL_MS: u64 = 60_000;

pub(super) type Checked = Result<(), ConfigError>;
/// Longest time for which an answer is read on without a client, in milliseconds.
const MAX_READ_ON_MS: u64 = 600_000;
/// Longest time, in microseconds, for which a processor is kept from sleeping.
const MAX_BUSY_POLL_US: u64 = 1000;
/// Longest pause before busy upstreams are asked once more, in milliseconds.
const MAX_RETRY_MS: u64 = 5000;

pub(super) fn rule(holds: bool, at: &str, rule: &str) -> Checked {
    if holds { Ok(()) } else { Err(ConfigError::Rule { at: at.to_owned(), rule: rule.to_owned() }) }
}

pub(super) fn check(config: &GatewayConfig) -> Checked {
    rule(!config.upstreams.is_empty(), "upstreams", "at least one is needed")?;
    check_records(config)?;
    config.traces.as_ref().map_or(Ok(()), check_traces)?;
    rule(config.capacity_retry_ms <= MAX_RETRY_MS, "capacity_retry_ms", "may be at most 5000")?;
    rule(config.read_on_ms <= MAX_READ_ON_MS, "read_on_ms", "may be at most 600000")?;
    rule(config.busy_poll_us <= MAX_BUSY_POLL_US, "busy_poll_us", "may be at most 1000")?;
    let are_hosts = config.tee_hosts.iter().all(|host| normal_form(host).as_ref() == Some(host));
    rule(are_hosts, "tee_hosts", "have to be host names in lower case, without port and trailing dot")?;
    rule(
        (32..=1 << 20).contains(&config.body_memory_mib),
        "body_memory_mib",
        "has to be between 32 and 1048576",
    )?;
    let is_twice = config.bind.port() != 0 && config.metrics_bind == Some(config.bind);
    rule(!is_twice, "metrics_bind", "has to be another address than bind")?;
    config.tls.as_ref().map_or(Ok(()), check_tls)?;
    verification::check_trust(config)?;
    verification::check_direct(config)?;
    identity::check(config)?;
    for (index, key) in config.keys.iter().enumerate() {
        check_key(key, &format!("keys[{index}]"))?;
    }
    unique(config.keys.iter().map(|key| key.name.as_str()), "keys", "two have the same name")?;
    unique(config.keys.iter().map(|key| key.sha256.as_str()), "keys", "one key stands there twice")?;
    for (index, upstream) in config.upstreams.iter().enumerate() {
        let at = format!("upstreams[{index}]");
        check_upstream(upstream, &at)?;
        rule(
            config.is_tee(upstream) || !upstream.require_verified,
            &format!("{at}.require_verified"),
            "can never hold for this upstream",
        )?;
    }
    unique(
        config.upstreams.iter().map(|upstream| upstream.name.as_str()),
        "upstreams",
        "two have the same name",
    )?;
    for (index, model) in config.models.iter().enumerate() {
        let at = format!("models[{index}]");
        check_model(model, &at)?;
        let is_served = config.upstreams.iter().any(|upstream| upstream.models.contains_key(&model.id));
        rule(is_served, &at, "no upstream serves it")?;
        let can_be_verified = config.tee_upstreams().any(|upstream| upstream.models.contains_key(&model.id));
        rule(
            can_be_verified || !model.require_verified,
            &format!("{at}.require_verified"),
            "no upstream that serves it can be verified",
        )?;
    }
    unique(config.models.iter().map(|model| model.id.as_str()), "models", "two have the same id")
}

fn check_tls(tls: &TlsConfig) -> Checked {
    let files = [&tls.certificate, &tls.key].into_iter().flatten().count();
    let wanted = if tls.self_signed { 0 } else { 2 };
    rule(files == wanted, "tls", "needs certificate and key, or else self_signed alone")
}

fn check_records(config: &GatewayConfig) -> Checked {
    let is_time = |seconds| (MIN_RETENTION_S..=MAX_RETENTION_S).contains(&seconds);
    let between = "has to be between an hour and ten years, in seconds";
    rule(is_time(config.receipts.retention_s), "receipts.retention_s", between)?;
    rule(is_time(config.receipts.usage_retention_s), "receipts.usage_retention_s", between)?;
    let Some(control) = &config.control else { return Ok(()) };
    rule(config.keys.is_empty(), "control", "decides instead of keys: there may not be both")?;
    check_url(&control.url, "control.url", "token_file")?;
    rule(
        (1..=MAX_CONTROL_MS).contains(&control.timeout_ms),
        "control.timeout_ms",
        "has to be between 1 and 60000 milliseconds",
    )?;
    rule(
        control.send_request_features || control.prefix_hash_secret_file.is_none(),
        "control.prefix_hash_secret_file",
        "is told among what requests are like: it needs send_request_features",
    )?;
    rule(control.untold_limit >= Decimal::ZERO, "control.untold_limit", "may not be negative")
}

/// Credentials stand in another member, never in a URL: those are shown and logged.
fn check_url(url: &Url, at: &str, credentials: &str) -> Checked {
    let is_base = matches!(url.scheme(), "https" | "http") && url.host().is_some();
    let has_no_more = url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    let why = format!(
        "has to be an http or https URL without credentials, query or fragment; {credentials} is for credentials"
    );
    rule(is_base && has_no_more, at, &why)
}

fn check_traces(traces: &TracesConfig) -> Checked {
    check_url(&traces.endpoint, "traces.endpoint", "headers_file")?;
    let has_path = traces.endpoint.path() != "/";
    rule(has_path, "traces.endpoint", "has to have a path, which is usually /v1/traces")?;
    rule((0.0..=1.0).contains(&traces.sample_ratio), "traces.sample_ratio", "has to be between 0 and 1")
}

/// Fails for the first one that is there before. Names are no secrets, and neither are hashes of keys.
fn unique<'a>(mut names: impl Iterator<Item = &'a str>, at: &str, otherwise: &str) -> Checked {
    let mut seen = HashSet::new();
    let twice = names.find(|name| !seen.insert(*name));
    rule(twice.is_none(), at, &format!("{otherwise}: {}", twice.unwrap_or_default()))
}

fn name(name: &str, at: &str) -> Checked {
    let is_name = (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
    rule(is_name, at, "has to be 1 to 128 visible ASCII characters")
}

fn check_key(key: &KeyConfig, at: &str) -> Checked {
    name(&key.name, &format!("{at}.name"))?;
    let is_hash =
        key.sha256.len() == 64 && key.sha256.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    rule(is_hash, &format!("{at}.sha256"), "has to be the SHA-256 of the key: 64 lower-case hex digits")?;
    rule(key.requests_per_minute != Some(0), &format!("{at}.requests_per_minute"), "may not be 0")?;
    rule(key.tokens_per_minute != Some(0), &format!("{at}.tokens_per_minute"), "may not be 0")?;
    rule(
        key.credit.is_none_or(|credit| credit >= Decimal::ZERO),
        &format!("{at}.credit"),
        "may not be negative",
    )
}

fn check_upstream(upstream: &UpstreamConfig, at: &str) -> Checked {
    name(&upstream.name, &format!("{at}.name"))?;
    rule(!upstream.name.contains(':'), &format!("{at}.name"), "may not contain a colon")?;
    check_url(&upstream.base_url, &format!("{at}.base_url"), "bearer_token")?;
    let is_path = upstream.path.as_ref().is_none_or(|path| {
        let mut url = upstream.base_url.clone();
        url.set_path(path);
        url.path() == path
    });
    let path_rule = "has to begin with '/' and to be written as in a URL, without a query";
    rule(is_path, &format!("{at}.path"), path_rule)?;
    let needs_path = upstream.provider == ProviderKind::Anthropic && upstream.path.is_none();
    rule(!needs_path, &format!("{at}.path"), "is needed for provider 'anthropic', such as /v1/messages")?;
    // It stands in the base URL that every client of OpenAI's is given.
    let has_version =
        upstream.path.is_none() && upstream.base_url.path().trim_end_matches('/').ends_with("/v1");
    let version_rule = "is without /v1: the path of each surface, such as /v1/chat/completions, is added";
    rule(!has_version, &format!("{at}.base_url"), version_rule)?;
    rule(!upstream.models.is_empty(), &format!("{at}.models"), "at least one is needed")?;
    for (public, own) in &upstream.models {
        name(public, &format!("{at}.models"))?;
        name(own, &format!("{at}.models"))?;
    }
    for (model, pricing) in &upstream.pricing {
        let at = format!("{at}.pricing");
        rule(upstream.models.contains_key(model), &at, "names a model that is not among its 'models'")?;
        check_pricing(pricing, &at)?;
    }
    rule(upstream.weight > 0, &format!("{at}.weight"), "may not be 0")?;
    rule(
        upstream.bearer_token.as_ref().is_none_or(|token| is_header_value(token.expose())),
        &format!("{at}.bearer_token"),
        "has to be visible ASCII characters",
    )?;
    let has_no_token = upstream.basic_auth && upstream.bearer_token.is_none();
    rule(!has_no_token, &format!("{at}.basic_auth"), "needs a bearer_token: user:password")?;
    rule(!(upstream.zdr && upstream.stores_data), at, "cannot both keep nothing (zdr) and store data")?;
    verification::check_upstream(upstream, at)?;
    check_timeouts(upstream.timeouts, &format!("{at}.timeouts"))
}

fn is_header_value(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn check_timeouts(timeouts: Timeouts, at: &str) -> Checked {
    let Timeouts { connect, first_byte, idle, total, verification } = timeouts;
    let all = [connect, first_byte, idle, total.unwrap_or(1), verification];
    rule(
        all.iter().all(|limit| (1..=MAX_SECONDS).contains(limit)),
        at,
        "have to be between 1 and 86400 seconds",
    )
}

fn check_model(model: &ModelConfig, at: &str) -> Checked {
    name(&model.id, &format!("{at}.id"))?;
    check_pricing(&model.pricing, &format!("{at}.pricing"))
}

fn check_pricing(pricing: &Pricing, at: &str) -> Checked {
    let Pricing { prompt, completion, cache_read, cache_creation } = pricing;
    let prices = [Some(prompt), Some(completion), cache_read.as_ref(), cache_creation.as_ref()];
    let are_prices =
        prices.into_iter().flatten().all(|price| (Decimal::ZERO..=Decimal::ONE_HUNDRED).contains(price));
    rule(are_prices, at, "have to be between 0 and 100 for one token")
}
