//! What an appraisal is made of: evidence, and what is expected of it.

use std::collections::BTreeSet;

use cloister_app_compose::{AppId, ComposeHash, InstanceId, OsImageHash};
use cloister_evidence::report_data::ReportData;
use cloister_evidence::{AttestationDocument, Measurement};
use jiff::Timestamp;

use crate::TcbStatus;

/// What was received. All of it may be hostile.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// What the guest agent, or whoever poses as one, answered.
    pub document: AttestationDocument,
    /// How it was received.
    pub connection: Connection,
}

/// Where the connection that brought the evidence ended.
#[derive(Debug, Clone, Default)]
pub enum Connection {
    /// There was none: the evidence comes from files.
    #[default]
    None,
    /// TLS ended, in front of our eyes, at the holder of this certificate's key.
    Attested(AttestedCertificate),
    /// As before, but in front of the eyes of whoever recorded the evidence.
    Recorded(AttestedCertificate),
    /// TLS should have ended inside the CVM, but the certificate was not one with evidence, for the reason
    /// given.
    Unattested(String),
    /// TLS, if any, ended at a certificate without evidence, such as that of the operator's ingress.
    Terminated,
    /// Whom it ended at is for what the evidence binds to say, such as a gateway's keys, and for who compares them.
    JudgedElsewhere,
}

/// The evidence that a TLS certificate carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttestedCertificate {
    /// The certificate's `SubjectPublicKeyInfo`, DER.
    pub public_key_info: Vec<u8>,
    /// TDX quote.
    pub quote: Vec<u8>,
    /// JSON text of its event log.
    pub event_log: String,
    /// First second of the certificate's validity.
    pub not_before: Timestamp,
    /// Last second of it.
    pub not_after: Timestamp,
}

/// Which compose document is expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedCompose {
    /// The one with this hash.
    Hash(ComposeHash),
    /// This app-compose document, byte for byte.
    Document(Vec<u8>),
    /// One with exactly this compose file in it; its other members are not compared.
    ComposeFile(String),
}

/// What the evidence must have been made over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nonce {
    /// Bytes that whoever judges the evidence chose at random, padded.
    Own(ReportData),
    /// Bytes that whoever recorded the evidence says to have chosen.
    Recorded(ReportData),
}

/// Values of registers that somebody computed or looked up; absent ones are not compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedRegisters {
    /// Firmware.
    #[serde(default)]
    pub mrtd: Option<Measurement>,
    /// Configuration of the virtual machine.
    #[serde(default)]
    pub rtmr0: Option<Measurement>,
    /// Kernel.
    #[serde(default)]
    pub rtmr1: Option<Measurement>,
    /// Command line and initial RAM disk.
    #[serde(default)]
    pub rtmr2: Option<Measurement>,
}

/// How far the machine must have come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Stage {
    /// Its application was started or is about to be: everything of the platform is measured.
    #[default]
    Ready,
    /// It is still starting, and asks for keys: it must not be ready yet.
    Booting,
}

/// What is expected. Where nothing is, the finding is shown and not compared.
#[derive(Debug, Clone)]
pub struct Expectations {
    /// Application.
    pub app_id: Option<AppId>,
    /// Its compose document.
    pub compose: Option<ExpectedCompose>,
    /// Guest image.
    pub os_image_hash: Option<OsImageHash>,
    /// CVM.
    pub instance_id: Option<InstanceId>,
    /// Who gave the keys: `SubjectPublicKeyInfo` of the root of a KMS, DER.
    pub key_provider_id: Option<Vec<u8>>,
    /// What the evidence was made over.
    pub nonce: Option<Nonce>,
    /// Registers of the boot.
    pub registers: ExpectedRegisters,
    /// Acceptable states of the platform.
    pub accepted_tcb: BTreeSet<TcbStatus>,
    /// Security advisories that the platform must not be subject to.
    pub denied_advisories: BTreeSet<String>,
    /// Refuses evidence that no hardware stands behind.
    pub production: bool,
    /// How far the machine must have come.
    pub stage: Stage,
}

impl Default for Expectations {
    fn default() -> Self {
        Self {
            app_id: None,
            compose: None,
            os_image_hash: None,
            instance_id: None,
            key_provider_id: None,
            nonce: None,
            registers: ExpectedRegisters::default(),
            accepted_tcb: BTreeSet::from([TcbStatus::UpToDate]),
            denied_advisories: BTreeSet::new(),
            production: false,
            stage: Stage::default(),
        }
    }
}
