//! `GET /teepods/available`

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use cloister_management_api::{AvailableNodes, GpuAvailability, NodeImage, NodeOffer, TierCapacity};

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::placing::wire_version;
use crate::api::responses::Authenticated;
use crate::fleet::{NodeStanding, NodeStatus};
use crate::kms::Kmses;

/// List where new CVMs can run
#[utoipa::path(
    get, path = "/teepods/available", tag = "Catalogue", operation_id = "list_available_nodes",
    responses((status = 200, description = "Nodes that are online, with what is free on them", body = AvailableNodes), Authenticated),
)]
pub(crate) async fn available(
    State(api): State<Arc<Api>>,
    Auth(caller): Auth,
) -> ApiResult<Json<AvailableNodes>> {
    let workspace = api.store.workspace(caller.workspace_id).await?;
    let workspace = workspace.ok_or_else(|| ApiError::not_found("Workspace"))?;
    let mut nodes = api.fleet.standings().await?;
    nodes.retain(|node| node.status == NodeStatus::Online);
    Ok(Json(AvailableNodes {
        tier: workspace.tier,
        capacity: TierCapacity::default(),
        nodes: nodes.iter().map(|node| offer(node, &api.kmses)).collect(),
        kms_list: api.kmses.all().iter().map(|kms| kms.info()).collect(),
        gpu_availability: gpus(&nodes),
    }))
}

/// GPUs that requests which name no node can get.
pub(super) fn gpus(nodes: &[NodeStanding]) -> GpuAvailability {
    let listed = nodes.iter().filter(|node| node.node.listed != 0 && node.node.draining == 0);
    let count = listed.flat_map(NodeStanding::free_gpus).count();
    GpuAvailability { has_public_gpus: count > 0, public_gpu_count: count, ..GpuAvailability::default() }
}

/// Every node's guests reach every service.
fn offer(node: &NodeStanding, kmses: &Kmses) -> NodeOffer {
    let left = node.remaining();
    NodeOffer {
        teepod_id: node.node.id,
        name: node.node.name.clone(),
        listed: node.node.listed != 0,
        resource_score: node.resource_score(),
        remaining_vcpu: left.vcpu,
        remaining_memory: left.memory_mb,
        remaining_cvm_slots: left.cvms,
        remaining_disk: left.disk_gb,
        images: node.offered_images().map(image).collect(),
        support_onchain_kms: kmses.all().iter().any(|kms| kms.contract().is_some()),
        device_id: node.device.as_ref().map(|device| device.device_id.clone()),
        region_identifier: node.report.as_ref().map(|report| report.region.clone()),
        default_kms: kmses.default_one().map(|kms| kms.slug().to_owned()),
        kms_list: kmses.all().iter().map(|kms| kms.slug().to_owned()).collect(),
    }
}

fn image(image: &cloister_node_api::NodeImage) -> NodeImage {
    NodeImage {
        name: image.name.clone(),
        slug: image.name.clone(),
        is_dev: image.is_dev,
        version: wire_version(&image.version),
        os_image_hash: Some(image.os_image_hash),
        requires_gpu: image.supports_gpu,
    }
}
