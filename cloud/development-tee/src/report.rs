//! The body of a quote: what the machine is (platform reference, section 5.1).

use cloister_evidence::Registers;
use cloister_evidence::report_data::ReportData;

use crate::vendor::SecurityVersions;

/// Bytes of the body.
pub(crate) const TD_REPORT_BYTES: usize = 584;
/// Signer of the TDX module: there is none.
pub(crate) const MODULE_SIGNER: [u8; 48] = [0; 48];
/// Attributes of the TDX module.
pub(crate) const MODULE_ATTRIBUTES: [u8; 8] = [0; 8];

/// The attribute that every TD must have: the host cannot make it take virtualisation exceptions.
pub const SEPT_VE_DISABLE: u64 = 1 << 28;
/// Processor features of a usual TD; nothing checks them.
const XFAM: u64 = 0x0006_02E7;

/// Everything that a quote says about a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TdReport {
    /// `TEE_TCB_SVN`.
    pub tee_tcb_svn: [u8; 16],
    /// `MRSEAM`.
    pub mr_seam: [u8; 48],
    /// `MRSIGNERSEAM`.
    pub mr_signer_seam: [u8; 48],
    /// `SEAMATTRIBUTES`.
    pub seam_attributes: [u8; 8],
    /// `TDATTRIBUTES`; [`SEPT_VE_DISABLE`] alone unless a test wants otherwise. Bit 0 is debug.
    pub td_attributes: u64,
    /// `XFAM`.
    pub xfam: u64,
    /// MRTD and RTMR 0 to 3.
    pub registers: Registers,
    /// `MRCONFIGID`.
    pub mr_config_id: [u8; 48],
    /// `MROWNER`.
    pub mr_owner: [u8; 48],
    /// `MROWNERCONFIG`.
    pub mr_owner_config: [u8; 48],
    /// `REPORTDATA`.
    pub report_data: ReportData,
}

impl TdReport {
    /// The report of a machine with these registers, of a platform with the usual versions.
    #[must_use]
    pub fn new(registers: Registers, mr_config_id: [u8; 48], report_data: ReportData) -> Self {
        Self {
            tee_tcb_svn: SecurityVersions::default().tdx,
            mr_seam: [0; 48],
            mr_signer_seam: MODULE_SIGNER,
            seam_attributes: MODULE_ATTRIBUTES,
            td_attributes: SEPT_VE_DISABLE,
            xfam: XFAM,
            registers,
            mr_config_id,
            mr_owner: [0; 48],
            mr_owner_config: [0; 48],
            report_data,
        }
    }

    /// The body, version 1.0.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(TD_REPORT_BYTES);
        bytes.extend(self.tee_tcb_svn);
        bytes.extend(self.mr_seam);
        bytes.extend(self.mr_signer_seam);
        bytes.extend(self.seam_attributes);
        bytes.extend(self.td_attributes.to_le_bytes());
        bytes.extend(self.xfam.to_le_bytes());
        bytes.extend(self.registers.mrtd.as_bytes());
        bytes.extend(self.mr_config_id);
        bytes.extend(self.mr_owner);
        bytes.extend(self.mr_owner_config);
        for register in self.registers.rtmrs() {
            bytes.extend(register.as_bytes());
        }
        bytes.extend(self.report_data);
        bytes
    }
}
