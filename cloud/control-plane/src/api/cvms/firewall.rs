//! `GET /cvms/{cvm_id}/firewall-status`

use axum::Json;
use axum::extract::State;
use cloister_management_api::FirewallStatus;

use crate::api::Api;
use crate::api::error::ApiResult;
use crate::api::responses::OnCvm;
use crate::api::target::Target;
use crate::fleet::{NodeStanding, NodeStatus};

/// Get whether ports of the node can lead to a CVM
///
/// They can where the operator of the node gave a range of ports for this.
#[utoipa::path(
    get, path = "/cvms/{cvm_id}/firewall-status", tag = "CVMs", operation_id = "get_cvm_firewall_status",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    responses((status = 200, description = "Whether they can, or why not", body = FirewallStatus), OnCvm),
)]
pub(crate) async fn firewall_status(
    State(api): State<Api>,
    Target(cvm): Target,
) -> ApiResult<Json<FirewallStatus>> {
    let node = api.fleet.standing(cvm.node_id).await?;
    let reason = obstacle(node.as_ref());
    Ok(Json(FirewallStatus { available: reason.is_none(), reason }))
}

fn obstacle(node: Option<&NodeStanding>) -> Option<String> {
    let Some(node) = node else {
        return Some("The CVM's node was removed from this installation".to_owned());
    };
    let name = &node.node.name;
    let offers = node.report.as_ref().is_some_and(|report| report.port_range.is_some());
    match node.status {
        _ if !offers => Some(format!("Node {name} maps no ports; use the application's URL")),
        NodeStatus::Online => None,
        other => Some(format!("Node {name} is {}; try again later", other.as_str())),
    }
}
