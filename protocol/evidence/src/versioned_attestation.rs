//! The versioned attestation: one self-contained blob of evidence, as public peers put it into
//! certificates and requests (platform reference, section 4.8). Version 0, SCALE.

mod wire;

use parity_scale_codec::{DecodeAll as _, Encode as _};

use crate::event_log::RTMR_OF_SOFTWARE;
use crate::report_data::ReportData;
use crate::{EventLog, EventLogEntry, MAX_EVENTS, RUNTIME_EVENT_TYPE, RuntimeEvent};

/// Longest encoding, in bytes.
pub const MAX_ATTESTATION_BYTES: usize = 10 << 20;
use wire::{Bounded, WireAttestation, WireEvidence, WireRuntimeEvent};

const VERSION_0: u8 = 0;

/// Why bytes are not a versioned attestation, or one cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAttestation {
    /// More than [`MAX_ATTESTATION_BYTES`].
    #[error("the attestation is longer than {MAX_ATTESTATION_BYTES} bytes")]
    TooLong,
    /// No bytes.
    #[error("the attestation is empty")]
    Empty,
    /// The later form, a msgpack map.
    #[error("the attestation is in the msgpack form (version 1); send version 0")]
    MessagePack,
    /// A first byte that no version has.
    #[error("attestations of version {0} are unknown")]
    Version(u8),
    /// Evidence of a platform that is not supported.
    #[error("attestations of {0} are not supported")]
    Platform(&'static str),
    /// Not the encoding of an attestation, or bytes follow it.
    #[error("the attestation is cut off, malformed, or followed by other bytes")]
    Malformed,
    /// Version 0 has no place for it; by its position in the log.
    #[error("event {0} cannot be encoded in an attestation of version 0")]
    Event(usize),
    /// The runtime events are not those of the log.
    #[error("the runtime events of the attestation are not those of its event log")]
    Contradiction,
}

/// Evidence, with what is needed to read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionedAttestation {
    /// What the hardware signed.
    pub evidence: PlatformEvidence,
    /// What software measured into RTMR 3; empty on platforms without such a register.
    pub runtime_events: Vec<RuntimeEvent>,
    /// What the evidence was made over.
    pub report_data: ReportData,
    /// Description of the machine, JSON; may be empty.
    pub config: String,
}

/// What the hardware of a platform signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlatformEvidence {
    /// Intel TDX.
    Tdx {
        /// The quote.
        quote: Vec<u8>,
        /// The event log; may be stripped of what can be computed or is not needed.
        event_log: Vec<EventLogEntry>,
    },
    /// AWS Nitro Enclave.
    NitroEnclave {
        /// The attestation document.
        document: Vec<u8>,
    },
    /// AMD SEV-SNP.
    SevSnp {
        /// The report.
        report: Vec<u8>,
        /// Certificates that the host handed out with it, in no certain order.
        certificates: Vec<Vec<u8>>,
        /// Document whose hash is the report's host data.
        mr_config: String,
    },
}

impl PlatformEvidence {
    /// What reports of inference gateways call the platform (`tee_type` of ACI); `None` for one that has no name there.
    #[must_use]
    pub const fn tee_type(&self) -> Option<&'static str> {
        match self {
            Self::Tdx { .. } => Some("tdx"),
            Self::SevSnp { .. } => Some("sev_snp"),
            Self::NitroEnclave { .. } => None,
        }
    }
}

impl VersionedAttestation {
    /// Decodes an attestation. Nothing may follow it.
    pub fn decode(bytes: &[u8]) -> Result<Self, InvalidAttestation> {
        if bytes.len() > MAX_ATTESTATION_BYTES {
            return Err(InvalidAttestation::TooLong);
        }
        let (version, bytes) = bytes.split_first().ok_or(InvalidAttestation::Empty)?;
        match version {
            &VERSION_0 => {}
            0x80..=0x8F | 0xDE | 0xDF => return Err(InvalidAttestation::MessagePack),
            version => return Err(InvalidAttestation::Version(*version)),
        }
        match bytes.first() {
            Some(1) => return Err(InvalidAttestation::Platform("TDX with a vTPM of Google Cloud")),
            Some(4) => return Err(InvalidAttestation::Platform("AWS NitroTPM")),
            _ => {}
        }
        let wire = WireAttestation::decode_all(&mut &*bytes).map_err(|_| InvalidAttestation::Malformed)?;
        Ok(Self {
            evidence: wire.evidence.into(),
            runtime_events: wire
                .runtime_events
                .0
                .into_iter()
                .map(|event| RuntimeEvent { name: event.event, payload: event.payload })
                .collect(),
            report_data: wire.report_data,
            config: wire.config,
        })
    }

    /// Encodes it. Entries of the event log need hex digests and payloads and the first hashing scheme.
    pub fn encode(&self) -> Result<Vec<u8>, InvalidAttestation> {
        let wire = WireAttestation {
            evidence: WireEvidence::new(&self.evidence)?,
            runtime_events: Bounded(
                self.runtime_events
                    .iter()
                    .map(|event| WireRuntimeEvent {
                        event: event.name.clone(),
                        payload: event.payload.clone(),
                    })
                    .collect(),
            ),
            report_data: self.report_data,
            config: self.config.clone(),
        };
        if self.runtime_events.len() > MAX_EVENTS {
            return Err(InvalidAttestation::Event(MAX_EVENTS));
        }
        let mut bytes = vec![VERSION_0];
        wire.encode_to(&mut bytes);
        if bytes.len() > MAX_ATTESTATION_BYTES { Err(InvalidAttestation::TooLong) } else { Ok(bytes) }
    }

    /// The event log: that of the evidence, and the runtime events where the log leaves RTMR 3 out. Fails
    /// when the log has events of RTMR 3 and they are not exactly the runtime events.
    pub fn event_log(&self) -> Result<EventLog, InvalidAttestation> {
        let mut entries = match &self.evidence {
            PlatformEvidence::Tdx { event_log, .. } => event_log.clone(),
            PlatformEvidence::NitroEnclave { .. } | PlatformEvidence::SevSnp { .. } => Vec::new(),
        };
        let logged: Vec<&EventLogEntry> =
            entries.iter().filter(|entry| entry.imr == RTMR_OF_SOFTWARE).collect();
        if !logged.is_empty() && !self.runtime_events.is_empty() && !self.are_runtime_events(&logged) {
            return Err(InvalidAttestation::Contradiction);
        }
        if logged.is_empty() {
            entries.extend(self.runtime_events.iter().map(RuntimeEvent::entry));
        }
        Ok(EventLog::new(entries))
    }

    fn are_runtime_events(&self, logged: &[&EventLogEntry]) -> bool {
        logged.len() == self.runtime_events.len()
            && logged.iter().zip(&self.runtime_events).all(|(entry, event)| {
                entry.event_type == RUNTIME_EVENT_TYPE
                    && entry.event == event.name
                    && hex::decode(&entry.event_payload).is_ok_and(|payload| payload == event.payload)
            })
    }
}
