//! Quotes in all their forms, and events of the application.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cloister_attester::Platform;
use cloister_evidence::report_data::ReportData;
use cloister_evidence::{Quote, RuntimeEvent, event_name};
use serde_json::{Value, json};

use super::answer::ApiError;
use super::message::Message;
use super::report_data;
use crate::attestation::{Attestation, DocumentError, event_log_json};

/// Most bytes that a Nitro document binds.
const MAX_USER_DATA_BYTES: usize = 512;
/// Longest name of an application's event, in bytes.
const MAX_EVENT_NAME_BYTES: usize = 256;
/// Most bytes of a challenge from outside. Evidence for a key is made over 64 bytes (a hash, SHA-512), and
/// nobody finds a key whose hash ends in 32 zeros: so nobody outside gets evidence for a key of his own,
/// with which he would be this CVM.
const MAX_OUTSIDE_CHALLENGE_BYTES: usize = 32;
/// Longest payload of an application's event, in bytes.
const MAX_EVENT_PAYLOAD_BYTES: usize = 16 << 10;

/// `GetQuote`: quote in hex, log, description.
pub(super) async fn get_quote(attestation: &Attestation, message: &Message) -> Result<Value, ApiError> {
    quote(attestation, &report_data::given(&message.bytes("report_data")?)?).await
}

/// The same over 64 bytes.
pub(super) async fn quote(attestation: &Attestation, report_data: &ReportData) -> Result<Value, ApiError> {
    let platform = attestation.attester.platform();
    if platform == Platform::Nitro {
        return Err(refused("this machine makes Nitro documents; ask for /GetAttestation"));
    }
    let evidence = attestation.quote(report_data).await?;
    let mut answer = json!({
        "quote": hex::encode(&evidence.quote),
        "event_log": event_log_json(&evidence.event_log),
        "report_data": hex::encode(report_data),
        "vm_config": attestation.facts.vm_config,
    });
    if !platform.makes_tdx_quotes() {
        let versioned = attestation.versioned(&evidence, report_data).map_err(DocumentError::from)?;
        set(&mut answer, "quote", String::new());
        set(&mut answer, "attestation", hex::encode(versioned));
    }
    Ok(answer)
}

/// The same by a plain GET: quote in base64 and the registers, beside what does not clash with it.
pub(super) async fn get_quote_plainly(
    attestation: &Attestation,
    message: &Message,
) -> Result<Value, ApiError> {
    if !attestation.attester.platform().makes_tdx_quotes() {
        return Err(refused("this machine makes no TDX quotes; ask for /attestation"));
    }
    let report_data = report_data::given(&message.bytes("report_data")?)?;
    let evidence = attestation.quote(&report_data).await?;
    let parsed = Quote::parse(&evidence.quote).map_err(|error| refused(&error.to_string()))?;
    let report = parsed.td_report().ok_or_else(|| refused("the quote is not that of a TDX machine"))?;
    Ok(json!({
        "quote": BASE64_STANDARD.encode(&evidence.quote),
        "rtmr0": report.rtmr0,
        "rtmr1": report.rtmr1,
        "rtmr2": report.rtmr2,
        "rtmr3": report.rtmr3,
        "event_log": event_log_json(&evidence.event_log),
        "report_data": hex::encode(report_data),
        "vm_config": attestation.facts.vm_config,
    }))
}

/// `GetAttestation`: a Nitro document.
pub(super) async fn get_attestation(attestation: &Attestation, message: &Message) -> Result<Value, ApiError> {
    let user_data = message.bytes("user_data")?;
    if user_data.len() > MAX_USER_DATA_BYTES {
        return Err(refused("user_data must be at most 512 bytes"));
    }
    if attestation.attester.platform() != Platform::Nitro {
        return Err(refused("this machine makes no Nitro documents; ask for /GetQuote"));
    }
    let document = attestation.attester.nitro_document(user_data).await?;
    Ok(json!({ "document": BASE64_STANDARD.encode(document) }))
}

