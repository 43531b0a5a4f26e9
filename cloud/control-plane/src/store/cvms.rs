//! CVMs. A row outlives its CVM, so that operations and usage stay explainable; the living have no
//! `deleted_at_ms`.

use std::fmt;

use cloister_app_compose::{AppId, ComposeHash, InstanceId, OsImageHash};
use sqlx::FromRow;
use uuid::Uuid;

use super::{Configuration, GpuSlots, Result, Store};
use crate::operations::CvmStatus;

/// A CVM.
#[derive(Clone, PartialEq, Eq, FromRow)]
pub struct CvmRow {
    /// Id.
    pub id: i64,
    /// Owner.
    pub workspace_id: i64,
    /// Who created it.
    pub user_id: i64,
    /// Where it runs.
    pub node_id: i64,
    /// Identity on the node.
    #[sqlx(try_from = "String")]
    pub vm_uuid: Uuid,
    /// Name.
    pub name: String,
    /// Application.
    #[sqlx(try_from = "String")]
    pub app_id: AppId,
    /// Identity within the application, 40 hex digits, once the guest booted.
    pub instance_id: Option<String>,
    /// Status on the wire.
    #[sqlx(try_from = "String")]
    pub status: CvmStatus,
    /// Hash of `app_compose`.
    #[sqlx(try_from = "String")]
    pub compose_hash: ComposeHash,
    /// Exact text that the guest gets.
    pub app_compose: String,
    /// Sealed environment in hex.
    pub encrypted_env: Option<String>,
    /// Public key that the environment was sealed to last, 64 hex digits.
    pub env_pubkey: Option<String>,
    /// Number of the key management service that the keys come from.
    pub kms_id: Option<i64>,
    /// Unmeasured configuration.
    pub user_config: Option<String>,
    /// Guest image.
    #[sqlx(try_from = "String")]
    pub os_image_hash: OsImageHash,
    /// Its name.
    pub os_image_name: String,
    /// Instance type.
    pub instance_type: Option<String>,
    /// Virtual CPUs.
    pub vcpu: i64,
    /// Memory in MiB.
    pub memory_mb: i64,
    /// Data disk in GiB.
    pub disk_gb: i64,
    /// GPUs of the node.
    #[sqlx(try_from = "String")]
    pub gpus: GpuSlots,
    /// The revision that this configuration is.
    pub revision_id: Option<i64>,
    /// 0 or 1: a change that does not become healthy in time is taken back.
    pub rollback_on_failure: i64,
    /// Seconds that a changed CVM gets to become healthy after its boot.
    pub health_timeout_s: i64,
    /// `starting`, `healthy` or `unhealthy`, as the guest tells.
    pub health: Option<String>,
    /// What is not healthy.
    pub health_detail: Option<String>,
    /// When it is deleted by itself.
    pub scheduled_delete_at_ms: Option<i64>,
    /// JSON array of its port mappings ([`cloister_node_api::PortMapping`]).
    pub ports: String,
    /// JSON array of addresses for its keys instead of the installation's.
    pub kms_urls: Option<String>,
    /// JSON array of addresses of gateways that the tenant set.
    pub gateway_urls: Option<String>,
    /// Operations that it ever had.
    pub operation_count: i64,
    /// 0 or 1: shown to people outside the workspace.
    pub listed: i64,
    /// How far the last boot came.
    pub boot_progress: Option<String>,
    /// Why the last boot failed.
    pub boot_error: Option<String>,
    /// Progress of the last shutdown.
    pub shutdown_progress: Option<String>,
    /// When the VM was started last.
    pub started_at_ms: Option<i64>,
    /// When it ended last.
    pub exited_at_ms: Option<i64>,
    /// Why it did, for people, if nobody asked for it.
    pub exit_reason: Option<String>,
    /// Creation time.
    pub created_at_ms: i64,
    /// Last change of this row.
    pub updated_at_ms: i64,
    /// Deletion time.
    pub deleted_at_ms: Option<i64>,
    /// Correlation id of the operation that holds the CVM.
    pub operation_id: Option<String>,
    /// Since when nobody can say how it is: its node is silent, or does not know its VM.
    pub unaccounted_since_ms: Option<i64>,
}

