//! Rollouts and their members as they are stored.

use cloister_app_compose::{AppId, ComposeHash};
use sqlx::FromRow;
use uuid::Uuid;

use crate::operations::CvmStatus;
use crate::rollouts::{MemberState, OnFailure, RolloutKind, RolloutState};
use crate::store::Configuration;

/// A rollout.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct RolloutRow {
    /// Id.
    pub id: i64,
    /// What it is for.
    #[sqlx(try_from = "String")]
    pub kind: RolloutKind,
    /// Of an update: workspace of the application.
    pub workspace_id: Option<i64>,
    /// Of an update: the application, 40 hex digits.
    pub app_id: Option<String>,
    /// Of a drain: the node that is being emptied.
    pub node_id: Option<i64>,
    /// How it stands.
    #[sqlx(try_from = "String")]
    pub state: RolloutState,
    /// Why it does not go on, or went back.
    pub reason: Option<String>,
    /// What it does when a member fails.
    #[sqlx(try_from = "String")]
    pub on_failure: OnFailure,
    /// Most members that are being changed at the same time.
    pub max_unavailable: i64,
    /// JSON of [`crate::rollouts::Arguments`].
    pub arguments: String,
    /// Who asked for it.
    pub triggered_by: i64,
    /// When.
    pub created_at_ms: i64,
    /// Last change.
    pub updated_at_ms: i64,
    /// When it ended.
    pub completed_at_ms: Option<i64>,
    /// Since when it waits for changed members to do well.
    pub waiting_since_ms: Option<i64>,
}

/// A rollout to be stored, in state `running`.
#[derive(Debug, Clone)]
pub struct NewRollout {
    /// What it is for.
    pub kind: RolloutKind,
    /// Of an update: the application and its workspace.
    pub app: Option<(AppId, i64)>,
    /// Of a drain: the node.
    pub node_id: Option<i64>,
    /// What it does when a member fails.
    pub on_failure: OnFailure,
    /// Most members that are being changed at the same time.
    pub max_unavailable: i64,
    /// JSON of [`crate::rollouts::Arguments`].
    pub arguments: String,
    /// Who asks.
    pub triggered_by: i64,
}

/// A member of a rollout with how its CVM, its operation and its replacement stand.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct MemberRow {
    /// Place in the order, from 0.
    pub position: i64,
    /// The CVM.
    pub cvm_id: i64,
    /// How it stands.
    #[sqlx(try_from = "String")]
    pub state: MemberState,
    /// The revision that it had, and goes back to.
    pub from_revision: Option<i64>,
    /// The latest operation of the rollout on it.
    pub correlation_id: Option<String>,
    /// Of a drain: the CVM that takes its place.
    pub replacement_id: Option<i64>,
    /// Its name, known before it is made.
    pub replacement_name: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
    /// Workspace of the CVM.
    pub workspace_id: i64,
    /// Who created it.
    pub user_id: i64,
    /// Its application.
    #[sqlx(try_from = "String")]
    pub app_id: AppId,
    /// What it runs.
    #[sqlx(try_from = "String")]
    pub compose_hash: ComposeHash,
    /// Identity of the CVM on its node.
    #[sqlx(try_from = "String")]
    pub vm_uuid: Uuid,
    /// Its name.
    pub name: String,
    /// Its status.
    #[sqlx(try_from = "String")]
    pub cvm_status: CvmStatus,
    /// What it has.
    pub revision_id: Option<i64>,
    /// How its application does.
    pub health: Option<String>,
    /// What is not healthy.
    pub health_detail: Option<String>,
    /// The operation that holds it.
    pub operation_id: Option<String>,
    /// When it was deleted.
    pub deleted_at_ms: Option<i64>,
    /// Its node.
    pub node_name: String,
    /// When that reported last.
    pub reported_at_ms: Option<i64>,
    /// Status of the rollout's operation.
    pub operation_status: Option<String>,
    /// Why that failed.
    pub failure: Option<String>,
}

/// A member to be stored.
#[derive(Debug, Clone)]
pub struct NewMember<'a> {
    /// The CVM.
    pub cvm_id: i64,
    /// How it stands.
    pub state: MemberState,
    /// What it is to get.
    pub configuration: Option<&'a Configuration>,
    /// The revision that it has.
    pub from_revision: Option<i64>,
    /// Of a drain: name of the CVM that takes its place.
    pub replacement_name: Option<&'a str>,
}

/// The CVM that takes a member's place, or one that a drain looks at.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct PlacedRow {
    /// Id.
    pub id: i64,
    /// Identity on the node.
    #[sqlx(try_from = "String")]
    pub vm_uuid: Uuid,
    /// Name.
    pub name: String,
    /// Application.
    #[sqlx(try_from = "String")]
    pub app_id: AppId,
    /// Owner.
    pub workspace_id: i64,
    /// Who created it.
    pub user_id: i64,
    /// Status.
    #[sqlx(try_from = "String")]
    pub status: CvmStatus,
    /// How its application does.
    pub health: Option<String>,
    /// Why the last boot failed.
    pub boot_error: Option<String>,
    /// Why it ended, if nobody asked for that.
    pub exit_reason: Option<String>,
    /// The operation that holds it.
    pub operation_id: Option<String>,
    /// When it was deleted.
    pub deleted_at_ms: Option<i64>,
    /// Its node.
    pub node_name: String,
    /// When that reported last.
    pub reported_at_ms: Option<i64>,
    /// Replicas of its application on other nodes that are ready.
    pub ready_elsewhere: i64,
    /// Rollouts of its application that are alive.
    pub rollouts: i64,
}
