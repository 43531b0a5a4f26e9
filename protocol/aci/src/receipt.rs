//! The signed account of one request.
//!
//! [`Receipt`] is for who issues receipts. Who verifies them works on the document itself ([`crate::verify`]):
//! the signature covers members that this version does not know.

use ed25519_dalek::{SIGNATURE_LENGTH, Signature, SignatureError, Signer};

use crate::API_VERSION;
use crate::object::Object;
use crate::session::{ChannelBinding, Claims};

/// What was found out about an upstream before a request was sent to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verification {
    /// The channel is that of a verified machine.
    Verified {
        /// The session that says what was verified.
        session_id: String,
        /// What ties the request to the machine.
        channel_bindings: Vec<ChannelBinding>,
        /// What was found.
        claims: Box<Claims>,
    },
    /// Nothing is proved about it.
    Failed {
        /// Why.
        reason: String,
    },
}

/// Something that happened with a request. Hashes are written as [`crate::sha256`] does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The request came in; always the first.
    RequestReceived {
        /// Of the body: as it came, or decrypted.
        body_hash: String,
    },
    /// The gateway shaped the request.
    MiddlewareForwarded {
        /// Of the shaped body.
        body_hash: String,
    },
    /// A route was chosen.
    RouteSelected {
        /// `<upstream>:<public model id>`.
        target_route_id: String,
    },
    /// The request went out.
    RequestForwarded {
        /// Of the exact bytes that were sent to the upstream.
        body_hash: String,
    },
    /// The upstream was verified, or not.
    UpstreamVerified {
        /// The model that was served, or asked for.
        model_id: String,
        /// Whether a request without verification would have been refused.
        required: bool,
        /// The upstream.
        upstream_name: Option<String>,
        /// What came out.
        verification: Verification,
    },
    /// The answer came in.
    ResponseReceived {
        /// Of the upstream's bytes.
        body_hash: String,
    },
    /// The answer went out; always the last.
    ResponseReturned {
        /// Of the bytes that the client got, with all framing.
        body_hash: String,
        /// Of the bytes before they were encrypted to the client; the same where they were not.
        cleartext_hash: String,
    },
}

/// The account of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// Id of the answer that the client got, if it has one.
    pub chat_id: Option<String>,
    /// The path, such as `/v1/chat/completions`.
    pub endpoint: String,
    /// What happened, in order.
    pub event_log: Vec<Event>,
    /// The HTTP method.
    pub method: String,
    /// The model that the client asked for.
    pub model: Option<String>,
    /// `rcpt-` and 24 hex digits.
    pub receipt_id: String,
    /// When, in seconds since the Unix epoch, by the gateway's clock.
    pub served_at: u64,
    /// Digest of the keyset that the signing key belongs to.
    pub workload_keyset_digest: String,
}

impl Event {
    /// As it is written: members in canonical order.
    fn write(&self, seq: usize, json: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        let event = &mut Object::begin(json);
        let hashed = |event: &mut Object<'_>, kind, hash: &str| {
            event.text("body_hash", hash)?.value("seq", &seq)?.text("type", kind).map(Object::end)
        };
        match self {
            Self::RequestReceived { body_hash } => hashed(event, "request.received", body_hash),
            Self::MiddlewareForwarded { body_hash } => hashed(event, "middleware.forwarded", body_hash),
            Self::RequestForwarded { body_hash } => hashed(event, "request.forwarded", body_hash),
            Self::ResponseReceived { body_hash } => hashed(event, "response.received", body_hash),
            Self::RouteSelected { target_route_id } => {
                event.value("seq", &seq)?.text("target_route_id", target_route_id)?;
                event.text("type", "route.selected").map(Object::end)
            }
            Self::ResponseReturned { body_hash, cleartext_hash } => {
                event.text("body_hash", body_hash)?.text("cleartext_hash", cleartext_hash)?;
                event.value("seq", &seq)?.text("type", "response.returned")?;
                event.text("wire_hash", body_hash).map(Object::end)
            }
            Self::UpstreamVerified { model_id, required, upstream_name, verification } => {
                const KIND: &str = "upstream.verified";
                let upstream = upstream_name.as_deref();
                match verification {
                    Verification::Verified { session_id, channel_bindings, claims } => {
                        event.value("channel_bindings", channel_bindings)?.value("claims", claims)?;
                        event.text("model_id", model_id)?.text_if_any("provider", upstream)?;
                        event.value("required", required)?.text("result", "verified")?.value("seq", &seq)?;
                        event.text("session_id", session_id)?.text("type", KIND).map(Object::end)
                    }
                    Verification::Failed { reason } => {
                        event.text("model_id", model_id)?.text_if_any("provider", upstream)?;
                        event
                            .text("reason", reason)?
                            .value("required", required)?
                            .text("result", "failed")?;
                        event.value("seq", &seq)?.text("type", KIND)?;
                        event.text_if_any("upstream_name", upstream).map(Object::end)
                    }
                }
            }
        }
    }
}

/// Room for most receipts, in bytes: what is claimed of a verified upstream has the most of it.
const USUAL_BYTES: usize = 4 << 10;

/// Why a receipt is not signed.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// It has no form as JSON.
    #[error("the receipt cannot be written: {0}")]
    Document(#[from] serde_json::Error),
    /// What keeps the key does not sign.
    #[error("the key does not sign: {0}")]
    Key(#[from] SignatureError),
}

impl Receipt {
    /// The canonical bytes that are signed, for the key with this name.
    pub fn signing_bytes(&self, key_id: &str) -> Result<Vec<u8>, serde_json::Error> {
        let mut json = self.begin(key_id)?;
        self.end(&mut json)?;
        Ok(json)
    }

    /// The members before the place of the signature, in canonical order.
    fn begin(&self, key_id: &str) -> Result<Vec<u8>, serde_json::Error> {
        let mut json = Vec::with_capacity(USUAL_BYTES);
        let mut receipt = Object::begin(&mut json);
        receipt.text("api_version", API_VERSION)?.value("chat_id", &self.chat_id)?;
        let events = receipt.text("endpoint", &self.endpoint)?.member("event_log");
        events.push(b'[');
        for (seq, event) in self.event_log.iter().enumerate() {
            if seq > 0 {
                events.push(b',');
            }
            event.write(seq, events)?;
        }
        events.push(b']');
        receipt.text("key_id", key_id)?.text("method", &self.method)?;
        receipt.value("model", &self.model)?.text("receipt_id", &self.receipt_id)?;
        receipt.value("served_at", &self.served_at)?;
        Ok(json)
    }

    /// Those behind it.
    fn end(&self, json: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        let digest = &self.workload_keyset_digest;
        let mut receipt = Object::go_on(json);
        receipt.text("workload_id", digest)?.text("workload_keyset_digest", digest).map(Object::end)
    }

    /// The signed document, in canonical form. The key is an Ed25519 key (RFC 8032), in whatever keeps it.
    pub fn sign(&self, key_id: &str, key: &impl Signer<Signature>) -> Result<Vec<u8>, SignError> {
        let mut json = self.begin(key_id)?;
        let begun = json.len();
        self.end(&mut json)?;
        let signature = key.try_sign(&json)?.to_bytes();
        json.truncate(begun);
        let mut digits = [0; 2 * SIGNATURE_LENGTH];
        // Two digits for each byte have room, and are ASCII: neither can fail.
        let _ = hex::encode_to_slice(signature, &mut digits);
        Object::go_on(&mut json).text("signature", str::from_utf8(&digits).unwrap_or_default())?;
        self.end(&mut json)?;
        Ok(json)
    }
}
