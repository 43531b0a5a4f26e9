//! Configurations that the CVMs of an application had, and bringing one back.

use cloister_app_compose::{AppId, ComposeHash, members};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::changes::ConfigurationDiff;
use crate::ids::{CvmId, RevisionId, RolloutId};
use crate::refs::{UserRef, WorkspaceRef};
use crate::requests::{Optional, SealedEnv};

/// A CVM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CvmRef {
    /// `cvm`
    pub object_type: CvmType,
    /// Id.
    pub id: Option<CvmId>,
    /// Identity on its node.
    pub vm_uuid: Uuid,
    /// Application.
    #[schema(value_type = Option<String>)]
    pub app_id: Option<AppId>,
    /// Name.
    pub name: Option<String>,
}

/// Fixed text `cvm`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum CvmType {
    /// The only value.
    #[default]
    #[serde(rename = "cvm")]
    Value,
}

/// What became of a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RevisionStanding {
    /// Its CVM has it now.
    Current,
    /// A later one took its place.
    Superseded,
    /// The change that brought it was taken back.
    RolledBack,
}

/// A configuration that a CVM has or had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Revision {
    /// Id.
    pub revision_id: RevisionId,
    /// Application.
    #[schema(value_type = String)]
    pub app_id: AppId,
    /// The CVM's identity.
    pub vm_uuid: Uuid,
    /// Hash of the compose document.
    #[schema(value_type = String)]
    pub compose_hash: ComposeHash,
    /// When the change was accepted.
    pub created_at: Timestamp,
    /// Correlation id of the operation that brought it; null for CVMs that are older than revisions.
    pub trace_id: Option<String>,
    /// `deploy` or `update`.
    #[schema(example = "update")]
    pub operation_type: String,
    /// Who asked for it.
    pub triggered_by: Option<UserRef>,
    /// Whose it is.
    pub cvm: Option<CvmRef>,
    /// Where.
    pub workspace: Option<WorkspaceRef>,
    /// What became of it.
    pub state: RevisionStanding,
}

/// A page of revisions, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = AppRevisionsResponse)]
pub struct RevisionPage {
    /// The revisions.
    pub revisions: Vec<Revision>,
    /// How many there are.
    pub total: i64,
    /// Number of this page, from 1.
    pub page: u32,
    /// Most revisions of a page.
    pub page_size: u32,
    /// How many pages there are.
    pub total_pages: i64,
}

/// A revision with everything that it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = AppRevisionDetailResponse)]
pub struct RevisionDetail {
    /// What lists show of it.
    #[serde(flatten)]
    pub revision: Revision,
    /// The compose document; with `raw_compose_file` its exact text, whose SHA-256 is the compose hash.
    pub compose_file: RevisionDocument,
    /// Sealed environment in hex; empty when there is none, or when it was removed with its CVM.
    pub encrypted_env: String,
    /// Unmeasured configuration; empty when there is none.
    pub user_config: String,
    /// Name of the OS image.
    pub os_image: String,
    /// Catalogue id of the size.
    pub instance_type: Option<String>,
    /// Virtual CPUs.
    pub vcpu: i64,
    /// Memory in MiB.
    pub memory: i64,
    /// Data disk in GiB.
    pub disk_size: i64,
}

/// The compose document of a revision, in the form that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum RevisionDocument {
    /// Its exact text.
    Text(String),
    /// Its members.
    Members(Map<String, Value>),
}

/// What differs between two configurations of an application's CVMs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RevisionDiff {
    /// The side before: a revision; null for what a CVM older than revisions has now.
    pub before: Option<RevisionId>,
    /// The side after: the revision in the path.
    pub after: RevisionId,
    /// The differences in plain words.
    pub summary: String,
    /// The differences.
    #[serde(flatten)]
    pub diff: ConfigurationDiff,
}

members! {
    /// Body of `POST /apps/{app_id}/revisions/{revision_id}/redeploy`; may be left out.
    #[derive(Debug, Clone, Default, PartialEq, Eq, ToSchema)]
    pub struct RedeployRequest {
        /// CVMs that get the revision. Left out: the only CVM of the application.
        pub vm_uuids: Option<Vec<String>>,
        /// Sealed environment in hex instead of the revision's, 61 bytes to 256 KiB.
        #[schema(value_type = Option<String>)]
        pub encrypted_env: Option<Optional<SealedEnv>>,
        /// Go on although the revision's sealed environment is gone, or was sealed to another key than the
        /// application has now.
        #[schema(required = false)]
        pub allow_env_mismatch: bool = false,
    }
}

/// Answer of a redeployment; the work goes on after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Redeployment {
    /// `in_progress`
    #[schema(example = "in_progress")]
    pub status: String,
    /// The same for people.
    pub message: String,
    /// The operation of a single CVM; empty for a rollout.
    pub correlation_id: String,
    /// The rollout that brings it to several CVMs.
    pub rollout_id: Option<RolloutId>,
}
