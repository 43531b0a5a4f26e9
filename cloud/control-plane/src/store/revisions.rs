//! Revisions: every configuration that a CVM was given, so that it can be shown, compared and brought back.

use std::fmt;

use cloister_app_compose::{AppId, ComposeHash, OsImageHash};
use serde::{Deserialize, Serialize};
use sqlx::FromRow;
use uuid::Uuid;

use super::{Change, CvmRow, OperationRow, Result, Store};
use crate::operations::{OperationKind, RevisionState};

/// PCI addresses of GPUs on a node; a JSON array in the database.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuSlots(pub Vec<String>);

impl TryFrom<String> for GpuSlots {
    type Error = serde_json::Error;

    fn try_from(text: String) -> serde_json::Result<Self> {
        serde_json::from_str(&text).map(Self)
    }
}

impl fmt::Display for GpuSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::json!(self.0).to_string())
    }
}

/// Everything about a CVM that a change can replace.
#[derive(Clone, PartialEq, Eq, FromRow, Serialize, Deserialize)]
pub struct Configuration {
    /// Hash of `app_compose`.
    #[sqlx(try_from = "String")]
    pub compose_hash: ComposeHash,
    /// Exact text that the guest gets.
    pub app_compose: String,
    /// Sealed environment in hex.
    pub encrypted_env: Option<String>,
    /// Public key that the environment was sealed to, 64 hex digits.
    pub env_pubkey: Option<String>,
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
    /// GPUs of the CVM's node.
    #[sqlx(try_from = "String")]
    pub gpus: GpuSlots,
}

// Environment, configuration and document belong to the tenant and into no log.
impl fmt::Debug for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Configuration")
            .field("compose_hash", &self.compose_hash)
            .field("os_image_name", &self.os_image_name)
            .field("vcpu", &self.vcpu)
            .field("memory_mb", &self.memory_mb)
            .field("disk_gb", &self.disk_gb)
            .finish_non_exhaustive()
    }
}

impl Configuration {
    /// This configuration with as much of everything as this and another one have: what a CVM holds that may
    /// get either.
    #[must_use]
    pub fn covering(&self, other: &Self) -> Self {
        let mut gpus = self.gpus.clone();
        gpus.0.extend(other.gpus.0.iter().filter(|slot| !self.gpus.0.contains(slot)).cloned());
        Self {
            vcpu: self.vcpu.max(other.vcpu),
            memory_mb: self.memory_mb.max(other.memory_mb),
            disk_gb: self.disk_gb.max(other.disk_gb),
            gpus,
            ..self.clone()
        }
    }
}

/// A configuration of a CVM in its history.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct RevisionRow {
    /// Id; later ones are larger.
    pub id: i64,
    /// Whose.
    pub cvm_id: i64,
    /// Workspace of the CVM.
    pub workspace_id: i64,
    /// Application of the CVM.
    #[sqlx(try_from = "String")]
    pub app_id: AppId,
    /// `deploy` or `update`.
    pub operation_type: String,
    /// What became of it.
    #[sqlx(try_from = "String")]
    pub state: RevisionState,
    /// What it is.
    #[sqlx(flatten)]
    pub configuration: Configuration,
    /// Correlation id of the operation that brought it.
    pub correlation_id: Option<String>,
    /// Who asked for it.
    pub triggered_by: i64,
    /// When it was asked for.
    pub created_at_ms: i64,
    /// When it became the CVM's configuration.
    pub applied_at_ms: Option<i64>,
}

/// A revision to be stored.
#[derive(Debug, Clone)]
pub struct NewRevision<'a> {
    /// Whose.
    pub cvm_id: i64,
    /// Workspace of the CVM.
    pub workspace_id: i64,
    /// Application of the CVM.
    pub app_id: AppId,
    /// `deploy` or `update`.
    pub operation_type: &'static str,
    /// What it is.
    pub configuration: &'a Configuration,
    /// The operation that brings it.
    pub correlation_id: Uuid,
    /// Who asks.
    pub triggered_by: i64,
}

