//! `GET /cvms/{cvm_id}/network`

use axum::Json;
use axum::extract::State;
use cloister_management_api::CvmNetwork;
use cloister_node_api::VmNetwork;

use super::composition::powered;
use crate::api::Api;
use crate::api::error::ApiResult;
use crate::api::responses::OnCvm;
use crate::api::scene::Scene;
use crate::api::target::Target;
use crate::api::view::{Shown, View};
use crate::store::CvmRow;

/// Get how a CVM is connected
///
/// Asks the node. A CVM that does not run is described with `is_online: false` and a reason.
#[utoipa::path(
    get, path = "/cvms/{cvm_id}/network", tag = "CVMs", operation_id = "get_cvm_network",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    responses((status = 200, description = "How it is connected", body = CvmNetwork), OnCvm),
)]
pub(crate) async fn network(State(api): State<Api>, Target(cvm): Target) -> ApiResult<Json<CvmNetwork>> {
    let scene = Scene::of(&api, std::slice::from_ref(&cvm)).await?;
    let (seen, error) = match asked(&api, &cvm).await {
        Ok(seen) => (Some(seen), None),
        Err(reason) => (None, Some(reason)),
    };
    Ok(Json(CvmNetwork {
        is_online: seen.is_some(),
        is_public: Shown::of(&cvm.app_compose).public_sysinfo,
        error,
        internal_ip: seen.as_ref().and_then(|seen| seen.internal_ip).map(|ip| ip.to_string()),
        latest_handshake: seen.and_then(|seen| seen.last_heard_at),
        public_urls: Some(View::new(&api, &scene, &cvm).urls()),
    }))
}

async fn asked(api: &Api, cvm: &CvmRow) -> Result<VmNetwork, String> {
    powered(cvm)?;
    let seen = api.fleet.network(cvm.node_id, cvm.vm_uuid).await.map_err(|error| error.to_string())?;
    // A node knows the address of a guest while its VM runs.
    if seen.internal_ip.is_some() { Ok(seen) } else { Err("the VM does not run".to_owned()) }
}
