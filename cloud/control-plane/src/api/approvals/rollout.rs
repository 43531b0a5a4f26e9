//! Changes of several CVMs at once.

use std::collections::BTreeMap;

use cloister_app_compose::ComposeHash;
use cloister_management_api::ErrorCode;

use super::matter::{Matter, cannot_tell};
use super::owners::explain;
use super::required::without_token;
use crate::api::Api;
use crate::api::changes::Approval;
use crate::api::error::{ApiError, ApiResult};
use crate::api::governance::chain_reads_of;
use crate::governance::{self, AllowedBy, LOOKS, PAUSE, Standing};
use crate::store::CvmRow;

/// Refuses a rollout unless every member that gets another document may run it where it is, with 465; one that is
/// said to be allowed already with 467 or 468. Nothing is kept: who wants it registers what is missing, and starts
/// the rollout again.
pub(crate) async fn check_members(
    api: &Api,
    members: &[(&CvmRow, ComposeHash)],
    approval: &Approval,
) -> ApiResult<()> {
    members.iter().try_for_each(|(_, hash)| approval.check(*hash))?;
    let groups = matters(api, members).await?;
    if groups.is_empty() {
        return Ok(());
    }
    if approval.is_prepare_only() {
        let message = "several CVMs are changed one after the other, and that is not kept until it is allowed; leave \
                       x-prepare-only out, or change the CVMs one by one";
        return Err(ApiError::explained(ErrorCode::IncompatibleParameters, message));
    }
    if let AllowedBy::Transaction(hash) = approval.allowed_by()? {
        check_transaction(api, &groups, hash).await?;
    }
    let looks = if approval.is_second_half() { LOOKS } else { 1 };
    let mut missing = Vec::new();
    for look in 0..looks {
        if look > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        missing = denied(api, &groups).await?;
        if missing.is_empty() {
            return Ok(());
        }
    }
    Err(refusal(api, &missing, approval).await?)
}

/// What has to be decided, by the service that the members have their keys from, which says who decides.
async fn matters(api: &Api, members: &[(&CvmRow, ComposeHash)]) -> ApiResult<Vec<Vec<Matter>>> {
    let mut by_kms: BTreeMap<Option<i64>, Vec<Matter>> = BTreeMap::new();
    for (cvm, compose_hash) in members.iter().filter(|(cvm, hash)| cvm.compose_hash != *hash) {
        let governance = governance::of_cvm(api, cvm).await?;
        if governance.needs_approval() {
            let matter = Matter::new(api, cvm, governance, *compose_hash, cvm.node_id).await?;
            by_kms.entry(cvm.kms_id).or_default().push(matter);
        }
    }
    Ok(by_kms.into_values().collect())
}

/// Refuses a transaction that allowed nothing of what the rollout needs.
async fn check_transaction(api: &Api, groups: &[Vec<Matter>], hash: [u8; 32]) -> ApiResult<()> {
    let mut refused = None;
    for group in groups {
        match Matter::check_transaction(api, group, hash).await {
            Ok(()) => return Ok(()),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    refused.map_or(Ok(()), Err)
}

/// What is not allowed now, with what those who decide say of it.
async fn denied<'a>(api: &Api, groups: &'a [Vec<Matter>]) -> ApiResult<Vec<(&'a Matter, Standing)>> {
    let mut missing = Vec::new();
    for group in groups {
        let Some(first) = group.first() else { continue };
        let _turn = chain_reads_of(api, first.cvm.workspace_id)?;
        let questions = group.iter().map(|matter| matter.question).collect();
        let asked = governance::standings(api, &first.governance, first.cvm.app_id, questions).await;
        let standings = asked.map_err(cannot_tell)?;
        missing.extend(group.iter().zip(standings).filter(|(_, standing)| !Matter::is_allowed(*standing)));
    }
    Ok(missing)
}

async fn refusal(api: &Api, missing: &[(&Matter, Standing)], approval: &Approval) -> ApiResult<ApiError> {
    let Some((matter, standing)) = missing.first() else {
        return Ok(ApiError::coded(ErrorCode::HashDenied));
    };
    if approval.is_second_half() {
        return explain(api, matter, matter.denied(*standing)).await;
    }
    let mut suggestions = Vec::new();
    for text in missing.iter().flat_map(|(matter, standing)| matter.suggestions(*standing)) {
        if !suggestions.contains(&text) {
            suggestions.push(text);
        }
    }
    let error = without_token(api, matter, *standing).await?;
    let error = suggestions.into_iter().fold(error, ApiError::suggest);
    Ok(error.suggest("Then start the rollout again: a rollout is not kept until it is allowed"))
}