// Environment, configuration and document belong to the tenant and into no log.
impl fmt::Debug for CvmRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CvmRow")
            .field("id", &self.id)
            .field("workspace_id", &self.workspace_id)
            .field("vm_uuid", &self.vm_uuid)
            .field("name", &self.name)
            .field("app_id", &self.app_id)
            .field("status", &self.status)
            .field("operation_id", &self.operation_id)
            .field("boot_error", &self.boot_error)
            .finish_non_exhaustive()
    }
}

/// A CVM to be stored, status `creating`.
#[derive(Debug, Clone)]
pub struct NewCvm {
    /// Owner.
    pub workspace_id: i64,
    /// Creator.
    pub user_id: i64,
    /// Where it will run.
    pub node_id: i64,
    /// Identity on the node.
    pub vm_uuid: Uuid,
    /// Name.
    pub name: String,
    /// Application.
    pub app_id: AppId,
    /// Number of the key management service that the keys will come from.
    pub kms_id: Option<i64>,
    /// 0 or 1: shown to people outside the workspace.
    pub listed: i64,
    /// Its first revision.
    pub configuration: Configuration,
}

impl NewCvm {
    /// The CVM of a provision, with the sealed environment that the caller brings, if any.
    #[must_use]
    pub fn of_provision(
        provision: &super::ProvisionRow,
        user_id: i64,
        vm_uuid: Uuid,
        encrypted_env: Option<String>,
    ) -> Self {
        Self {
            workspace_id: provision.workspace_id,
            user_id,
            node_id: provision.node_id,
            vm_uuid,
            name: provision.name.clone(),
            app_id: provision.app_id,
            kms_id: provision.kms_id,
            listed: provision.listed,
            configuration: provision.configuration(encrypted_env),
        }
    }
}

/// Which CVMs a list shows, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CvmFilter {
    /// Only this workspace; administrators may look at all.
    pub workspace_id: Option<i64>,
    /// Only CVMs of this creator.
    pub user_id: Option<i64>,
    /// Only CVMs on this node.
    pub node_id: Option<i64>,
}

/// What a node says about a VM, as far as the CVM's row shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedVm {
    /// Identity that the guest made.
    pub instance_id: Option<InstanceId>,
    /// How far the boot came.
    pub boot_progress: Option<String>,
    /// Why it failed.
    pub boot_error: Option<String>,
    /// Progress of a shutdown.
    pub shutdown_progress: Option<String>,
    /// When the VM was started last.
    pub started_at_ms: Option<i64>,
    /// When it ended last.
    pub exited_at_ms: Option<i64>,
    /// Why it did, for people, if nobody asked for it.
    pub exit_reason: Option<String>,
    /// How its application does.
    pub health: Option<String>,
    /// What is not healthy.
    pub health_detail: Option<String>,
}

impl ObservedVm {
    /// Whether the VM runs and its application was started.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.boot_progress.as_deref() == Some("done")
            && self.started_at_ms.is_some()
            && self.exited_at_ms.is_none()
    }
}

impl CvmRow {
    /// What a change can replace.
    #[must_use]
    pub fn configuration(&self) -> Configuration {
        Configuration {
            compose_hash: self.compose_hash,
            app_compose: self.app_compose.clone(),
            encrypted_env: self.encrypted_env.clone(),
            env_pubkey: self.env_pubkey.clone(),
            user_config: self.user_config.clone(),
            os_image_hash: self.os_image_hash,
            os_image_name: self.os_image_name.clone(),
            instance_type: self.instance_type.clone(),
            vcpu: self.vcpu,
            memory_mb: self.memory_mb,
            disk_gb: self.disk_gb,
            gpus: self.gpus.clone(),
        }
    }

