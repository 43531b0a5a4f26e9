//! What a request says about those who have to allow its change.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use cloister_app_compose::ComposeHash;
use cloister_management_api::ErrorCode;

use crate::api::error::{ApiError, ApiResult};
use crate::governance::AllowedBy;

/// `X-Compose-Hash` marks the second half of a change that somebody had to allow: one that gives another hash is
/// refused. `X-Transaction-Hash` says how it was allowed. `X-Prepare-Only: true` has a change only prepared. All
/// three are of no concern where nobody has to allow anything, but for the hash, which has to be right.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Approval {
    compose_hash: Option<String>,
    transaction: Option<String>,
    prepare_only: bool,
}

impl Approval {
    /// What a body or a query says; empty for nothing.
    pub(crate) fn of(compose_hash: Option<&str>, transaction: Option<&str>) -> Self {
        let text =
            |text: Option<&str>| text.map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
        Self { compose_hash: text(compose_hash), transaction: text(transaction), prepare_only: false }
    }

    /// The same with what a body says before what the headers say.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            compose_hash: self.compose_hash.or(other.compose_hash),
            transaction: self.transaction.or(other.transaction),
            prepare_only: self.prepare_only || other.prepare_only,
        }
    }

    /// The hash that is expected.
    pub(crate) fn hash(&self) -> Option<&str> {
        self.compose_hash.as_deref()
    }

    /// Whether the change is only to be prepared.
    pub(crate) const fn is_prepare_only(&self) -> bool {
        self.prepare_only
    }

    /// Whether somebody is said to have allowed the change already.
    pub(crate) const fn is_second_half(&self) -> bool {
        !self.prepare_only && (self.compose_hash.is_some() || self.transaction.is_some())
    }

    /// How it was allowed.
    pub(crate) fn allowed_by(&self) -> ApiResult<AllowedBy> {
        allowed_by(self.transaction.as_deref())
    }

    /// Refuses a change that does not give the expected hash.
    pub(crate) fn check(&self, given: ComposeHash) -> ApiResult<()> {
        match &self.compose_hash {
            Some(expected) if expected.parse::<ComposeHash>() != Ok(given) => {
                Err(ApiError::coded(ErrorCode::CommitTokenInvalid).about("compose_hash", expected.as_str()))
            }
            _ => Ok(()),
        }
    }
}

/// How a change was allowed, by what a request says.
pub(crate) fn allowed_by(transaction: Option<&str>) -> ApiResult<AllowedBy> {
    AllowedBy::parse(transaction.unwrap_or_default())
        .map_err(|error| ApiError::explained(ErrorCode::TransactionInvalid, error.to_string()))
}

impl<S: Send + Sync> FromRequestParts<S> for Approval {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        let header = |name: &str| text(&parts.headers, name);
        let prepare_only =
            header("x-prepare-only").is_some_and(|text| text.trim().eq_ignore_ascii_case("true"));
        Ok(Self { prepare_only, ..Self::of(header("x-compose-hash"), header("x-transaction-hash")) })
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("not a hash"))
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
            assert!(Approval::of(hash, None).check(given).is_ok(), "{hash:?}");
        }
        for hash in ["ab", &"ac".repeat(32), "not a hash"] {
            assert!(Approval::of(Some(hash), None).check(given).is_err(), "{hash}");
        }
    }

    #[tokio::test]
    async fn headers_say_which_half_it_is() {
        for (headers, prepares, is_second) in [
            (vec![], false, false),
            (vec![("x-prepare-only", "TRUE")], true, false),
            (vec![("x-prepare-only", "1")], false, false),
            (vec![("x-compose-hash", "ab")], false, true),
            (vec![("x-transaction-hash", "already-registered")], false, true),
            (vec![("x-compose-hash", ""), ("x-transaction-hash", " ")], false, false),
            // Whoever asks for no more than a preparation gets no more.
            (vec![("x-prepare-only", "true"), ("x-compose-hash", "ab")], true, false),
        ] {
            let mut request = axum::http::Request::new(());
            for (name, value) in &headers {
                request.headers_mut().insert(*name, value.parse().unwrap());
            }
            let Ok(approval) = Approval::from_request_parts(&mut request.into_parts().0, &()).await;
            assert_eq!(
                (approval.is_prepare_only(), approval.is_second_half()),
                (prepares, is_second),
                "{headers:?}"
            );
        }
    }
}
