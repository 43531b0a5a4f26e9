//! Nodes, their last reports, and invitations to new ones.

use sqlx::FromRow;

use super::{Change, Engine, Result, Store};

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct NodeRow {
    /// Id (`teepod_id`).
    pub id: i64,
    /// Name, unique.
    pub name: String,
    /// 0 or 1: offered to everybody.
    pub listed: i64,
    /// 0 or 1: an administrator wants no changes here.
    pub maintenance: i64,
    /// 0 or 1: its CVMs are being moved away and nothing new is placed on it.
    pub draining: i64,
    /// What its living CVMs hold.
    #[sqlx(flatten)]
    pub usage: Usage,
    /// JSON of the last report without its VMs; only where it was asked for.
    #[sqlx(default)]
    pub report: Option<String>,
    /// How many reports came; each has its number.
    pub report_number: i64,
    /// When the last one came.
    pub reported_at_ms: Option<i64>,
    /// When the node was enrolled.
    pub created_at_ms: i64,
}

/// What the living CVMs of a node take together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromRow)]
pub struct Usage {
    /// CVMs.
    #[sqlx(rename = "used_cvms")]
    pub cvms: i64,
    /// Virtual CPUs.
    #[sqlx(rename = "used_vcpu")]
    pub vcpu: i64,
    /// Memory in MiB.
    #[sqlx(rename = "used_memory_mb")]
    pub memory_mb: i64,
    /// Disk in GiB.
    #[sqlx(rename = "used_disk_gb")]
    pub disk_gb: i64,
}

/// An invitation that a node used, or may use.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct JoinTokenRow {
    /// When it stops working.
    pub expires_at_ms: i64,
    /// The node that used it.
    pub used_by_node: Option<String>,
}

macro_rules! columns {
    () => {
        "id, name, listed, maintenance, draining, used_cvms, used_vcpu, used_memory_mb, used_disk_gb, \
         report_number, reported_at_ms, created_at_ms"
    };
}

macro_rules! select_node {
    ($condition:literal) => {
        concat!("SELECT report, ", columns!(), " FROM nodes WHERE deleted_at_ms IS NULL ", $condition)
    };
}

macro_rules! select_without_report {
    ($condition:literal) => {
        concat!("SELECT ", columns!(), " FROM nodes WHERE deleted_at_ms IS NULL ", $condition)
    };
}

const BY_ID: &str = select_node!("AND id = $1");
// As an UPDATE locks it: changes wait, CVMs that refer to the node need not.
const BY_ID_LOCKED: &str = select_node!("AND id = $1 FOR NO KEY UPDATE");
const BY_NAME: &str = select_node!("AND name = $1");
const ALL: &str = select_node!("ORDER BY id LIMIT 10000");
const WITHOUT_REPORT: &str = select_without_report!("AND id = $1");
const WITHOUT_REPORTS: &str = select_without_report!("ORDER BY id LIMIT 10000");

impl Store {
    /// The node with this id.
    pub async fn node(&self, id: i64) -> Result<Option<NodeRow>> {
        Ok(sqlx::query_as(BY_ID).bind(id).fetch_optional(&self.pool).await?)
    }

    /// The node of this name.
    pub async fn node_by_name(&self, name: &str) -> Result<Option<NodeRow>> {
        Ok(sqlx::query_as(BY_NAME).bind(name).fetch_optional(&self.pool).await?)
    }

    /// The node with this id, without its report.
    pub async fn node_without_report(&self, id: i64) -> Result<Option<NodeRow>> {
        Ok(sqlx::query_as(WITHOUT_REPORT).bind(id).fetch_optional(&self.pool).await?)
    }

    /// All nodes that are not removed, without their reports.
    pub async fn nodes_without_reports(&self) -> Result<Vec<NodeRow>> {
        Ok(sqlx::query_as(WITHOUT_REPORTS).fetch_all(&self.pool).await?)
    }

    /// All nodes that are not removed.
    pub async fn nodes(&self) -> Result<Vec<NodeRow>> {
        Ok(sqlx::query_as(ALL).fetch_all(&self.pool).await?)
    }
}

impl Change {
    /// The node with this id.
    pub async fn node(&mut self, id: i64) -> Result<Option<NodeRow>> {
        Ok(sqlx::query_as(BY_ID).bind(id).fetch_optional(&mut *self.transaction).await?)
    }

