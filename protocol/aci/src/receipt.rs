//! The signed account of one request.
//!
//! [`Receipt`] is for who issues receipts. Who verifies them works on the document itself ([`crate::verify`]):
//! the signature covers members that this version does not know.

use ed25519_dalek::{SIGNATURE_LENGTH, Signature, SignatureError, Signer};
use serde::{Serialize, Serializer};

use crate::API_VERSION;
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

/// An event as it is written: members in canonical order.
#[derive(Serialize)]
struct WireEvent<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    body_hash: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    channel_bindings: Option<&'a [ChannelBinding]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    claims: Option<&'a Claims>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cleartext_hash: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    required: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'static str>,
    seq: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_route_id: Option<&'a str>,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wire_hash: Option<&'a str>,
}

impl<'a> WireEvent<'a> {
    const fn new(seq: usize, kind: &'static str) -> Self {
        Self {
            body_hash: None,
            channel_bindings: None,
            claims: None,
            cleartext_hash: None,
            model_id: None,
            provider: None,
            reason: None,
            required: None,
            result: None,
            seq,
            session_id: None,
            target_route_id: None,
            kind,
            upstream_name: None,
            wire_hash: None,
        }
    }

    fn of(seq: usize, event: &'a Event) -> Self {
        match event {
            Event::RequestReceived { body_hash } => Self::hashed(seq, "request.received", body_hash),
            Event::MiddlewareForwarded { body_hash } => Self::hashed(seq, "middleware.forwarded", body_hash),
            Event::RequestForwarded { body_hash } => Self::hashed(seq, "request.forwarded", body_hash),
            Event::ResponseReceived { body_hash } => Self::hashed(seq, "response.received", body_hash),
            Event::RouteSelected { target_route_id } => {
                Self { target_route_id: Some(target_route_id), ..Self::new(seq, "route.selected") }
            }
            Event::ResponseReturned { body_hash, cleartext_hash } => Self {
                wire_hash: Some(body_hash),
                cleartext_hash: Some(cleartext_hash),
                ..Self::hashed(seq, "response.returned", body_hash)
            },
            Event::UpstreamVerified { model_id, required, upstream_name, verification } => {
                let event = Self {
                    model_id: Some(model_id),
                    required: Some(*required),
                    provider: upstream_name.as_deref(),
                    ..Self::new(seq, "upstream.verified")
                };
                match verification {
                    Verification::Verified { session_id, channel_bindings, claims } => Self {
                        result: Some("verified"),
                        session_id: Some(session_id),
                        channel_bindings: Some(channel_bindings),
                        claims: Some(claims),
                        ..event
                    },
                    Verification::Failed { reason } => Self {
                        result: Some("failed"),
                        reason: Some(reason),
                        upstream_name: upstream_name.as_deref(),
                        ..event
                    },
                }
            }
        }
    }

    fn hashed(seq: usize, kind: &'static str, body_hash: &'a str) -> Self {
        Self { body_hash: Some(body_hash), ..Self::new(seq, kind) }
    }
}

struct WireEvents<'a>(&'a [Event]);

impl Serialize for WireEvents<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().enumerate().map(|(seq, event)| WireEvent::of(seq, event)))
    }
}

/// What is signed of a receipt: members in canonical order, which lets one pass make the canonical bytes.
#[derive(Serialize)]
struct Wire<'a> {
    api_version: &'static str,
    chat_id: Option<&'a str>,
    endpoint: &'a str,
    event_log: WireEvents<'a>,
    key_id: &'a str,
    method: &'a str,
    model: Option<&'a str>,
    receipt_id: &'a str,
    served_at: u64,
    #[serde(flatten)]
    end: WireEnd<'a>,
}

/// The last members of it, behind the place of the signature.
#[derive(Serialize)]
struct WireEnd<'a> {
    workload_id: &'a str,
    workload_keyset_digest: &'a str,
}

/// Room for most receipts, in bytes.
const USUAL_BYTES: usize = 2 << 10;

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
        let mut bytes = Vec::with_capacity(USUAL_BYTES);
        let wire = Wire {
            api_version: API_VERSION,
            chat_id: self.chat_id.as_deref(),
            endpoint: &self.endpoint,
            event_log: WireEvents(&self.event_log),
            key_id,
            method: &self.method,
            model: self.model.as_deref(),
            receipt_id: &self.receipt_id,
            served_at: self.served_at,
            end: self.end(),
        };
        serde_json::to_writer(&mut bytes, &wire)?;
        Ok(bytes)
    }

    fn end(&self) -> WireEnd<'_> {
        let digest = &self.workload_keyset_digest;
        WireEnd { workload_id: digest, workload_keyset_digest: digest }
    }

    /// The signed document, in canonical form. The key is an Ed25519 key (RFC 8032), in whatever keeps it.
    pub fn sign(&self, key_id: &str, key: &impl Signer<Signature>) -> Result<Vec<u8>, SignError> {
        let document = self.signing_bytes(key_id)?;
        // The document ends with these members, behind a comma instead of a brace: as many bytes.
        let end = serde_json::to_vec(&self.end())?;
        let (begin, end) = document.split_at(document.len().saturating_sub(end.len()));
        let mut digits = [0; 2 * SIGNATURE_LENGTH];
        // Two digits for each byte have room: this cannot fail.
        let _ = hex::encode_to_slice(key.try_sign(&document)?.to_bytes(), &mut digits);
        Ok([begin, b",\"signature\":\"", &digits, b"\"", end].concat())
    }
}