/// `Attest`: the versioned form.
pub(super) async fn attest(attestation: &Attestation, message: &Message) -> Result<Value, ApiError> {
    let report_data = report_data::given(&message.bytes("report_data")?)?;
    let evidence = attestation.quote(&report_data).await?;
    let versioned = attestation.versioned(&evidence, &report_data).map_err(DocumentError::from)?;
    Ok(json!({ "attestation": hex::encode(versioned) }))
}

/// The legacy `TdxQuote`, which hashes what it is given.
pub(super) async fn tdx_quote(attestation: &Attestation, message: &Message) -> Result<Value, ApiError> {
    let bytes = message.bytes("report_data")?;
    let hashed = report_data::hashed(&bytes, message.text("hash_algorithm")?, message.text("prefix")?)?;
    let mut answer = quote(attestation, &hashed.report_data).await?;
    set(&mut answer, "hash_algorithm", hashed.algorithm);
    set(&mut answer, "prefix", hashed.prefix);
    Ok(answer)
}

/// The legacy `RawQuote`.
pub(super) async fn raw_quote(attestation: &Attestation, message: &Message) -> Result<Value, ApiError> {
    let mut answer = quote(attestation, &report_data::whole(&message.bytes("report_data")?)?).await?;
    set(&mut answer, "hash_algorithm", "raw".to_owned());
    set(&mut answer, "prefix", String::new());
    Ok(answer)
}

/// The whole document that verifiers read.
pub(super) async fn attestation(attestation: &Attestation, message: &Message) -> Result<Value, ApiError> {
    document(attestation, &challenge(message)?).await
}

/// The same for the outside, which chooses less than the application does.
pub(crate) async fn attestation_for_outside(
    attestation: &Attestation,
    message: &Message,
) -> Result<Value, ApiError> {
    let challenge = challenge(message)?;
    if challenge.len() > MAX_OUTSIDE_CHALLENGE_BYTES {
        return Err(refused("Report data is too long: at most 32 bytes from outside"));
    }
    document(attestation, &challenge).await
}

/// A challenge may come by two names.
fn challenge(message: &Message) -> Result<Vec<u8>, ApiError> {
    let challenge = message.bytes("report_data")?;
    if challenge.is_empty() { Ok(message.bytes("reportData")?) } else { Ok(challenge) }
}

async fn document(attestation: &Attestation, challenge: &[u8]) -> Result<Value, ApiError> {
    let document = attestation.document(&report_data::given(challenge)?).await?;
    serde_json::to_value(document).map_err(|error| refused(&error.to_string()))
}

/// `EmitEvent`: measures an event of the application. The names of the platform are refused, since their
/// meaning is what verifiers rely on; also before a colon, where the digest does not tell name and payload
/// apart.
pub(super) async fn emit_event(attestation: &Attestation, message: &Message) -> Result<Value, ApiError> {
    let (name, payload) = (message.text("event")?, message.bytes("payload")?);
    if name.is_empty() || name.len() > MAX_EVENT_NAME_BYTES {
        return Err(refused("event must be a name of 1 to 256 bytes"));
    }
    if payload.len() > MAX_EVENT_PAYLOAD_BYTES {
        return Err(refused("payload must be at most 16384 bytes"));
    }
    if event_name::is_platform(name.split_once(':').map_or(name, |(start, _)| start)) {
        return Err(refused("this name of an event is reserved for the platform"));
    }
    if !attestation.attester.platform().measures_at_runtime() {
        return Err(refused("this machine has no register for events at run time"));
    }
    attestation.measure(RuntimeEvent::new(name, payload)).await?;
    Ok(Value::Null)
}

fn set(answer: &mut Value, name: &str, value: String) {
    if let Some(members) = answer.as_object_mut() {
        members.insert(name.to_owned(), Value::String(value));
    }
}

fn refused(reason: &str) -> ApiError {
    ApiError::Refused(reason.to_owned())
}
