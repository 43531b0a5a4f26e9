//! What every platform can be asked for.

use std::fmt;
use std::io;

use cloister_evidence::Measurement;
use cloister_evidence::report_data::ReportData;

/// What protects this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Platform {
    /// Intel TDX.
    Tdx,
    /// AMD SEV-SNP.
    SevSnp,
    /// AWS Nitro Enclaves.
    Nitro,
    /// The node plays the hardware. Protects from nobody who controls the node.
    Development,
}

impl Platform {
    /// Whether evidence is a TDX quote.
    #[must_use]
    pub const fn makes_tdx_quotes(self) -> bool {
        matches!(self, Self::Tdx | Self::Development)
    }

    /// Whether there is a register that runtime events are measured into.
    #[must_use]
    pub const fn measures_at_runtime(self) -> bool {
        self.makes_tdx_quotes()
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tdx => "Intel TDX",
            Self::SevSnp => "AMD SEV-SNP",
            Self::Nitro => "AWS Nitro Enclaves",
            Self::Development => "the development TEE",
        })
    }
}

/// Why the platform did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum HardwareError {
    /// A file of the kernel's interface could not be used.
    #[error("cannot use {path}")]
    File {
        /// Which one.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// Others asked for reports at the same time, again and again.
    #[error("the report was disturbed by other requests each time")]
    Disturbed,
    /// The answer is not what the interface promises.
    #[error("the platform's answer is malformed: {0}")]
    Malformed(&'static str),
    /// No answer within the time for one; whether it was done is unknown.
    #[error("the platform did not answer within {0} s")]
    Silent(u64),
    /// It was refused; asking again does not help.
    #[error("the platform refused: {0}")]
    Refused(String),
    /// This platform cannot do it at all.
    #[error("{0} has no register for runtime measurements")]
    NoRuntimeRegister(Platform),
}

/// One platform, owned by one thread; everything here may block.
pub(crate) trait Hardware: Send + 'static {
    fn platform(&self) -> Platform;
    /// The binary log of the launch; empty where there is none.
    fn boot_log(&mut self) -> Result<Vec<u8>, HardwareError>;
    /// Quote, report or document over `report_data`.
    fn quote(&mut self, report_data: &ReportData) -> Result<Vec<u8>, HardwareError>;
    /// Measures into RTMR `register`. `index` counts the earlier extensions of it in this boot.
    fn extend(&mut self, register: u32, index: u32, digest: &Measurement) -> Result<(), HardwareError>;
    /// Evidence over up to 512 bytes of a caller's choice, where the platform binds so many.
    fn document(&mut self, user_data: &[u8]) -> Result<Vec<u8>, HardwareError>;
}
