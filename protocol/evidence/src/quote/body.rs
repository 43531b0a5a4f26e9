//! Bodies of quotes: what the hardware reported about an enclave or a trust domain.

use crate::reader::{Reader, Truncated};
use crate::{Measurement, Registers};

pub(super) const ENCLAVE: u16 = 1;
pub(super) const TD_10: u16 = 2;
pub(super) const TD_15: u16 = 3;
pub(super) const TD_15_EX: u16 = 4;

/// Bytes of a body of a known type; 0 for others.
pub(super) const fn size(kind: u16) -> u32 {
    match kind {
        ENCLAVE => 384,
        TD_10 => 584,
        TD_15 => 648,
        TD_15_EX => 885,
        _ => 0,
    }
}

/// The body of a quote.
#[expect(clippy::large_enum_variant, reason = "there is one per quote, on the stack; a box would cost more")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuoteBody<'a> {
    /// About an SGX enclave.
    Enclave(EnclaveReport<'a>),
    /// About a trust domain.
    Td(TdReport<'a>),
}

impl<'a> QuoteBody<'a> {
    pub(super) fn read(kind: u16, reader: &mut Reader<'a>) -> Result<Self, Truncated> {
        if kind == ENCLAVE {
            return EnclaveReport::read(reader).map(Self::Enclave);
        }
        let mut report = TdReport::read(reader)?;
        if kind == TD_15 || kind == TD_15_EX {
            report.td15 = Some(TdReport15::read(reader)?);
        }
        if kind == TD_15_EX {
            report.td15ex = Some(TdReport15Ex::read(reader)?);
        }
        Ok(Self::Td(report))
    }
}

/// Report on an SGX enclave, 384 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnclaveReport<'a> {
    /// Security versions of the CPU.
    pub cpu_svn: &'a [u8; 16],
    /// Optional state that the enclave saves.
    pub misc_select: u32,
    /// Attributes; bit 1 of the first byte marks a debug enclave.
    pub attributes: &'a [u8; 16],
    /// Measurement of the enclave.
    pub mr_enclave: &'a [u8; 32],
    /// Hash of the key that signed the enclave.
    pub mr_signer: &'a [u8; 32],
    /// Product number that the signer gave.
    pub isv_prod_id: u16,
    /// Security version that the signer gave.
    pub isv_svn: u16,
    /// What the enclave had reported with it.
    pub report_data: &'a [u8; 64],
    /// The whole report, as signatures cover it.
    pub bytes: &'a [u8; 384],
}

impl<'a> EnclaveReport<'a> {
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, Truncated> {
        let bytes = reader.array::<384>()?;
        let mut fields = Reader::new(bytes);
        let cpu_svn = fields.array()?;
        let misc_select = fields.u32()?;
        fields.array::<28>()?;
        let attributes = fields.array()?;
        let mr_enclave = fields.array()?;
        fields.array::<32>()?;
        let mr_signer = fields.array()?;
        fields.array::<96>()?;
        let isv_prod_id = fields.u16()?;
        let isv_svn = fields.u16()?;
        fields.array::<60>()?;
        let report_data = fields.array()?;
        Ok(Self {
            cpu_svn,
            misc_select,
            attributes,
            mr_enclave,
            mr_signer,
            isv_prod_id,
            isv_svn,
            report_data,
            bytes,
        })
    }

    /// Whether the enclave could be debugged.
    #[must_use]
    pub const fn is_debug(&self) -> bool {
        let [flags, ..] = self.attributes;
        *flags & 2 != 0
    }
}

/// Report on a trust domain: 584 bytes, and what later modules added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TdReport<'a> {
    /// Security versions of the TDX module and the CPU.
    pub tee_tcb_svn: &'a [u8; 16],
    /// Measurement of the TDX module.
    pub mrseam: Measurement,
    /// Signer of the TDX module; zero for Intel's.
    pub mrsignerseam: Measurement,
    /// Attributes of the TDX module.
    pub seamattributes: &'a [u8; 8],
    /// Attributes of the trust domain, a little-endian number.
    pub tdattributes: &'a [u8; 8],
    /// Extended features that the trust domain may use.
    pub xfam: &'a [u8; 8],
    /// Firmware and first memory.
    pub mrtd: Measurement,
    /// Configuration that the host named at launch.
    pub mrconfigid: Measurement,
    /// Owner that the host named at launch.
    pub mrowner: Measurement,
    /// Owner's configuration that the host named at launch.
    pub mrownerconfig: Measurement,
    /// Configuration of the virtual machine.
    pub rtmr0: Measurement,
    /// Kernel.
    pub rtmr1: Measurement,
    /// Command line and initial RAM disk.
    pub rtmr2: Measurement,
    /// Runtime events.
    pub rtmr3: Measurement,
    /// What the trust domain had reported with it.
    pub reportdata: &'a [u8; 64],
    /// What TDX 1.5 added; absent in older bodies.
    pub td15: Option<TdReport15<'a>>,
    /// What the extended body of TDX 1.5 added; absent in others.
    pub td15ex: Option<TdReport15Ex<'a>>,
}

