//! Handing a composed configuration to the lifecycle, and what is answered then.

use axum::Json;
use axum::http::StatusCode;
use cloister_management_api::CvmUpdate;
use uuid::Uuid;

use super::{Approval, Edit, request_error};
use crate::api::Api;
use crate::api::approvals;
use crate::api::error::ApiResult;
use crate::operations::{OperationKind, UpdateRequest};
use crate::store::{Caller, PolicyChange};

/// How a change is carried out.
#[derive(Debug, Clone)]
pub(crate) struct Manner {
    /// Seconds that the guest gets to shut down, 10 to 1200; the usual time if absent.
    pub(crate) shutdown_timeout_s: Option<u32>,
    /// Whether the power of a guest that does not shut down in time is taken away.
    pub(crate) allow_force_stop: bool,
    /// What becomes of the CVM's policy, from this change on.
    pub(crate) policy: PolicyChange,
    /// What is said about those who have to allow it.
    pub(crate) approval: Approval,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            shutdown_timeout_s: None,
            allow_force_stop: true,
            policy: PolicyChange::default(),
            approval: Approval::default(),
        }
    }
}

impl Manner {
    /// The usual manner, with what a request says about those who have to allow its change.
    pub(crate) fn of(approval: Approval) -> Self {
        Self { approval, ..Self::default() }
    }
}

/// Accepts an edit as an operation of this kind; its correlation id. One that somebody has to allow and has not
/// allowed is prepared, and refused with 465.
pub(crate) async fn accept(
    api: &Api,
    caller: &Caller,
    edit: Edit<'_>,
    kind: OperationKind,
    manner: Manner,
) -> ApiResult<Uuid> {
    manner.approval.check(edit.compose_hash())?;
    let cvm = edit.cvm;
    let update = UpdateRequest {
        kind,
        base_revision: cvm.revision_id,
        configuration: edit.into_configuration(),
        shutdown_timeout_s: manner.shutdown_timeout_s,
        allow_force_stop: manner.allow_force_stop,
    };
    approvals::pass(api, caller, cvm, &update, manner.policy, &manner.approval).await?;
    let (hash, now_ms) = (update.configuration.compose_hash, api.clock.now_ms());
    let mut change = api.store.change().await?;
    let accepted = api.lifecycle.update_in(&mut change, cvm.id, &update, caller.user_id, None).await;
    let correlation_id = accepted.map_err(request_error)?.correlation_id;
    if !manner.policy.is_empty() {
        change.set_policy(cvm.id, manner.policy, now_ms).await?;
    }
    change.set_update_provision_applied(cvm.id, hash, now_ms).await?;
    change.end_prepared_updates(cvm.id, hash, correlation_id, now_ms).await?;
    change.commit().await?;
    api.lifecycle.wake();
    Ok(correlation_id)
}

/// The answer to a change whose work goes on.
pub(crate) fn in_progress(correlation_id: Uuid, message: &str) -> CvmUpdate {
    CvmUpdate {
        status: "in_progress".to_owned(),
        message: message.to_owned(),
        correlation_id: correlation_id.to_string(),
    }
}

/// Accepts an edit if it changes anything, and tells what happens.
pub(crate) async fn answer(
    api: &Api,
    caller: &Caller,
    edit: Edit<'_>,
    manner: Manner,
) -> ApiResult<(StatusCode, Json<CvmUpdate>)> {
    manner.approval.check(edit.compose_hash())?;
    if let Some(kind) = edit.kind() {
        let correlation_id = accept(api, caller, edit, kind, manner).await?;
        return Ok((StatusCode::ACCEPTED, Json(in_progress(correlation_id, "The CVM is being changed"))));
    }
    let (status, message) = if manner.policy.is_empty() {
        ("no_change", "The CVM is so already; nothing is done")
    } else {
        let mut change = api.store.change().await?;
        change.set_policy(edit.cvm.id, manner.policy, api.clock.now_ms()).await?;
        change.commit().await?;
        ("completed", "The CVM's policy was changed; nothing is restarted")
    };
    let answer =
        CvmUpdate { status: status.to_owned(), message: message.to_owned(), correlation_id: String::new() };
    Ok((StatusCode::OK, Json(answer)))
}
