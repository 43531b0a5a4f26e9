use cloister_evidence::{
    EventLog, InvalidAttestation, InvalidEventLog, PlatformEvidence, VersionedAttestation,
};

use crate::extensions::{MAX_ATTESTATION_BYTES, MAX_QUOTE_BYTES, unpack_event_log};

/// Evidence that came with a key; unverified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CarriedEvidence {
    /// Of a TDX machine, or of one that a development TEE plays.
    Tdx {
        /// Quote.
        quote: Vec<u8>,
        /// Event log.
        event_log: EventLog,
        /// Description of the machine, JSON; only with a versioned attestation.
        config: Option<String>,
    },
}

/// Why evidence that came with a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InvalidEvidence {
    /// A quote without a log, or the reverse.
    #[error("quote and event log belong together, and one of them is missing")]
    HalfAPair,
    /// More than is read.
    #[error("the {0} is too long or damaged")]
    TooLong(&'static str),
    /// A log that cannot be read or replayed.
    #[error("the event log cannot be used")]
    EventLog(#[from] InvalidEventLog),
    /// A versioned attestation that cannot be read.
    #[error("the versioned attestation cannot be used")]
    Attestation(#[from] InvalidAttestation),
    /// Evidence of a platform whose machines do not shake hands here.
    #[error("evidence of {0} is not taken in a TLS handshake")]
    Platform(&'static str),
    /// Two forms of the evidence that say different things.
    #[error("the two forms of the evidence contradict each other")]
    Contradiction,
}

impl CarriedEvidence {
    /// Evidence from a quote and an event log as they stand in a certificate.
    pub(crate) fn from_quote(quote: Vec<u8>, event_log: &[u8]) -> Result<Self, InvalidEvidence> {
        if quote.len() > MAX_QUOTE_BYTES {
            return Err(InvalidEvidence::TooLong("quote"));
        }
        let event_log = unpack_event_log(event_log).ok_or(InvalidEvidence::TooLong("event log"))?;
        Ok(Self::Tdx { quote, event_log: EventLog::parse(&event_log)?, config: None })
    }

    /// Evidence from an encoded versioned attestation.
    pub fn from_attestation(bytes: &[u8]) -> Result<Self, InvalidEvidence> {
        if bytes.len() > MAX_ATTESTATION_BYTES {
            return Err(InvalidEvidence::TooLong("attestation"));
        }
        let attestation = VersionedAttestation::decode(bytes)?;
        let event_log = attestation.event_log()?;
        let quote = match attestation.evidence {
            PlatformEvidence::Tdx { quote, .. } => quote,
            PlatformEvidence::NitroEnclave { .. } => {
                return Err(InvalidEvidence::Platform("AWS Nitro Enclaves"));
            }
            PlatformEvidence::SevSnp { .. } => return Err(InvalidEvidence::Platform("AMD SEV-SNP")),
        };
        if quote.len() > MAX_QUOTE_BYTES {
            return Err(InvalidEvidence::TooLong("quote"));
        }
        let config = Some(attestation.config).filter(|config| !config.is_empty());
        Ok(Self::Tdx { quote, event_log, config })
    }

    /// This evidence, if `other` says the same: the same quote, and a log that leads to the same registers.
    /// The logs may differ in what can be computed.
    pub(crate) fn agreeing_with(self, other: &Self) -> Result<Self, InvalidEvidence> {
        let Self::Tdx { quote, event_log, .. } = &self;
        let Self::Tdx { quote: other_quote, event_log: other_log, .. } = other;
        if quote == other_quote && event_log.replay()? == other_log.replay()? {
            Ok(self)
        } else {
            Err(InvalidEvidence::Contradiction)
        }
    }
}
