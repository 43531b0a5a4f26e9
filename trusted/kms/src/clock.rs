//! The one place that takes randomness from the system. Time is that of the verifier's clock.

/// Source of unpredictable bytes; cheap to clone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Random;

/// The operating system gave no randomness.
#[derive(Debug, thiserror::Error)]
#[error("the operating system gives no random bytes")]
pub struct NoRandomness(#[from] getrandom::Error);

impl Random {
    /// Fills `bytes`.
    pub(crate) fn fill(self, bytes: &mut [u8]) -> Result<(), NoRandomness> {
        Ok(getrandom::fill(bytes)?)
    }
}
