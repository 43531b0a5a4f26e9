//! CVMs in version 2026-01-21 and later.

use cloister_app_compose::{AppId, ComposeHash, InstanceId, OsImageHash};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::ids::{CvmId, WorkspaceId};
use crate::refs::{CvmNetworkUrls, NodeRef, UserRef, WorkspaceRef};

/// How a CVM is billed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum BillingPeriod {
    /// Not at all.
    Skip,
    /// By the hour.
    Hourly,
    /// By the month.
    Monthly,
}

/// Size and price.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = CVMResourceInfo)]
pub struct Resource {
    /// Catalogue id.
    pub instance_type: Option<String>,
    /// Virtual CPUs.
    pub vcpu: Option<i64>,
    /// Memory in GiB.
    pub memory_in_gb: Option<f64>,
    /// Data disk in GiB.
    pub disk_in_gb: Option<i64>,
    /// GPUs.
    pub gpus: Option<i64>,
    /// Price of an hour in US dollars, exact decimal text.
    pub compute_billing_price: Option<String>,
    /// How it is billed.
    pub billing_period: Option<BillingPeriod>,
}

/// What a CVM costs per hour; exact decimal texts. Only the disk is charged while it is stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = CVMHourlyRate)]
pub struct HourlyRate {
    /// All of it while it runs.
    pub total: String,
    /// Virtual CPUs, memory and GPUs.
    pub compute: String,
    /// Data disk.
    pub disk: String,
}

/// OS image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = CVMOSInfo)]
pub struct Os {
    /// Name.
    pub name: Option<String>,
    /// Version.
    pub version: Option<String>,
    /// Whether it is a development image.
    pub is_dev: Option<bool>,
    /// Hash of its contents.
    #[schema(value_type = Option<String>)]
    pub os_image_hash: Option<OsImageHash>,
}

/// Key management as a CVM sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = CVMKmsInfo)]
pub struct CvmKms {
    /// Chain.
    pub chain_id: Option<i64>,
    /// Contract of the key management service.
    pub dstack_kms_address: Option<String>,
    /// Contract of the application.
    pub dstack_app_address: Option<String>,
    /// Who deployed that contract.
    pub deployer_address: Option<String>,
    /// Address of a chain node.
    pub rpc_endpoint: Option<String>,
    /// Key to seal environments to.
    pub encrypted_env_pubkey: Option<String>,
}

/// The operation that works on a CVM. Clients take a set `target` for "busy".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = CVMProgressInfo)]
pub struct Progress {
    /// Status that it aims at.
    pub target: Option<String>,
    /// When it began.
    pub started_at: Option<Timestamp>,
    /// Its id.
    pub correlation_id: Option<Uuid>,
}

/// The ingress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = CVMGatewayInfo)]
pub struct Gateway {
    /// Domain under which it routes.
    pub base_domain: Option<String>,
    /// Name that own domains point to.
    pub cname: Option<String>,
}

/// Signed addresses of logs; clients append parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = CVMLogUrls)]
pub struct LogUrls {
    /// Serial console.
    pub serial: Option<String>,
    /// Standard output.
    pub stdout: Option<String>,
    /// Standard error.
    pub stderr: Option<String>,
    /// Container logs: append `/<name>` before the query.
    pub container_log_base: Option<String>,
}

