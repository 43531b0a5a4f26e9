//! Fields that are encrypted between client and gateway.
//!
//! | Part | What |
//! |---|---|
//! | `terms` | what the headers ask for: version, keys, challenge |
//! | `shares` | how many challenges of each key are remembered |
//! | `fields` | which members of requests and answers are texts to hide |
//! | `json` | reads no more of a request than these, and writes it decrypted |
//!
//! An answer to an encrypted request never goes out in clear: what cannot be sealed is an error.

mod fields;
mod json;
mod shares;
mod terms;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use cloister_aci::e2ee::{self, Context, E2eeError, Purpose, SecretKey, v1};
use http::HeaderMap;
use serde_json::Map;
use tracing::error;

use self::json::{Compact, Values};
use self::terms::{Terms, Version};
use crate::admission::KeyHash;
use crate::body::Body;
use crate::error::{GatewayError, Kind};
use crate::proof::Identity;
use crate::record::Store;
use crate::stream::Events;
use crate::surface::Surface;

pub use shares::Shares;
pub use terms::is_asked;

/// Most encrypted fields of a request, of a whole answer, or of one event of a stream: each costs a key agreement.
const MAX_FIELDS: usize = 2048;
const DONE: &[u8] = b"[DONE]";

/// A request that came encrypted.
#[derive(Debug)]
pub struct Opened {
    /// The decrypted body, compact JSON: what is hashed as `request.received`.
    pub body: Bytes,
    /// Encrypts the answer.
    pub sealer: Sealer,
}

/// Encrypts the fields of one request's answer.
pub struct Sealer {
    terms: Terms,
    model: String,
}

/// Without the client's key.
impl fmt::Debug for Sealer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Sealer").field(&self.terms.algo()).finish()
    }
}

/// Where challenges are remembered, and whose this one is.
#[derive(Debug, Clone, Copy)]
pub struct Memory<'a> {
    /// What each key has taken.
    pub shares: &'a Shares,
    /// Who asks.
    pub key: KeyHash,
    /// Where they are kept.
    pub store: &'a Store,
}

/// Opens a request that asks for encryption, at a time in seconds since the Unix epoch.
///
/// The order of checks: whether encryption is offered, the surface, the headers, the model, the values, and last that
/// the key may have another challenge remembered and that this one is new; it is remembered for as long as its time is
/// accepted.
pub async fn open(
    headers: &HeaderMap,
    surface: Surface,
    body: &Bytes,
    identity: &Identity,
    memory: Memory<'_>,
    now: u64,
) -> Result<Opened, GatewayError> {
    let keys = identity
        .decryption()
        .ok_or_else(|| refused("e2ee_invalid_version", "This gateway does not offer encryption of fields"))?;
    if !surface.encrypts() {
        return Err(refused("e2ee_unsupported_endpoint", "Fields cannot be encrypted on this endpoint"));
    }
    let terms = Terms::read(headers, keys, now)?;
    let (keys, body) = (Arc::clone(keys), body.clone());
    // Key agreements are slow: they may not hold up those who wait for the network.
    let opened = tokio::task::spawn_blocking(move || {
        let secret = terms.secret(&keys)?;
        decrypted(&body, &secret, &terms)
            .map(|(body, model)| Opened { body, sealer: Sealer { terms, model } })
    });
    let opened = opened.await.map_err(|_| GatewayError::new(Kind::Internal, "The gateway failed"))??;
    if let Some((fingerprint, until)) = opened.sealer.terms.challenge() {
        memory.shares.take(memory.key, now)?;
        let is_new = memory.store.first_time(fingerprint, until).await.map_err(|error| {
            error!(%error, "challenges of encrypted requests cannot be remembered");
            GatewayError::new(
                Kind::Unavailable,
                "Encrypted requests cannot be taken now. Please try again later.",
            )
        })?;
        if !is_new {
            return Err(refused("e2ee_replay_detected", "This nonce was used before"));
        }
    }
    Ok(opened)
}

