//! What can be had: sizes, images, nodes, workspaces, keys.

use cloister_app_compose::OsImageHash;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::{KmsContractId, KmsId, TokenId, VersionedId, WorkspaceId};
use crate::refs::{KmsInfo, NodeStatus};
use crate::scopes::KeyScope;

/// A size of CVMs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InstanceType {
    /// Id.
    #[schema(example = "tdx.small")]
    pub id: String,
    /// Name for people.
    pub name: String,
    /// What it is good for.
    pub description: String,
    /// Virtual CPUs.
    pub vcpu: u32,
    /// Memory in MiB.
    pub memory_mb: u32,
    /// Price of an hour in US dollars, exact decimal text.
    pub hourly_rate: String,
    /// Whether it has GPUs.
    pub requires_gpu: bool,
    /// How many.
    pub gpu_count: u32,
    /// Data disk in GiB when the request names none.
    pub default_disk_size_gb: u32,
    /// `cpu` or `gpu`.
    pub family: Option<String>,
}

/// All sizes. Clients refuse further members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InstanceTypes {
    /// One element for each family.
    pub result: Vec<InstanceTypeGroup>,
}

/// The sizes of a family. Clients refuse further members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InstanceTypeGroup {
    /// Family.
    pub name: String,
    /// Its sizes.
    pub items: Vec<InstanceType>,
    /// How many.
    pub total: usize,
}

/// The sizes of one family. Clients refuse further members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InstanceTypeFamily {
    /// Its sizes.
    pub items: Vec<InstanceType>,
    /// How many.
    pub total: usize,
    /// Family.
    pub family: String,
}

/// An OS image in `GET /os-images`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OsImage {
    /// Name.
    pub name: String,
    /// Name in requests.
    pub slug: String,
    /// Version as text.
    pub version: String,
    /// Hash of its contents.
    #[schema(value_type = Option<String>)]
    pub os_image_hash: Option<OsImageHash>,
    /// Whether it is a development image.
    pub is_dev: bool,
    /// Whether it needs GPUs.
    pub requires_gpu: bool,
}

/// An OS image of a node in `GET /teepods/available`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeImage {
    /// Name.
    pub name: String,
    /// Name in requests.
    pub slug: String,
    /// Whether it is a development image.
    pub is_dev: bool,
    /// Three or four numbers.
    #[schema(example = json!([0, 1, 0]))]
    pub version: Vec<u32>,
    /// Hash of its contents.
    #[schema(value_type = Option<String>)]
    pub os_image_hash: Option<OsImageHash>,
    /// Whether it needs GPUs.
    pub requires_gpu: bool,
}

/// `GET /teepods/available`: where new CVMs can run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AvailableNodes {
    /// Tier of the workspace.
    pub tier: String,
    /// What the workspace may use; null for no limit.
    pub capacity: TierCapacity,
    /// Nodes that are online.
    pub nodes: Vec<NodeOffer>,
    /// Key management services.
    pub kms_list: Vec<KmsInfo>,
    /// GPUs that are free.
    pub gpu_availability: GpuAvailability,
}

/// `GET /teepods/cvm-create-resources`: everything that a new CVM can be made of, and what goes together. Numbers of
/// services are integers before 2026-05-22.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct CvmCreateResources {
    /// Tier of the workspace.
    pub tier: String,
    /// What the workspace may use; null for no limit.
    pub capacity: TierCapacity,
    /// Nodes that are online.
    pub nodes: Vec<NodeOffer>,
    /// Key management services.
    pub kms_nodes: Vec<KmsResource>,
    /// Which service the CVMs of which node can have.
    pub node_kms_relations: Vec<NodeKmsRelation>,
    /// Gateways that are applications of their own: none, nodes lead requests to CVMs themselves.
    pub gateway_nodes: Vec<GatewayResource>,
    /// Sizes.
    pub instance_types: Vec<InstanceTypeResource>,
    /// GPUs that are free.
    pub gpu_availability: GpuAvailability,
}

/// A key management service that a new CVM can have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct KmsResource {
    /// Id.
    pub id: VersionedId<KmsId>,
    /// Name in requests.
    pub slug: Option<String>,
    /// Address.
    pub url: String,
    /// Version of its program.
    pub version: String,
    /// Who decides for it, as in requests.
    pub kms_type: String,
    /// Chain of its contract; null off chain.
    pub chain_id: Option<i64>,
    /// Id of its contract; null off chain.
    pub kms_contract_id: Option<VersionedId<KmsContractId>>,
    /// Its contract; null off chain.
    pub kms_contract_address: Option<String>,
    /// App id of the gateway that it trusts.
    pub gateway_app_id: Option<String>,
    /// Names of the OS images that CVMs with its keys can have.
    pub supported_os_images: Vec<String>,
}

/// That CVMs of a node can have keys of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct NodeKmsRelation {
    /// The node.
    pub teepod_id: i64,
    /// The service.
    pub kms_id: VersionedId<KmsId>,
    /// Who decides for it.
    pub kms_type: String,
    /// Its contract; null off chain.
    pub kms_contract_id: Option<VersionedId<KmsContractId>>,
    /// The same by its address.
    pub kms_contract_address: Option<String>,
    /// Names of the OS images of the node.
    pub supported_os_images: Vec<String>,
}

