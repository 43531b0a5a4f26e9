//! The SCALE encoding, type by type.
#![expect(clippy::cast_possible_truncation, reason = "the derive macro casts the indices of variants")]

use parity_scale_codec::{Compact, Decode, Encode, Error, Input};

use super::{InvalidAttestation, PlatformEvidence};
use crate::{EventLogEntry, MAX_EVENTS};

/// Most certificates that accompany an SNP report.
const MAX_CERTIFICATES: usize = 16;

#[derive(Encode, Decode)]
pub(super) struct WireAttestation {
    pub(super) evidence: WireEvidence,
    pub(super) runtime_events: Bounded<WireRuntimeEvent, MAX_EVENTS>,
    pub(super) report_data: [u8; 64],
    pub(super) config: String,
}

#[derive(Encode, Decode)]
pub(super) enum WireEvidence {
    #[codec(index = 0)]
    Tdx { quote: Vec<u8>, event_log: Bounded<WireEntry, MAX_EVENTS> },
    #[codec(index = 2)]
    NitroEnclave { document: Vec<u8> },
    #[codec(index = 3)]
    SevSnp { report: Vec<u8>, certificates: Bounded<Vec<u8>, MAX_CERTIFICATES>, mr_config: String },
}

#[derive(Encode, Decode)]
pub(super) struct WireEntry {
    imr: u32,
    event_type: u32,
    digest: Vec<u8>,
    event: String,
    event_payload: Vec<u8>,
}

#[derive(Encode, Decode)]
pub(super) struct WireRuntimeEvent {
    pub(super) event: String,
    pub(super) payload: Vec<u8>,
}

/// A list of at most `N` elements. Its length is checked before anything is kept, since an element can
/// need much more memory than input.
pub(super) struct Bounded<T, const N: usize>(pub(super) Vec<T>);

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
    pub(super) fn new(evidence: &PlatformEvidence) -> Result<Self, InvalidAttestation> {
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
    pub(super) fn new(entry: &EventLogEntry) -> Option<Self> {
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
