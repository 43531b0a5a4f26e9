//! Produces evidence about the machine it runs in.
//!
//! [`Attester::detect`] finds what protects this machine, and hardware always wins: where any is present
//! the development TEE is never asked, even when the hardware turns out to be unusable. One thread owns
//! the platform, so measurements and quotes happen one after the other, and the log that comes with a
//! quote is exactly the one behind its registers.
//!
//! | Platform | Evidence | Runtime measurements |
//! |---|---|---|
//! | TDX | quote from the kernel's TSM reports | RTMR 3 through sysfs (Linux 6.16 and later) |
//! | SEV-SNP | report from the kernel's TSM reports | none: the log is information only |
//! | Nitro | document of the security module | none |
//! | development TEE | quote signed by the node, over a virtio serial port | RTMR 3 at the node |
//!
//! TDX, SEV-SNP and Nitro follow the documentation of the kernel and of the vendors, and their file
//! protocols are tested against files; none of the three was run on its hardware.

mod attester;
mod detect;
mod development;
mod hardware;
mod log;
mod nitro;
#[cfg(test)]
mod tests;
mod tsm;

pub use attester::{AttestError, Attester, Evidence, MAX_PENDING};
pub use detect::DetectError;
pub use hardware::{HardwareError, Platform};
pub use log::MAX_RUNTIME_LOG_BYTES;
