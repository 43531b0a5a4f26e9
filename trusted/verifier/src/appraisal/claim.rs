//! What an appraisal says: one claim after the other, each with its evidence.

use std::fmt;

use cloister_app_compose::{AppId, ComposeHash, InstanceId, OsImageHash};
use jiff::Timestamp;
use serde::Serialize;

/// What a claim is about. The names are part of the interface of programs, the order is that of the walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimId {
    /// Whom the connection ended at: the key of its certificate is bound to evidence of the same CVM.
    Certificate,
    /// The evidence was made for this occasion: it covers the nonce.
    Freshness,
    /// The evidence is signed under a trust root, which is named.
    Signature,
    /// The platform's firmware and microcode are as its vendor wants them.
    Tcb,
    /// Nobody can debug the machine.
    Debug,
    /// The machine booted what its description says.
    Boot,
    /// The event log builds the registers.
    EventLog,
    /// The named events of the platform occur once and in order.
    EventNames,
    /// The compose document is the measured one, and the expected one.
    Compose,
    /// The application is the expected one.
    AppId,
    /// The CVM is the expected one.
    InstanceId,
    /// The guest image is the expected one.
    OsImage,
    /// Where the application's keys come from.
    KeyProvider,
    /// What the application itself measured.
    ApplicationEvents,
}

impl ClaimId {
    /// Every claim, in the order of the walk.
    pub const ALL: [Self; 14] = [
        Self::Certificate,
        Self::Freshness,
        Self::Signature,
        Self::Tcb,
        Self::Debug,
        Self::Boot,
        Self::EventLog,
        Self::EventNames,
        Self::Compose,
        Self::AppId,
        Self::InstanceId,
        Self::OsImage,
        Self::KeyProvider,
        Self::ApplicationEvents,
    ];

    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::Freshness => "freshness",
            Self::Signature => "signature",
            Self::Tcb => "tcb",
            Self::Debug => "debug",
            Self::Boot => "boot",
            Self::EventLog => "event-log",
            Self::EventNames => "event-names",
            Self::Compose => "compose",
            Self::AppId => "app-id",
            Self::InstanceId => "instance-id",
            Self::OsImage => "os-image",
            Self::KeyProvider => "key-provider",
            Self::ApplicationEvents => "application-events",
        }
    }
}

/// What came of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is true.
    Holds,
    /// It is false.
    Fails,
    /// Nothing was compared: there was no expectation, or what it rests on does not hold.
    NotChecked,
}

/// One value that a claim rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// What the value is.
    pub name: String,
    /// The value as text; it may come from the machine that is judged.
    pub value: String,
}

/// One step of the walk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Claim {
    /// What it is about.
    pub id: ClaimId,
    /// What came of it.
    pub outcome: Outcome,
    /// Whether evidence is refused unless this holds; one that is not required must only not fail.
    pub required: bool,
    /// The finding in plain words, one or two sentences.
    pub sentence: String,
    /// The values that were compared or found.
    pub evidence: Vec<Fact>,
}

impl Claim {
    fn new(id: ClaimId, outcome: Outcome, sentence: impl Into<String>) -> Self {
        Self { id, outcome, required: false, sentence: sentence.into(), evidence: Vec::new() }
    }

    pub(super) fn holds(id: ClaimId, sentence: impl Into<String>) -> Self {
        Self::new(id, Outcome::Holds, sentence)
    }

    pub(super) fn fails(id: ClaimId, sentence: impl Into<String>) -> Self {
        Self::new(id, Outcome::Fails, sentence)
    }

    pub(super) fn not_checked(id: ClaimId, sentence: impl Into<String>) -> Self {
        Self::new(id, Outcome::NotChecked, sentence)
    }

    pub(super) const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    pub(super) fn fact(mut self, name: impl Into<String>, value: impl fmt::Display) -> Self {
        self.evidence.push(Fact { name: name.into(), value: value.to_string() });
        self
    }

    pub(super) fn maybe(self, name: impl Into<String>, value: Option<impl fmt::Display>) -> Self {
        match value {
            Some(value) => self.fact(name, value),
            None => self,
        }
    }
}

/// Who the evidence speaks of; only verified evidence has one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Subject {
    /// Application; absent on platforms whose image is the application.
    pub app_id: Option<AppId>,
    /// Its compose document; likewise.
    pub compose_hash: Option<ComposeHash>,
    /// CVM, when it has an identity of its own.
    pub instance_id: Option<InstanceId>,
    /// Guest image, when the evidence names it.
    pub os_image_hash: Option<OsImageHash>,
    /// SHA-256 of the platform's identity, hex; absent on platforms without one.
    pub device_id: Option<String>,
}

/// The result of a walk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Appraisal {
    /// Whether no claim fails and every required one holds.
    pub verified: bool,
    /// Whether the evidence comes from hardware. Without it, whoever runs the machine can forge everything.
    pub hardware: bool,
    /// The time at which certificates and collateral were judged.
    pub judged_at: Timestamp,
    /// Who the evidence speaks of, if it is verified.
    pub subject: Option<Subject>,
    /// The claims in the order of [`ClaimId`], each once.
    pub claims: Vec<Claim>,
}

impl Appraisal {
    pub(super) fn new(
        mut claims: Vec<Claim>,
        hardware: bool,
        judged_at: Timestamp,
        subject: Option<Subject>,
    ) -> Self {
        claims.sort_by_key(|claim| claim.id);
        let verified = claims.iter().all(|claim| match claim.outcome {
            Outcome::Holds => true,
            Outcome::Fails => false,
            Outcome::NotChecked => !claim.required,
        });
        let subject = subject.filter(|_| verified);
        Self { verified, hardware, judged_at, subject, claims }
    }

    /// The claim about `id`.
    #[must_use]
    pub fn claim(&self, id: ClaimId) -> Option<&Claim> {
        self.claims.iter().find(|claim| claim.id == id)
    }
}
