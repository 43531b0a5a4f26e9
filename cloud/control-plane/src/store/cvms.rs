//! CVMs. A row outlives its CVM, so that operations and usage stay explainable; the living have no
//! `deleted_at_ms`.

use cloister_app_compose::{AppId, ComposeHash, InstanceId, OsImageHash};
use sqlx::FromRow;
use uuid::Uuid;

use super::{Change, Engine, Result, Store};
use crate::operations::CvmStatus;

/// A CVM.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
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
    /// Creation time.
    pub created_at_ms: i64,
    /// Last change of this row.
    pub updated_at_ms: i64,
    /// Deletion time.
    pub deleted_at_ms: Option<i64>,
    /// Correlation id of the operation that holds the CVM.
    pub operation_id: Option<String>,
}

/// A CVM to be stored, status `creating`.
#[derive(Debug, Clone)]
pub struct NewCvm {
    /// Owner.
    pub workspace_id: i64,
    /// Creator.
    pub user_id: i64,
    /// Identity on the node.
    pub vm_uuid: Uuid,
    /// Sealed environment in hex.
    pub encrypted_env: Option<String>,
    /// What was provisioned.
    pub provision: super::ProvisionRow,
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
}

impl CvmRow {
    /// Whether [`Change::observe_cvm`] would change nothing.
    #[must_use]
    pub fn shows(&self, seen: &ObservedVm) -> bool {
        let keeps_error = self.status == CvmStatus::Error && seen.boot_error.is_none();
        seen.instance_id.is_none_or(|seen| self.instance_id.as_deref() == Some(seen.to_string().as_str()))
            && (keeps_error || self.boot_error == seen.boot_error)
            && self.boot_progress == seen.boot_progress
            && self.shutdown_progress == seen.shutdown_progress
            && self.started_at_ms == seen.started_at_ms
            && self.exited_at_ms == seen.exited_at_ms
    }
}

macro_rules! cvm_columns {
    () => {
        "id, workspace_id, user_id, node_id, vm_uuid, name, app_id, instance_id, status, compose_hash, \
         app_compose, encrypted_env, user_config, os_image_hash, os_image_name, instance_type, vcpu, \
         memory_mb, disk_gb, listed, boot_progress, boot_error, shutdown_progress, started_at_ms, \
         exited_at_ms, created_at_ms, updated_at_ms, deleted_at_ms, operation_id"
    };
}

macro_rules! select_cvm {
    ($condition:literal) => {
        concat!("SELECT ", cvm_columns!(), " FROM cvms WHERE ", $condition)
    };
}

