//! Applications: the living CVMs of a workspace that share an app id.

use cloister_app_compose::{AppId, InstanceId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::ids::{KmsId, ProjectId};
use crate::v20251028::MachineInfo;
use crate::v20260121::CvmInfo;

/// What people see of an application.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ProfileGetResponse)]
pub struct AppProfile {
    /// Name for people.
    pub display_name: Option<String>,
    /// Picture.
    pub avatar_url: Option<String>,
    /// What it does.
    pub description: Option<String>,
    /// Domain of its own.
    pub custom_domain: Option<String>,
}

/// A CVM of an application in version 2025-10-28.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = CvmBasicInfo_apps_v20251028)]
pub struct CvmBasicInfo {
    /// Identity on the node.
    pub vm_uuid: Option<Uuid>,
    /// Application.
    #[schema(value_type = String)]
    pub app_id: AppId,
    /// Name.
    pub name: String,
    /// Current status.
    pub status: String,
    /// Virtual CPUs.
    pub vcpu: i64,
    /// Memory in MiB.
    pub memory: i64,
    /// Data disk in GiB.
    pub disk_size: i64,
    /// Number of its node.
    pub teepod_id: i64,
    /// Name of its node.
    pub teepod_name: String,
    /// Region of its node.
    pub region_identifier: Option<String>,
    /// Kind of key management service.
    pub kms_type: Option<String>,
    /// Catalogue id of its size.
    pub instance_type: Option<String>,
    /// Whether it is shown outside of the workspace.
    pub listed: Option<bool>,
    /// Name of the OS image.
    pub base_image: Option<String>,
    /// Name of the key management service.
    pub kms_slug: Option<String>,
    /// Id of the key management service.
    pub kms_id: Option<KmsId>,
    /// Identity within the application.
    #[schema(value_type = Option<String>)]
    pub instance_id: Option<InstanceId>,
    /// Size.
    pub machine_info: Option<MachineInfo>,
    /// Last change.
    pub updated_at: Option<Timestamp>,
}

/// An application as members of its workspace see it; `C` is the form of its CVMs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct App<C> {
    /// Id.
    pub id: ProjectId,
    /// Name, that of its newest CVM.
    pub name: String,
    /// Application id.
    #[schema(value_type = String)]
    pub app_id: AppId,
    /// How it came to be.
    pub app_provision_type: Option<String>,
    /// Picture.
    pub app_icon_url: Option<String>,
    /// Creation of its oldest CVM.
    pub created_at: Timestamp,
    /// Kind of key management service; empty for an application that wants no keys.
    pub kms_type: String,
    /// What people see of it.
    pub profile: Option<AppProfile>,
    /// The CVM that stands for it: the newest that is up, else the newest.
    pub current_cvm: Option<C>,
    /// Its CVMs, newest first, at most 100.
    pub cvms: Vec<C>,
    /// How many it has.
    pub cvm_count: i64,
    /// Name of the workspace in URLs; version 2025-10-28 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team_slug: Option<String>,
    /// Name of the workspace; version 2025-10-28 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team_name: Option<String>,
}

/// An application as others see it: every member but its id is null.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = AppMinimalResponse)]
pub struct AppMinimal {
    /// Application id.
    #[schema(value_type = String)]
    pub app_id: AppId,
    /// Null.
    pub id: (),
    /// Null.
    pub name: (),
    /// Null.
    pub app_provision_type: (),
    /// Null.
    pub app_icon_url: (),
    /// Null.
    pub created_at: (),
    /// Null.
    pub kms_type: (),
    /// Null.
    pub profile: (),
    /// Null.
    pub current_cvm: (),
    /// Null.
    pub cvms: (),
    /// Null.
    pub cvm_count: (),
}

impl AppMinimal {
    /// What others see of an application.
    #[must_use]
    pub const fn of(app_id: AppId) -> Self {
        Self {
            app_id,
            id: (),
            name: (),
            app_provision_type: (),
            app_icon_url: (),
            created_at: (),
            kms_type: (),
            profile: (),
            current_cvm: (),
            cvms: (),
            cvm_count: (),
        }
    }
}

/// `GET /apps/{app_id}` in the form of its version.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum AppRecord {
    /// Version 2026-01-21 and later.
    Info(Box<App<CvmInfo>>),
    /// Version 2025-10-28.
    Basic(Box<App<CvmBasicInfo>>),
    /// For others than the members of its workspace.
    Minimal(AppMinimal),
}

/// `GET /apps`: a page of applications.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = AppListResponse)]
pub struct AppPage {
    /// Items of this page.
    pub dstack_apps: Vec<AppRecord>,
    /// Number of this page, from 1.
    pub page: u32,
    /// Most items of a page.
    pub page_size: u32,
    /// Items of all pages.
    pub total: i64,
    /// Number of pages.
    pub total_pages: i64,
}

/// `GET /apps/filter-options`: values that the workspace's CVMs have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = FilterOptionsResponse)]
pub struct AppFilterOptions {
    /// Statuses.
    pub statuses: Vec<String>,
    /// Names of OS images (`base_image`).
    pub image_versions: Vec<String>,
    /// Catalogue ids of sizes.
    pub instance_types: Vec<String>,
    /// Names of key management services.
    pub kms_slugs: Vec<String>,
    /// Kinds of key management services.
    pub kms_types: Vec<String>,
    /// Regions.
    pub regions: Vec<String>,
    /// Names of nodes.
    pub nodes: Vec<String>,
}

/// What may be used of something, and what is left; -1 stands for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Quota {
    /// What may be used.
    pub limit: i64,
    /// What is left of it.
    pub remaining: i64,
}

impl Quota {
    /// No limit.
    pub const UNLIMITED: Self = Self { limit: -1, remaining: -1 };
    /// Nothing.
    pub const NONE: Self = Self { limit: 0, remaining: 0 };
}

/// `GET /workspaces/{slug}/quotas`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkspaceQuotas {
    /// Name of the workspace in URLs.
    pub team_slug: String,
    /// Tier.
    pub tier: String,
    /// What may be used.
    pub quotas: Quotas,
    /// Nodes of its own.
    pub reserved_nodes: Quota,
    /// GPUs of its own.
    pub reserved_gpu: ReservedGpus,
    /// When that was so.
    pub as_of: Timestamp,
}

/// What a workspace may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Quotas {
    /// CVMs.
    pub vm_slots: Quota,
    /// Virtual CPUs.
    pub vcpu: Quota,
    /// Memory in MiB.
    pub memory_mb: Quota,
    /// Disk in GiB.
    pub disk_gb: Quota,
}

/// GPUs that only one workspace uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReservedGpus {
    /// How many it may use.
    pub gpus: Quota,
    /// How many it uses.
    pub in_use: i64,
    /// How many cannot be used.
    pub misconfigured: i64,
}
