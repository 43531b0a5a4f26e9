//! Keys of applications: derived from the KMS's roots ([`RootSecrets`]), and in the guest from the
//! application's own key ([`AppKey`]). Deterministic: the same roots give the same keys on any machine
//! (platform reference, sections 7.3 and 10.3).
//!
//! No I/O, no clock, no randomness of its own. Secrets are wiped when they are dropped and have no readable
//! form.

mod app;
mod derived;
mod hierarchy;
mod root;
#[cfg(test)]
mod tests;

pub use app::AppKey;
pub use derived::{Algorithm, DerivedKey, UnknownAlgorithm, VerifyError, verify};
pub use root::{GenerateError, RootPublic, RootSecrets};

/// A secret that cannot be used: not a scalar of its curve, or of the wrong length. For derived secrets the
/// chance is below 2^-100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a secret key of {0}")]
pub struct InvalidKey(&'static str);