    /// The node of this name.
    pub async fn node_by_name(&mut self, name: &str) -> Result<Option<NodeRow>> {
        Ok(sqlx::query_as(BY_NAME).bind(name).fetch_optional(&mut *self.transaction).await?)
    }

    /// The node with this id; no other change can take anything of it before this one ends.
    pub async fn lock_node(&mut self, id: i64) -> Result<Option<NodeRow>> {
        let query = match self.engine {
            // A change holds everything anyway.
            Engine::Sqlite => BY_ID,
            Engine::Postgres => BY_ID_LOCKED,
        };
        let node = sqlx::query_as(query).bind(id).fetch_optional(&mut *self.transaction).await?;
        self.locked(super::Subject::Node(id)).await?;
        Ok(node)
    }

    /// Adds a node.
    pub async fn insert_node(&mut self, name: &str, now_ms: i64) -> Result<i64> {
        let id = self.next_id("nodes").await?;
        self.about(super::Subject::Node(id)).await?;
        sqlx::query(
            "INSERT INTO nodes (id, name, listed, maintenance, created_at_ms) VALUES ($1, $2, 1, 0, $3)",
        )
        .bind(id)
        .bind(name)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(id)
    }

    /// Keeps a node's report.
    pub async fn put_node_report(&mut self, node_id: i64, report: &str, now_ms: i64) -> Result<()> {
        sqlx::query("UPDATE nodes SET report = $2, reported_at_ms = $3, report_number = report_number + 1 WHERE id = $1")
            .bind(node_id)
            .bind(report)
            .bind(now_ms)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Switches a node's maintenance; whether that changed anything.
    pub async fn set_node_maintenance(&mut self, node_id: i64, on: bool) -> Result<bool> {
        self.about(super::Subject::Node(node_id)).await?;
        let done = sqlx::query(
            "UPDATE nodes SET maintenance = $2 WHERE id = $1 AND deleted_at_ms IS NULL AND maintenance <> $2",
        )
        .bind(node_id)
        .bind(i64::from(on))
        .execute(&mut *self.transaction)
        .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Removes a node without living CVMs; whether it was removed. Its name can be used again.
    pub async fn delete_node(&mut self, node_id: i64, now_ms: i64) -> Result<bool> {
        self.about(super::Subject::Node(node_id)).await?;
        if self.lock_node(node_id).await?.is_none_or(|node| node.usage.cvms > 0) {
            return Ok(false);
        }
        // The invitation is used up with the node: it must not come back by itself.
        sqlx::query(
            "DELETE FROM join_tokens WHERE used_by_node = \
             (SELECT name FROM nodes WHERE id = $1 AND deleted_at_ms IS NULL)",
        )
        .bind(node_id)
        .execute(&mut *self.transaction)
        .await?;
        let done = sqlx::query(
            "UPDATE nodes SET deleted_at_ms = $2, name = name || '#' || CAST(id AS TEXT) \
             WHERE id = $1 AND deleted_at_ms IS NULL",
        )
        .bind(node_id)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Stores an invitation.
    pub async fn insert_join_token(
        &mut self,
        secret_hash: &str,
        expires_at_ms: i64,
        now_ms: i64,
    ) -> Result<()> {
        self.about(super::Subject::Invitation(secret_hash.to_owned())).await?;
        sqlx::query(
            "INSERT INTO join_tokens (secret_hash, created_at_ms, expires_at_ms) VALUES ($1, $2, $3)",
        )
        .bind(secret_hash)
        .bind(now_ms)
        .bind(expires_at_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Uses up an invitation for a new node: its name is no other node's. The same node may repeat its
    /// enrolment with it while it has not expired, because the answer to its first attempt may have been
    /// lost.
    pub async fn use_join_token(&mut self, secret_hash: &str, node: &str, now_ms: i64) -> Result<bool> {
        self.locked(super::Subject::Invitation(secret_hash.to_owned())).await?;
        let done = sqlx::query(
            "UPDATE join_tokens SET used_by_node = $2 WHERE secret_hash = $1 AND expires_at_ms > $3 \
             AND (used_by_node = $2 OR (used_by_node IS NULL \
             AND NOT EXISTS (SELECT 1 FROM nodes WHERE name = $2 AND deleted_at_ms IS NULL)))",
        )
        .bind(secret_hash)
        .bind(node)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(done.rows_affected() > 0)
    }
}
