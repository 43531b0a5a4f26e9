use std::fmt;

use cloister_app_compose::{AppId, ComposeHash};
use cloister_evidence::{InvalidAppInfo, InvalidEventLog, MrConfigIdError};
use cloister_verifier::{PolicyViolations, VerifyError};

use crate::InvalidCertificate;

/// Why a peer was not believed or not let in.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// It came without a certificate.
    #[error("the peer showed no certificate")]
    NoCertificate,
    /// Its certificate, or the evidence in it, cannot be read.
    #[error(transparent)]
    Certificate(#[from] InvalidCertificate),
    /// Its certificate does not hold: dates, signature, purpose, issuer.
    #[error("the peer's certificate does not hold: {0}")]
    Chain(webpki::Error),
    /// Its evidence does not verify.
    #[error("the peer's evidence does not verify")]
    Evidence(#[from] VerifyError),
    /// The evidence was made over another key than the certificate's.
    #[error("the evidence belongs to another key than the certificate's")]
    OtherKey,
    /// Evidence of something that runs no application.
    #[error("the evidence is not that of a confidential virtual machine")]
    NotAMachine,
    /// Its event log cannot be replayed.
    #[error("the peer's event log cannot be used")]
    EventLog(#[from] InvalidEventLog),
    /// Its event log is not what was measured.
    #[error("the peer's event log does not lead to {0}: events were changed, reordered, added or left out")]
    Replay(&'static str),
    /// Its named events are ambiguous or malformed.
    #[error("the peer's events cannot be believed")]
    Events(#[from] InvalidAppInfo),
    /// The machine was launched for something else than was measured in it.
    #[error("the peer was launched for another application than it runs")]
    Launch(#[source] MrConfigIdError),
    /// The platform is not good enough.
    #[error("the peer's platform is not accepted: {0}")]
    Platform(PolicyViolations),
    /// It is another application.
    #[error("the peer is {}, which is not let in", named("application", .0.as_ref()))]
    App(Option<AppId>),
    /// It runs another compose document.
    #[error("the peer runs {}, which is not let in", named("compose document", .0.as_ref()))]
    Compose(Option<ComposeHash>),
    /// It does not meet a demand of the caller's own.
    #[error("the peer is not let in: {0}")]
    Demand(String),
    /// The verification was not done in time: collateral cannot be had, or too many wait.
    #[error("the verification of the peer took too long, such as for collateral that cannot be had")]
    TooSlow,
    /// The verification was given up.
    #[error("the verification of the peer was interrupted")]
    Interrupted,
}

fn named(kind: &str, name: Option<&impl fmt::Display>) -> String {
    name.map_or_else(|| format!("no {kind}"), |name| format!("{kind} {name}"))
}

impl PeerError {
    /// Whether the peer may be good and trying again later may help.
    #[must_use]
    pub const fn is_temporary(&self) -> bool {
        match self {
            Self::Evidence(error) => error.is_temporary(),
            Self::TooSlow | Self::Interrupted => true,
            _ => false,
        }
    }
}
