//! Changes of several CVMs at once.

use std::collections::BTreeMap;

use cloister_app_compose::ComposeHash;

use super::matter::{Matter, cannot_tell};
use super::required::without_token;
use crate::api::Api;
use crate::api::error::{ApiError, ApiResult};
use crate::api::governance::chain_reads_of;
use crate::governance;
use crate::store::CvmRow;

/// Refuses a rollout unless every member that gets another document may run it where it is. Nothing is kept: who
/// wants it registers what is missing, and starts the rollout again.
pub(crate) async fn check_members(api: &Api, members: &[(&CvmRow, ComposeHash)]) -> ApiResult<()> {
    let mut by_kms: BTreeMap<Option<i64>, Vec<Matter>> = BTreeMap::new();
    for (cvm, compose_hash) in members.iter().filter(|(cvm, hash)| cvm.compose_hash != *hash) {
        let governance = governance::of_cvm(api, cvm).await?;
        if governance.needs_approval() {
            let matter = Matter::new(api, cvm, governance, *compose_hash, cvm.node_id).await?;
            by_kms.entry(cvm.kms_id).or_default().push(matter);
        }
    }
    let mut missing = Vec::new();
    for matters in by_kms.into_values() {
        let Some(first) = matters.first() else { continue };
        let _turn = chain_reads_of(api, first.cvm.workspace_id)?;
        let questions = matters.iter().map(|matter| matter.question).collect();
        let asked = governance::standings(api, &first.governance, first.cvm.app_id, questions).await;
        let standings = asked.map_err(cannot_tell)?;
        let denied =
            matters.into_iter().zip(standings).filter(|(_, standing)| !Matter::is_allowed(*standing));
        missing.extend(denied);
    }
    let Some((matter, standing)) = missing.first() else { return Ok(()) };
    let mut suggestions = Vec::new();
    for text in missing.iter().flat_map(|(matter, standing)| matter.suggestions(*standing)) {
        if !suggestions.contains(&text) {
            suggestions.push(text);
        }
    }
    let error = without_token(api, matter, *standing).await?;
    let error = suggestions.into_iter().fold(error, ApiError::suggest);
    Err(error.suggest("Then start the rollout again: a rollout is not kept until it is allowed"))
}
