//! CVMs in the forms that do not depend on the version, or only by the form of an id.

use cloister_app_compose::{AppId, ComposeHash, InstanceId, OsImageHash};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::ids::VmId;
use crate::refs::{KmsInfo, TeepodMeta};

/// Answer of a provision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProvisionResponse {
    /// Hash to create the CVM with, within 14 days.
    #[schema(value_type = String)]
    pub compose_hash: ComposeHash,
    /// App id to create the CVM with; null when a contract's address has to be brought.
    #[schema(value_type = Option<String>)]
    pub app_id: Option<AppId>,
    /// X25519 key to seal the environment to, 64 hex digits; null without key management.
    pub app_env_encrypt_pubkey: Option<String>,
    /// Key management service of the chosen node; null if it has none.
    pub kms_info: Option<KmsInfo>,
    /// Platform identity of the chosen node's processor family.
    pub fmspc: Option<String>,
    /// Platform identity of the chosen node, 64 hex digits.
    pub device_id: Option<String>,
    /// Hash of the chosen OS image.
    #[schema(value_type = Option<String>)]
    pub os_image_hash: Option<OsImageHash>,
    /// Size.
    pub instance_type: Option<String>,
    /// Number of the chosen node.
    pub teepod_id: Option<i64>,
    /// The same number under its newer name.
    pub node_id: Option<i64>,
    /// Node of the key management service.
    pub kms_id: Option<String>,
    /// Contract of the key management service.
    pub kms_contract_id: Option<String>,
}

/// A CVM as operations that change it answer. Every member is always present.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = VM)]
pub struct Vm {
    /// Identifier; its form depends on the version.
    pub id: VmId,
    /// Name.
    pub name: String,
    /// Current status.
    #[schema(example = "running")]
    pub status: String,
    /// Number of its node.
    pub teepod_id: i64,
    /// Its node.
    pub teepod: Option<TeepodMeta>,
    /// Number of its owner.
    pub user_id: Option<i64>,
    /// Application.
    #[schema(value_type = String)]
    pub app_id: AppId,
    /// Identity on the node.
    pub vm_uuid: Option<Uuid>,
    /// Identity within the application, from the first boot on.
    #[schema(value_type = Option<String>)]
    pub instance_id: Option<InstanceId>,
    /// Where the ingress routes to it.
    pub app_url: Option<String>,
    /// Name of the OS image.
    pub base_image: Option<String>,
    /// Virtual CPUs.
    pub vcpu: i64,
    /// Memory in MiB.
    pub memory: i64,
    /// Data disk in GiB.
    pub disk_size: i64,
    /// Version of the compose document's rules.
    pub manifest_version: Option<i64>,
    /// Version of the runner.
    pub version: Option<String>,
    /// What runs the application.
    pub runner: Option<String>,
    /// Compose file.
    pub docker_compose_file: Option<String>,
    /// Features of the compose document.
    pub features: Option<Vec<String>>,
    /// Creation time.
    pub created_at: Timestamp,
    /// Key to seal environments to.
    pub encrypted_env_pubkey: Option<String>,
    /// Contract that decides what the application may run, `0x` and 40 hex digits; left out where none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_auth_contract_address: Option<String>,
}

/// `GET /cvms/{cvm_id}/state` and the events of its stream. Unknown members are left out, never null.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CvmState {
    /// Identity on the node.
    pub id: Uuid,
    /// Name.
    pub name: String,
    /// Current status.
    #[schema(example = "running")]
    pub status: String,
    /// Whether an operation works on it.
    pub in_progress: bool,
    /// Identity on the node.
    pub vm_uuid: Uuid,
    /// Identity within the application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub instance_id: Option<InstanceId>,
    /// Time since it was started, such as `1h 2m 3s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime: Option<String>,
    /// When it ended last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exited_at: Option<Timestamp>,
    /// Why it did, for people, if nobody asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_reason: Option<String>,
    /// How far the boot came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_progress: Option<String>,
    /// Why the boot failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_error: Option<String>,
    /// How far the shutdown came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shutdown_progress: Option<String>,
    /// How its application does, as its guest tells: `starting`, `healthy` or `unhealthy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "healthy")]
    pub health: Option<String>,
    /// What is not healthy, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_detail: Option<String>,
    /// Operation that works on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<Uuid>,
}

/// Status of one CVM in `POST /status/batch` and `GET /cvms/{cvm_id}/operation-status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CvmStatus {
    /// Identity on the node, as the request spelt it.
    pub vm_uuid: String,
    /// Current status.
    #[schema(example = "running")]
    pub status: String,
    /// Time since it was started; null when off.
    pub uptime: Option<String>,
    /// Whether an operation works on it.
    pub in_progress: bool,
    /// How far the boot came.
    pub boot_progress: Option<String>,
    /// Why the boot failed.
    pub boot_error: Option<String>,
    /// How far the shutdown came.
    pub shutdown_progress: Option<String>,
    /// Why its VM ended, for people, if nobody asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_reason: Option<String>,
    /// How its application does, as its guest tells: `starting`, `healthy` or `unhealthy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "healthy")]
    pub health: Option<String>,
    /// What is not healthy, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_detail: Option<String>,
    /// What the guest told.
    pub events: Vec<GuestEvent>,
    /// Kind of the operation that works on it.
    pub operation_type: Option<String>,
    /// When that began.
    pub operation_started_at: Option<Timestamp>,
    /// Its id.
    pub correlation_id: Option<Uuid>,
}

/// Something that a guest told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GuestEvent {
    /// Kind.
    pub event: String,
    /// Content.
    pub body: String,
    /// Unix time in milliseconds.
    pub timestamp: i64,
}

/// `GET /cvms/{cvm_id}/composition`: what runs in the CVM now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Composition {
    /// Whether the guest answered.
    pub is_online: bool,
    /// Whether its logs are public.
    pub is_public: bool,
    /// Why it did not answer.
    pub error: Option<String>,
    /// Compose file.
    pub docker_compose_file: Option<String>,
    /// Version of the compose document's rules.
    pub manifest_version: Option<i64>,
    /// Version of the runner.
    pub version: Option<String>,
    /// What runs the application.
    pub runner: Option<String>,
    /// Features of the compose document.
    pub features: Option<Vec<String>>,
    /// Containers; null when the guest did not answer.
    pub containers: Option<Vec<Container>>,
}

/// A container of a CVM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Container {
    /// Id that the engine gave.
    pub id: String,
    /// Names, each with a leading slash.
    pub names: Vec<String>,
    /// Image reference.
    pub image: String,
    /// Image id.
    pub image_id: String,
    /// Command line; absent, since it may hold values of the sealed environment.
    pub command: Option<String>,
    /// Unix time in seconds of its creation.
    pub created: i64,
    /// State in one word.
    pub state: String,
    /// State for people.
    pub status: String,
    /// Signed address of its log; clients append parameters.
    pub log_endpoint: Option<String>,
}