/// Who encrypts names the model in clear.
#[must_use]
pub fn no_model() -> GatewayError {
    refused("e2ee_invalid_payload_model", "model must be a string, in clear")
}

fn refused(kind: &'static str, message: &str) -> GatewayError {
    GatewayError::new(Kind::E2ee(kind), message)
}

fn decrypted(
    body: &[u8],
    secret: &terms::Secret<'_>,
    terms: &Terms,
) -> Result<(Bytes, String), GatewayError> {
    let request = Body::parse_whole(body)?;
    let model = request.raw("model").and_then(|model| serde_json::from_str::<String>(model.get()).ok());
    let model = model.ok_or_else(no_model)?;
    refuse_probabilities(&request)?;
    let (mut values, mut texts) = (Values::new(), Map::new());
    for name in fields::OF_REQUEST {
        if let Some(value) = request.raw(name) {
            texts.insert(name.to_owned(), values.read(value.get())?);
        }
    }
    let mut count = 0;
    fields::of_request(&mut texts, terms.opens_media(), &mut values, &mut |field, value| {
        count += 1;
        if count > MAX_FIELDS {
            return Err(GatewayError::new(Kind::InvalidRequest, "There are too many encrypted fields"));
        }
        let failed = || GatewayError {
            param: Some(field.to_owned()),
            ..refused("e2ee_decryption_failed", "A field cannot be decrypted")
        };
        let text = terms.open(secret, field, &model, value).map_err(|_| failed())?;
        String::from_utf8(text.to_vec()).map_err(|_| failed())
    })?;
    if count == 0 {
        return Err(refused("e2ee_decryption_failed", "The request has no encrypted field"));
    }
    let mut decrypted = Compact::of(body.len());
    for (name, value) in request.members() {
        match texts.get(name) {
            Some(texts) => decrypted.value(name, texts)?,
            None => decrypted.raw(name, value)?,
        }
    }
    Ok((decrypted.done().into(), model))
}

/// Probabilities repeat the text of an answer word by word, where nothing hides it.
fn refuse_probabilities(request: &Body<'_>) -> Result<(), GatewayError> {
    let is_asked = request.raw("logprobs").is_some_and(|value| value.get() != "false");
    if is_asked {
        return Err(GatewayError::parameter(
            "logprobs",
            "cannot be had with encrypted fields: they repeat the text in clear",
        ));
    }
    Ok(())
}

impl Sealer {
    /// `x-e2ee-version` and `x-e2ee-algo` of the answer.
    #[must_use]
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        vec![
            ("x-e2ee-version", self.terms.version().to_owned()),
            ("x-e2ee-algo", self.terms.algo().to_owned()),
        ]
    }

    /// A buffered answer with its fields encrypted. Fails rather than pass anything on in clear.
    pub fn seal_body(&self, body: &[u8]) -> Result<Bytes, GatewayError> {
        self.seal_json(body).map(Bytes::from).map_err(|error| not_sealed(&error))
    }

    /// One or more whole events of a stream, as they go to the client. Comments and terminators stay as they are.
    pub fn seal_events(&self, events: &[u8]) -> Result<Bytes, GatewayError> {
        let mut cut = Events::default();
        cut.push(events);
        let mut sealed = BytesMut::with_capacity(events.len().saturating_mul(3));
        while let Some(event) = cut.next() {
            let event = event.map_err(|_| not_sealed(&NotSealed::Shape))?;
            match event.data() {
                Some(data) if data != DONE => {
                    let json = self.seal_json(&data).map_err(|error| not_sealed(&error))?;
                    write_event(&mut sealed, event.bytes(), &json);
                }
                _ => sealed.extend_from_slice(event.bytes()),
            }
        }
        if cut.is_within_event() {
            return Err(not_sealed(&NotSealed::Shape));
        }
        Ok(sealed.freeze())
    }

    fn seal_json(&self, json: &[u8]) -> Result<Vec<u8>, NotSealed> {
        let answer = Body::parse(json).map_err(|_| NotSealed::Shape)?;
        let id = answer.raw("id").and_then(|id| serde_json::from_str::<String>(id.get()).ok());
        let id = id.unwrap_or_default();
        let mut left = MAX_FIELDS;
        fields::of_answer(&answer, &mut |field, text| {
            left = left.checked_sub(1).ok_or(NotSealed::Fields)?;
            Ok(self.terms.seal(field, &self.model, &id, text)?)
        })
    }
}

