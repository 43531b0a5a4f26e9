//! Evidence of confidential machines: layouts, parsing and replay, without I/O and without judgement.
//!
//! Nothing here decides whether evidence is to be believed; that is the verifier's task. Everything here
//! takes hostile bytes: parsers refuse, they never panic.

mod document;
mod event_log;
mod launch;
mod measurement;
pub mod report_data;

pub use document::AttestationDocument;
pub use event_log::{
    EventLog, EventLogEntry, InvalidEventLog, MAX_EVENT_LOG_BYTES, MAX_EVENTS, RUNTIME_EVENT_TYPE,
    RuntimeEvent,
};
pub use launch::{ImageMeasurement, LaunchMeasurement, LaunchRegisters, VmConfig, VmConfigError};
pub use measurement::{InvalidMeasurement, Measurement, Registers};