    /// Whether [`super::Change::observe_cvm`] would change nothing.
    #[must_use]
    pub fn shows(&self, seen: &ObservedVm) -> bool {
        let keeps_error =
            self.status == CvmStatus::Error && (self.boot_error.is_some() || seen.boot_error.is_none());
        seen.instance_id.is_none_or(|seen| self.instance_id.as_deref() == Some(seen.to_string().as_str()))
            && (keeps_error || self.boot_error == seen.boot_error)
            && self.boot_progress == seen.boot_progress
            && self.shutdown_progress == seen.shutdown_progress
            && self.started_at_ms == seen.started_at_ms
            && self.exited_at_ms == seen.exited_at_ms
            && self.exit_reason == seen.exit_reason
            && self.health == seen.health
            && self.health_detail == seen.health_detail
    }
}

macro_rules! cvm_columns {
    () => {
        "id, workspace_id, user_id, node_id, vm_uuid, name, app_id, instance_id, status, compose_hash, \
         app_compose, encrypted_env, env_pubkey, kms_id, user_config, os_image_hash, os_image_name, instance_type, vcpu, \
         memory_mb, disk_gb, gpus, revision_id, rollback_on_failure, health_timeout_s, health, \
         health_detail, scheduled_delete_at_ms, ports, kms_urls, gateway_urls, operation_count, listed, boot_progress, boot_error, shutdown_progress, started_at_ms, \
         exited_at_ms, exit_reason, created_at_ms, updated_at_ms, deleted_at_ms, operation_id, unaccounted_since_ms"
    };
}

pub(super) use cvm_columns;

macro_rules! select_cvm {
    ($condition:literal) => {
        concat!("SELECT ", cvm_columns!(), " FROM cvms WHERE ", $condition)
    };
}

pub(super) const BY_ID: &str = select_cvm!("id = $1 AND deleted_at_ms IS NULL");
pub(super) const BY_ID_EVEN_DELETED: &str = select_cvm!("id = $1");
pub(super) const BY_ID_LOCKED: &str = select_cvm!("id = $1 FOR UPDATE");
const BY_UUID: &str = select_cvm!("vm_uuid = $1 AND deleted_at_ms IS NULL");
const BY_NAME: &str = select_cvm!("workspace_id = $1 AND live_name = $2");
const BY_APP: &str = select_cvm!("app_id = $1 AND deleted_at_ms IS NULL ORDER BY id LIMIT 100");
const BY_INSTANCE: &str = select_cvm!("instance_id = $1 AND deleted_at_ms IS NULL ORDER BY id LIMIT 2");
const ON_NODE: &str = select_cvm!("node_id = $1 AND deleted_at_ms IS NULL ORDER BY id");
pub(super) const BY_APP_AND_HASH: &str = select_cvm!(
    "workspace_id = $1 AND app_id = $2 AND compose_hash = $3 AND deleted_at_ms IS NULL ORDER BY id LIMIT 1"
);

const LIST_OF_WORKSPACE: &str = select_cvm!(
    "deleted_at_ms IS NULL AND workspace_id = $1 AND user_id BETWEEN $2 AND $3 \
     AND node_id BETWEEN $4 AND $5 ORDER BY id DESC LIMIT $6 OFFSET $7"
);
const LIST: &str = select_cvm!(
    "deleted_at_ms IS NULL AND workspace_id > $1 AND user_id BETWEEN $2 AND $3 \
     AND node_id BETWEEN $4 AND $5 ORDER BY id DESC LIMIT $6 OFFSET $7"
);
const COUNT: &str = "SELECT COUNT(*) FROM cvms WHERE deleted_at_ms IS NULL \
     AND workspace_id BETWEEN $1 AND $2 AND user_id BETWEEN $3 AND $4 AND node_id BETWEEN $5 AND $6";