/// Why something may not go out.
#[derive(Debug, thiserror::Error)]
enum NotSealed {
    #[error("not JSON")]
    Json(#[from] serde_json::Error),
    #[error("not an object, or no whole event")]
    Shape,
    #[error("too many fields")]
    Fields,
    #[error(transparent)]
    Encryption(#[from] E2eeError),
}

fn not_sealed(error: &NotSealed) -> GatewayError {
    // What was to be hidden does not get into the log: of a parser's words, the kind alone.
    let kind = match error {
        NotSealed::Json(_) => "not JSON",
        NotSealed::Shape => "not an answer",
        NotSealed::Fields => "too many fields",
        NotSealed::Encryption(_) => "encryption failed",
    };
    error!(kind, "an answer could not be encrypted and was not sent");
    GatewayError::new(Kind::Internal, "The answer could not be encrypted")
}

/// An event with other data; its other lines stay.
fn write_event(to: &mut BytesMut, event: &[u8], json: &[u8]) {
    let mut is_first = true;
    for line in event.split(|byte| matches!(byte, b'\n' | b'\r')) {
        let is_data = line.starts_with(b"data:") || line == b"data";
        if is_first && line.is_empty() {
            // Ends whatever stands before.
            to.extend_from_slice(b"\n");
        } else if !line.is_empty() && !is_data {
            to.extend_from_slice(line);
            to.extend_from_slice(b"\n");
        }
        is_first = false;
    }
    to.extend_from_slice(b"data: ");
    // Between JSON's tokens line ends are spaces; within an event they would begin another line.
    to.extend(json.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }));
    to.extend_from_slice(b"\n\n");
}

impl Terms {
    /// The text of a value of a request.
    fn open(
        &self,
        secret: &SecretKey,
        field: &str,
        model: &str,
        value: &str,
    ) -> Result<zeroize::Zeroizing<Vec<u8>>, E2eeError> {
        match self.place(field, model, None) {
            Some(context) => e2ee::open(secret, &context, value),
            None => v1::open(secret, value),
        }
    }

    /// A value of an answer: encrypted with a key and a nonce that are used once.
    fn seal(&self, field: &str, model: &str, id: &str, text: &[u8]) -> Result<String, E2eeError> {
        let mut secret = zeroize::Zeroizing::new([0; 32]);
        let mut nonce = [0; 12];
        getrandom::fill(secret.as_mut_slice()).map_err(|_| E2eeError::Encrypt)?;
        getrandom::fill(&mut nonce).map_err(|_| E2eeError::Encrypt)?;
        let ephemeral = SecretKey::new(self.suite(), &secret)?;
        match self.place(field, model, Some(id)) {
            Some(context) => e2ee::seal(self.client_key(), &ephemeral, nonce, &context, text),
            None => v1::seal(self.client_key(), &ephemeral, nonce, text),
        }
    }

    /// Where a value belongs; version 1 binds to no place.
    fn place<'a>(&'a self, field: &'a str, model: &'a str, id: Option<&'a str>) -> Option<Context<'a>> {
        let Version::Two { nonce, ts } = self.asked() else { return None };
        let purpose = if id.is_some() { Purpose::Response } else { Purpose::Request };
        Some(Context { algo: self.suite().algo(), field, id, model, nonce, purpose, ts: *ts })
    }
}
