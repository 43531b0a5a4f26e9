//! The boot log in the TCG's crypto-agile binary form, as firmware leaves it in the ACPI table CCEL: one
//! header event that names the digest algorithms, then `TCG_PCR_EVENT2` records (TCG PC Client Platform
//! Firmware Profile, section 10; Intel's Guest-Hypervisor Communication Interface numbers the registers).

use crate::reader::{Reader, Truncated};
use crate::{EventLog, EventLogEntry, MAX_EVENTS, Measurement, RUNTIME_EVENT_TYPE};

/// Longest log, in bytes. Firmware reserves 64 KiB.
pub const MAX_BOOT_LOG_BYTES: usize = 1 << 20;

const SIGNATURE: &[u8; 16] = b"Spec ID Event03\0";
/// Events that carry information and extend nothing.
const NO_ACTION: u32 = 3;
const TPM_ALG_SHA384: u16 = 0x000C;
const SHA384_BYTES: u16 = 48;
const NOT_BEFORE_BOOT: &str = "is of the type of runtime events, which only booted software measures";
/// Most digest algorithms that a header may name.
const MAX_ALGORITHMS: u32 = 8;

/// Why bytes are not a boot log, or entries cannot be written as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBootLog {
    /// More than [`MAX_BOOT_LOG_BYTES`] or [`MAX_EVENTS`].
    #[error("the boot log is longer than {MAX_BOOT_LOG_BYTES} bytes or {MAX_EVENTS} events")]
    TooLong,
    /// It ends in the middle, or a length in it points beyond its end.
    #[error("the boot log is cut off, or a length in it points beyond its end")]
    Truncated,
    /// The first event is not the header of a crypto-agile log.
    #[error("the boot log does not begin with the header of a crypto-agile log")]
    Header,
    /// The header does not name SHA-384 with 48 bytes.
    #[error("the boot log has no SHA-384 digests")]
    Algorithms,
    /// An event that cannot be read or written, by its place after the header.
    #[error("event {index} of the boot log {reason}")]
    Event {
        /// Position in the log, from 0.
        index: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl From<Truncated> for InvalidBootLog {
    fn from(_: Truncated) -> Self {
        Self::Truncated
    }
}

/// One measured event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BootEvent<'a> {
    /// 0 to 3 for RTMR 0 to 3: the record's number less one, whose 0 is MRTD.
    pub imr: u32,
    /// TCG event type.
    pub event_type: u32,
    /// What the register was extended by.
    pub digest: Measurement,
    /// What the firmware says about it; mostly not what was hashed.
    pub data: &'a [u8],
}

/// A parsed log, which borrows from its bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BootLog<'a> {
    events: Vec<BootEvent<'a>>,
}

impl<'a> BootLog<'a> {
    /// Parses a log. The unused end of the area that firmware reserved (all ones, or all zeros) ends it.
    /// Events that extend no run-time register (type `EV_NO_ACTION`, or register MRTD) are left out.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, InvalidBootLog> {
        if bytes.len() > MAX_BOOT_LOG_BYTES {
            return Err(InvalidBootLog::TooLong);
        }
        let mut reader = Reader::new(bytes);
        let algorithms = read_header(&mut reader)?;
        let mut events = Vec::new();
        let mut index = 0;
        while !is_unused(reader.rest()) {
            if index == MAX_EVENTS {
                return Err(InvalidBootLog::TooLong);
            }
            let (register, event) = read_event(&mut reader, &algorithms).map_err(|fault| {
                fault.map_or(InvalidBootLog::Truncated, |reason| InvalidBootLog::Event { index, reason })
            })?;
            match register {
                _ if event.event_type == NO_ACTION => {}
                _ if event.event_type == RUNTIME_EVENT_TYPE => {
                    return Err(InvalidBootLog::Event { index, reason: NOT_BEFORE_BOOT });
                }
                0 => {}
                1..=4 => events.push(event),
                _ => return Err(InvalidBootLog::Event { index, reason: "is for a register beyond RTMR 3" }),
            }
            index += 1;
        }
        Ok(Self { events })
    }

    /// The events, oldest first.
    #[must_use]
    pub fn events(&self) -> &[BootEvent<'a>] {
        &self.events
    }

    /// The events as entries of an event log.
    #[must_use]
    pub fn to_event_log(&self) -> EventLog {
        EventLog::new(self.events.iter().map(BootEvent::entry).collect())
    }

    /// Writes entries of an event log as a boot log. Every entry needs its digest; names are not kept.
    pub fn encode(entries: &[EventLogEntry]) -> Result<Vec<u8>, InvalidBootLog> {
        if entries.len() > MAX_EVENTS {
            return Err(InvalidBootLog::TooLong);
        }
        let mut log = header();
        for (index, entry) in entries.iter().enumerate() {
            let invalid = |reason| InvalidBootLog::Event { index, reason };
            let digest: Measurement = entry.digest.parse().map_err(|_| invalid("has no SHA-384 digest"))?;
            let data =
                hex::decode(&entry.event_payload).map_err(|_| invalid("has a payload that is not hex"))?;
            let length = u32::try_from(data.len()).map_err(|_| InvalidBootLog::TooLong)?;
            if entry.imr > 3 {
                return Err(invalid("is for a register beyond RTMR 3"));
            }
            if entry.event_type == NO_ACTION {
                return Err(invalid("is of a type that extends nothing"));
            }
            if entry.event_type == RUNTIME_EVENT_TYPE {
                return Err(invalid(NOT_BEFORE_BOOT));
            }
            log.extend_from_slice(&(entry.imr + 1).to_le_bytes());
            log.extend_from_slice(&entry.event_type.to_le_bytes());
            log.extend_from_slice(&1_u32.to_le_bytes());
            log.extend_from_slice(&TPM_ALG_SHA384.to_le_bytes());
            log.extend_from_slice(digest.as_bytes());
            log.extend_from_slice(&length.to_le_bytes());
            log.extend_from_slice(&data);
            if log.len() > MAX_BOOT_LOG_BYTES {
                return Err(InvalidBootLog::TooLong);
            }
        }
        Ok(log)
    }
}

