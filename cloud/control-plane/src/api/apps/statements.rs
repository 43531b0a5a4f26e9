//! What owners of an application have to sign, and why.

use std::collections::{BTreeMap, BTreeSet};

use cloister_app_compose::ComposeHash;
use cloister_kms_api::approvals::Action;
use cloister_management_api::{Approval, ApprovalCvm, StatedOwners};

use super::own::OwnApp;
use crate::api::Api;
use crate::api::approvals::{Signers, wanted};
use crate::api::error::ApiResult;
use crate::governance::owners::{Ownership, named};
use crate::store::{ApprovedAction, Caller, OpenChange};

/// Most statements of an application that are listed.
pub(super) const MAX_ITEMS: usize = 100;

/// Changes that wait, the first one for each document.
pub(super) async fn open_changes(
    api: &Api,
    caller: &Caller,
    app: &OwnApp,
) -> ApiResult<BTreeMap<ComposeHash, Vec<OpenChange>>> {
    let limit = i64::try_from(MAX_ITEMS).unwrap_or(i64::MAX);
    let rows =
        api.store.open_changes_of_app(app.app_id, caller.workspace_id, api.clock.now_ms(), limit).await?;
    let mut open: BTreeMap<ComposeHash, Vec<OpenChange>> = BTreeMap::new();
    for row in rows {
        open.entry(row.compose_hash).or_default().push(row);
    }
    Ok(open)
}

/// What is to be signed and why, each once.
pub(super) fn actions(
    known: &Ownership,
    app: &OwnApp,
    open: &BTreeMap<ComposeHash, Vec<OpenChange>>,
) -> Vec<(Action, &'static str)> {
    let mut actions: Vec<(Action, &'static str)> = Vec::new();
    let mut seen = BTreeSet::new();
    let mut add = |action: Action, reason| {
        if seen.insert(named(&action)) {
            actions.push((action, reason));
        }
    };
    if let Some(proposal) = &known.proposal {
        add(Action::SetOwners(proposal.owners.0.digest()), "proposed");
    }
    for hash in open.keys() {
        add(Action::AllowComposeHash(*hash), "prepared");
    }
    for cvm in &app.cvms {
        if !known.allows(cvm.compose_hash) {
            add(Action::AllowComposeHash(cvm.compose_hash), "in_use");
        }
    }
    for (action, subject) in known.subjects() {
        let Ok(hash) = subject.parse::<ComposeHash>() else { continue };
        let action = match action {
            ApprovedAction::Allow => Action::AllowComposeHash(hash),
            ApprovedAction::Revoke => Action::RevokeComposeHash(hash),
            ApprovedAction::SetOwners => continue,
        };
        let ballot = known.ballot(action);
        if !ballot.signed.is_empty() && !known.is_approved(&ballot) {
            add(action, "signed");
        }
    }
    actions
}

pub(super) async fn item(
    api: &Api,
    app: &OwnApp,
    known: &Ownership,
    signers: &Signers,
    open: &BTreeMap<ComposeHash, Vec<OpenChange>>,
    action: Action,
    reason: &str,
) -> ApiResult<Approval> {
    let ballot = known.ballot(action);
    let hash = match action {
        Action::AllowComposeHash(hash) | Action::RevokeComposeHash(hash) => Some(hash),
        Action::SetOwners(_) => None,
    };
    let waiting = hash.and_then(|hash| open.get(&hash)).map(Vec::as_slice).unwrap_or_default();
    let concerns =
        |id: i64, has: ComposeHash| waiting.iter().any(|row| row.cvm_id == id) || hash == Some(has);
    let cvms: Vec<_> = app.cvms.iter().filter(|cvm| concerns(cvm.id, cvm.compose_hash)).collect();
    let proposed = known.proposal.as_ref().map(|row| &row.owners.0);
    let proposed = proposed.filter(|owners| action == Action::SetOwners(owners.digest()));
    let of_cvm = cvms.iter().find(|cvm| hash == Some(cvm.compose_hash));
    let app_compose = match (of_cvm, waiting.first()) {
        (Some(cvm), _) => Some(cvm.app_compose.clone()),
        (None, Some(row)) => prepared(api, app, row).await?,
        (None, None) => None,
    };
    Ok(Approval {
        action: named(&action).0.as_str().to_owned(),
        compose_hash: hash,
        statement: known.statement(action, ballot.serial).to_string(),
        threshold: known.owners().threshold(),
        signed_by: signers.signed(&ballot),
        is_approved: known.is_approved(&ballot),
        reason: reason.to_owned(),
        current_app_compose: cvms.first().map(|cvm| cvm.app_compose.clone()),
        cvms: cvms.iter().map(|cvm| ApprovalCvm { vm_uuid: cvm.vm_uuid, name: cvm.name.clone() }).collect(),
        app_compose,
        proposed_owners: proposed.map(|owners| StatedOwners {
            threshold: owners.threshold(),
            keys: owners.keys().iter().map(ToString::to_string).collect(),
        }),
    })
}

/// The document of a change that waits.
async fn prepared(api: &Api, app: &OwnApp, row: &OpenChange) -> ApiResult<Option<String>> {
    let Some(cvm) = app.cvms.iter().find(|cvm| cvm.id == row.cvm_id) else { return Ok(None) };
    let change = api.store.pending_change(row.cvm_id, row.kind, api.clock.now_ms()).await?;
    let Some(change) = change.filter(|change| change.id == row.id) else { return Ok(None) };
    Ok(wanted(api, &change, cvm).await?.map(|configuration| configuration.app_compose))
}
