//! The keys of this CVM: asked of a KMS with evidence, kept in this process only, wiped at its end.
//!
//! No other program of the guest gets them. What the application may have is derived from
//! [`AppKeys`] by the guest API; what it gets of the environment is opened by them.

mod material;
mod signer;

pub(crate) use material::{AppKeys, InvalidKeys, RootedKeys};
pub(crate) use signer::{CertificateSigner, SignerError, Signing};
