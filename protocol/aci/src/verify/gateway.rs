//! The checks of somebody who wants to send a gateway something, in their order.

use std::fmt;

use super::{Finding, is, open, subject};
use crate::Keyset;

/// What is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// The keyset holds now.
    Keyset,
    /// It is that of the application which the evidence measured.
    Subject,
    /// The connection ended at a TLS key of it.
    Tls,
}

impl Check {
    /// Every check, in order.
    pub const ALL: [Self; 3] = [Self::Keyset, Self::Subject, Self::Tls];

    /// Its name in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Keyset => "keyset",
            Self::Subject => "subject",
            Self::Tls => "tls",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// What somebody knows who has reached a gateway.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// The keyset that was established from a verified report.
    pub keyset: &'a Keyset,
    /// The application that the evidence measured, `app-id:0x…`.
    pub subject: Option<&'a str>,
    /// The host that was named.
    pub host: &'a str,
    /// SHA-256 of the key (`SubjectPublicKeyInfo`, DER) that TLS ended at; `None` without TLS.
    pub tls_key: Option<[u8; 32]>,
    /// When, in seconds since the Unix epoch.
    pub at: u64,
}

/// Walks the checks.
#[must_use]
pub fn gateway(known: &Known<'_>) -> Vec<(Check, Finding)> {
    let at = |check| match check {
        Check::Keyset => is(known.at < known.keyset.not_after, "the keyset has ended"),
        Check::Subject => subject(known.keyset.subject.as_deref(), known.subject),
        Check::Tls => tls(known),
    };
    Check::ALL.into_iter().map(|check| (check, at(check))).collect()
}

/// Whether nothing speaks against it, and TLS ends at it: else who ends TLS sees what is sent. Where that `may_be_open`, such as
/// for who encrypts fields, it only may not end at somebody else's key.
#[must_use]
pub fn holds(findings: &[(Check, Finding)], may_be_open: bool) -> bool {
    findings.iter().all(|(check, finding)| match finding {
        Finding::Holds => true,
        Finding::Fails(_) => false,
        Finding::Open(_) => *check != Check::Tls || may_be_open,
    })
}

fn tls(known: &Known<'_>) -> Finding {
    let Some(key) = known.tls_key.map(hex::encode) else {
        return open("there is no TLS: whoever is on the way sees what is said");
    };
    if known.keyset.tls_public_keys.is_empty() {
        return open("the gateway has no TLS key: whoever ends TLS before it sees what is said");
    }
    let is_one =
        known.keyset.tls_keys_of(known.host).any(|named| named.spki_sha256.eq_ignore_ascii_case(&key));
    is(is_one, "TLS ends at a key that is not the gateway's for this host: whoever has it sees what is said")
}
