//! What key management services are told about documents.

use cloister_app_compose::{AppId, ComposeHash};
use cloister_kms_api::admin::AllowApp;

use super::{Context, StepError};
use crate::governance::owners::{self, Signed};
use crate::governance::{Question, contract_allows, device_of_node};
use crate::kms::KmsContract;
use crate::operations::machine::OperationKind;
use crate::store::{CvmRow, OperationRow};

/// Lets the application run a document, with what its owners signed for it, if it has some: the service verifies
/// that. What they took back since is taken back there first, in case it was not told.
pub(super) async fn allow<N>(
    context: &Context<N>,
    kms: i64,
    app_id: AppId,
    hash: ComposeHash,
) -> Result<String, StepError> {
    let Signed { allow, revocation } = owners::signed(&context.store, app_id, hash).await?;
    if revocation.is_some() {
        let revoke = AllowApp { approvals: revocation, ..AllowApp::new(app_id, hash) };
        context.kmses.revoke_app(kms, &revoke).await?;
    }
    let allow = AllowApp { approvals: allow, ..AllowApp::new(app_id, hash) };
    Ok(context.kmses.allow_app(kms, &allow).await?)
}

/// Refuses what the application's contract does not allow now: another document than the CVM has, or a CVM that is
/// made like another one. It was allowed when somebody asked for it, but a rollout may have waited for days, and
/// nobody asks for the moves of a drain. So is what a CVM that is off has: it may have got that while it was off, from
/// a rollout, when nobody asked. What runs already is not asked about: when it starts again, the service decides.
pub(super) async fn check_contract<N>(
    context: &Context<N>,
    contract: KmsContract,
    operation: &OperationRow,
    cvm: &CvmRow,
    hash: ComposeHash,
) -> Result<(), StepError> {
    let asks = matches!(operation.kind, OperationKind::Replicate | OperationKind::PowerOn);
    if !asks && hash == cvm.compose_hash {
        return Ok(());
    }
    let device_id = device_of_node(&context.store, cvm.node_id).await?;
    if device_id.is_none() && operation.kind == OperationKind::PowerOn {
        // The service knows the device from the machine's evidence.
        return Ok(());
    }
    let question = Question { compose_hash: hash, device_id };
    if contract_allows(context.contracts.as_ref(), contract, cvm.app_id, question).await? {
        Ok(())
    } else {
        Err(StepError::NotAllowed { app_id: cvm.app_id, hash })
    }
}

/// Takes back that the application may run documents that none of its CVMs has or is getting: what is
/// outdated must not get keys again from a host that kept it.
pub(super) async fn retire<N>(
    context: &Context<N>,
    operation: &OperationRow,
    cvm: &CvmRow,
) -> Result<(), StepError> {
    // What a contract allows, only its owner takes back.
    let Some(kms) = cvm.kms_id.filter(|kms| !context.kmses.is_of_contract(*kms)) else { return Ok(()) };
    for hash in context.store.unused_hashes(cvm, operation).await? {
        context.kmses.revoke_app(kms, &AllowApp::new(cvm.app_id, hash)).await?;
        // Somebody may have begun to use it between the look and the call.
        if context.store.unused_hashes(cvm, operation).await?.contains(&hash) {
            context.store.note_keys_retired(cvm.app_id, hash, context.clock.now_ms()).await?;
        } else {
            allow(context, kms, cvm.app_id, hash).await?;
        }
    }
    Ok(())
}