const BY_ID: &str = select_cvm!("id = $1 AND deleted_at_ms IS NULL");
const BY_ID_EVEN_DELETED: &str = select_cvm!("id = $1");
const BY_ID_LOCKED: &str = select_cvm!("id = $1 FOR UPDATE");
const BY_UUID: &str = select_cvm!("vm_uuid = $1 AND deleted_at_ms IS NULL");
const BY_NAME: &str = select_cvm!("workspace_id = $1 AND live_name = $2");
const BY_APP: &str = select_cvm!("app_id = $1 AND deleted_at_ms IS NULL ORDER BY id LIMIT 100");
const BY_INSTANCE: &str = select_cvm!("instance_id = $1 AND deleted_at_ms IS NULL ORDER BY id LIMIT 2");
const ON_NODE: &str = select_cvm!("node_id = $1 AND deleted_at_ms IS NULL ORDER BY id");
const BY_APP_AND_HASH: &str = select_cvm!(
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

impl Change {
    /// The CVM with this id, living or deleted; no other change touches it before this one ends. Taken
    /// before its operations, always in this order, so that no two changes wait for each other.
    pub async fn lock_cvm(&mut self, id: i64) -> Result<Option<CvmRow>> {
        let query = match self.engine {
            Engine::Sqlite => BY_ID_EVEN_DELETED,
            Engine::Postgres => BY_ID_LOCKED,
        };
        Ok(sqlx::query_as(query).bind(id).fetch_optional(&mut *self.transaction).await?)
    }

    /// Like [`Change::lock_cvm`], of the living only.
    pub async fn lock_living_cvm(&mut self, id: i64) -> Result<Option<CvmRow>> {
        Ok(self.lock_cvm(id).await?.filter(|cvm| cvm.deleted_at_ms.is_none()))
    }

    /// The living CVM of an app that runs exactly this document, if the workspace has one.
    pub async fn cvm_of_app_and_hash(
        &mut self,
        workspace_id: i64,
        app_id: AppId,
        compose_hash: ComposeHash,
    ) -> Result<Option<CvmRow>> {
        Ok(sqlx::query_as(BY_APP_AND_HASH)
            .bind(workspace_id)
            .bind(app_id.to_string())
            .bind(compose_hash.to_string())
            .fetch_optional(&mut *self.transaction)
            .await?)
    }

    /// Whether any living CVM, in any workspace, belongs to this app.
    pub async fn app_in_use(&mut self, app_id: AppId) -> Result<bool> {
        let row: Option<(i64,)> =
            sqlx::query_as("SELECT id FROM cvms WHERE app_id = $1 AND deleted_at_ms IS NULL LIMIT 1")
                .bind(app_id.to_string())
                .fetch_optional(&mut *self.transaction)
                .await?;
        Ok(row.is_some())
    }

    /// Adds a CVM in status `creating`. A name that a living CVM of the workspace has is a duplicate
    /// ([`super::StoreError::is_duplicate`]).
    pub async fn insert_cvm(&mut self, new: &NewCvm, now_ms: i64) -> Result<i64> {
        let id = self.next_id("cvms").await?;
        let provision = &new.provision;
        sqlx::query(
            "INSERT INTO cvms (id, workspace_id, user_id, node_id, vm_uuid, name, live_name, app_id, status, \
             compose_hash, app_compose, encrypted_env, user_config, os_image_hash, os_image_name, \
             instance_type, vcpu, memory_mb, disk_gb, listed, created_at_ms, updated_at_ms) VALUES \
             ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $21)",
        )
        .bind(id)
        .bind(new.workspace_id)
        .bind(new.user_id)
        .bind(provision.node_id)
        .bind(new.vm_uuid.to_string())
        .bind(&provision.name)
        .bind(provision.name.to_ascii_lowercase())
        .bind(provision.app_id.to_string())
        .bind(CvmStatus::Creating.as_str())
        .bind(provision.compose_hash.to_string())
        .bind(&provision.app_compose)
        .bind(&new.encrypted_env)
        .bind(&provision.user_config)
        .bind(provision.os_image_hash.to_string())
        .bind(&provision.os_image_name)
        .bind(&provision.instance_type)
        .bind(provision.vcpu)
        .bind(provision.memory_mb)
        .bind(provision.disk_gb)
        .bind(provision.listed)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        self.add_to_cvm_count(new.workspace_id, 1).await?;
        Ok(id)
    }

    async fn add_to_cvm_count(&mut self, workspace_id: i64, delta: i64) -> Result<()> {
        sqlx::query("UPDATE workspaces SET cvm_count = cvm_count + $2 WHERE id = $1")
            .bind(workspace_id)
            .bind(delta)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Gives an idle CVM to an operation; whether it was idle.
    pub async fn acquire_cvm(&mut self, id: i64, operation: Uuid) -> Result<bool> {
        let done = sqlx::query(
            "UPDATE cvms SET operation_id = $2 \
             WHERE id = $1 AND operation_id IS NULL AND deleted_at_ms IS NULL",
        )
        .bind(id)
        .bind(operation.to_string())
        .execute(&mut *self.transaction)
        .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Takes the CVM back from an operation.
    pub async fn release_cvm(&mut self, id: i64, operation: Uuid) -> Result<()> {
        sqlx::query("UPDATE cvms SET operation_id = NULL WHERE id = $1 AND operation_id = $2")
            .bind(id)
            .bind(operation.to_string())
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Sets the status.
    pub async fn set_cvm_status(&mut self, id: i64, status: CvmStatus, now_ms: i64) -> Result<()> {
        sqlx::query("UPDATE cvms SET status = $2, updated_at_ms = $3 WHERE id = $1")
            .bind(id)
            .bind(status.as_str())
            .bind(now_ms)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Sets why the last boot, or whatever came instead of it, failed.
    pub async fn set_boot_error(&mut self, id: i64, reason: &str) -> Result<()> {
        sqlx::query("UPDATE cvms SET boot_error = $2 WHERE id = $1")
            .bind(id)
            .bind(reason)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Records what a node saw. An instance id once known is never forgotten, nor is the reason of an error.
    pub async fn observe_cvm(&mut self, id: i64, seen: &ObservedVm, now_ms: i64) -> Result<()> {
        sqlx::query(
            "UPDATE cvms SET instance_id = COALESCE($2, instance_id), boot_progress = $3, \
             boot_error = CASE WHEN status = 'error' THEN COALESCE($4, boot_error) ELSE $4 END, \
             shutdown_progress = $5, started_at_ms = $6, exited_at_ms = $7, updated_at_ms = $8 WHERE id = $1",
        )
        .bind(id)
        .bind(seen.instance_id.map(|instance| instance.to_string()))
        .bind(&seen.boot_progress)
        .bind(&seen.boot_error)
        .bind(&seen.shutdown_progress)
        .bind(seen.started_at_ms)
        .bind(seen.exited_at_ms)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Marks a CVM as deleted and frees its name.
    pub async fn delete_cvm(&mut self, cvm: &CvmRow, now_ms: i64) -> Result<()> {
        let done = sqlx::query(
            "UPDATE cvms SET deleted_at_ms = $2, updated_at_ms = $2, live_name = NULL, encrypted_env = NULL, \
             operation_id = NULL WHERE id = $1 AND deleted_at_ms IS NULL",
        )
        .bind(cvm.id)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        if done.rows_affected() > 0 {
            self.add_to_cvm_count(cvm.workspace_id, -1).await?;
        }
        Ok(())
    }
}
