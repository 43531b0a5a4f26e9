//! `/admin/nodes`: the machines of the installation

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use cloister_fleet_tls::is_node_name;
use cloister_management_api::{AdminNode, MaintenanceRequest, NodeInvitation, PlainError};
use serde_json::Value;

use crate::api::Api;
use crate::api::auth::Admin;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::Body;
use crate::api::responses::ForAdmins;
use crate::api::view::{node_status, time};
use crate::fleet::{JoinTokenError, NodeStanding};
use crate::store::NodeRow;

/// How long an invitation works; the store enforces the same.
const INVITATION_MS: i64 = 24 * 60 * 60 * 1000;

/// List nodes
#[utoipa::path(
    get, path = "/admin/nodes", tag = "Administration", operation_id = "admin_list_nodes",
    responses((status = 200, description = "Every node", body = Vec<AdminNode>), ForAdmins),
)]
pub(crate) async fn list(State(api): State<Api>, _: Admin) -> ApiResult<Json<Vec<AdminNode>>> {
    Ok(Json(api.fleet.standings().await?.iter().map(wire).collect()))
}

/// Invite a node
///
/// Makes a secret with which one new node joins within a day.
#[utoipa::path(
    post, path = "/admin/nodes/invitations", tag = "Administration", operation_id = "admin_invite_node",
    responses((status = 201, description = "The secret; shown once", body = NodeInvitation), ForAdmins),
)]
pub(crate) async fn invite(
    State(api): State<Api>,
    _: Admin,
) -> ApiResult<(StatusCode, Json<NodeInvitation>)> {
    let expires_at = time(api.clock.now_ms() + INVITATION_MS);
    let token = api.invite_node().await.map_err(|error| match error {
        JoinTokenError::Store(error) => ApiError::from(error),
        JoinTokenError::Random(error) => error.into(),
    })?;
    Ok((StatusCode::CREATED, Json(NodeInvitation { join_token: token.to_string(), expires_at })))
}

/// Begin or end a node's maintenance
///
/// A node under maintenance takes no new CVMs and no starts; its CVMs keep running.
#[utoipa::path(
    post, path = "/admin/nodes/{node}/maintenance", tag = "Administration", operation_id = "admin_set_node_maintenance",
    params(("node" = String, Path, description = "Number or name")),
    request_body(content = MaintenanceRequest, example = json!({"maintenance": true})),
    responses(
        (status = 200, description = "The node", body = AdminNode),
        (status = 404, description = "No such node", body = PlainError),
        ForAdmins,
    ),
)]
pub(crate) async fn maintenance(
    State(api): State<Api>,
    _: Admin,
    Path(node): Path<String>,
    Body(request): Body<MaintenanceRequest>,
) -> ApiResult<Json<AdminNode>> {
    let node = find(&api, &node).await?;
    let mut change = api.store.change().await?;
    change.set_node_maintenance(node.id, request.maintenance).await?;
    change.commit().await?;
    let standings = api.fleet.standings().await?;
    let standing = standings.iter().find(|standing| standing.node.id == node.id);
    standing.map(|standing| Json(wire(standing))).ok_or_else(|| ApiError::not_found("Node"))
}

/// Remove a node
///
/// Forgets a node without CVMs; its certificate is accepted no more.
#[utoipa::path(
    delete, path = "/admin/nodes/{node}", tag = "Administration", operation_id = "admin_remove_node",
    params(("node" = String, Path, description = "Number or name")),
    responses(
        (status = 204, description = "Removed"),
        (status = 400, description = "CVMs are on it", body = PlainError),
        (status = 404, description = "No such node", body = PlainError),
        ForAdmins,
    ),
)]
pub(crate) async fn remove(
    State(api): State<Api>,
    _: Admin,
    Path(node): Path<String>,
) -> ApiResult<StatusCode> {
    let node = find(&api, &node).await?;
    let now_ms = api.clock.now_ms();
    let mut change = api.store.change().await?;
    let removed = change.delete_node(node.id, now_ms).await?;
    change.commit().await?;
    if removed {
        return Ok(StatusCode::NO_CONTENT);
    }
    let text = format!("CVMs are on {}; delete them first", node.name);
    Err(ApiError::plain(StatusCode::BAD_REQUEST, text))
}

/// The node with a number or a name.
pub(super) async fn find(api: &Api, text: &str) -> ApiResult<NodeRow> {
    let row = match text.parse() {
        Ok(id) => api.store.node(id).await?,
        Err(_) if is_node_name(text) => api.store.node_by_name(text).await?,
        Err(_) => None,
    };
    row.ok_or_else(|| ApiError::not_found("Node"))
}

fn wire(standing: &NodeStanding) -> AdminNode {
    let report = standing.report.as_ref();
    // The name of an enumeration on the wire, without a second table of names.
    let platform = report.and_then(|report| serde_json::to_value(report.platform).ok());
    AdminNode {
        id: standing.node.id,
        name: standing.node.name.clone(),
        status: node_status(standing.status),
        listed: standing.node.listed != 0,
        region: report.map(|report| report.region.clone()),
        version: report.map(|report| report.version.clone()),
        platform: platform.as_ref().and_then(Value::as_str).map(str::to_owned),
        reported_at: standing.node.reported_at_ms.map(time),
        created_at: time(standing.node.created_at_ms),
        cvm_count: standing.node.usage.cvms,
        images: standing.images().iter().map(|image| image.name.clone()).collect(),
    }
}
