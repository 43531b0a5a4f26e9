//! Headers of a request to a webhook, and how a receiver verifies them.
//!
//! Two schemes sign the same body: that of the public service, which its SDKs verify, and
//! [Standard Webhooks](https://www.standardwebhooks.com), for which there are libraries in most languages. Both bind
//! the time of the request, so what somebody recorded cannot be sent again later.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::{EventId, EventKind, Secret};

/// How far the time of a request may be from the receiver's, in seconds.
pub const TOLERANCE_S: i64 = 300;
/// How requests name their sender.
pub const USER_AGENT: &str = "Cloister-Webhook/1.0";

const TIMESTAMP: &str = "X-Webhook-Timestamp";
const SIGNATURE: &str = "X-Webhook-Signature";
/// The same with the secret that is being rotated out.
const PREVIOUS: &str = "X-Webhook-Signature-Previous";
const STANDARD_ID: &str = "webhook-id";
const STANDARD_TIMESTAMP: &str = "webhook-timestamp";
const STANDARD_SIGNATURE: &str = "webhook-signature";
/// Most signatures that are looked at.
const MAX_SIGNATURES: usize = 16;
const BLOCK: usize = 64;

/// What the headers say about a request.
#[derive(Debug, Clone, Copy)]
pub struct Headered<'a> {
    /// The webhook that it is for.
    pub webhook_id: &'a str,
    /// The event that it tells of.
    pub event_id: &'a EventId,
    /// Kind of that event.
    pub kind: EventKind,
}

/// Why a request is not what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// A header is missing, or there more than once.
    #[error("the request needs exactly one header {0}")]
    Header(&'static str),
    /// The time is none.
    #[error("the time of the request is no number of seconds")]
    Time,
    /// Too far from now: a repetition of an old request, or a wrong clock.
    #[error("the time of the request is more than 300 seconds from now; compare the clocks")]
    Stale,
    /// Signed by somebody who does not have the secret, or changed since.
    #[error("no signature of the request is right; compare the secrets, and verify the body as it arrived")]
    Signature,
}

/// All headers of a request. `secrets` has the new secret first, then the one that is being rotated out, if any.
#[must_use]
pub fn sign(
    secrets: &[Secret],
    event: &Headered<'_>,
    timestamp_s: i64,
    body: &[u8],
) -> Vec<(&'static str, String)> {
    let time = timestamp_s.to_string();
    let id = event.event_id.as_str();
    let mut headers = vec![
        ("Content-Type", "application/json".to_owned()),
        ("User-Agent", USER_AGENT.to_owned()),
        ("X-Webhook-Id", event.webhook_id.to_owned()),
        ("X-Webhook-Event", event.kind.as_str().to_owned()),
        (TIMESTAMP, time.clone()),
    ];
    for (name, secret) in [SIGNATURE, PREVIOUS].into_iter().zip(secrets) {
        let mac = public_mac(secret, &time, body).finalize().into_bytes();
        headers.push((name, format!("sha256={}", hex::encode(mac))));
    }
    let standard = secrets.iter().map(|secret| {
        let mac = standard_mac(secret, id, &time, body).finalize().into_bytes();
        format!("v1,{}", BASE64_STANDARD.encode(mac))
    });
    let standard = standard.collect::<Vec<_>>().join(" ");
    headers.extend([
        (STANDARD_ID, id.to_owned()),
        (STANDARD_TIMESTAMP, time),
        (STANDARD_SIGNATURE, standard),
    ]);
    headers
}

