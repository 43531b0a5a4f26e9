//! Why evidence was not believed.

use crate::{CollateralError, TrustRoot};

/// Why evidence was not believed. Nothing that the evidence claims holds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// Not evidence of this kind at all.
    #[error("this is no {kind}: {reason}")]
    Malformed {
        /// What was expected.
        kind: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// Its certificates end at a root that is not accepted here.
    #[error("the evidence ends at a root certificate that is not trusted here")]
    UnknownRoot,
    /// Evidence of a machine that the host may look into.
    #[error("the machine runs in debug mode: its host can read its memory")]
    Debug,
    /// Evidence that breaks a rule, in plain words.
    #[error("{0}")]
    Rule(&'static str),
    /// A signature, a certificate or a signed list does not hold.
    #[error("under the {root}: {reason}")]
    Rejected {
        /// The root that the evidence claims.
        root: TrustRoot,
        /// What does not hold.
        reason: String,
    },
    /// What the vendor says about the platform cannot be had.
    #[error("the platform cannot be judged: {0}")]
    Collateral(#[from] CollateralError),
    /// More evidence waits to be verified than may.
    #[error("too many verifications are waiting; try again")]
    Busy,
    /// The verification was given up.
    #[error("the verification was interrupted")]
    Interrupted,
}

impl VerifyError {
    /// Whether the bytes are no evidence of the expected kind, rather than evidence that does not hold.
    #[must_use]
    pub const fn is_malformed(&self) -> bool {
        matches!(self, Self::Malformed { .. })
    }

    /// Whether the evidence may be good and asking again later may help.
    #[must_use]
    pub const fn is_temporary(&self) -> bool {
        matches!(
            self,
            Self::Busy
                | Self::Interrupted
                | Self::Collateral(CollateralError::Unreachable(_) | CollateralError::Busy)
        )
    }

    pub(crate) fn rejected(root: TrustRoot, reason: impl std::fmt::Display) -> Self {
        Self::Rejected { root, reason: reason.to_string() }
    }
}
