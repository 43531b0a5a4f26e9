//! The provision cache: configurations that were validated and may be created for 14 days.

use std::fmt;

use cloister_app_compose::{AppId, ComposeHash, OsImageHash};
use sqlx::FromRow;

use super::{Change, Configuration, GpuSlots, Result, Store};

/// A validated configuration that waits for its create call.
#[derive(Clone, PartialEq, Eq, FromRow)]
pub struct ProvisionRow {
    /// Whose it is.
    pub workspace_id: i64,
    /// SHA-256 of `app_compose`; the key within the workspace.
    #[sqlx(try_from = "String")]
    pub compose_hash: ComposeHash,
    /// Identity that was promised for the app.
    #[sqlx(try_from = "String")]
    pub app_id: AppId,
    /// CVM name.
    pub name: String,
    /// Exact text that was hashed.
    pub app_compose: String,
    /// Node that was chosen.
    pub node_id: i64,
    /// Guest image that was chosen.
    #[sqlx(try_from = "String")]
    pub os_image_hash: OsImageHash,
    /// Its name.
    pub os_image_name: String,
    /// Instance type, when one was named or matches.
    pub instance_type: Option<String>,
    /// Virtual CPUs.
    pub vcpu: i64,
    /// Memory in MiB.
    pub memory_mb: i64,
    /// Data disk in GiB.
    pub disk_gb: i64,
    /// 0 or 1: shown to people outside the workspace.
    pub listed: i64,
    /// JSON array of the environment names that may be given.
    pub env_keys: String,
    /// Unmeasured configuration for the guest.
    pub user_config: Option<String>,
    /// Number of the key management service that the keys will come from.
    pub kms_id: Option<i64>,
    /// Public key to seal the environment to, 64 hex digits.
    pub env_pubkey: Option<String>,
    /// Sealed environment in hex, for a create call that brings none.
    pub encrypted_env: Option<String>,
    /// GPUs of the node that the CVM will get.
    #[sqlx(try_from = "String")]
    pub gpus: GpuSlots,
    /// 0, or 1 for a document whose application is a contract that its owner has still to deploy: `app_id` is zero
    /// then.
    pub awaits_contract: i64,
    /// Platform that its node was seen to be, 64 hex digits, where a contract has to allow it.
    pub device_id: Option<String>,
    /// When the cache forgets it.
    pub expires_at_ms: i64,
}

impl ProvisionRow {
    /// The first configuration of a CVM made from it; its sealed environment unless the caller brings one.
    #[must_use]
    pub fn configuration(&self, encrypted_env: Option<String>) -> Configuration {
        Configuration {
            compose_hash: self.compose_hash,
            app_compose: self.app_compose.clone(),
            encrypted_env: encrypted_env.or_else(|| self.encrypted_env.clone()),
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
}

// Environment, configuration and document belong to the tenant and into no log.
impl fmt::Debug for ProvisionRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProvisionRow")
            .field("workspace_id", &self.workspace_id)
            .field("name", &self.name)
            .field("app_id", &self.app_id)
            .field("compose_hash", &self.compose_hash)
            .field("node_id", &self.node_id)
            .finish_non_exhaustive()
    }
}

const PROVISION: &str = "SELECT workspace_id, compose_hash, app_id, name, app_compose, node_id, \
     os_image_hash, os_image_name, instance_type, vcpu, memory_mb, disk_gb, listed, env_keys, user_config, \
     kms_id, env_pubkey, encrypted_env, gpus, awaits_contract, device_id, expires_at_ms FROM provisions WHERE workspace_id = $1 AND compose_hash = $2 AND expires_at_ms > $3";

impl Store {
    /// The unexpired provision with this hash in a workspace.
    pub async fn provision(
        &self,
        workspace_id: i64,
        compose_hash: ComposeHash,
        now_ms: i64,
    ) -> Result<Option<ProvisionRow>> {
        Ok(sqlx::query_as(PROVISION)
            .bind(workspace_id)
            .bind(compose_hash.to_string())
            .bind(now_ms)
            .fetch_optional(&self.pool)
            .await?)
    }
}

