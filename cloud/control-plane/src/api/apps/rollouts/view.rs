//! Rollouts as answers show them.

use cloister_management_api::{Rollout, RolloutId, RolloutMember};

use crate::api::Api;
use crate::api::apps::revisions::user;
use crate::api::cvms::operations::sanitised;
use crate::api::error::{ApiError, ApiResult};
use crate::api::view::time;
use crate::store::{Caller, MemberRow, RolloutRow};

/// A rollout with its members.
pub(super) async fn wire(api: &Api, caller: &Caller, row: RolloutRow) -> ApiResult<Rollout> {
    let members = api.store.rollout_members(row.id).await?;
    let triggered_by = api.store.user(row.triggered_by).await?;
    // Addresses and paths of hosts are for operators only.
    let shown = |text: String| if caller.is_admin() { text } else { sanitised(&text) };
    let app_id = row.app_id.as_deref().unwrap_or_default();
    let member = |member: MemberRow| RolloutMember {
        vm_uuid: member.vm_uuid,
        name: member.name,
        state: member.state.to_string(),
        correlation_id: member.correlation_id,
        error: member.error.map(shown),
        cvm_status: match member.deleted_at_ms {
            Some(_) => "deleted".to_owned(),
            None => member.cvm_status.to_string(),
        },
        health: member.health,
    };
    Ok(Rollout {
        rollout_id: RolloutId(row.id),
        app_id: app_id.parse().map_err(|error| ApiError::internal(&error))?,
        state: row.state.to_string(),
        reason: row.reason.map(shown),
        on_failure: row.on_failure.to_string(),
        max_unavailable: row.max_unavailable,
        triggered_by: triggered_by.map(|row| user(row.id, row.username)),
        created_at: time(row.created_at_ms),
        updated_at: time(row.updated_at_ms),
        completed_at: row.completed_at_ms.map(time),
        members: members.into_iter().map(member).collect(),
    })
}
