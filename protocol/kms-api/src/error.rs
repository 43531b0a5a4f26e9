use std::fmt;

use serde::{Deserialize, Serialize};

/// Kinds of refusals (spec 7.2; from `BadRequest` on they are ours, for requests that spec 7.2 does not speak of).
/// The last two answer the administration only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum KmsErrorCode {
    /// 401: the caller's evidence does not verify, or its platform is not accepted.
    Unauthorized,
    /// 403: the evidence is good, but nobody registered what it measured.
    MeasurementNotFound,
    /// 404: no key of that name for this application.
    KeyNotFound,
    /// 500: the KMS failed, or could not ask who decides. Trying again may help.
    InternalError,
    /// 400: the request cannot be understood, or the KMS is not in a state for it.
    BadRequest,
    /// 429: the caller asks too often. Trying again later helps.
    TooManyRequests,
    /// 403: the application has owners, and not enough of them approved. Trying again helps nothing before
    /// they have.
    ApprovalsRequired,
    /// 409: a contract decides what the application may run, and nobody can say it here. Whoever does what
    /// the contract allows need not say anything.
    ContractDecides,
}

impl KmsErrorCode {
    /// Its name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unauthorized => "UNAUTHORIZED",
            Self::MeasurementNotFound => "MEASUREMENT_NOT_FOUND",
            Self::KeyNotFound => "KEY_NOT_FOUND",
            Self::InternalError => "INTERNAL_ERROR",
            Self::BadRequest => "BAD_REQUEST",
            Self::TooManyRequests => "TOO_MANY_REQUESTS",
            Self::ApprovalsRequired => "APPROVALS_REQUIRED",
            Self::ContractDecides => "CONTRACT_DECIDES",
        }
    }

    /// HTTP status that carries it.
    #[must_use]
    pub const fn http_status(self) -> u16 {
        match self {
            Self::Unauthorized => 401,
            Self::MeasurementNotFound | Self::ApprovalsRequired => 403,
            Self::KeyNotFound => 404,
            Self::InternalError => 500,
            Self::BadRequest => 400,
            Self::ContractDecides => 409,
            Self::TooManyRequests => 429,
        }
    }

    /// Whether the same call may succeed later.
    #[must_use]
    pub const fn is_temporary(self) -> bool {
        matches!(self, Self::InternalError | Self::TooManyRequests)
    }
}

impl fmt::Display for KmsErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why the KMS refused or failed: the body of every answer that is not 2xx.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{code}: {error}")]
pub struct KmsError {
    /// For programs.
    pub code: KmsErrorCode,
    /// For people: what happened and what to do about it; no secrets.
    pub error: String,
}

impl KmsError {
    /// A refusal with its reason.
    #[must_use]
    pub fn new(code: KmsErrorCode, error: impl Into<String>) -> Self {
        Self { code, error: error.into() }
    }
}
