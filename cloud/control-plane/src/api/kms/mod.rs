//! Key management services over HTTP.

pub(crate) mod detail;
pub(crate) mod inspect;
pub(crate) mod list;
pub(crate) mod next_app_id;
pub(crate) mod nodes;
pub(crate) mod on_chain;
pub(crate) mod pubkey;
mod selection;

use std::sync::Arc;

use axum::http::StatusCode;
use cloister_app_compose::AppId;
use cloister_management_api::{ApiVersion, KmsContract, KmsContractId, KmsRecord};

pub(crate) use selection::Selection;

use super::Api;
use super::error::{ApiError, ApiResult, RETRY_AFTER_S};
use crate::kms::{Kms, KmsCallError, Kmses, OFF_CHAIN};

/// The service that a path names.
fn named<'a>(api: &'a Api, text: &str) -> ApiResult<&'a Arc<Kms>> {
    api.kmses.find(text).ok_or_else(|| ApiError::not_found("KMS"))
}

/// The service that a path names. A kind stands for that of an application's CVMs, if one is named and they have one
/// of the kind: clients that change an environment name the kind only, and not all of them know another than that
/// without a contract. Only CVMs of `workspace` count, if that is given.
async fn named_for<'a>(
    api: &'a Api,
    text: &str,
    app_id: Option<&str>,
    workspace: Option<i64>,
) -> ApiResult<&'a Arc<Kms>> {
    let named = named(api, text)?;
    let app_id = app_id.map(self::app_id).transpose()?;
    let Some(app_id) = app_id.filter(|_| named.kind().eq_ignore_ascii_case(text)) else { return Ok(named) };
    let cvms = api.store.cvms_of_app(app_id).await?;
    let is_meant = |kms: &&Arc<Kms>| [OFF_CHAIN, kms.kind()].iter().any(|one| one.eq_ignore_ascii_case(text));
    let cvms = cvms.iter().filter(|cvm| workspace.is_none_or(|id| cvm.workspace_id == id));
    let own = cvms.filter_map(|cvm| api.kmses.get(cvm.kms_id?)).find(is_meant);
    Ok(own.unwrap_or(named))
}

/// An app id, with or without `0x` or `app_`.
fn app_id(text: &str) -> ApiResult<AppId> {
    let digits = text.strip_prefix("app_").unwrap_or(text);
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    digits.parse().map_err(|_| ApiError::plain(StatusCode::BAD_REQUEST, "app_id must have 40 hex digits"))
}

/// A service in the form of the version: by itself, or as one of those of its contract.
fn record(kmses: &Kmses, kms: &Kms, version: ApiVersion) -> KmsRecord {
    if version < ApiVersion::V20260623 {
        return KmsRecord::Node(kms.info());
    }
    let first = first_of_contract(kmses, kms);
    // They hold the same keys: whichever was reached says which.
    let known = kmses.of_same_contract(kms).find_map(|kms| kms.known());
    let root = known.as_ref().and_then(|meta| meta.roots.last());
    let contract = kms.contract();
    KmsRecord::Contract(KmsContract {
        id: KmsContractId(first.id()),
        slug: Some(first.slug().to_owned()),
        label: first.slug().to_owned(),
        contract_address: contract.map_or_else(|| OFF_CHAIN.to_owned(), |contract| contract.hex_address()),
        chain_id: contract.map_or(0, |contract| contract.wire_chain_id()),
        k256_pubkey: root.map(|root| hex::encode(&root.k256_pubkey)),
        ca_pubkey: root.map(|root| hex::encode(&root.ca_pubkey)),
        node_count: i64::try_from(kmses.of_same_contract(kms).count()).unwrap_or(i64::MAX),
    })
}

/// The first of the services of a service's contract: it stands for all of them.
fn first_of_contract<'a>(kmses: &'a Kmses, kms: &'a Kms) -> &'a Kms {
    kmses.of_same_contract(kms).next().map_or(kms, AsRef::as_ref)
}

/// A service that cannot be asked now is not the client's fault, and passes; anything else is ours.
pub(crate) fn call_error(error: &KmsCallError) -> ApiError {
    if !error.is_transient() {
        return ApiError::internal(error);
    }
    tracing::warn!(error = error as &dyn std::error::Error, "a KMS cannot be asked");
    let text = "The key management service cannot be asked now; try again later";
    ApiError::plain(StatusCode::SERVICE_UNAVAILABLE, text).retry_after(RETRY_AFTER_S)
}