macro_rules! select_revision {
    ($condition:literal) => {
        concat!(
            "SELECT id, cvm_id, workspace_id, app_id, operation_type, state, compose_hash, app_compose, \
             encrypted_env, env_pubkey, user_config, os_image_hash, os_image_name, instance_type, vcpu, \
             memory_mb, disk_gb, gpus, correlation_id, triggered_by, created_at_ms, applied_at_ms \
             FROM revisions WHERE ",
            $condition
        )
    };
}

const BY_ID: &str = select_revision!("id = $1");
const LAST_GOOD: &str = select_revision!("cvm_id = $1 AND state = 'good' ORDER BY id DESC LIMIT 1");
// A revision is part of the history from the moment it was applied.
const OF_APP: &str = select_revision!(
    "app_id = $1 AND workspace_id = $2 AND applied_at_ms IS NOT NULL ORDER BY id DESC LIMIT $3 OFFSET $4"
);
const COUNT_OF_APP: &str = "SELECT COUNT(*) FROM revisions \
     WHERE app_id = $1 AND workspace_id = $2 AND applied_at_ms IS NOT NULL";

// Documents that keys may be given to although no CVM needs them. The operation at hand is about to end: what
// it could have gone back to is not needed any more, and a CVM that it deletes needs nothing.
const UNUSED_HASHES: &str = "SELECT DISTINCT compose_hash FROM revisions \
     WHERE app_id = $1 AND keys_retired_at_ms IS NULL \
     AND compose_hash NOT IN (SELECT c.compose_hash FROM cvms c WHERE c.app_id = $1 \
        AND c.deleted_at_ms IS NULL AND NOT (c.id = $2 AND $3 = 1)) \
     AND compose_hash NOT IN (SELECT r.compose_hash FROM operations o JOIN revisions r \
        ON r.id = o.to_revision OR r.id = o.from_revision JOIN cvms c ON c.id = o.cvm_id \
        WHERE c.app_id = $1 AND c.id <> $2 AND o.status = 'in_progress')";

impl Store {
    /// The revision with this id.
    pub async fn revision(&self, id: i64) -> Result<Option<RevisionRow>> {
        Ok(sqlx::query_as(BY_ID).bind(id).fetch_optional(&self.pool).await?)
    }

    /// A stretch of the applied revisions of an application in a workspace, newest first, of deleted CVMs too.
    pub async fn revisions_of_app(
        &self,
        app_id: AppId,
        workspace_id: i64,
        limit: i64,
        offset: i64,
    ) -> Result<Vec<RevisionRow>> {
        Ok(sqlx::query_as(OF_APP)
            .bind(app_id.to_string())
            .bind(workspace_id)
            .bind(limit)
            .bind(offset)
            .fetch_all(&self.pool)
            .await?)
    }

    /// Documents of an application that its keys may be given to, and that no living CVM of it has, is getting
    /// or could go back to. `operation` is about to end and counts as ended.
    pub async fn unused_hashes(&self, cvm: &CvmRow, operation: &OperationRow) -> Result<Vec<ComposeHash>> {
        let rows: Vec<(String,)> = sqlx::query_as(UNUSED_HASHES)
            .bind(cvm.app_id.to_string())
            .bind(cvm.id)
            .bind(i64::from(operation.kind == OperationKind::Delete))
            .fetch_all(&self.pool)
            .await?;
        Ok(rows.into_iter().filter_map(|(hash,)| hash.parse().ok()).collect())
    }

    /// Notes that an application's keys are not given to a document any more.
    pub async fn note_keys_retired(&self, app_id: AppId, hash: ComposeHash, now_ms: i64) -> Result<()> {
        let mut change = self.upkeep().await?;
        sqlx::query(
            "UPDATE revisions SET keys_retired_at_ms = $3 \
             WHERE app_id = $1 AND compose_hash = $2 AND keys_retired_at_ms IS NULL",
        )
        .bind(app_id.to_string())
        .bind(hash.to_string())
        .bind(now_ms)
        .execute(&mut *change.transaction)
        .await?;
        change.commit().await
    }