impl<'a> TdReport<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Truncated> {
        Ok(Self {
            tee_tcb_svn: reader.array()?,
            mrseam: measurement(reader)?,
            mrsignerseam: measurement(reader)?,
            seamattributes: reader.array()?,
            tdattributes: reader.array()?,
            xfam: reader.array()?,
            mrtd: measurement(reader)?,
            mrconfigid: measurement(reader)?,
            mrowner: measurement(reader)?,
            mrownerconfig: measurement(reader)?,
            rtmr0: measurement(reader)?,
            rtmr1: measurement(reader)?,
            rtmr2: measurement(reader)?,
            rtmr3: measurement(reader)?,
            reportdata: reader.array()?,
            td15: None,
            td15ex: None,
        })
    }

    /// The registers.
    #[must_use]
    pub const fn registers(&self) -> Registers {
        Registers {
            mrtd: self.mrtd,
            rtmr0: self.rtmr0,
            rtmr1: self.rtmr1,
            rtmr2: self.rtmr2,
            rtmr3: self.rtmr3,
        }
    }

    /// Whether the host could debug the trust domain: any of the bits "under debug" (0 to 7).
    #[must_use]
    pub const fn is_debug(&self) -> bool {
        let [under_debug, ..] = self.tdattributes;
        *under_debug != 0
    }
}

/// What TDX 1.5 added, 64 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TdReport15<'a> {
    /// Security versions that the module had when it was loaded first.
    pub tee_tcb_svn2: &'a [u8; 16],
    /// Measurement of the service trust domains; zero without any.
    pub mrservicetd: Measurement,
}

impl<'a> TdReport15<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Truncated> {
        Ok(Self { tee_tcb_svn2: reader.array()?, mrservicetd: measurement(reader)? })
    }
}

/// What the extended body of TDX 1.5 added, 237 bytes (Intel's `sgx_quote_5.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TdReport15Ex<'a> {
    /// Virtual machine in a partitioned trust domain: 0 to 3.
    pub vm_id: u8,
    /// Instance of the trust domain.
    pub td_id: &'a [u8; 32],
    /// Hash of the description of devices.
    pub dev_info: Measurement,
    /// Service trust domains at creation.
    pub initial_service_td: ServiceTd<'a>,
    /// Security versions of the CPU at creation.
    pub initial_cpu_svn: &'a [u8; 16],
    /// Security versions of the module at creation.
    pub initial_tee_tcb_svn: &'a [u8; 16],
    /// Model of the platform at creation.
    pub initial_tee_fmspc: &'a [u8; 12],
    /// Service trust domains now.
    pub current_service_td: ServiceTd<'a>,
}

/// Service trust domains that are bound to a trust domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceTd<'a> {
    /// Hash of their measurements; zero without any.
    pub hash: Measurement,
    /// Their attributes.
    pub attributes: &'a [u8; 8],
}

impl<'a> TdReport15Ex<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Truncated> {
        Ok(Self {
            vm_id: reader.u8()?,
            td_id: reader.array()?,
            dev_info: measurement(reader)?,
            initial_service_td: ServiceTd { hash: measurement(reader)?, attributes: reader.array()? },
            initial_cpu_svn: reader.array()?,
            initial_tee_tcb_svn: reader.array()?,
            initial_tee_fmspc: reader.array()?,
            current_service_td: ServiceTd { hash: measurement(reader)?, attributes: reader.array()? },
        })
    }
}

fn measurement(reader: &mut Reader<'_>) -> Result<Measurement, Truncated> {
    reader.array().map(|bytes| Measurement::from_bytes(*bytes))
}
