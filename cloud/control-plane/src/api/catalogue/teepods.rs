//! `GET /teepods/available` and `/teepods/cvm-create-resources`

use axum::Json;
use axum::extract::State;
use cloister_management_api::{
    ApiVersion, AvailableNodes, CvmCreateResources, GpuAvailability, InstanceTypeResource, KmsContractId,
    KmsId, KmsResource, NodeImage, NodeKmsRelation, NodeOffer, TierCapacity, VersionedId,
};

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::negotiate::Version;
use crate::api::placing::wire_version;
use crate::api::responses::Authenticated;
use crate::api::sizes;
use crate::fleet::{NodeStanding, NodeStatus};
use crate::kms::{Kms, Kmses};
use crate::store::Caller;

/// List where new CVMs can run
#[utoipa::path(
    get, path = "/teepods/available", tag = "Catalogue", operation_id = "list_available_nodes",
    responses((status = 200, description = "Nodes that are online, with what is free on them", body = AvailableNodes), Authenticated),
)]
pub(crate) async fn available(State(api): State<Api>, Auth(caller): Auth) -> ApiResult<Json<AvailableNodes>> {
    let (tier, nodes) = (tier(&api, &caller).await?, online(&api).await?);
    Ok(Json(AvailableNodes {
        tier,
        capacity: TierCapacity::default(),
        nodes: nodes.iter().map(|node| offer(node, &api.kmses)).collect(),
        kms_list: api.kmses.all().iter().map(|kms| kms.info()).collect(),
        gpu_availability: gpus(&nodes),
    }))
}

/// List what new CVMs can be made of
///
/// Nodes, key management services, sizes, and what goes together.
#[utoipa::path(
    get, path = "/teepods/cvm-create-resources", tag = "Catalogue", operation_id = "list_cvm_create_resources",
    responses((status = 200, description = "What there is now, ids in the form of the version", body = CvmCreateResources), Authenticated),
)]
pub(crate) async fn create_resources(
    State(api): State<Api>,
    Auth(caller): Auth,
    Version(version): Version,
) -> ApiResult<Json<CvmCreateResources>> {
    let (tier, nodes) = (tier(&api, &caller).await?, online(&api).await?);
    let mut all_images: Vec<_> = nodes.iter().flat_map(image_names).collect();
    all_images.sort();
    all_images.dedup();
    let kmses = api.kmses.all();
    Ok(Json(CvmCreateResources {
        tier,
        capacity: TierCapacity::default(),
        kms_nodes: kmses.iter().map(|kms| kms_resource(kms, version, &all_images)).collect(),
        node_kms_relations: nodes
            .iter()
            .flat_map(|node| kmses.iter().map(move |kms| relation(node, kms, version)))
            .collect(),
        gateway_nodes: Vec::new(),
        instance_types: sizes::all(api.store.prices())
            .enumerate()
            .map(|(display_order, size)| InstanceTypeResource {
                id: size.id,
                name: size.name,
                vcpu: size.vcpu,
                memory_mb: size.memory_mb,
                default_disk_size_gb: size.default_disk_size_gb,
                requires_gpu: size.requires_gpu,
                requires_gpu_count: size.gpu_count,
                family: size.family,
                display_order,
            })
            .collect(),
        gpu_availability: gpus(&nodes),
        nodes: nodes.iter().map(|node| offer(node, &api.kmses)).collect(),
    }))
}

async fn tier(api: &Api, caller: &Caller) -> ApiResult<String> {
    let workspace = api.store.workspace(caller.workspace_id).await?;
    Ok(workspace.ok_or_else(|| ApiError::not_found("Workspace"))?.tier)
}

async fn online(api: &Api) -> ApiResult<Vec<NodeStanding>> {
    let mut nodes = api.fleet.standings().await?;
    nodes.retain(|node| node.status == NodeStatus::Online);
    Ok(nodes)
}

fn image_names(node: &NodeStanding) -> Vec<String> {
    node.offered_images().map(|image| image.name.clone()).collect()
}

/// An id in the form of a version.
fn versioned<T>(version: ApiVersion, id: i64, hashed: fn(i64) -> T) -> VersionedId<T> {
    if version.has_text_ids() { VersionedId::Hashed(hashed(id)) } else { VersionedId::Integer(id) }
}

fn kms_resource(kms: &Kms, version: ApiVersion, images: &[String]) -> KmsResource {
    let info = kms.info();
    KmsResource {
        id: versioned(version, kms.id(), KmsId),
        slug: info.slug,
        url: info.url,
        version: info.version,
        kms_type: kms.kind().to_owned(),
        chain_id: info.chain_id,
        kms_contract_id: kms.contract().map(|_| versioned(version, kms.id(), KmsContractId)),
        kms_contract_address: info.kms_contract_address,
        gateway_app_id: info.gateway_app_id,
        supported_os_images: images.to_vec(),
    }
}

/// Every node's guests reach every service.
fn relation(node: &NodeStanding, kms: &Kms, version: ApiVersion) -> NodeKmsRelation {
    NodeKmsRelation {
        teepod_id: node.node.id,
        kms_id: versioned(version, kms.id(), KmsId),
        kms_type: kms.kind().to_owned(),
        kms_contract_id: kms.contract().map(|_| versioned(version, kms.id(), KmsContractId)),
        kms_contract_address: kms.info().kms_contract_address,
        supported_os_images: image_names(node),
    }
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
