//! What changes CVMs.

use cloister_app_compose::{AppId, ComposeHash};
use uuid::Uuid;

use super::cvms::{BY_APP_AND_HASH, BY_ID_EVEN_DELETED, BY_ID_LOCKED};
use super::{Change, CvmRow, Engine, NewCvm, ObservedVm, Result};
use crate::operations::CvmStatus;

impl Change {
    /// The CVM with this id, living or deleted; no other change touches it before this one ends. Taken
    /// before its operations, always in this order, so that no two changes wait for each other.
    pub async fn lock_cvm(&mut self, id: i64) -> Result<Option<CvmRow>> {
        let query = match self.engine {
            Engine::Sqlite => BY_ID_EVEN_DELETED,
            Engine::Postgres => BY_ID_LOCKED,
        };
        let cvm = sqlx::query_as(query).bind(id).fetch_optional(&mut *self.transaction).await?;
        self.locked(super::Subject::Cvm(id)).await?;
        Ok(cvm)
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

    /// Binds an application to the workspace that makes it first, for good; whether it is this one's. The id of an
    /// application under a contract is one that anybody can name.
    pub async fn bind_app(&mut self, app_id: AppId, workspace_id: i64, now_ms: i64) -> Result<bool> {
        sqlx::query(
            "INSERT INTO app_workspaces (app_id, workspace_id, bound_at_ms) VALUES ($1, $2, $3) \
             ON CONFLICT (app_id) DO NOTHING",
        )
        .bind(app_id.to_string())
        .bind(workspace_id)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        let (owner,): (i64,) = sqlx::query_as("SELECT workspace_id FROM app_workspaces WHERE app_id = $1")
            .bind(app_id.to_string())
            .fetch_one(&mut *self.transaction)
            .await?;
        Ok(owner == workspace_id)
    }

    /// Adds a CVM in status `creating`. A name that a living CVM of the workspace has is a duplicate
    /// ([`super::StoreError::is_duplicate`]).
    pub async fn insert_cvm(&mut self, new: &NewCvm, now_ms: i64) -> Result<i64> {
        let id = self.next_id("cvms").await?;
        self.about(super::Subject::Cvm(id)).await?;
        let configuration = &new.configuration;
        sqlx::query(
            "INSERT INTO cvms (id, workspace_id, user_id, node_id, vm_uuid, name, live_name, app_id, status, \
             compose_hash, app_compose, encrypted_env, user_config, os_image_hash, os_image_name, \
             instance_type, vcpu, memory_mb, disk_gb, gpus, listed, env_pubkey, kms_id, reserved_vcpu, \
             reserved_memory_mb, reserved_disk_gb, created_at_ms, updated_at_ms) VALUES \
             ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, \
             $21, $22, $23, $17, $18, $19, $24, $24)",
        )
        .bind(id)
        .bind(new.workspace_id)
        .bind(new.user_id)
        .bind(new.node_id)
        .bind(new.vm_uuid.to_string())
        .bind(&new.name)
        .bind(new.name.to_ascii_lowercase())
        .bind(new.app_id.to_string())
        .bind(CvmStatus::Creating.as_str())
        .bind(configuration.compose_hash.to_string())
        .bind(&configuration.app_compose)
        .bind(&configuration.encrypted_env)
        .bind(&configuration.user_config)
        .bind(configuration.os_image_hash.to_string())
        .bind(&configuration.os_image_name)
        .bind(&configuration.instance_type)
        .bind(configuration.vcpu)
        .bind(configuration.memory_mb)
        .bind(configuration.disk_gb)
        .bind(configuration.gpus.to_string())
        .bind(new.listed)
        .bind(&configuration.env_pubkey)
        .bind(new.kms_id)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        self.add_to_cvm_count(new.workspace_id, 1).await?;
        self.count_on_node(id, 1).await?;
        if !configuration.gpus.0.is_empty() {
            self.hold_gpus(id, None).await?;
        }
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
        self.meter_as_told(id, status == CvmStatus::Running, now_ms).await
    }

    /// Notes the public key to seal environments to.
    pub async fn set_env_pubkey(&mut self, id: i64, env_pubkey: &str) -> Result<()> {
        sqlx::query("UPDATE cvms SET env_pubkey = $2 WHERE id = $1")
            .bind(id)
            .bind(env_pubkey)
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

    /// Records what a node saw. An instance id once known is never forgotten, nor is the reason of an error. One
    /// that another living CVM has stays that one's: a guest can say anything. A CVM that something is said of is
    /// accounted for again.
    pub async fn observe_cvm(&mut self, id: i64, seen: &ObservedVm, now_ms: i64) -> Result<()> {
        let is_up = self.note_restart(id, seen, now_ms).await?;
        sqlx::query(
            "UPDATE cvms SET instance_id = CASE WHEN EXISTS (SELECT 1 FROM cvms other WHERE other.instance_id = $2 \
             AND other.id <> $1 AND other.deleted_at_ms IS NULL) THEN instance_id \
             ELSE COALESCE($2, instance_id) END, boot_progress = $3, \
             boot_error = CASE WHEN status = 'error' THEN COALESCE(boot_error, $4) ELSE $4 END, \
             shutdown_progress = $5, started_at_ms = $6, exited_at_ms = $7, health = $8, health_detail = $9, \
             updated_at_ms = $10, exit_reason = $11, unaccounted_since_ms = NULL WHERE id = $1",
        )
        .bind(id)
        .bind(seen.instance_id.map(|instance| instance.to_string()))
        .bind(&seen.boot_progress)
        .bind(&seen.boot_error)
        .bind(&seen.shutdown_progress)
        .bind(seen.started_at_ms)
        .bind(seen.exited_at_ms)
        .bind(&seen.health)
        .bind(&seen.health_detail)
        .bind(now_ms)
        .bind(&seen.exit_reason)
        .execute(&mut *self.transaction)
        .await?;
        self.meter_as_told(id, is_up, now_ms).await
    }

    /// Marks a CVM as deleted and frees its name.
    pub async fn delete_cvm(&mut self, cvm: &CvmRow, now_ms: i64) -> Result<()> {
        let held = sqlx::query("UPDATE cvms SET operation_id = NULL WHERE id = $1 AND deleted_at_ms IS NULL")
            .bind(cvm.id)
            .execute(&mut *self.transaction)
            .await?;
        if held.rows_affected() == 0 {
            return Ok(());
        }
        // The workspace before the node, as a creation has them.
        self.add_to_cvm_count(cvm.workspace_id, -1).await?;
        self.count_on_node(cvm.id, -1).await?;
        sqlx::query("DELETE FROM gpu_allocations WHERE cvm_id = $1")
            .bind(cvm.id)
            .execute(&mut *self.transaction)
            .await?;
        self.delete_prepared_changes(cvm.id).await?;
        // Sealed environments of former configurations go with the one that was in use.
        sqlx::query("UPDATE revisions SET encrypted_env = NULL WHERE cvm_id = $1")
            .bind(cvm.id)
            .execute(&mut *self.transaction)
            .await?;
        sqlx::query(
            "UPDATE cvms SET deleted_at_ms = $2, updated_at_ms = $2, live_name = NULL, encrypted_env = NULL \
             WHERE id = $1",
        )
        .bind(cvm.id)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        self.meter(cvm.id, now_ms).await
    }
}