    /// How many applied revisions an application has in a workspace.
    pub async fn count_revisions_of_app(&self, app_id: AppId, workspace_id: i64) -> Result<i64> {
        let (count,): (i64,) = sqlx::query_as(COUNT_OF_APP)
            .bind(app_id.to_string())
            .bind(workspace_id)
            .fetch_one(&self.pool)
            .await?;
        Ok(count)
    }
}

impl Change {
    /// Notes that an application's keys are given to a document, whatever was noted before.
    pub async fn note_keys_allowed(&mut self, app_id: AppId, hash: ComposeHash) -> Result<()> {
        sqlx::query(
            "UPDATE revisions SET keys_retired_at_ms = NULL \
             WHERE app_id = $1 AND compose_hash = $2 AND keys_retired_at_ms IS NOT NULL",
        )
        .bind(app_id.to_string())
        .bind(hash.to_string())
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// The revision with this id.
    pub async fn revision(&mut self, id: i64) -> Result<Option<RevisionRow>> {
        Ok(sqlx::query_as(BY_ID).bind(id).fetch_optional(&mut *self.transaction).await?)
    }

    /// The latest revision with which a CVM's application was up.
    pub async fn last_good_revision(&mut self, cvm_id: i64) -> Result<Option<RevisionRow>> {
        Ok(sqlx::query_as(LAST_GOOD).bind(cvm_id).fetch_optional(&mut *self.transaction).await?)
    }

    /// Adds a revision in state `pending`; returns its id.
    pub async fn insert_revision(&mut self, new: &NewRevision<'_>, now_ms: i64) -> Result<i64> {
        let id = self.next_id("revisions").await?;
        let configuration = new.configuration;
        sqlx::query(
            "INSERT INTO revisions (id, cvm_id, workspace_id, app_id, operation_type, state, compose_hash, \
             app_compose, encrypted_env, env_pubkey, user_config, os_image_hash, os_image_name, \
             instance_type, vcpu, memory_mb, disk_gb, gpus, correlation_id, triggered_by, created_at_ms) \
             VALUES ($1, $2, $3, $4, $5, 'pending', $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, \
             $18, $19, $20)",
        )
        .bind(id)
        .bind(new.cvm_id)
        .bind(new.workspace_id)
        .bind(new.app_id.to_string())
        .bind(new.operation_type)
        .bind(configuration.compose_hash.to_string())
        .bind(&configuration.app_compose)
        .bind(&configuration.encrypted_env)
        .bind(&configuration.env_pubkey)
        .bind(&configuration.user_config)
        .bind(configuration.os_image_hash.to_string())
        .bind(&configuration.os_image_name)
        .bind(&configuration.instance_type)
        .bind(configuration.vcpu)
        .bind(configuration.memory_mb)
        .bind(configuration.disk_gb)
        .bind(configuration.gpus.to_string())
        .bind(new.correlation_id.to_string())
        .bind(new.triggered_by)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(id)
    }

    /// Notes that a CVM has had a revision from its beginning.
    pub async fn adopt_revision(&mut self, cvm_id: i64, id: i64, now_ms: i64) -> Result<()> {
        sqlx::query("UPDATE cvms SET revision_id = $2 WHERE id = $1")
            .bind(cvm_id)
            .bind(id)
            .execute(&mut *self.transaction)
            .await?;
        self.set_revision_state(id, RevisionState::Applied, now_ms).await
    }

    /// Notes what became of a revision; the first `applied` also notes the time.
    pub async fn set_revision_state(&mut self, id: i64, state: RevisionState, now_ms: i64) -> Result<()> {
        let applied_at_ms = (state == RevisionState::Applied).then_some(now_ms);
        sqlx::query(
            "UPDATE revisions SET state = $2, applied_at_ms = COALESCE(applied_at_ms, $3) WHERE id = $1",
        )
        .bind(id)
        .bind(state.as_str())
        .bind(applied_at_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Notes that a revision never came to be, if nothing else is noted of it.
    pub async fn drop_pending_revision(&mut self, id: i64) -> Result<()> {
        sqlx::query("UPDATE revisions SET state = $2 WHERE id = $1 AND state = $3")
            .bind(id)
            .bind(RevisionState::RolledBack.as_str())
            .bind(RevisionState::Pending.as_str())
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Makes a revision the configuration of its CVM. A disk only grows: that of the CVM stays when it is the
    /// larger one.
    pub async fn apply_revision(&mut self, revision: &RevisionRow, now_ms: i64) -> Result<()> {
        let configuration = &revision.configuration;
        sqlx::query(
            "UPDATE cvms SET revision_id = $2, compose_hash = $3, app_compose = $4, encrypted_env = $5, \
             env_pubkey = COALESCE($6, env_pubkey), user_config = $7, os_image_hash = $8, \
             os_image_name = $9, instance_type = $10, vcpu = $11, memory_mb = $12, \
             disk_gb = CASE WHEN disk_gb > $13 THEN disk_gb ELSE $13 END, gpus = $14, updated_at_ms = $15 \
             WHERE id = $1",
        )
        .bind(revision.cvm_id)
        .bind(revision.id)
        .bind(configuration.compose_hash.to_string())
        .bind(&configuration.app_compose)
        .bind(&configuration.encrypted_env)
        .bind(&configuration.env_pubkey)
        .bind(&configuration.user_config)
        .bind(configuration.os_image_hash.to_string())
        .bind(&configuration.os_image_name)
        .bind(&configuration.instance_type)
        .bind(configuration.vcpu)
        .bind(configuration.memory_mb)
        .bind(configuration.disk_gb)
        .bind(configuration.gpus.to_string())
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        self.meter(revision.cvm_id, now_ms).await
    }

    /// Makes what a CVM holds of its node what it has, or the larger of that and what it may get.
    pub async fn reserve(&mut self, cvm_id: i64, coming: Option<&Configuration>) -> Result<()> {
        const HOLD: &str = "UPDATE cvms SET \
             reserved_vcpu = CASE WHEN vcpu > $2 THEN vcpu ELSE $2 END, \
             reserved_memory_mb = CASE WHEN memory_mb > $3 THEN memory_mb ELSE $3 END, \
             reserved_disk_gb = CASE WHEN disk_gb > $4 THEN disk_gb ELSE $4 END \
             WHERE id = $1 AND deleted_at_ms IS NULL";
        self.count_on_node(cvm_id, -1).await?;
        let (vcpu, memory_mb, disk_gb) =
            coming.map_or((0, 0, 0), |coming| (coming.vcpu, coming.memory_mb, coming.disk_gb));
        sqlx::query(HOLD)
            .bind(cvm_id)
            .bind(vcpu)
            .bind(memory_mb)
            .bind(disk_gb)
            .execute(&mut *self.transaction)
            .await?;
        self.count_on_node(cvm_id, 1).await?;
        self.hold_gpus(cvm_id, coming).await
    }

    /// Adds what a living CVM holds to the totals of its node, or with -1 takes it from them.
    pub(super) async fn count_on_node(&mut self, cvm_id: i64, sign: i64) -> Result<()> {
        sqlx::query(
            "UPDATE nodes SET used_cvms = used_cvms + $2, \
             used_vcpu = used_vcpu + $2 * (SELECT reserved_vcpu FROM cvms WHERE id = $1), \
             used_memory_mb = used_memory_mb + $2 * (SELECT reserved_memory_mb FROM cvms WHERE id = $1), \
             used_disk_gb = used_disk_gb + $2 * (SELECT reserved_disk_gb FROM cvms WHERE id = $1) \
             WHERE id = (SELECT node_id FROM cvms WHERE id = $1 AND deleted_at_ms IS NULL)",
        )
        .bind(cvm_id)
        .bind(sign)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }
}
