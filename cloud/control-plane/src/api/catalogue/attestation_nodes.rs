//! `GET /attestations/nodes`

use axum::Json;
use axum::extract::State;
use cloister_management_api::NodeRef;

use crate::api::Api;
use crate::api::error::ApiResult;
use crate::api::view::node_ref;

/// List the nodes of this installation
///
/// Public: whoever relies on an app can see on what machines this installation runs CVMs.
#[utoipa::path(
    get, path = "/attestations/nodes", tag = "Attestation", operation_id = "list_nodes", security(()),
    responses((status = 200, description = "Every node that is not removed", body = Vec<NodeRef>)),
)]
pub(crate) async fn attestation_nodes(State(api): State<Api>) -> ApiResult<Json<Vec<NodeRef>>> {
    Ok(Json(api.fleet.standings().await?.iter().map(node_ref).collect()))
}
