//! Other configurations for a CVM.

use cloister_app_compose::ComposeHash;
use uuid::Uuid;

use super::find::{changed_meanwhile, invalid, used};
use super::matter::Matter;
use super::required::prepare;
use crate::api::Api;
use crate::api::changes::{Approval, request_error};
use crate::api::error::{ApiError, ApiResult, RETRY_AFTER_S};
use crate::governance::{self, AllowedBy, PreparedRequest, PreparedUpdate};
use crate::operations::{RequestError, UpdateRequest};
use crate::store::{Caller, CvmRow, PolicyChange, PreparedChangeRow, PreparedKind};

/// Lets a change pass that nobody has to allow, or that was allowed. Any other is prepared and refused with 465;
/// one that is said to be allowed already is refused with 467 or 468. A change that leaves the document alone
/// needs nobody.
pub(crate) async fn pass(
    api: &Api,
    caller: &Caller,
    cvm: &CvmRow,
    update: &UpdateRequest,
    policy: PolicyChange,
    approval: &Approval,
) -> ApiResult<()> {
    let compose_hash = update.configuration.compose_hash;
    if compose_hash == cvm.compose_hash && !approval.is_prepare_only() {
        return Ok(());
    }
    let governance = governance::of_cvm(api, cvm).await?;
    if !governance.needs_approval() {
        return Ok(());
    }
    let matter = Matter::new(api, cvm, governance, compose_hash, cvm.node_id).await?;
    if approval.is_second_half() {
        return matter.clear(api, approval.allowed_by()?).await;
    }
    let standing = matter.standing(api).await?;
    if Matter::is_allowed(standing) && !approval.is_prepare_only() {
        return Ok(());
    }
    rehearse(api, caller, cvm, update).await?;
    let request = PreparedRequest::Update(PreparedUpdate::new(update, policy));
    Err(prepare(api, caller, &matter, standing, &request).await?)
}

/// Nobody is asked to allow what could not be done.
async fn rehearse(api: &Api, caller: &Caller, cvm: &CvmRow, update: &UpdateRequest) -> ApiResult<()> {
    let mut change = api.store.change().await?;
    let accepted = api.lifecycle.update_in(&mut change, cvm.id, update, caller.user_id, None).await;
    accepted.map_err(request_error)?;
    Ok(())
}

/// Commits the change that waits for a CVM, if it is the one with the hash that the caller expects; `None` where
/// none waits and the CVM has this document already.
pub(crate) async fn commit_waiting(api: &Api, cvm: &CvmRow, approval: &Approval) -> ApiResult<Option<Uuid>> {
    let Some(hash) = approval.hash() else { return Ok(None) };
    let expected = hash.parse::<ComposeHash>();
    let row = api.store.pending_change(cvm.id, PreparedKind::Update, api.clock.now_ms()).await?;
    match row.filter(|row| expected == Ok(row.compose_hash)) {
        Some(row) => commit(api, &row, cvm, approval.allowed_by()?).await.map(Some),
        None if expected == Ok(cvm.compose_hash) => Ok(None),
        None => Err(invalid("no prepared change of the CVM has this hash").about("compose_hash", hash)),
    }
}

/// Carries out exactly what was prepared, once it is allowed; the operation.
pub(super) async fn commit(
    api: &Api,
    row: &PreparedChangeRow,
    cvm: &CvmRow,
    allowed_by: AllowedBy,
) -> ApiResult<Uuid> {
    let _slot = api.commits.take(row.id).ok_or_else(busy)?;
    let prepared: PreparedRequest = serde_json::from_str(&row.request).map_err(|_| used())?;
    let PreparedRequest::Update(prepared) = prepared else { return Err(used()) };
    if prepared.base_revision != cvm.revision_id {
        return Err(changed_meanwhile());
    }
    Matter::of_row(api, row, cvm).await?.clear(api, allowed_by).await?;

    let update = prepared.request().map_err(|error| ApiError::internal(&error))?;
    let now_ms = api.clock.now_ms();
    let mut change = api.store.change().await?;
    change.lock_living_cvm(cvm.id).await?.ok_or_else(|| request_error(RequestError::NotFound))?;
    if change.pending_change(cvm.id, PreparedKind::Update).await?.is_none_or(|pending| pending.id != row.id) {
        return Err(used());
    }
    let accepted = api.lifecycle.update_in(&mut change, cvm.id, &update, row.user_id, None).await;
    let accepted = accepted.map_err(|error| match error {
        RequestError::ChangedMeanwhile => changed_meanwhile(),
        error => request_error(error),
    })?;
    if !prepared.policy().is_empty() {
        change.set_policy(cvm.id, prepared.policy(), now_ms).await?;
    }
    change.set_update_provision_applied(cvm.id, row.compose_hash, now_ms).await?;
    let transaction = allowed_by.transaction();
    let id = accepted.correlation_id;
    if !change.commit_prepared_change(row.id, transaction.as_deref(), id, now_ms).await? {
        return Err(used());
    }
    change.commit().await?;
    api.lifecycle.wake();
    Ok(id)
}

/// Somebody commits the same change at this moment.
pub(super) fn busy() -> ApiError {
    let text = "This change is being committed; look whether that worked before you try again";
    ApiError::plain(axum::http::StatusCode::TOO_MANY_REQUESTS, text).retry_after(RETRY_AFTER_S)
}
