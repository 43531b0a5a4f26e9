//! The forms in which a document may hold its evidence.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cloister_evidence::{
    AttestationDocument, EventLog, InvalidAttestation, MAX_ATTESTATION_BYTES, MAX_NITRO_DOCUMENT_BYTES,
    PlatformEvidence, VersionedAttestation,
};

use crate::VerifyError;

/// The evidence of a document, whichever form it has.
#[derive(Debug)]
pub(super) struct Material {
    /// TDX quote.
    pub(super) quote: Vec<u8>,
    /// JSON text of the event log.
    pub(super) event_log: String,
    /// JSON text of the machine's description.
    pub(super) vm_config: String,
}

impl Material {
    /// Takes a document apart. Two forms that contradict each other are refused: readers would see
    /// different things.
    pub(super) fn of(document: &AttestationDocument) -> Result<Self, VerifyError> {
        let quote = document.quote.as_deref().map(|text| decode(text, crate::MAX_QUOTE_BYTES)).transpose()?;
        let attestation = document.attestation.as_deref().map(versioned).transpose()?.flatten();
        match (quote, attestation) {
            (None, None) => Err(malformed("the document has none")),
            (Some(quote), None) => Ok(Self {
                quote,
                event_log: document.event_log.clone(),
                vm_config: document.vm_config.clone(),
            }),
            (None, Some(attestation)) => Self::from_attestation(document, &attestation),
            (Some(quote), Some(attestation)) => {
                let material = Self {
                    quote,
                    event_log: document.event_log.clone(),
                    vm_config: document.vm_config.clone(),
                };
                if material.agrees(&attestation) {
                    Ok(material)
                } else {
                    Err(malformed("the two forms of the evidence in the document contradict each other"))
                }
            }
        }
    }

    fn from_attestation(
        document: &AttestationDocument,
        attestation: &VersionedAttestation,
    ) -> Result<Self, VerifyError> {
        let PlatformEvidence::Tdx { quote, .. } = &attestation.evidence else {
            return Err(malformed("the attestation is of another platform"));
        };
        let log = attestation.event_log().map_err(|error| malformed(&error.to_string()))?;
        let log = serde_json::to_string(&log).map_err(|error| malformed(&error.to_string()))?;
        let or = |own: &String, other: String| if own.is_empty() { other } else { own.clone() };
        Ok(Self {
            quote: quote.clone(),
            event_log: or(&document.event_log, log),
            vm_config: or(&document.vm_config, attestation.config.clone()),
        })
    }

    /// Whether the other form says the same, as far as anybody reads it.
    fn agrees(&self, attestation: &VersionedAttestation) -> bool {
        let PlatformEvidence::Tdx { quote, .. } = &attestation.evidence else { return false };
        let Ok(log) = EventLog::parse(&self.event_log) else {
            // The log itself is refused later, with its own reason.
            return *quote == self.quote;
        };
        // Registers are compared, not texts: either form may leave out what can be computed.
        let other = attestation.event_log().ok().and_then(|other| other.replay().ok());
        *quote == self.quote && other.is_some() && log.replay().ok() == other
    }
}

/// The Nitro document in a document without a quote, in whichever form; `None` when it holds none. Two forms
/// that contradict each other are refused.
pub(super) fn nitro(document: &AttestationDocument) -> Option<Result<Vec<u8>, VerifyError>> {
    if document.quote.is_some() {
        return None;
    }
    let plain = document.document.as_deref().map(|text| {
        if text.len() > MAX_NITRO_DOCUMENT_BYTES.saturating_mul(2) {
            return Err(malformed_nitro("it is too long"));
        }
        BASE64_STANDARD.decode(text).map_err(|_| malformed_nitro("it is not base64"))
    });
    let attestation = document.attestation.as_deref().map(versioned).transpose().map(Option::flatten);
    let other = attestation.map(|of| of.map(|of| of.evidence));
    match (plain, other) {
        (None, Ok(Some(PlatformEvidence::NitroEnclave { document }))) => Some(Ok(document)),
        (None, _) => None,
        (Some(plain), Ok(None)) => Some(plain),
        (Some(plain), Ok(Some(PlatformEvidence::NitroEnclave { document }))) => {
            let contradiction =
                || malformed_nitro("the two forms of the evidence in the document contradict each other");
            Some(plain.and_then(|plain| if plain == document { Ok(plain) } else { Err(contradiction()) }))
        }
        (Some(_), Ok(Some(_))) => {
            Some(Err(malformed_nitro("the attestation beside it is of another platform")))
        }
        (Some(_), Err(error)) => Some(Err(error)),
    }
}

/// The versioned form; `None` for the later encoding, which is not read.
fn versioned(text: &str) -> Result<Option<VersionedAttestation>, VerifyError> {
    match VersionedAttestation::decode(&decode(text, MAX_ATTESTATION_BYTES)?) {
        Ok(attestation) => Ok(Some(attestation)),
        Err(InvalidAttestation::MessagePack) => Ok(None),
        Err(error) => Err(malformed(&error.to_string())),
    }
}

fn decode(text: &str, limit: usize) -> Result<Vec<u8>, VerifyError> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    if digits.len() > 2 * limit {
        return Err(malformed("it is too long"));
    }
    hex::decode(digits).map_err(|_| malformed("it is not hex"))
}

fn malformed_nitro(reason: &str) -> VerifyError {
    VerifyError::Malformed { kind: "Nitro document", reason: reason.to_owned() }
}

fn malformed(reason: &str) -> VerifyError {
    VerifyError::Malformed { kind: "TDX quote", reason: reason.to_owned() }
}
