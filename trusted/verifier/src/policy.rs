//! What a relying party demands of verified evidence.

use std::collections::BTreeSet;
use std::fmt;

use cloister_evidence::Measurement;

use crate::{TcbStatus, VerifiedQuote};

/// Measurements that a machine must have; what is absent may be anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExpectedMeasurements {
    /// Firmware.
    pub mrtd: Option<Measurement>,
    /// RTMR 0 to 3.
    pub rtmr: [Option<Measurement>; 4],
    /// MRCONFIGID.
    pub mr_config_id: Option<Measurement>,
    /// The bytes that the quote was made over.
    pub report_data: Option<[u8; 64]>,
}

/// What a relying party demands of a verified quote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// TCB statuses that are good enough.
    pub accepted_tcb: BTreeSet<TcbStatus>,
    /// Security advisories that must not apply, whatever the status.
    pub denied_advisories: BTreeSet<String>,
    /// Measurements of the machine.
    pub expected: ExpectedMeasurements,
    /// Demands that hardware vouches.
    pub production: bool,
}

impl Default for Policy {
    /// Up to date, nothing else demanded.
    fn default() -> Self {
        Self {
            accepted_tcb: BTreeSet::from([TcbStatus::UpToDate]),
            denied_advisories: BTreeSet::new(),
            expected: ExpectedMeasurements::default(),
            production: false,
        }
    }
}

/// A demand that is not met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyViolation {
    /// The status is not accepted.
    Tcb(TcbStatus),
    /// An advisory applies that is denied.
    Advisory(String),
    /// No hardware vouches.
    NotHardware,
    /// A register differs, or the machine has none.
    Register {
        /// Its name.
        name: &'static str,
        /// What was demanded.
        expected: Measurement,
        /// What it is; `None` on machines without such registers.
        actual: Option<Measurement>,
    },
    /// Something else differs, or is not there.
    Differs {
        /// What, in words.
        what: String,
        /// What was demanded.
        expected: String,
        /// What it is.
        actual: Option<String>,
    },
    /// The evidence was made over other bytes.
    ReportData,
}

impl PolicyViolation {
    pub(crate) fn differs(
        what: impl Into<String>,
        expected: impl fmt::Display,
        actual: Option<impl fmt::Display>,
    ) -> Self {
        let actual = actual.map(|actual| actual.to_string());
        Self::Differs { what: what.into(), expected: expected.to_string(), actual }
    }
}

impl fmt::Display for PolicyViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcb(status) => write!(f, "the platform's TCB status is {status}, which is not accepted"),
            Self::Advisory(id) => write!(f, "security advisory {id} applies to the platform and is denied"),
            Self::NotHardware => f.write_str("only a development root vouches for the machine, not hardware"),
            Self::Register { name, expected, actual: Some(actual) } => {
                write!(f, "{name} is {actual}, expected {expected}")
            }
            Self::Register { name, expected, actual: None } => {
                write!(f, "{name} does not exist on this machine, expected {expected}")
            }
            Self::Differs { what, expected, actual: Some(actual) } => {
                write!(f, "the {what} is {actual}, expected {expected}")
            }
            Self::Differs { what, expected, actual: None } => {
                write!(f, "the {what} is absent, expected {expected}")
            }
            Self::ReportData => f.write_str("the evidence was made over other report data than expected"),
        }
    }
}

/// All demands that are not met, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyViolations(Vec<PolicyViolation>);

impl PolicyViolations {
    /// `Ok` when there is no violation.
    pub(crate) fn none_of(violations: Vec<PolicyViolation>) -> Result<(), Self> {
        if violations.is_empty() { Ok(()) } else { Err(Self(violations)) }
    }

    /// The violations, in a fixed order.
    #[must_use]
    pub fn as_slice(&self) -> &[PolicyViolation] {
        &self.0
    }
}

impl fmt::Display for PolicyViolations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, violation) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            violation.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for PolicyViolations {}

impl Policy {
    /// Judges a verified quote; all violations, not only the first.
    pub fn check(&self, quote: &VerifiedQuote) -> Result<(), PolicyViolations> {
        let mut violations = Vec::new();
        if self.production && !quote.trust_root.is_hardware() {
            violations.push(PolicyViolation::NotHardware);
        }
        if quote.tcb_status == TcbStatus::Revoked || !self.accepted_tcb.contains(&quote.tcb_status) {
            violations.push(PolicyViolation::Tcb(quote.tcb_status));
        }
        let denied = quote.advisory_ids.iter().filter(|id| self.denied_advisories.contains(*id));
        violations.extend(denied.cloned().map(PolicyViolation::Advisory));
        self.expected.compare(quote, &mut violations);
        PolicyViolations::none_of(violations)
    }
}

impl ExpectedMeasurements {
    fn compare(&self, quote: &VerifiedQuote, violations: &mut Vec<PolicyViolation>) {
        const RTMR: [&str; 4] = ["RTMR0", "RTMR1", "RTMR2", "RTMR3"];
        let registers = quote.registers.as_ref();
        let rtmrs = registers.map(cloister_evidence::Registers::rtmrs);
        let actual = |index: usize| rtmrs.and_then(|rtmrs| rtmrs.get(index).copied().copied());
        let pairs = std::iter::once(("MRTD", self.mrtd, registers.map(|of| of.mrtd)))
            .chain(RTMR.into_iter().zip(self.rtmr).enumerate().map(|(at, (name, of))| (name, of, actual(at))))
            .chain([("MRCONFIGID", self.mr_config_id, registers.map(|_| quote.mr_config_id))]);
        for (name, expected, actual) in pairs {
            if let Some(expected) = expected.filter(|expected| Some(*expected) != actual) {
                violations.push(PolicyViolation::Register { name, expected, actual });
            }
        }
        if self.report_data.is_some_and(|expected| expected != quote.report_data) {
            violations.push(PolicyViolation::ReportData);
        }
    }
}