impl Change {
    /// The unexpired provision with this hash in a workspace.
    pub async fn provision(
        &mut self,
        workspace_id: i64,
        compose_hash: ComposeHash,
        now_ms: i64,
    ) -> Result<Option<ProvisionRow>> {
        Ok(sqlx::query_as(PROVISION)
            .bind(workspace_id)
            .bind(compose_hash.to_string())
            .bind(now_ms)
            .fetch_optional(&mut *self.transaction)
            .await?)
    }

    /// How many unexpired provisions a workspace has besides the one with this hash.
    pub async fn count_other_provisions(
        &mut self,
        workspace_id: i64,
        compose_hash: ComposeHash,
        now_ms: i64,
    ) -> Result<i64> {
        let (count,): (i64,) = sqlx::query_as(
            "SELECT COUNT(*) FROM provisions \
             WHERE workspace_id = $1 AND compose_hash <> $2 AND expires_at_ms > $3",
        )
        .bind(workspace_id)
        .bind(compose_hash.to_string())
        .bind(now_ms)
        .fetch_one(&mut *self.transaction)
        .await?;
        Ok(count)
    }

    /// Caches a provision; one with the same hash in the workspace is replaced.
    pub async fn put_provision(&mut self, row: &ProvisionRow) -> Result<()> {
        self.about(super::Subject::Provision(row.workspace_id, row.compose_hash)).await?;
        sqlx::query(
            "INSERT INTO provisions (workspace_id, compose_hash, app_id, name, app_compose, node_id, \
             os_image_hash, os_image_name, instance_type, vcpu, memory_mb, disk_gb, listed, env_keys, \
             user_config, kms_id, env_pubkey, encrypted_env, expires_at_ms, gpus, awaits_contract, device_id) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, \
             $21, $22) \
             ON CONFLICT (workspace_id, compose_hash) DO UPDATE SET app_id = excluded.app_id, \
             name = excluded.name, app_compose = excluded.app_compose, node_id = excluded.node_id, \
             os_image_hash = excluded.os_image_hash, os_image_name = excluded.os_image_name, \
             instance_type = excluded.instance_type, vcpu = excluded.vcpu, \
             memory_mb = excluded.memory_mb, disk_gb = excluded.disk_gb, listed = excluded.listed, \
             env_keys = excluded.env_keys, user_config = excluded.user_config, \
             kms_id = excluded.kms_id, env_pubkey = excluded.env_pubkey, \
             encrypted_env = excluded.encrypted_env, gpus = excluded.gpus, \
             awaits_contract = excluded.awaits_contract, device_id = excluded.device_id, \
             expires_at_ms = excluded.expires_at_ms",
        )
        .bind(row.workspace_id)
        .bind(row.compose_hash.to_string())
        .bind(row.app_id.to_string())
        .bind(&row.name)
        .bind(&row.app_compose)
        .bind(row.node_id)
        .bind(row.os_image_hash.to_string())
        .bind(&row.os_image_name)
        .bind(&row.instance_type)
        .bind(row.vcpu)
        .bind(row.memory_mb)
        .bind(row.disk_gb)
        .bind(row.listed)
        .bind(&row.env_keys)
        .bind(&row.user_config)
        .bind(row.kms_id)
        .bind(&row.env_pubkey)
        .bind(&row.encrypted_env)
        .bind(row.expires_at_ms)
        .bind(row.gpus.to_string())
        .bind(row.awaits_contract)
        .bind(&row.device_id)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Notes the public key of a provision that is still cached for the same app.
    pub async fn set_provision_env_pubkey(&mut self, row: &ProvisionRow, env_pubkey: &str) -> Result<()> {
        sqlx::query(
            "UPDATE provisions SET env_pubkey = $4 \
             WHERE workspace_id = $1 AND compose_hash = $2 AND app_id = $3",
        )
        .bind(row.workspace_id)
        .bind(row.compose_hash.to_string())
        .bind(row.app_id.to_string())
        .bind(env_pubkey)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Forgets at most `limit` provisions that expired; how many it were.
    pub async fn delete_expired_provisions(&mut self, now_ms: i64, limit: i64) -> Result<u64> {
        let done = sqlx::query(
            "DELETE FROM provisions WHERE (workspace_id, compose_hash) IN \
             (SELECT workspace_id, compose_hash FROM provisions WHERE expires_at_ms <= $1 LIMIT $2)",
        )
        .bind(now_ms)
        .bind(limit)
        .execute(&mut *self.transaction)
        .await?;
        Ok(done.rows_affected())
    }
}
