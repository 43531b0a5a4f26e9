//! The event log: whether it builds the registers, and what the platform's events in it say.

use cloister_evidence::{EventLog, EventLogEntry, RUNTIME_EVENT_TYPE, Registers};

use super::claim::{Claim, ClaimId};
use super::input::Stage;
use super::quote::{ProvenQuote, chain};

/// Register of events that software in the guest measures.
const RUNTIME_REGISTER: u32 = 3;
const SYSTEM_READY: &str = "system-ready";
/// The platform's events in their order (platform reference, section 4.4), with whether each may be
/// repeated.
const PLATFORM_EVENTS: [(&str, bool); 13] = [
    ("system-preparing", false),
    ("app-id", false),
    ("compose-hash", false),
    ("init-script-hash", true),
    ("gpu-policy-hash", false),
    ("gpu-attestation", false),
    ("instance-id", false),
    ("boot-mr-done", false),
    ("mr-kms", false),
    ("os-image-hash", false),
    ("key-provider", false),
    ("storage-fs", false),
    (SYSTEM_READY, false),
];

/// A log that builds the registers of a valid quote.
#[derive(Debug)]
pub(super) struct ProvenLog(EventLog);

/// The runtime events of such a log, split where the platform's own end.
#[derive(Debug)]
pub(super) struct ProvenEvents {
    platform: Vec<Event>,
    application: Vec<Event>,
}

/// Name and payload.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Event {
    name: String,
    payload: Vec<u8>,
}

impl ProvenEvents {
    /// What the platform measured under this name.
    pub(super) fn platform(&self, name: &str) -> Option<&[u8]> {
        self.platform.iter().find(|event| event.name == name).map(|event| event.payload.as_slice())
    }

    /// Name and payload of what the application measured.
    pub(super) fn application(&self) -> impl ExactSizeIterator<Item = (&str, &[u8])> {
        self.application.iter().map(|event| (event.name.as_str(), event.payload.as_slice()))
    }

    /// Whether one log goes on where the other ends: they are of one boot.
    pub(super) fn continues(&self, other: &Self) -> bool {
        let mut pairs = self.all().zip(other.all());
        pairs.all(|(one, other)| one == other)
    }

    fn all(&self) -> impl Iterator<Item = &Event> {
        self.platform.iter().chain(&self.application)
    }
}

/// Judges whether the log builds the registers of the quote.
pub(super) fn replay(quote: Option<&ProvenQuote<'_>>, json: &str) -> (Claim, Option<ProvenLog>) {
    let id = ClaimId::EventLog;
    let (claim, log) = match quote {
        None => (Claim::not_checked(id, "There are no registers to compare the log with."), None),
        Some(quote) => match build(&quote.registers, json) {
            Ok(log) => {
                let count = log.0.entries().len();
                let sentence = format!("The event log, {count} events, builds RTMR0 to RTMR3 of the quote.");
                (Claim::holds(id, sentence).fact("RTMR3", quote.registers.rtmr3), Some(log))
            }
            Err(claim) => (*claim, None),
        },
    };
    (claim.required(), log)
}

/// The log, when it builds the registers.
pub(super) fn build(registers: &Registers, json: &str) -> Result<ProvenLog, Box<Claim>> {
    let fails = |sentence: String| Box::new(Claim::fails(ClaimId::EventLog, sentence));
    let unusable = |error| fails(format!("The event log proves nothing: {}.", chain(&error)));
    let log = EventLog::parse(json).map_err(unusable)?;
    let built = log.replay().map_err(unusable)?;
    let different: Vec<_> = (0..)
        .zip(built.iter().zip(registers.rtmrs()))
        .filter(|(_, (built, actual))| built != actual)
        .collect();
    if different.is_empty() {
        return Ok(ProvenLog(log));
    }
    let names: Vec<_> = different.iter().map(|(index, _): &(u32, _)| format!("RTMR{index}")).collect();
    let claim = fails(format!(
        "The event log is not that of this machine: it does not build {} of the quote.",
        names.join(" and ")
    ));
    Err(different.into_iter().fold(claim, |claim, (index, (built, actual))| {
        let claim = claim.fact(format!("RTMR{index} of the log"), built);
        Box::new(claim.fact(format!("RTMR{index} of the quote"), actual))
    }))
}