/// An item of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = CVMInfo_v20260121)]
#[expect(clippy::struct_excessive_bools, reason = "the wire format")]
pub struct CvmInfo {
    /// Id.
    pub id: CvmId,
    /// Name.
    pub name: String,
    /// Application.
    #[schema(value_type = Option<String>)]
    pub app_id: Option<AppId>,
    /// Identity on the node.
    pub vm_uuid: Option<Uuid>,
    /// Identity within the application.
    #[schema(value_type = Option<String>)]
    pub instance_id: Option<InstanceId>,
    /// Size and price.
    pub resource: Resource,
    /// What it costs per hour.
    pub hourly_rate: Option<HourlyRate>,
    /// Node.
    pub node_info: Option<NodeRef>,
    /// OS image.
    pub os: Option<Os>,
    /// Kind of key management: `phala`, `ethereum`, `base` or `legacy`.
    pub kms_type: Option<String>,
    /// Key management.
    pub kms_info: Option<CvmKms>,
    /// Current status.
    #[schema(example = "running")]
    pub status: String,
    /// Whether an operation works on it.
    pub in_progress: bool,
    /// That operation; null when idle.
    pub progress: Option<Progress>,
    /// Hash of the compose document.
    #[schema(value_type = Option<String>)]
    pub compose_hash: Option<ComposeHash>,
    /// SHA-256 of the compose file.
    pub docker_compose_hash: Option<String>,
    /// SHA-256 of the pre-launch script.
    pub pre_launch_script_hash: Option<String>,
    /// Ingress.
    pub gateway: Gateway,
    /// Logs.
    pub logs: LogUrls,
    /// Services that the platform adds.
    #[schema(value_type = Vec<Object>)]
    pub services: Vec<Map<String, Value>>,
    /// Where the ingress routes to it.
    pub endpoints: Option<Vec<CvmNetworkUrls>>,
    /// Whether logs are public.
    pub public_logs: bool,
    /// Whether system figures are public.
    pub public_sysinfo: bool,
    /// Whether measurements are public.
    pub public_tcbinfo: bool,
    /// Whether the ingress routes to it.
    pub gateway_enabled: bool,
    /// Whether the boot waits for a synchronised clock.
    pub secure_time: bool,
    /// File system of the data disk.
    pub storage_fs: String,
    /// Owner.
    pub workspace: Option<WorkspaceRef>,
    /// Who created it.
    pub creator: Option<UserRef>,
    /// Creation time.
    pub created_at: Option<Timestamp>,
    /// Deletion time.
    pub deleted_at: Option<Timestamp>,
    /// Whether it is shown outside of the workspace.
    pub listed: bool,
    /// Kind of project.
    pub project_type: Option<String>,
}

/// One CVM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = CVMInfoDetail_v20260121)]
pub struct CvmInfoDetail {
    /// What lists show too.
    #[serde(flatten)]
    pub info: CvmInfo,
    /// The compose document.
    #[schema(value_type = Option<Object>)]
    pub compose_file: Option<Value>,
}

/// The account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = CurrentUser_v20260121)]
pub struct CurrentUser {
    /// Who the credential stands for.
    pub user: AccountUser,
    /// The workspace that the credential is bound to.
    pub workspace: AccountWorkspace,
    /// Its credit.
    pub credits: Credits,
}

/// A user about themselves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[expect(clippy::struct_excessive_bools, reason = "the wire format")]
pub struct AccountUser {
    /// Login name.
    pub username: String,
    /// Mail address.
    pub email: String,
    /// `admin` or `user`.
    pub role: String,
    /// Picture; may be empty.
    pub avatar: String,
    /// Whether the mail address was confirmed.
    pub email_verified: bool,
    /// Whether a second factor is set up.
    pub totp_enabled: bool,
    /// Whether there are codes for a lost second factor.
    pub has_backup_codes: bool,
    /// Whether the user can log in with a password.
    pub flag_has_password: bool,
}

/// A workspace as a member sees it in the account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccountWorkspace {
    /// Id.
    pub id: WorkspaceId,
    /// Name.
    pub name: String,
    /// Name in URLs.
    pub slug: Option<String>,
    /// Tier.
    pub tier: String,
    /// The user's role in it.
    pub role: String,
    /// Picture.
    pub avatar: Option<String>,
}

/// Credit of a workspace; amounts are exact decimal texts in US dollars.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Credits {
    /// What is left.
    pub balance: String,
    /// The part of it that was granted.
    pub granted_balance: String,
    /// Whether the workspace pays afterwards.
    pub is_post_paid: bool,
    /// What it owes.
    pub outstanding_amount: Option<String>,
}
