//! Attestation reports of AMD SEV-SNP: 1184 bytes (SEV Secure Nested Paging Firmware ABI Specification,
//! table "`ATTESTATION_REPORT` Structure").

use crate::Measurement;
use crate::reader::{Reader, Truncated};

/// Bytes of a report.
pub const SNP_REPORT_BYTES: usize = 1184;
/// Bytes of a report that its signature covers.
const SIGNED_BYTES: usize = 0x2A0;
/// ECDSA with P-384 and SHA-384, the only signature in use.
const ECDSA_P384_SHA384: u32 = 1;
const DEBUG_ALLOWED: u64 = 1 << 19;
/// Family of the CPUs whose security versions are laid out in another way.
const FAMILY_TURIN: u8 = 0x1A;

/// Why bytes are not a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSnpReport {
    /// Not [`SNP_REPORT_BYTES`] long.
    #[error("an SNP report has {SNP_REPORT_BYTES} bytes")]
    Length,
    /// Not 2 to 5.
    #[error("SNP reports of version {0} are unknown")]
    Version(u32),
    /// Not ECDSA with P-384 and SHA-384.
    #[error("SNP reports with signatures of type {0} are unknown")]
    SignatureAlgorithm(u32),
    /// A signature's number is longer than 384 bits, or its reserved bytes are set.
    #[error("the signature of the SNP report is malformed")]
    Signature,
}

impl From<Truncated> for InvalidSnpReport {
    fn from(_: Truncated) -> Self {
        Self::Length
    }
}

/// Security versions of a platform's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnpTcb {
    /// Of the firmware management controller; only on Turin and later.
    pub fmc: Option<u8>,
    /// Of the boot loader of the secure processor.
    pub bootloader: u8,
    /// Of the operating system of the secure processor.
    pub tee: u8,
    /// Of the SNP firmware.
    pub snp: u8,
    /// Of the microcode.
    pub microcode: u8,
}

/// The CPU model, which reports name from version 3 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnpCpu {
    /// Combined family: 0x19 Milan and Genoa, 0x1A Turin.
    pub family: u8,
    /// Combined model.
    pub model: u8,
    /// Stepping.
    pub stepping: u8,
}

/// A parsed report, which borrows from its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnpReport<'a> {
    /// 2 to 5.
    pub version: u32,
    /// Security version of the guest.
    pub guest_svn: u32,
    /// What the guest's owner allowed.
    pub policy: u64,
    /// Family of the image.
    pub family_id: &'a [u8; 16],
    /// The image.
    pub image_id: &'a [u8; 16],
    /// Privilege level that asked, 0 to 3; `0xFFFF_FFFF` when the host asked.
    pub vmpl: u32,
    /// Security versions of the platform now.
    pub current_tcb: SnpTcb,
    /// How the platform is set up.
    pub platform_info: u64,
    /// Bits 0 author key, 1 chip id masked, 2 to 4 signing key (0 VCEK, 1 VLEK).
    pub key_information: u32,
    /// What the guest had reported with it.
    pub report_data: &'a [u8; 64],
    /// Measurement of the guest's first memory.
    pub measurement: Measurement,
    /// What the host named at launch.
    pub host_data: &'a [u8; 32],
    /// Digest of the key that signed the guest's identity.
    pub id_key_digest: Measurement,
    /// Digest of the key that certified that key.
    pub author_key_digest: Measurement,
    /// The guest.
    pub report_id: &'a [u8; 32],
    /// The guest's migration agent.
    pub report_id_ma: &'a [u8; 32],
    /// Security versions that the signing key stands for.
    pub reported_tcb: SnpTcb,
    /// The CPU; from version 3 on.
    pub cpu: Option<SnpCpu>,
    /// The chip; zero when the host masks it.
    pub chip_id: &'a [u8; 64],
    /// Security versions that cannot be gone back behind.
    pub committed_tcb: SnpTcb,
    /// Security versions when the guest was started.
    pub launch_tcb: SnpTcb,
    /// Mitigations when the guest was started, and now; from version 5 on.
    pub mitigations: Option<(u64, u64)>,
    /// The signature's r, little-endian.
    pub signature_r: &'a [u8; 72],
    /// The signature's s, little-endian.
    pub signature_s: &'a [u8; 72],
    signed: &'a [u8; SIGNED_BYTES],
}

