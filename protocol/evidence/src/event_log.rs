//! The event log: what was measured into which register, in order.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha384};

use crate::app_info::event_name;
use crate::{Measurement, Registers};

/// `event_type` of events that software in the guest measures into RTMR 3.
pub const RUNTIME_EVENT_TYPE: u32 = 0x0800_0001;
/// Register that takes them.
pub(crate) const RTMR_OF_SOFTWARE: u32 = 3;
/// Most events of a log.
pub const MAX_EVENTS: usize = 4096;
/// Longest JSON text of a log, in bytes.
pub const MAX_EVENT_LOG_BYTES: usize = 4 << 20;

/// One entry, as in the JSON form (platform reference, section 4.2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventLogEntry {
    /// Register: 0 to 3 for RTMR 0 to 3.
    pub imr: u32,
    /// TCG event type, or [`RUNTIME_EVENT_TYPE`].
    pub event_type: u32,
    /// SHA-384 that the register was extended by, 96 hex digits; empty where the sender left it out.
    #[serde(default)]
    pub digest: String,
    /// Name of a runtime event; mostly empty for boot events.
    #[serde(default)]
    pub event: String,
    /// What was measured, hex; may be left out of boot events.
    #[serde(default)]
    pub event_payload: String,
    /// 2 for events hashed by the second scheme; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// The bytes that the second scheme hashed, hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preimage: Option<String>,
}

/// A named event that software in the guest measures into RTMR 3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeEvent {
    /// Name, such as `compose-hash`.
    pub name: String,
    /// What it says.
    pub payload: Vec<u8>,
}

impl RuntimeEvent {
    /// An event.
    #[must_use]
    pub fn new(name: impl Into<String>, payload: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), payload: payload.into() }
    }

    /// What RTMR 3 is extended by: SHA-384(type as u32 little-endian ‖ ":" ‖ name ‖ ":" ‖ payload).
    #[must_use]
    pub fn digest(&self) -> Measurement {
        let mut hasher = Sha384::new();
        hasher.update(RUNTIME_EVENT_TYPE.to_le_bytes());
        hasher.update(b":");
        hasher.update(&self.name);
        hasher.update(b":");
        hasher.update(&self.payload);
        Measurement::from_bytes(hasher.finalize().into())
    }

    /// The entry of the log: digest *and* payload, which every known reader understands.
    #[must_use]
    pub fn entry(&self) -> EventLogEntry {
        EventLogEntry {
            imr: 3,
            event_type: RUNTIME_EVENT_TYPE,
            digest: self.digest().to_string(),
            event: self.name.clone(),
            event_payload: hex::encode(&self.payload),
            version: None,
            preimage: None,
        }
    }

    /// The text that the second scheme hashes: the canonical JSON (RFC 8785) of name, payload and type.
    #[must_use]
    pub fn preimage(&self) -> String {
        // Strings are escaped as in canonical JSON, members stand in its order.
        let name = serde_json::Value::from(self.name.as_str());
        let payload = hex::encode(&self.payload);
        format!(r#"{{"name":{name},"payload":"{payload}","type":{RUNTIME_EVENT_TYPE}}}"#)
    }

    /// What RTMR 3 is extended by in the second scheme: SHA-384 of [`preimage`](Self::preimage).
    #[must_use]
    pub fn digest_v2(&self) -> Measurement {
        Measurement::of(self.preimage())
    }
}