/// A gateway that is an application of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct GatewayResource {
    /// Id.
    pub id: String,
    /// Node that it is on.
    pub teepod_id: Option<i64>,
    /// Contract that decides for it.
    pub kms_contract_id: String,
    /// Where it is asked.
    pub rpc_url: Option<String>,
    /// What the names of its applications end with.
    pub domain_suffix: Option<String>,
    /// Whether it takes requests.
    pub enabled: bool,
}

/// A size that a new CVM can have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct InstanceTypeResource {
    /// Id.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// Virtual CPUs.
    pub vcpu: u32,
    /// Memory in MiB.
    pub memory_mb: u32,
    /// Data disk in GiB when the request names none.
    pub default_disk_size_gb: u32,
    /// Whether it has GPUs.
    pub requires_gpu: bool,
    /// How many.
    pub requires_gpu_count: u32,
    /// `cpu` or `gpu`.
    pub family: Option<String>,
    /// Its place in a list for people, from 0.
    pub display_order: usize,
}

/// GPUs that are free.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GpuAvailability {
    /// Whether some are kept for the workspace; never so far.
    pub has_reserved_gpus: bool,
    /// How many are.
    pub reserved_gpu_count: usize,
    /// Whether some are free for everybody.
    pub has_public_gpus: bool,
    /// How many are.
    pub public_gpu_count: usize,
}

/// What a workspace may use; null for no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TierCapacity {
    /// CVMs.
    pub max_instances: Option<i64>,
    /// Virtual CPUs.
    pub max_vcpu: Option<i64>,
    /// Memory in MiB.
    pub max_memory: Option<i64>,
    /// Disk in GiB.
    pub max_disk: Option<i64>,
}

/// A node with what is free on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeOffer {
    /// Number.
    pub teepod_id: i64,
    /// Name.
    pub name: String,
    /// Whether it is chosen for requests that name no node.
    pub listed: bool,
    /// Share of it that is free, 0 to 1.
    pub resource_score: f64,
    /// Free virtual CPUs.
    pub remaining_vcpu: i64,
    /// Free memory in MiB.
    pub remaining_memory: i64,
    /// Free CVM slots.
    pub remaining_cvm_slots: i64,
    /// Free disk in GiB.
    pub remaining_disk: i64,
    /// OS images.
    pub images: Vec<NodeImage>,
    /// Whether a contract-owned key management service is reachable.
    pub support_onchain_kms: bool,
    /// Platform identity, where the hardware has one.
    pub device_id: Option<String>,
    /// Region label.
    pub region_identifier: Option<String>,
    /// Slug of the key management service used when the request names none.
    pub default_kms: Option<String>,
    /// Slugs of the key management services that it can use.
    pub kms_list: Vec<String>,
}

/// A workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Workspace {
    /// Id.
    pub id: WorkspaceId,
    /// Name.
    pub name: String,
    /// Name in URLs.
    pub slug: Option<String>,
    /// Tier.
    pub tier: String,
    /// The caller's role in it.
    pub role: String,
    /// Whether the credential is bound to it.
    pub is_default: bool,
    /// Creation time.
    pub created_at: Timestamp,
}

/// An API key without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Id.
    pub id: TokenId,
    /// Name for people.
    pub name: String,
    /// The secret; only in the answer that creates the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// First characters of the secret, to recognise it by.
    pub token_prefix: String,
    /// What it may do, whatever its user may.
    pub scope: KeyScope,
    /// Whether it works.
    pub is_active: bool,
    /// Creation time.
    pub created_at: Timestamp,
    /// Last use, to the minute.
    pub last_used_at: Option<Timestamp>,
    /// When it stops working by itself.
    pub expires_at: Option<Timestamp>,
    /// Version for requests that name none.
    pub default_version: String,
}

/// A node as its operator sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AdminNode {
    /// Number.
    pub id: i64,
    /// Name.
    pub name: String,
    /// Whether it can be used.
    pub status: NodeStatus,
    /// Whether it is chosen for requests that name no node.
    pub listed: bool,
    /// Region label.
    pub region: Option<String>,
    /// Version of its program.
    pub version: Option<String>,
    /// How it runs CVMs.
    pub platform: Option<String>,
    /// Last report.
    pub reported_at: Option<Timestamp>,
    /// Enrolment time.
    pub created_at: Timestamp,
    /// CVMs on it.
    pub cvm_count: i64,
    /// OS images on it.
    pub images: Vec<String>,
}

/// What a new node joins with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeInvitation {
    /// One-time secret for `cloister serve node --join`.
    pub join_token: String,
    /// When it stops working.
    pub expires_at: Timestamp,
}

/// What became of a pushed image on each node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PushedImage {
    /// Reference under which compose files name it.
    pub reference: String,
    /// One element for each node that is online.
    pub nodes: Vec<PushedToNode>,
}

/// What became of a pushed image on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PushedToNode {
    /// Number of the node.
    pub node_id: i64,
    /// Its name.
    pub name: String,
    /// Manifest digest, if the node took the image.
    pub digest: Option<String>,
    /// Bytes of the image.
    pub size: Option<u64>,
    /// Why the node did not take it.
    pub error: Option<String>,
}