/// Judges the names of the runtime events.
pub(super) fn names(log: Option<&ProvenLog>, stage: Stage) -> (Claim, Option<ProvenEvents>) {
    let id = ClaimId::EventNames;
    let Some(log) = log else {
        let sentence = "The events are not known to be those of the machine.";
        return (Claim::not_checked(id, sentence).required(), None);
    };
    match split(log, Some(stage)) {
        Ok(events) => {
            let names: Vec<_> = events.platform.iter().map(|event| event.name.as_str()).collect();
            let sentence = "Each event of the platform occurs once, and they are in order.";
            let claim = Claim::holds(id, sentence).fact("events", names.join(", "));
            (claim.required(), Some(events))
        }
        Err(reason) => (Claim::fails(id, reason).required(), None),
    }
}

/// The events, when their names can be relied on; `stage` is how far the machine must have come.
pub(super) fn split(log: &ProvenLog, stage: Option<Stage>) -> Result<ProvenEvents, String> {
    let mut events = ProvenEvents { platform: Vec::new(), application: Vec::new() };
    let mut ready = false;
    let mut reached = 0;
    for entry in log.0.entries().iter().filter(|entry| entry.imr == RUNTIME_REGISTER) {
        let event = runtime_event(entry)?;
        if !ready && event.name.contains(':') {
            // The digest joins name and payload by a colon: this could be any event, cut elsewhere.
            return Err(
                "An event of the platform has a colon in its name, so its meaning is ambiguous.".to_owned()
            );
        }
        let place = PLATFORM_EVENTS.iter().position(|(name, _)| *name == event.name);
        if let Some((place, (name, repeatable))) = place.zip(place.and_then(|at| PLATFORM_EVENTS.get(at))) {
            if ready {
                return Err(format!("The application measured an event by the platform's name {name}."));
            }
            let seen = events.platform.iter().any(|earlier| earlier.name == *name);
            if seen && !repeatable {
                return Err(format!("The event {name} occurs twice, so neither can be relied on."));
            }
            if place < reached {
                return Err(format!("The event {name} occurs later than the platform measures it."));
            }
            reached = place;
            ready = *name == SYSTEM_READY;
            if ready && !event.payload.is_empty() {
                return Err(format!(
                    "The event {SYSTEM_READY} says something, which the platform's does not."
                ));
            }
            events.platform.push(event);
        } else if ready {
            events.application.push(event);
        } else {
            // Nothing is looked up by an unknown name.
            events.platform.push(event);
        }
    }
    match (stage, ready) {
        (Some(Stage::Ready), false) => Err(format!(
            "The event {SYSTEM_READY} is missing: the machine has not finished to start, and what its \
             application measures cannot be told from what the platform does."
        )),
        (Some(Stage::Booting), true) => {
            Err(format!("The event {SYSTEM_READY} occurs in a machine that starts."))
        }
        _ => Ok(events),
    }
}

/// Only the digest of a runtime event covers its name. Any other kind of entry in this register could hide
/// one, such as the mark after which names are the application's.
fn runtime_event(entry: &EventLogEntry) -> Result<Event, String> {
    if entry.event_type != RUNTIME_EVENT_TYPE {
        return Err("RTMR3 holds an event whose name nothing proves.".to_owned());
    }
    let payload = hex::decode(&entry.event_payload).map_err(|_| "The payload of an event is not hex.")?;
    Ok(Event { name: entry.event.clone(), payload })
}

/// A payload as text where it is printable ASCII, as hex otherwise.
pub(super) fn readable(payload: &[u8]) -> String {
    match std::str::from_utf8(payload) {
        Ok(text) if text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') => text.to_owned(),
        _ => hex::encode(payload),
    }
}