impl<'a> SnpReport<'a> {
    /// Parses a report of exactly [`SNP_REPORT_BYTES`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, InvalidSnpReport> {
        let bytes: &[u8; SNP_REPORT_BYTES] = bytes.try_into().map_err(|_| InvalidSnpReport::Length)?;
        let mut reader = Reader::new(bytes);
        let version = reader.u32()?;
        if !(2..=5).contains(&version) {
            return Err(InvalidSnpReport::Version(version));
        }
        let guest_svn = reader.u32()?;
        let policy = reader.u64()?;
        let family_id = reader.array()?;
        let image_id = reader.array()?;
        let vmpl = reader.u32()?;
        let algorithm = reader.u32()?;
        if algorithm != ECDSA_P384_SHA384 {
            return Err(InvalidSnpReport::SignatureAlgorithm(algorithm));
        }
        let current_tcb = reader.array()?;
        let platform_info = reader.u64()?;
        let key_information = reader.u32()?;
        reader.array::<4>()?;
        let report_data = reader.array()?;
        let measurement = Measurement::from_bytes(*reader.array()?);
        let host_data = reader.array()?;
        let id_key_digest = Measurement::from_bytes(*reader.array()?);
        let author_key_digest = Measurement::from_bytes(*reader.array()?);
        let report_id = reader.array()?;
        let report_id_ma = reader.array()?;
        let reported_tcb = reader.array()?;
        let cpu = SnpCpu { family: reader.u8()?, model: reader.u8()?, stepping: reader.u8()? };
        let cpu = (version >= 3).then_some(cpu);
        reader.array::<21>()?;
        let chip_id = reader.array()?;
        let committed_tcb = reader.array()?;
        reader.array::<8>()?; // builds of the firmware, which say nothing beyond the security versions
        let launch_tcb = reader.array()?;
        let mitigations = (reader.u64()?, reader.u64()?);
        reader.array::<152>()?;
        let signature_r: &[u8; 72] = reader.array()?;
        let signature_s: &[u8; 72] = reader.array()?;
        let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        let beyond_384_bits = |number: &[u8; 72]| !number.iter().skip(48).all(|byte| *byte == 0);
        if beyond_384_bits(signature_r) || beyond_384_bits(signature_s) || !is_zero(reader.rest()) {
            return Err(InvalidSnpReport::Signature);
        }
        let tcb = |bytes: &[u8; 8]| SnpTcb::of(*bytes, cpu);
        Ok(Self {
            version,
            guest_svn,
            policy,
            family_id,
            image_id,
            vmpl,
            current_tcb: tcb(current_tcb),
            platform_info,
            key_information,
            report_data,
            measurement,
            host_data,
            id_key_digest,
            author_key_digest,
            report_id,
            report_id_ma,
            reported_tcb: tcb(reported_tcb),
            cpu,
            chip_id,
            committed_tcb: tcb(committed_tcb),
            launch_tcb: tcb(launch_tcb),
            mitigations: (version >= 5).then_some(mitigations),
            signature_r,
            signature_s,
            signed: bytes.first_chunk().ok_or(InvalidSnpReport::Length)?,
        })
    }

    /// The bytes that the signature covers.
    #[must_use]
    pub const fn signed(&self) -> &'a [u8; SIGNED_BYTES] {
        self.signed
    }

    /// Whether the guest's policy lets the host debug it.
    #[must_use]
    pub const fn is_debug(&self) -> bool {
        self.policy & DEBUG_ALLOWED != 0
    }
}

impl SnpTcb {
    /// Turin put a part in front; reports before version 3 do not name the CPU and come from older ones.
    fn of(bytes: [u8; 8], cpu: Option<SnpCpu>) -> Self {
        if cpu.is_some_and(|cpu| cpu.family >= FAMILY_TURIN) {
            let [fmc, bootloader, tee, snp, _, _, _, microcode] = bytes;
            Self { fmc: Some(fmc), bootloader, tee, snp, microcode }
        } else {
            let [bootloader, tee, _, _, _, _, snp, microcode] = bytes;
            Self { fmc: None, bootloader, tee, snp, microcode }
        }
    }
}