impl BootEvent<'_> {
    /// As an entry of an event log.
    #[must_use]
    pub fn entry(&self) -> EventLogEntry {
        EventLogEntry {
            imr: self.imr,
            event_type: self.event_type,
            digest: self.digest.to_string(),
            event: String::new(),
            event_payload: hex::encode(self.data),
            version: None,
            preimage: None,
        }
    }
}

/// The header of a log with SHA-384 digests only.
fn header() -> Vec<u8> {
    let mut specification = SIGNATURE.to_vec();
    specification.extend_from_slice(&0_u32.to_le_bytes()); // platform class: client
    specification.extend_from_slice(&[0, 2, 105, 2]); // version 2.00, errata 105, 64-bit
    specification.extend_from_slice(&1_u32.to_le_bytes());
    specification.extend_from_slice(&TPM_ALG_SHA384.to_le_bytes());
    specification.extend_from_slice(&SHA384_BYTES.to_le_bytes());
    specification.push(0); // vendor information: none
    let mut header = 1_u32.to_le_bytes().to_vec();
    header.extend_from_slice(&NO_ACTION.to_le_bytes());
    header.extend_from_slice(&[0; 20]);
    header.extend_from_slice(&u32::try_from(specification.len()).unwrap_or_default().to_le_bytes());
    header.extend(specification);
    header
}

/// Reads the header event, gives the algorithms and the lengths of their digests.
fn read_header(reader: &mut Reader<'_>) -> Result<Vec<(u16, u16)>, InvalidBootLog> {
    reader.u32()?;
    let event_type = reader.u32()?;
    reader.array::<20>()?;
    let length = reader.u32()?;
    let mut specification = Reader::new(reader.bytes_u32(length)?);
    if event_type != NO_ACTION || specification.array()? != SIGNATURE {
        return Err(InvalidBootLog::Header);
    }
    specification.array::<8>()?;
    let count = specification.u32()?;
    if count > MAX_ALGORITHMS {
        return Err(InvalidBootLog::Algorithms);
    }
    let mut algorithms: Vec<(u16, u16)> = Vec::new();
    for _ in 0..count {
        let (algorithm, length) = (specification.u16()?, specification.u16()?);
        if algorithms.iter().any(|(known, _)| *known == algorithm) {
            return Err(InvalidBootLog::Algorithms);
        }
        algorithms.push((algorithm, length));
    }
    let vendor_information = specification.u8()?;
    specification.bytes(vendor_information.into())?;
    if !specification.rest().is_empty() {
        return Err(InvalidBootLog::Header);
    }
    if !algorithms.contains(&(TPM_ALG_SHA384, SHA384_BYTES)) {
        return Err(InvalidBootLog::Algorithms);
    }
    Ok(algorithms)
}

/// Reads one record; gives the number of its register, where 0 is MRTD. Without a reason in the error it
/// is cut off.
fn read_event<'a>(
    reader: &mut Reader<'a>,
    algorithms: &[(u16, u16)],
) -> Result<(u32, BootEvent<'a>), Option<&'static str>> {
    let cut_off = |_: Truncated| None;
    let register = reader.u32().map_err(cut_off)?;
    let event_type = reader.u32().map_err(cut_off)?;
    let count = reader.u32().map_err(cut_off)?;
    if count > MAX_ALGORITHMS {
        return Err(Some("has too many digests"));
    }
    let mut digest = None;
    for _ in 0..count {
        let algorithm = reader.u16().map_err(cut_off)?;
        let Some((_, length)) = algorithms.iter().find(|(known, _)| *known == algorithm) else {
            return Err(Some("has a digest that the header does not name"));
        };
        let bytes = reader.bytes((*length).into()).map_err(cut_off)?;
        if let (TPM_ALG_SHA384, Ok(bytes)) = (algorithm, bytes.try_into())
            && digest.replace(Measurement::from_bytes(bytes)).is_some()
        {
            return Err(Some("has two SHA-384 digests"));
        }
    }
    let length = reader.u32().map_err(cut_off)?;
    let data = reader.bytes_u32(length).map_err(cut_off)?;
    let digest = digest.ok_or(Some("has no SHA-384 digest"))?;
    Ok((register, BootEvent { imr: register.saturating_sub(1), event_type, digest, data }))
}

fn is_unused(rest: &[u8]) -> bool {
    rest.iter().all(|byte| *byte == 0xff) || rest.iter().all(|byte| *byte == 0)
}
