//! `/admin/nodes/{node}/drain`: emptying a node

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use cloister_management_api::{DrainedCvm, NodeDrain, PlainError};

use super::nodes::find;
use crate::api::Api;
use crate::api::apps::rollouts::refusal;
use crate::api::auth::{Admin, Auth};
use crate::api::error::ApiResult;
use crate::api::responses::ForAdmins;
use crate::api::view::time;
use crate::rollouts::{MemberState, RolloutState, Rollouts, fresh_ms, obstacle};
use crate::store::{MemberRow, NodeRow, PlacedRow};

/// Begin to empty a node
///
/// Nothing new is placed on it. CVMs whose application has another ready CVM on another node are moved, one at a
/// time: a replica is made elsewhere, and when that is ready the CVM is deleted with its disk. All others stay
/// and are listed with the reason. Repeating the request tries moves that failed again. It goes on until it is
/// ended.
#[utoipa::path(
    post, path = "/admin/nodes/{node}/drain", tag = "Administration", operation_id = "admin_drain_node",
    params(("node" = String, Path, description = "Number or name")),
    responses(
        (status = 202, description = "How it stands", body = NodeDrain),
        (status = 404, description = "No such node", body = PlainError),
        (status = 409, description = "A former drain is still ending", body = PlainError),
        ForAdmins,
    ),
)]
pub(crate) async fn begin(
    State(api): State<Api>,
    _: Admin,
    Auth(caller): Auth,
    Path(node): Path<String>,
) -> ApiResult<(StatusCode, Json<NodeDrain>)> {
    let node = find(&api, &node).await?;
    rollouts(&api).drain(node.id, caller.user_id).await.map_err(refusal)?;
    Ok((StatusCode::ACCEPTED, Json(wire(&api, node).await?)))
}

/// Get how far a node is emptied
#[utoipa::path(
    get, path = "/admin/nodes/{node}/drain", tag = "Administration", operation_id = "admin_get_node_drain",
    params(("node" = String, Path, description = "Number or name")),
    responses(
        (status = 200, description = "How it stands", body = NodeDrain),
        (status = 404, description = "No such node", body = PlainError),
        ForAdmins,
    ),
)]
pub(crate) async fn get(
    State(api): State<Api>,
    _: Admin,
    Path(node): Path<String>,
) -> ApiResult<Json<NodeDrain>> {
    let node = find(&api, &node).await?;
    Ok(Json(wire(&api, node).await?))
}

/// End the emptying of a node
///
/// The node takes CVMs again. A move that was begun ends; CVMs that were moved do not come back.
#[utoipa::path(
    delete, path = "/admin/nodes/{node}/drain", tag = "Administration", operation_id = "admin_end_node_drain",
    params(("node" = String, Path, description = "Number or name")),
    responses(
        (status = 200, description = "How it stands", body = NodeDrain),
        (status = 404, description = "No such node", body = PlainError),
        ForAdmins,
    ),
)]
pub(crate) async fn end(
    State(api): State<Api>,
    _: Admin,
    Path(node): Path<String>,
) -> ApiResult<Json<NodeDrain>> {
    let node = find(&api, &node).await?;
    rollouts(&api).end_drain(node.id).await.map_err(refusal)?;
    Ok(Json(wire(&api, node).await?))
}

fn rollouts(api: &Api) -> Rollouts {
    Rollouts::new(api.store.clone(), api.clock.clone())
}

async fn wire(api: &Api, node: NodeRow) -> ApiResult<NodeDrain> {
    let drain = api.store.drain_of_node(node.id).await?;
    let draining = api.store.node(node.id).await?.is_some_and(|node| node.draining != 0);
    let members = match &drain {
        Some(drain) => api.store.rollout_members(drain.id).await?,
        None => Vec::new(),
    };
    let fresh_ms = fresh_ms(api.clock.now_ms());
    let placed = api.store.placed_on(node.id, fresh_ms).await?;
    let mut cvms = Vec::new();
    for member in &members {
        cvms.push(moving(api, member).await?);
    }
    let is_member = |cvm: &&PlacedRow| members.iter().any(|member| member.cvm_id == cvm.id);
    let state = match drain.as_ref().map(|drain| drain.state) {
        None | Some(RolloutState::Aborted) => "ended",
        Some(RolloutState::Aborting) => "ending",
        Some(_) => "draining",
    };
    if state == "draining" {
        cvms.extend(placed.iter().filter(|cvm| !is_member(cvm)).map(|cvm| staying(cvm, fresh_ms)));
    }
    Ok(NodeDrain {
        node: node.name,
        draining,
        state: state.to_owned(),
        started_at: drain.as_ref().map(|drain| time(drain.created_at_ms)),
        ended_at: drain.and_then(|drain| drain.completed_at_ms).map(time),
        cvms,
    })
}

async fn moving(api: &Api, member: &MemberRow) -> ApiResult<DrainedCvm> {
    let replacement = match member.replacement_id {
        Some(id) => api.store.cvm_even_deleted(id).await?,
        None => None,
    };
    let reason = match member.state {
        MemberState::Failed => {
            member.error.clone().map(|error| format!("{error}; begin again to try it again"))
        }
        _ => member.error.clone(),
    };
    Ok(DrainedCvm {
        vm_uuid: member.vm_uuid,
        name: member.name.clone(),
        state: member.state.to_string(),
        reason,
        replacement: replacement.map(|cvm| cvm.vm_uuid),
    })
}

fn staying(cvm: &PlacedRow, fresh_ms: i64) -> DrainedCvm {
    let obstacle = obstacle(cvm, fresh_ms);
    DrainedCvm {
        vm_uuid: cvm.vm_uuid,
        name: cvm.name.clone(),
        state: if obstacle.is_some() { "staying" } else { "waiting" }.to_owned(),
        reason: obstacle.map(|obstacle| obstacle.to_string()),
        replacement: None,
    }
}
