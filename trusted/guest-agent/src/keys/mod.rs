//! The keys of this CVM: asked of a KMS with evidence, kept in this process only, wiped at its end.
//!
//! No other program of the guest gets them. What the application may have is derived from
//! [`AppKeys`] by the guest API; what it gets of the environment is opened by them.

mod client;
mod endpoint;
pub(crate) mod environment;
mod exchange;
pub(crate) mod material;
mod signer;
#[cfg(test)]
mod tests;

pub(crate) use client::{BOOT_PATIENCE, KmsClient, KmsFailure, Release};
pub(crate) use material::{AppKeys, RootedKeys};
pub(crate) use signer::{CertificateSigner, SignerError};
