//! The one place that takes randomness from the system. Time is that of the verifier's clock.

/// Source of unpredictable bytes; cheap to clone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(fn(&mut [u8]) -> Result<(), getrandom::Error>);

/// The operating system gave no randomness.
#[derive(Debug, thiserror::Error)]
#[error("the operating system gives no random bytes")]
pub struct NoRandomness(#[from] getrandom::Error);

impl Random {
    /// The operating system's.
    pub(crate) const fn system() -> Self {
        Self(getrandom::fill)
    }

    /// Fills `bytes`.
    pub(crate) fn fill(self, bytes: &mut [u8]) -> Result<(), NoRandomness> {
        Ok((self.0)(bytes)?)
    }
}
