//! What owners have to sign, as it is told.

use std::collections::BTreeMap;

use cloister_kms_api::approvals::Action;
use cloister_management_api::ApprovalSigner;
use serde_json::{Value, json};

use super::matter::Matter;
use crate::api::Api;
use crate::api::error::{ApiError, ApiResult};
use crate::api::view::time;
use crate::governance::Governance;
use crate::governance::owners::{Ballot, Ownership};

/// Members of a workspace by the keys that they keep here.
pub(crate) struct Signers(BTreeMap<String, Vec<String>>);

impl Signers {
    pub(crate) async fn of(api: &Api, workspace_id: i64) -> ApiResult<Self> {
        let mut members: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for key in api.store.ssh_keys_of_members(workspace_id).await? {
            let names = members.entry(key.fingerprint).or_default();
            if !names.contains(&key.username) {
                names.push(key.username);
            }
        }
        Ok(Self(members))
    }

    /// Who keeps the key with this fingerprint.
    pub(crate) fn members(&self, fingerprint: &str) -> Vec<String> {
        self.0.get(fingerprint).cloned().unwrap_or_default()
    }

    /// Who signed.
    pub(crate) fn signed(&self, ballot: &Ballot<'_>) -> Vec<ApprovalSigner> {
        let signer = |row: &&crate::store::ApprovalRow| ApprovalSigner {
            fingerprint: row.key_fingerprint.clone(),
            members: self.members(&row.key_fingerprint),
            signed_at: time(row.created_at_ms),
        };
        ballot.signed.iter().map(signer).collect()
    }
}

/// The statement about an action, how many have to sign it, and who did.
pub(crate) fn approval_json(known: &Ownership, action: Action, signers: &Signers) -> Value {
    let ballot = known.ballot(action);
    json!({
        "statement": known.statement(action, ballot.serial).to_string(),
        "threshold": known.owners().threshold(),
        "signed_by": signers.signed(&ballot),
    })
}

/// Says in a refusal what the owners of the application have to sign, if it has some.
pub(super) async fn explain(api: &Api, matter: &Matter, error: ApiError) -> ApiResult<ApiError> {
    if matter.governance != Governance::Owners {
        return Ok(error);
    }
    let Some(known) = Ownership::of(&api.store, matter.cvm.app_id).await? else { return Ok(error) };
    let signers = Signers::of(api, matter.cvm.workspace_id).await?;
    let action = Action::AllowComposeHash(matter.question.compose_hash);
    Ok(error.about("approval", approval_json(&known, action, &signers)))
}
