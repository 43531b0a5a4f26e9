//! Which key management service a request means.

use std::sync::Arc;

use cloister_management_api::{ErrorCode, KmsType};

use crate::api::error::{ApiError, ApiResult};
use crate::kms::{Kms, Kmses, OFF_CHAIN};

/// What a request says about the service that it wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Selection<'a> {
    /// Kind.
    pub(crate) kind: Option<KmsType>,
    /// Id, slug or kind.
    pub(crate) id: Option<&'a str>,
    /// Its contract.
    pub(crate) contract: Option<&'a str>,
}

impl Selection<'_> {
    /// The service that is meant; `None` in an installation without any, of which no particular one was
    /// asked for.
    pub(crate) fn choose(self, kmses: &Kmses) -> ApiResult<Option<Arc<Kms>>> {
        let none = |member: &str, text: &str| {
            Err(ApiError::coded(ErrorCode::NoMatchingKms).about(member, text.to_owned()))
        };
        match self.kind {
            None | Some(KmsType::Phala) => {}
            Some(KmsType::Ethereum) => return none("kms", "ethereum"),
            Some(KmsType::Base) => return none("kms", "base"),
            Some(KmsType::Legacy) => return none("kms", "legacy"),
        }
        let given = |text: Option<&'_ str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        match given(self.contract) {
            Some(contract) if !contract.eq_ignore_ascii_case(OFF_CHAIN) => {
                return none("kms_contract", &contract);
            }
            _ => {}
        }
        match given(self.id) {
            None => Ok(kmses.default_one().map(Arc::clone)),
            Some(id) => match kmses.find(&id) {
                Some(kms) => Ok(Some(Arc::clone(kms))),
                None => none("kms_id", &id),
            },
        }
    }
}
