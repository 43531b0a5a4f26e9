//! The versioned attestation: one self-contained blob of evidence, as public peers put it into
//! certificates and requests (platform reference, section 4.8). Version 0, SCALE.

use parity_scale_codec::{Compact, Decode, DecodeAll as _, Encode, Error, Input};

use crate::event_log::RTMR_OF_SOFTWARE;
use crate::report_data::ReportData;
use crate::{EventLog, EventLogEntry, MAX_EVENTS, RUNTIME_EVENT_TYPE, RuntimeEvent};

/// Longest encoding, in bytes.
pub const MAX_ATTESTATION_BYTES: usize = 10 << 20;
/// Most certificates that accompany an SNP report.
const MAX_CERTIFICATES: usize = 16;
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

#[derive(Encode, Decode)]
struct WireAttestation {
    evidence: WireEvidence,
    runtime_events: Bounded<WireRuntimeEvent, MAX_EVENTS>,
    report_data: [u8; 64],
    config: String,
}

#[derive(Encode, Decode)]
enum WireEvidence {
    #[codec(index = 0)]
    Tdx { quote: Vec<u8>, event_log: Bounded<WireEntry, MAX_EVENTS> },
    #[codec(index = 2)]
    NitroEnclave { document: Vec<u8> },
    #[codec(index = 3)]
    SevSnp { report: Vec<u8>, certificates: Bounded<Vec<u8>, MAX_CERTIFICATES>, mr_config: String },
}

#[derive(Encode, Decode)]
struct WireEntry {
    imr: u32,
    event_type: u32,
    digest: Vec<u8>,
    event: String,
    event_payload: Vec<u8>,
}

#[derive(Encode, Decode)]
struct WireRuntimeEvent {
    event: String,
    payload: Vec<u8>,
}

/// A list of at most `N` elements. Its length is checked before anything is kept, since an element can
/// need much more memory than input.
struct Bounded<T, const N: usize>(Vec<T>);

impl<T: Encode, const N: usize> Encode for Bounded<T, N> {
    fn encode_to<O: parity_scale_codec::Output + ?Sized>(&self, output: &mut O) {
        self.0.encode_to(output);
    }
}

impl<T: Decode, const N: usize> Decode for Bounded<T, N> {
    fn decode<I: Input>(input: &mut I) -> Result<Self, Error> {
        let Compact(length) = Compact::<u32>::decode(input)?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > N {
            return Err(Error::from("too many elements"));
        }
        (0..length).map(|_| T::decode(input)).collect::<Result<_, _>>().map(Self)
    }
}

impl WireEvidence {
    fn new(evidence: &PlatformEvidence) -> Result<Self, InvalidAttestation> {
        Ok(match evidence {
            PlatformEvidence::Tdx { quote, event_log } => {
                if event_log.len() > MAX_EVENTS {
                    return Err(InvalidAttestation::Event(MAX_EVENTS));
                }
                let entries = event_log
                    .iter()
                    .enumerate()
                    .map(|(index, entry)| WireEntry::new(entry).ok_or(InvalidAttestation::Event(index)));
                Self::Tdx { quote: quote.clone(), event_log: Bounded(entries.collect::<Result<_, _>>()?) }
            }
            PlatformEvidence::NitroEnclave { document } => Self::NitroEnclave { document: document.clone() },
            PlatformEvidence::SevSnp { report, certificates, mr_config } => {
                if certificates.len() > MAX_CERTIFICATES {
                    return Err(InvalidAttestation::TooLong);
                }
                Self::SevSnp {
                    report: report.clone(),
                    certificates: Bounded(certificates.clone()),
                    mr_config: mr_config.clone(),
                }
            }
        })
    }
}

impl From<WireEvidence> for PlatformEvidence {
    fn from(wire: WireEvidence) -> Self {
        match wire {
            WireEvidence::Tdx { quote, event_log } => {
                Self::Tdx { quote, event_log: event_log.0.into_iter().map(EventLogEntry::from).collect() }
            }
            WireEvidence::NitroEnclave { document } => Self::NitroEnclave { document },
            WireEvidence::SevSnp { report, certificates, mr_config } => {
                Self::SevSnp { report, certificates: certificates.0, mr_config }
            }
        }
    }
}

impl WireEntry {
    fn new(entry: &EventLogEntry) -> Option<Self> {
        if entry.version.is_some_and(|version| version != 1) || entry.preimage.is_some() {
            return None;
        }
        Some(Self {
            imr: entry.imr,
            event_type: entry.event_type,
            digest: hex::decode(&entry.digest).ok()?,
            event: entry.event.clone(),
            event_payload: hex::decode(&entry.event_payload).ok()?,
        })
    }
}

impl From<WireEntry> for EventLogEntry {
    fn from(wire: WireEntry) -> Self {
        Self {
            imr: wire.imr,
            event_type: wire.event_type,
            digest: hex::encode(wire.digest),
            event: wire.event,
            event_payload: hex::encode(wire.event_payload),
            version: None,
            preimage: None,
        }
    }
}
