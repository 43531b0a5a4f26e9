use std::io;
use std::sync::Arc;

use cloister_kms_api::KmsError;

/// Why a call to a key management service failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum KmsCallError {
    /// The record names a service that the configuration does not.
    #[error("the KMS that the CVM was made with is not part of this installation any more")]
    Unknown,
    /// A file that is needed to call it cannot be read.
    #[error("KMS {slug} cannot be called: its certificate or the token is missing; was it bootstrapped?")]
    File {
        /// Which service.
        slug: String,
        /// Which file, and why.
        #[source]
        source: Arc<io::Error>,
    },
    /// No answer; the call may or may not have happened.
    #[error(
        "KMS {slug} does not answer; check that it runs, is bootstrapped and holds the right certificate"
    )]
    Unreachable {
        /// Which service.
        slug: String,
        /// Why.
        #[source]
        source: Arc<reqwest::Error>,
    },
    /// It answered with something else than the interface says.
    #[error("KMS {slug} gave an answer that cannot be understood (HTTP {status})")]
    Malformed {
        /// Which service.
        slug: String,
        /// Its status.
        status: u16,
    },
    /// It says that another contract decides, or none.
    #[error(
        "KMS {slug} does not name the contract that it is configured with here; correct the service or the \
         configuration"
    )]
    AnotherContract {
        /// Which service.
        slug: String,
    },
    /// It answered with a refusal.
    #[error("KMS {slug} refused: {refusal}")]
    Refused {
        /// Which service.
        slug: String,
        /// Its words.
        refusal: KmsError,
    },
}

impl KmsCallError {
    /// Whether the same call may succeed a moment later.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Unknown => false,
            Self::File { .. } | Self::Unreachable { .. } | Self::AnotherContract { .. } => true,
            Self::Malformed { status, .. } => *status >= 500,
            Self::Refused { refusal, .. } => refusal.code.is_temporary(),
        }
    }
}
