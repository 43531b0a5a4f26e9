use alloy_primitives::Address;

use super::reading::Reading;
use super::{Account, Findings, Inquiry, read, wire};
use crate::abi::{AppBootInfo, Kms};
use crate::{reverts, text};

/// Longest answer of `isAppAllowed` and `isKmsAllowed`, in bytes: reasons are short.
pub const MAX_VERDICT_BYTES: u32 = 4096;

/// May this machine have keys? (Platform reference, 11.4.)
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerdictQuestion {
    /// The KMS contract that is asked.
    pub kms_contract: Address,
    /// Whether a KMS asks for the roots (`isKmsAllowed`), not an application for its keys (`isAppAllowed`).
    pub for_roots: bool,
    /// The machine.
    pub boot: AppBootInfo,
}

/// What the contract decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it said yes, in exactly the form of the interface.
    pub is_allowed: bool,
    /// The contract's reason, or why there is none; empty when and only when allowed. Bounded and printable.
    pub reason: String,
}

impl Verdict {
    fn refused(reason: impl Into<String>) -> Self {
        Self { is_allowed: false, reason: reason.into() }
    }

    fn of(reading: &Reading) -> Self {
        if reading.target == Account::Plain {
            return Self::refused("there is no contract at the address of the KMS contract");
        }
        if !reading.succeeded {
            let why = reverts::revert_reason(&reading.data);
            return Self::refused(format!("the contract failed when it was asked: {why}"));
        }
        match reading.values::<(bool, String)>() {
            Some((true, _)) => Self { is_allowed: true, reason: String::new() },
            Some((false, reason)) if reason.is_empty() => Self::refused("the contract gives no reason"),
            Some((false, reason)) => Self::refused(text::printable(&reason)),
            None => Self::refused("the contract's answer is not of the interface"),
        }
    }
}

impl Inquiry for VerdictQuestion {
    type Answer = Verdict;

    fn question(&self) -> wire::Question {
        let boot = self.boot.clone();
        let read = if self.for_roots {
            read(self.kms_contract, &Kms::isKmsAllowedCall { bootInfo: boot }, MAX_VERDICT_BYTES)
        } else {
            read(self.kms_contract, &Kms::isAppAllowedCall { bootInfo: boot }, MAX_VERDICT_BYTES)
        };
        wire::Question { flags: Vec::new(), reads: vec![read] }
    }

    fn conclude(&self, mut findings: Findings) -> Option<Verdict> {
        findings.read().map(|reading| Verdict::of(&reading))
    }
}
