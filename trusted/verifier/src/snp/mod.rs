//! Attestation reports of AMD SEV-SNP.

mod chain;

use cloister_evidence::{Measurement, SnpReport, SnpTcb};
use jiff::Timestamp;
use ring::signature::{ECDSA_P384_SHA384_FIXED, UnparsedPublicKey};
use sha2::{Digest as _, Sha256};

use crate::{PolicyViolation, PolicyViolations, TrustRoot, TrustRoots, VerifyError};

pub use chain::SnpChain;

/// Guest policy: a migration agent may move the guest.
const MIGRATION_AGENT: u64 = 1 << 18;
/// Highest privilege level of a guest; the host asks as `0xFFFF_FFFF`.
const LOWEST_PRIVILEGE: u32 = 3;
/// Key information: the host masks the chip's id.
const CHIP_ID_MASKED: u32 = 1 << 1;

/// A report whose signatures hold up to a trusted root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedSnp {
    /// Who vouches in the end.
    pub trust_root: TrustRoot,
    /// The chip; `None` when the host masks it.
    pub chip_id: Option<[u8; 64]>,
    /// SHA-256 of the chip's id.
    pub device_id: Option<[u8; 32]>,
    /// Security versions of the platform that the signing key stands for.
    pub reported_tcb: SnpTcb,
    /// Security versions that the platform cannot go back behind.
    pub committed_tcb: SnpTcb,
    /// Guest policy.
    pub policy: u64,
    /// Privilege level that asked, 0 (highest) to 3.
    pub vmpl: u32,
    /// Security version of the guest.
    pub guest_svn: u32,
    /// Measurement of the guest's first memory.
    pub measurement: Measurement,
    /// What the host named at launch.
    pub host_data: [u8; 32],
    /// The bytes that the report was made over.
    pub report_data: [u8; 64],
}

/// What a relying party demands of a verified report; what is absent may be anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnpPolicy {
    /// Least security versions of the platform, each on its own.
    pub minimum_tcb: Option<SnpTcb>,
    /// Least privileged level that may have asked: 0 demands the guest's highest. 3 accepts all.
    pub vmpl: Option<u32>,
    /// Measurement of the guest's first memory.
    pub measurement: Option<Measurement>,
    /// What the host named at launch.
    pub host_data: Option<[u8; 32]>,
    /// The bytes that the report was made over.
    pub report_data: Option<[u8; 64]>,
    /// Demands that hardware vouches.
    pub production: bool,
}

impl SnpPolicy {
    /// Judges a verified report; all violations, not only the first.
    pub fn check(&self, report: &VerifiedSnp) -> Result<(), PolicyViolations> {
        let mut violations = Vec::new();
        if self.production && !report.trust_root.is_hardware() {
            violations.push(PolicyViolation::NotHardware);
        }
        if let Some(minimum) = self.minimum_tcb {
            let actual = parts(report.reported_tcb);
            for ((name, minimum), (_, actual)) in parts(minimum).into_iter().zip(actual) {
                if actual < minimum {
                    let shown = actual.map_or_else(|| "none".to_owned(), |version| version.to_string());
                    let least = format!("at least {}", minimum.unwrap_or_default());
                    violations.push(PolicyViolation::differs(name, least, Some(shown)));
                }
            }
        }
        if let Some(lowest) = self.vmpl.filter(|lowest| report.vmpl > *lowest) {
            let lowest = format!("at most {lowest}");
            violations.push(PolicyViolation::differs("privilege level", lowest, Some(report.vmpl)));
        }
        if let Some(expected) = self.measurement.filter(|expected| *expected != report.measurement) {
            violations.push(PolicyViolation::Register {
                name: "launch measurement",
                expected,
                actual: Some(report.measurement),
            });
        }
        if let Some(expected) = self.host_data.filter(|expected| *expected != report.host_data) {
            let (expected, actual) = (hex::encode(expected), hex::encode(report.host_data));
            violations.push(PolicyViolation::differs("host data", expected, Some(actual)));
        }
        if self.report_data.is_some_and(|expected| expected != report.report_data) {
            violations.push(PolicyViolation::ReportData);
        }
        PolicyViolations::none_of(violations)
    }
}

fn parts(tcb: SnpTcb) -> [(&'static str, Option<u8>); 5] {
    [
        ("FMC security version", tcb.fmc),
        ("boot loader security version", Some(tcb.bootloader)),
        ("TEE security version", Some(tcb.tee)),
        ("SNP firmware security version", Some(tcb.snp)),
        ("microcode security version", Some(tcb.microcode)),
    ]
}

pub(crate) fn verify(
    bytes: &[u8],
    chain: &SnpChain,
    roots: &TrustRoots,
    now: Timestamp,
) -> Result<VerifiedSnp, VerifyError> {
    let report = SnpReport::parse(bytes).map_err(|error| VerifyError::Malformed {
        kind: "SNP attestation report",
        reason: error.to_string(),
    })?;
    let (trust_root, key) = chain.verify(&report, roots, now)?;
    UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, key)
        .verify(report.signed(), &signature(&report))
        .map_err(|_| VerifyError::rejected(trust_root, "the report's signature does not hold"))?;

    if report.is_debug() {
        return Err(VerifyError::Debug);
    }
    if report.policy & MIGRATION_AGENT != 0 {
        return Err(VerifyError::Rule("a migration agent may move the machine"));
    }
    if report.vmpl > LOWEST_PRIVILEGE {
        return Err(VerifyError::Rule("the host asked for the report, not the machine"));
    }
    let masked = report.key_information & CHIP_ID_MASKED != 0 || *report.chip_id == [0; 64];
    let chip_id = (!masked).then_some(*report.chip_id);
    Ok(VerifiedSnp {
        trust_root,
        chip_id,
        device_id: chip_id.map(|id| Sha256::digest(id).into()),
        reported_tcb: report.reported_tcb,
        committed_tcb: report.committed_tcb,
        policy: report.policy,
        vmpl: report.vmpl,
        guest_svn: report.guest_svn,
        measurement: report.measurement,
        host_data: *report.host_data,
        report_data: *report.report_data,
    })
}

/// r ‖ s, big-endian, 48 bytes each; what is beyond them the parser found to be zero.
fn signature(report: &SnpReport<'_>) -> [u8; 96] {
    let mut signature = [0; 96];
    let (r, s) = signature.split_at_mut(48);
    for (number, little) in [(r, report.signature_r), (s, report.signature_s)] {
        for (to, from) in number.iter_mut().rev().zip(little) {
            *to = *from;
        }
    }
    signature
}