impl Store {
    /// The living CVM with this id.
    pub async fn cvm(&self, id: i64) -> Result<Option<CvmRow>> {
        Ok(sqlx::query_as(BY_ID).bind(id).fetch_optional(&self.pool).await?)
    }

    /// The CVM with this id, living or deleted.
    pub async fn cvm_even_deleted(&self, id: i64) -> Result<Option<CvmRow>> {
        Ok(sqlx::query_as(BY_ID_EVEN_DELETED).bind(id).fetch_optional(&self.pool).await?)
    }

    /// The living CVM with this VM UUID.
    pub async fn cvm_by_uuid(&self, vm_uuid: Uuid) -> Result<Option<CvmRow>> {
        Ok(sqlx::query_as(BY_UUID).bind(vm_uuid.to_string()).fetch_optional(&self.pool).await?)
    }

    /// The living CVM of this name in a workspace; names ignore case.
    pub async fn cvm_by_name(&self, workspace_id: i64, name: &str) -> Result<Option<CvmRow>> {
        Ok(sqlx::query_as(BY_NAME)
            .bind(workspace_id)
            .bind(name.to_ascii_lowercase())
            .fetch_optional(&self.pool)
            .await?)
    }

    /// Living CVMs of an app in any workspace, oldest first, at most 100.
    pub async fn cvms_of_app(&self, app_id: AppId) -> Result<Vec<CvmRow>> {
        Ok(sqlx::query_as(BY_APP).bind(app_id.to_string()).fetch_all(&self.pool).await?)
    }

    /// Living CVMs with an instance id, at most 2.
    pub async fn cvms_by_instance(&self, instance_id: InstanceId) -> Result<Vec<CvmRow>> {
        Ok(sqlx::query_as(BY_INSTANCE).bind(instance_id.to_string()).fetch_all(&self.pool).await?)
    }

    /// Every living CVM on a node.
    pub async fn cvms_on_node(&self, node_id: i64) -> Result<Vec<CvmRow>> {
        Ok(sqlx::query_as(ON_NODE).bind(node_id).fetch_all(&self.pool).await?)
    }

    /// A stretch of the living CVMs, newest first.
    pub async fn list_cvms(&self, filter: &CvmFilter, limit: i64, offset: i64) -> Result<Vec<CvmRow>> {
        let (users, nodes) = (bounds(filter.user_id), bounds(filter.node_id));
        let query = match filter.workspace_id {
            Some(id) => sqlx::query_as(LIST_OF_WORKSPACE).bind(id),
            None => sqlx::query_as(LIST).bind(i64::MIN),
        };
        let query = query.bind(users.0).bind(users.1).bind(nodes.0).bind(nodes.1);
        Ok(query.bind(limit).bind(offset).fetch_all(&self.pool).await?)
    }

    /// How many living CVMs a filter matches. A whole workspace is answered from its counter.
    pub async fn count_cvms(&self, filter: &CvmFilter) -> Result<i64> {
        if let CvmFilter { workspace_id: Some(id), user_id: None, node_id: None } = filter {
            let count: Option<(i64,)> = sqlx::query_as("SELECT cvm_count FROM workspaces WHERE id = $1")
                .bind(id)
                .fetch_optional(&self.pool)
                .await?;
            return Ok(count.map_or(0, |(count,)| count));
        }
        let mut query = sqlx::query_as(COUNT);
        for id in [filter.workspace_id, filter.user_id, filter.node_id] {
            let (low, high) = bounds(id);
            query = query.bind(low).bind(high);
        }
        let (count,): (i64,) = query.fetch_one(&self.pool).await?;
        Ok(count)
    }
}

/// An optional equality as a range, so that one statement serves every filter.
fn bounds(id: Option<i64>) -> (i64, i64) {
    id.map_or((i64::MIN, i64::MAX), |id| (id, id))
}