/// Why a log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InvalidEventLog {
    /// Not the JSON array it should be.
    #[error("the event log is not a JSON array of events")]
    Json(#[source] serde_json::Error),
    /// More than [`MAX_EVENTS`] or [`MAX_EVENT_LOG_BYTES`].
    #[error("the event log is longer than {MAX_EVENTS} events or {MAX_EVENT_LOG_BYTES} bytes")]
    TooLong,
    /// An entry that cannot be replayed, by its place in the log.
    #[error("event {index} cannot be replayed: {reason}")]
    Entry {
        /// Position in the log, from 0.
        index: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// A parsed log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct EventLog {
    entries: Vec<EventLogEntry>,
}

impl EventLog {
    /// Wraps entries.
    #[must_use]
    pub const fn new(entries: Vec<EventLogEntry>) -> Self {
        Self { entries }
    }

    /// Parses the JSON form.
    pub fn parse(json: &str) -> Result<Self, InvalidEventLog> {
        if json.len() > MAX_EVENT_LOG_BYTES {
            return Err(InvalidEventLog::TooLong);
        }
        let entries: Vec<EventLogEntry> = serde_json::from_str(json).map_err(InvalidEventLog::Json)?;
        if entries.len() > MAX_EVENTS {
            return Err(InvalidEventLog::TooLong);
        }
        Ok(Self { entries })
    }

    /// The entries, oldest first.
    #[must_use]
    pub fn entries(&self) -> &[EventLogEntry] {
        &self.entries
    }

    /// RTMR 0 to 3 as this log builds them. The digest of a runtime event is computed from its name and
    /// payload; one that is given must agree.
    pub fn replay(&self) -> Result<[Measurement; 4], InvalidEventLog> {
        let mut rtmrs = [Measurement::ZERO; 4];
        for (index, entry) in self.entries.iter().enumerate() {
            let invalid = |reason| InvalidEventLog::Entry { index, reason };
            let digest = entry.verified_digest().map_err(invalid)?;
            let rtmr = usize::try_from(entry.imr)
                .ok()
                .and_then(|imr| rtmrs.get_mut(imr))
                .ok_or_else(|| invalid("there are registers 0 to 3 only"))?;
            *rtmr = rtmr.extended_by(&digest);
        }
        Ok(rtmrs)
    }

    /// RTMR 3 as it was when the event `boot-mr-done` had been measured: what a key provider sees of a
    /// machine that boots, and what later evidence of the same machine is compared with. All of the log
    /// counts when it has no such event.
    pub fn rtmr3_at_boot(&self) -> Result<Measurement, InvalidEventLog> {
        let mut rtmr3 = Measurement::ZERO;
        for (index, entry) in
            self.entries.iter().enumerate().filter(|(_, entry)| entry.imr == RTMR_OF_SOFTWARE)
        {
            let digest =
                entry.verified_digest().map_err(|reason| InvalidEventLog::Entry { index, reason })?;
            rtmr3 = rtmr3.extended_by(&digest);
            if entry.event_type == RUNTIME_EVENT_TYPE && entry.event == event_name::BOOT_MR_DONE {
                break;
            }
        }
        Ok(rtmr3)
    }

    /// Whether the log builds RTMR 0 to 3 of `registers`.
    pub fn builds(&self, registers: &Registers) -> Result<[bool; 4], InvalidEventLog> {
        let built = self.replay()?;
        let mut same = [false; 4];
        for ((same, built), actual) in same.iter_mut().zip(&built).zip(registers.rtmrs()) {
            *same = built == actual;
        }
        Ok(same)
    }
}

impl EventLogEntry {
    /// The digest that the register was extended by, or what is wrong with the entry.
    fn verified_digest(&self) -> Result<Measurement, &'static str> {
        if self.event_type != RUNTIME_EVENT_TYPE {
            return self.digest.parse().map_err(|_| "its digest is not 96 hex digits");
        }
        let payload = hex::decode(&self.event_payload).map_err(|_| "its payload is not hex")?;
        let event = RuntimeEvent::new(self.event.as_str(), payload);
        let computed = match self.version {
            None | Some(1) => event.digest(),
            Some(2) => {
                let preimage = self.preimage.as_ref().ok_or("it lacks the text that was hashed")?;
                if hex::decode(preimage).ok().as_deref() != Some(event.preimage().as_bytes()) {
                    return Err("the text that was hashed is not that of its name and payload");
                }
                event.digest_v2()
            }
            Some(_) => return Err("its hashing scheme is unknown"),
        };
        if !self.digest.is_empty() && self.digest.parse() != Ok(computed) {
            return Err("its digest is not that of its name and payload");
        }
        Ok(computed)
    }
}
