//! One HTTP request to one endpoint, within limits.

use std::time::Duration;

use cloister_verifier::Clock;
use jiff::fmt::rfc2822;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, redirect};
use url::Url;

use crate::config::{InvalidChainConfig, is_loopback};
use crate::error::Failure;

/// Longest answer to a batch, in bytes: two full answers of the lens, three headers of full blocks, or a receipt with
/// all logs that a block has room for.
pub(crate) const MAX_ANSWER_BYTES: usize = 2 << 20;
/// How long an endpoint that does not say for how long is left alone.
pub(super) const DEFAULT_PAUSE: Duration = Duration::from_secs(1);
/// Longest time that an endpoint may ask to be left alone for.
const MAX_PAUSE: Duration = Duration::from_hours(1);

/// A client for `url`: no redirects (the address is the authority), no proxy to this machine.
pub(super) fn client(url: &Url, connect_timeout: Duration) -> Result<Client, InvalidChainConfig> {
    // The process's provider of cryptography, unless the program chose one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder().redirect(redirect::Policy::none()).connect_timeout(connect_timeout);
    let builder = if is_loopback(url) { builder.no_proxy() } else { builder };
    builder.build().map_err(|error| InvalidChainConfig::Client(error.without_url().to_string()))
}

/// Sends `body` and reads the answer. The caller limits the time.
pub(super) async fn post(
    client: &Client,
    url: &Url,
    body: Vec<u8>,
    clock: &Clock,
) -> Result<Vec<u8>, Failure> {
    let request = client.post(url.clone()).header(CONTENT_TYPE, "application/json").body(body);
    let response = request.send().await.map_err(|error| failure(&error))?;
    match response.status() {
        StatusCode::OK => read(response).await,
        StatusCode::TOO_MANY_REQUESTS => Err(Failure::RateLimited(pause(&response, clock))),
        StatusCode::SERVICE_UNAVAILABLE if response.headers().contains_key(RETRY_AFTER) => {
            Err(Failure::RateLimited(pause(&response, clock)))
        }
        status => Err(Failure::Status(status.as_u16())),
    }
}

async fn read(mut response: Response) -> Result<Vec<u8>, Failure> {
    if response.content_length().is_some_and(|length| length > MAX_ANSWER_BYTES as u64) {
        return Err(Failure::TooLong);
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| failure(&error))? {
        if body.len().saturating_add(chunk.len()) > MAX_ANSWER_BYTES {
            return Err(Failure::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn failure(error: &reqwest::Error) -> Failure {
    if error.is_timeout() { Failure::Timeout } else { Failure::Connection }
}

/// For how long the endpoint wants no more requests: seconds or a date.
fn pause(response: &Response, clock: &Clock) -> Duration {
    let said = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::trim);
    let seconds = said.and_then(|said| said.parse().ok()).map(Duration::from_secs);
    let until = || {
        let date = rfc2822::parse(said?).ok()?.timestamp();
        Some(Duration::try_from(date.duration_since(clock.now())).unwrap_or(Duration::ZERO))
    };
    seconds.or_else(until).unwrap_or(DEFAULT_PAUSE).min(MAX_PAUSE)
}
