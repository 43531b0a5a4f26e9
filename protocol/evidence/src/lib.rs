//! Evidence of confidential machines: layouts, parsing and replay, without I/O and without judgement.
//!
//! Nothing here decides whether evidence is to be believed; that is the verifier's task. Everything here
//! takes hostile bytes: parsers refuse, they never panic.

mod aggregates;
mod app_info;
mod boot_log;
mod document;
mod event_log;
mod launch;
mod measurement;
mod mr_config_id;
mod nitro;
pub mod quote;
mod reader;
pub mod report_data;
mod snp;
mod versioned_attestation;

pub use aggregates::{Aggregates, LaunchIdentity, device_id};
pub use app_info::{AppInfo, InvalidAppInfo, KeyProvider, event_name};
pub use boot_log::{BootEvent, BootLog, InvalidBootLog, MAX_BOOT_LOG_BYTES};
pub use document::AttestationDocument;
pub use event_log::{
    EventLog, EventLogEntry, InvalidEventLog, MAX_EVENT_LOG_BYTES, MAX_EVENTS, RUNTIME_EVENT_TYPE,
    RuntimeEvent,
};
pub use launch::{ImageMeasurement, LaunchMeasurement, LaunchRegisters, VmConfig, VmConfigError};
pub use measurement::{InvalidMeasurement, Measurement, Registers};
pub use mr_config_id::{
    ExpectedConfig, KeyProviderKind, MrConfig, MrConfigIdError, check_mr_config_id, mr_config_id_v1,
    mr_config_id_v2, mr_config_id_v3, mr_config_v3_hash,
};
pub use nitro::{InvalidNitroDocument, MAX_NITRO_DOCUMENT_BYTES, NitroDocument, NitroKind};
pub use quote::{InvalidQuote, Quote};
pub use snp::{InvalidSnpReport, SNP_REPORT_BYTES, SnpCpu, SnpReport, SnpTcb};
pub use versioned_attestation::{
    InvalidAttestation, MAX_ATTESTATION_BYTES, PlatformEvidence, VersionedAttestation,
};