/// Whether a request is signed with a secret as the public service signs. During a rotation either secret will do.
pub fn verify_public<N: AsRef<str>, V: AsRef<str>>(
    secret: &Secret,
    headers: &[(N, V)],
    body: &[u8],
    now_s: i64,
) -> Result<(), VerifyError> {
    let time = timely(headers, TIMESTAMP, now_s)?;
    let first = single(headers, SIGNATURE)?;
    let previous = optional(headers, PREVIOUS)?;
    let is_right = |signature: &str| {
        let digits = signature.strip_prefix("sha256=").filter(|digits| digits.len() == 64);
        let bytes = digits.and_then(|digits| hex::decode(digits).ok()).unwrap_or_default();
        public_mac(secret, time, body).verify_slice(&bytes).is_ok()
    };
    // Compared in constant time; which of the two is right is no secret.
    if is_right(first) || previous.is_some_and(is_right) { Ok(()) } else { Err(VerifyError::Signature) }
}

/// Whether a request is signed with a secret as Standard Webhooks has it. During a rotation either secret will do.
pub fn verify_standard<N: AsRef<str>, V: AsRef<str>>(
    secret: &Secret,
    headers: &[(N, V)],
    body: &[u8],
    now_s: i64,
) -> Result<(), VerifyError> {
    let time = timely(headers, STANDARD_TIMESTAMP, now_s)?;
    let id = single(headers, STANDARD_ID)?;
    let is_right = |signature: &str| {
        let text = signature.strip_prefix("v1,").unwrap_or_default();
        let bytes = BASE64_STANDARD.decode(text).unwrap_or_default();
        standard_mac(secret, id, time, body).verify_slice(&bytes).is_ok()
    };
    let signatures = single(headers, STANDARD_SIGNATURE)?;
    if signatures.split(' ').take(MAX_SIGNATURES).any(is_right) {
        Ok(())
    } else {
        Err(VerifyError::Signature)
    }
}

/// The value of a header that may be there once.
fn optional<'a, N: AsRef<str>, V: AsRef<str>>(
    headers: &'a [(N, V)],
    name: &'static str,
) -> Result<Option<&'a str>, VerifyError> {
    let mut found = headers.iter().filter(|(found, _)| found.as_ref().eq_ignore_ascii_case(name));
    match (found.next(), found.next()) {
        (first, None) => Ok(first.map(|(_, value)| value.as_ref())),
        // Which of several would count is a matter of taste, so none does.
        (_, Some(_)) => Err(VerifyError::Header(name)),
    }
}

fn single<'a, N: AsRef<str>, V: AsRef<str>>(
    headers: &'a [(N, V)],
    name: &'static str,
) -> Result<&'a str, VerifyError> {
    optional(headers, name)?.ok_or(VerifyError::Header(name))
}

/// The time of a request as it was signed, if it is close to now.
fn timely<'a, N: AsRef<str>, V: AsRef<str>>(
    headers: &'a [(N, V)],
    name: &'static str,
    now_s: i64,
) -> Result<&'a str, VerifyError> {
    let text = single(headers, name)?;
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let time: i64 = text.parse().ok().filter(|_| is_number).ok_or(VerifyError::Time)?;
    if time.abs_diff(now_s) > TOLERANCE_S.unsigned_abs() { Err(VerifyError::Stale) } else { Ok(text) }
}

fn public_mac(secret: &Secret, time: &str, body: &[u8]) -> Hmac<Sha256> {
    let mut mac = keyed(secret.public_key());
    for part in [time.as_bytes(), b".", body] {
        mac.update(part);
    }
    mac
}

fn standard_mac(secret: &Secret, id: &str, time: &str, body: &[u8]) -> Hmac<Sha256> {
    let mut mac = keyed(&secret.standard_key());
    for part in [id.as_bytes(), b".", time.as_bytes(), b".", body] {
        mac.update(part);
    }
    mac
}

/// A key of any length: one that is longer than a block counts as its hash, a shorter one as if zeros followed.
fn keyed(key: &[u8]) -> Hmac<Sha256> {
    let mut block = zeroize::Zeroizing::new([0; BLOCK]);
    if key.len() > BLOCK {
        block.iter_mut().zip(Sha256::digest(key)).for_each(|(to, from)| *to = from);
    } else {
        block.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    }
    Hmac::<Sha256>::new(&(*block).into())
}
