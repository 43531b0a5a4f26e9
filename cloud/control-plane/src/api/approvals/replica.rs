//! Further CVMs of an application.

use cloister_management_api::SealedEnv;

use super::find::{changed_meanwhile, used};
use super::matter::Matter;
use super::required::prepare;
use super::update::busy;
use crate::api::Api;
use crate::api::changes::Approval;
use crate::api::cvms::replicas::replica_error;
use crate::api::error::{ApiError, ApiResult};
use crate::api::governance::chain_reads_of;
use crate::governance::{self, AllowedBy, PreparedReplica, PreparedRequest};
use crate::replicas::{
    Devices, Place, Rehearsal, ReplicaError, ReplicaRequest, rehearse, replicate, replicate_as_rehearsed,
    replicate_in,
};
use crate::store::{Caller, CvmRow, PreparedChangeRow, PreparedKind};

/// Adds a replica that nobody has to allow, or that was allowed. Any other is prepared and refused with 465.
pub(crate) async fn add(
    api: &Api,
    caller: &Caller,
    source: &CvmRow,
    request: ReplicaRequest,
    approval: &Approval,
) -> ApiResult<CvmRow> {
    let (store, lifecycle) = (&api.store, &api.lifecycle);
    let governance = governance::of_cvm(api, source).await?;
    if !governance.needs_approval() {
        return replicate(store, lifecycle, &request, None).await.map_err(replica_error);
    }
    let rehearsal = {
        let devices = Devices::preferred(api.contracts.as_ref(), &governance);
        let devices = devices.filter(|_| matches!(request.place, Place::Anywhere { .. }));
        let _turn = devices.map(|_| chain_reads_of(api, source.workspace_id)).transpose()?;
        rehearse(store, lifecycle, &request, devices).await.map_err(replica_error)?
    };
    let request = ReplicaRequest { place: Place::Node(rehearsal.node_id), ..request };
    let matter = Matter::new(api, source, governance, rehearsal.compose_hash, rehearsal.node_id).await?;
    let standing = matter.standing(api).await?;
    if Matter::is_allowed(standing) && !approval.is_prepare_only() {
        let made = replicate_as_rehearsed(store, lifecycle, &request, &rehearsal).await;
        return made.map_err(replica_error);
    }
    let prepared = PreparedRequest::Replica(prepared(request, &rehearsal));
    Err(prepare(api, caller, &matter, standing, &prepared).await?)
}

/// What a request comes to, in words that can be kept.
fn prepared(request: ReplicaRequest, rehearsal: &Rehearsal) -> PreparedReplica {
    let changed = |member: &str| {
        let (_, value) = request.changes.iter().find(|(name, _)| *name == member)?;
        Some(value.as_str().unwrap_or_default().to_owned())
    };
    PreparedReplica {
        node_id: rehearsal.node_id,
        model: rehearsal.model,
        model_revision: rehearsal.model_revision,
        encrypted_env: request.encrypted_env.as_ref().map(|env| env.as_hex().to_owned()),
        docker_compose_file: changed("docker_compose_file"),
        pre_launch_script: changed("pre_launch_script"),
        name: request.name,
    }
}

/// The request again.
fn request_of(prepared: PreparedReplica, row: &PreparedChangeRow) -> ApiResult<ReplicaRequest> {
    let changes = prepared.changes();
    let env = prepared.encrypted_env.map(|env| env.parse::<SealedEnv>()).transpose();
    Ok(ReplicaRequest {
        source: row.cvm_id,
        place: Place::Node(prepared.node_id),
        compose_hash: None,
        encrypted_env: env.map_err(|error| ApiError::internal(&error))?,
        changes,
        name: prepared.name,
        user_id: row.user_id,
    })
}

/// Makes exactly the replica that was prepared, once it is allowed.
pub(super) async fn commit(
    api: &Api,
    row: &PreparedChangeRow,
    source: &CvmRow,
    allowed_by: AllowedBy,
) -> ApiResult<CvmRow> {
    let _slot = api.commits.take(row.id).ok_or_else(busy)?;
    let prepared: PreparedRequest = serde_json::from_str(&row.request).map_err(|_| used())?;
    let PreparedRequest::Replica(prepared) = prepared else { return Err(used()) };
    Matter::of_row(api, row, source).await?.clear(api, allowed_by).await?;

    let rehearsal = Rehearsal {
        node_id: prepared.node_id,
        model: prepared.model,
        model_revision: prepared.model_revision,
        compose_hash: row.compose_hash,
    };
    let request = request_of(prepared, row)?;
    let now_ms = api.clock.now_ms();
    let mut change = api.store.change().await?;
    change.lock_workspace(row.workspace_id).await?;
    let pending = change.pending_change(row.cvm_id, PreparedKind::Replica).await?;
    if pending.is_none_or(|pending| pending.id != row.id) {
        return Err(used());
    }
    let made = replicate_in(&mut change, &api.lifecycle, &request, rehearsal.node_id, Some(&rehearsal)).await;
    let (replica, _) = made.map_err(|error| match error {
        ReplicaError::ChangedMeanwhile | ReplicaError::SourceGone => changed_meanwhile(),
        error => replica_error(error),
    })?;
    let operation = replica.operation_id.as_deref().and_then(|id| id.parse().ok()).unwrap_or_default();
    let transaction = allowed_by.transaction();
    if !change.commit_prepared_change(row.id, transaction.as_deref(), operation, now_ms).await? {
        return Err(used());
    }
    change.commit().await?;
    api.lifecycle.wake();
    Ok(replica)
}
