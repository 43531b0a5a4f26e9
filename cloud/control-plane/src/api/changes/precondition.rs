//! The hash that a caller had registered for a change.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use cloister_app_compose::ComposeHash;
use cloister_management_api::ErrorCode;

use crate::api::error::{ApiError, ApiResult};

/// `X-Compose-Hash`, if it was sent. It marks the second half of a change that a contract had to allow, so
/// that a change that gives another hash is refused. `X-Transaction-Hash` says how it was allowed, which is
/// of no concern where no contract owns the key management service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Precondition(Option<String>);

impl Precondition {
    /// A hash in a body; empty for none.
    pub(crate) fn of(hash: Option<&str>) -> Self {
        Self(hash.map(str::trim).filter(|hash| !hash.is_empty()).map(str::to_owned))
    }

    /// Refuses a change that does not give the expected hash.
    pub(crate) fn check(&self, given: ComposeHash) -> ApiResult<()> {
        match &self.0 {
            Some(expected) if expected.parse::<ComposeHash>() != Ok(given) => {
                Err(ApiError::coded(ErrorCode::CommitTokenInvalid).about("compose_hash", expected.as_str()))
            }
            _ => Ok(()),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Precondition {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        let header = parts.headers.get("x-compose-hash");
        Ok(Self::of(header.map(|value| value.to_str().unwrap_or("not a hash"))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_hash_that_is_given_passes() {
        let given = ComposeHash::from_bytes([0xab; 32]);
        for hash in
            [None, Some(""), Some(" "), Some(&*"ab".repeat(32)), Some(&*format!("0x{}", "AB".repeat(32)))]
        {
            assert!(Precondition::of(hash).check(given).is_ok(), "{hash:?}");
        }
        for hash in ["ab", &"ac".repeat(32), "not a hash"] {
            assert!(Precondition::of(Some(hash)).check(given).is_err(), "{hash}");
        }
    }
}
