//! CVMs in version 2025-10-28.

use cloister_app_compose::{AppId, InstanceId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::cvms::GuestEvent;
use crate::refs::{CvmNetworkUrls, CvmNode, KmsInfo, ManagedUser};

/// Size of a CVM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MachineInfo {
    /// Virtual CPUs.
    pub vcpu: i64,
    /// Memory in MiB.
    pub memory: i64,
    /// Data disk in GiB.
    pub disk_size: i64,
    /// GPUs.
    pub gpu_count: i64,
}

/// The VM inside of [`HostedCvm`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VmInfo {
    /// Identity on the node.
    pub id: Uuid,
    /// Name.
    pub name: String,
    /// Current status.
    pub status: String,
    /// Time since it was started; empty when off.
    pub uptime: String,
    /// Where the ingress routes to it.
    pub app_url: Option<String>,
    /// Application.
    #[schema(value_type = String)]
    pub app_id: AppId,
    /// Identity within the application.
    #[schema(value_type = Option<String>)]
    pub instance_id: Option<InstanceId>,
    /// When it ended last.
    pub exited_at: Option<Timestamp>,
    /// How far the boot came.
    pub boot_progress: Option<String>,
    /// Why the boot failed.
    pub boot_error: Option<String>,
    /// How far the shutdown came.
    pub shutdown_progress: Option<String>,
    /// Name of the OS image.
    pub image_version: Option<String>,
    /// What the guest told.
    pub events: Vec<GuestEvent>,
}

/// An item of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostedCvm {
    /// The VM.
    pub hosted: VmInfo,
    /// Name.
    pub name: String,
    /// Owner.
    pub managed_user: Option<ManagedUser>,
    /// Node.
    pub node: Option<CvmNode>,
    /// Whether it is shown outside of the workspace.
    pub listed: bool,
    /// Current status.
    pub status: String,
    /// Whether an operation works on it.
    pub in_progress: bool,
    /// Page of the application.
    pub dapp_dashboard_url: Option<String>,
    /// Signed address of its logs; clients append `&ch=serial`.
    pub syslog_endpoint: Option<String>,
    /// Whether its OS image can be upgraded.
    pub allow_upgrade: bool,
    /// Project.
    pub project_id: Option<String>,
    /// Kind of project.
    pub project_type: Option<String>,
    /// How it is billed.
    pub billing_period: Option<String>,
    /// Key management service.
    pub kms_info: Option<KmsInfo>,
    /// Virtual CPUs.
    pub vcpu: Option<i64>,
    /// Memory in MiB.
    pub memory: Option<i64>,
    /// Data disk in GiB.
    pub disk_size: Option<i64>,
    /// Domain of the ingress.
    pub gateway_domain: Option<String>,
    /// Where the ingress routes to it.
    pub public_urls: Vec<CvmNetworkUrls>,
    /// Size.
    pub machine_info: Option<MachineInfo>,
    /// Last change.
    pub updated_at: Option<Timestamp>,
}

/// One CVM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = CvmDetail_v20251028)]
#[expect(clippy::struct_excessive_bools, reason = "the wire format")]
pub struct CvmDetail {
    /// Number.
    pub id: i64,
    /// Number of its node.
    pub teepod_id: Option<i64>,
    /// Its node.
    pub teepod: Option<CvmNode>,
    /// Name.
    pub name: String,
    /// Current status.
    pub status: String,
    /// Whether an operation works on it.
    pub in_progress: bool,
    /// Application.
    #[schema(value_type = String)]
    pub app_id: AppId,
    /// Identity on the node.
    pub vm_uuid: Option<Uuid>,
    /// Identity within the application.
    #[schema(value_type = Option<String>)]
    pub instance_id: Option<InstanceId>,
    /// Virtual CPUs.
    pub vcpu: i64,
    /// Memory in MiB.
    pub memory: i64,
    /// Data disk in GiB.
    pub disk_size: i64,
    /// Name of the OS image.
    pub base_image: Option<String>,
    /// Key to seal environments to.
    pub encrypted_env_pubkey: Option<String>,
    /// Whether it is shown outside of the workspace.
    pub listed: bool,
    /// Project.
    pub project_id: Option<String>,
    /// Kind of project.
    pub project_type: Option<String>,
    /// Catalogue id of its size.
    pub instance_type: Option<String>,
    /// Whether system figures are public.
    pub public_sysinfo: bool,
    /// Whether logs are public.
    pub public_logs: bool,
    /// Page of the application.
    pub dapp_dashboard_url: Option<String>,
    /// Signed address of its logs; clients append `&ch=serial`.
    pub syslog_endpoint: Option<String>,
    /// Key management service.
    pub kms_info: Option<KmsInfo>,
    /// Contract of the application.
    pub contract_address: Option<String>,
    /// Who deployed that contract.
    pub deployer_address: Option<String>,
    /// When it will be deleted.
    pub scheduled_delete_at: Option<Timestamp>,
    /// Where the ingress routes to it.
    pub public_urls: Vec<CvmNetworkUrls>,
    /// Domain of the ingress.
    pub gateway_domain: Option<String>,
    /// Size.
    pub machine_info: Option<MachineInfo>,
    /// Last change.
    pub updated_at: Option<Timestamp>,
}

/// The account.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = CurrentUser_v20251028)]
pub struct CurrentUser {
    /// Login name.
    pub username: String,
    /// Mail address.
    pub email: String,
    /// Credit in US dollars.
    pub credits: f64,
    /// The part of it that was granted.
    pub granted_credits: f64,
    /// Picture; may be empty.
    pub avatar: String,
    /// Name of the workspace.
    pub team_name: String,
    /// Tier of the workspace.
    pub team_tier: String,
}
