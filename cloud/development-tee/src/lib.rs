//! Plays TEE hardware and its vendor where there is none, for development.
//!
//! Two halves that never meet in one process outside of tests: the control plane has the [`Vendor`], whose
//! root relying parties must configure by hand; a node has a [`Platform`], which keeps the registers of
//! its virtual machines ([`MachineRegisters`]) and of single processes ([`HostProcess`]), and signs quotes
//! over them. What comes out has the bytes of Intel TDX and goes through the same verifier, but nothing
//! here protects anything: the operator holds every key. A production installation refuses all of it.

mod certificates;
mod collateral;
mod error;
mod files;
mod host_process;
mod keys;
mod machine;
mod platform;
mod report;
mod sealing;
mod sgx_extension;
#[cfg(test)]
mod tests;
mod vendor;

pub use collateral::{CollateralOptions, PccsBody, VendorCollateral};
pub use error::TeeError;
pub use host_process::{HostProcess, HostProcessAgent};
pub use machine::{ExtendError, MachineRegisters};
pub use platform::{Platform, PlatformKey, QuotingEnclave, Registration};
pub use report::{SEPT_VE_DISABLE, TdReport};
pub use vendor::{IssuedPlatform, Ppid, RegisterError, SecurityVersions, Validity, Vendor, VendorOptions};
