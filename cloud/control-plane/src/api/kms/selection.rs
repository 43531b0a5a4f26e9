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
    /// The service that is meant: the first one that everything which is said fits. `None` in an installation
    /// without any, of which no particular one was asked for.
    pub(crate) fn choose(self, kmses: &Kmses) -> ApiResult<Option<Arc<Kms>>> {
        let given = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        let (id, mut contract) = (given(self.id), given(self.contract));
        let mut kind = self.kind.map(kind_name);
        if contract.as_deref().is_some_and(|contract| contract.eq_ignore_ascii_case(OFF_CHAIN)) {
            (contract, kind) = (None, Some(OFF_CHAIN));
        }
        if id.is_some() || contract.is_some() {
            // Clients write it where nobody chose.
            kind = kind.filter(|kind| *kind != OFF_CHAIN);
        }
        let mut left: Vec<&Arc<Kms>> = kmses.all().iter().collect();
        if let Some(id) = &id {
            let named = kmses.find(id).map(|kms| kms.id());
            left.retain(|kms| Some(kms.id()) == named);
            check("kms_id", id, &left)?;
        }
        if let Some(contract) = &contract {
            left.retain(|kms| address(kms).eq_ignore_ascii_case(contract));
            check("kms_contract", contract, &left)?;
        }
        if let Some(kind) = kind {
            left.retain(|kms| kms.kind() == kind);
            // Without a contract there need not be a service at all.
            if kind != OFF_CHAIN || !kmses.all().is_empty() {
                check("kms", kind, &left)?;
            }
        }
        Ok(left.first().copied().map(Arc::clone))
    }
}

const fn kind_name(kind: KmsType) -> &'static str {
    match kind {
        KmsType::Phala => OFF_CHAIN,
        KmsType::Ethereum => "ethereum",
        KmsType::Base => "base",
        KmsType::Legacy => "legacy",
    }
}

/// The contract of a service as requests write it.
fn address(kms: &Kms) -> String {
    kms.contract().map_or_else(|| OFF_CHAIN.to_owned(), |contract| contract.hex_address())
}

fn check(member: &str, text: &str, left: &[&Arc<Kms>]) -> ApiResult<()> {
    if left.is_empty() {
        return Err(ApiError::coded(ErrorCode::NoMatchingKms).about(member, text.to_owned()));
    }
    Ok(())
}
