//! Platforms: those that nodes were seen to be, and the lists of registered ones.

use sqlx::FromRow;

use super::{Change, Result, Store};

/// A platform that a verified quote of a CVM on a node came from.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct DeviceRow {
    /// The node.
    pub node_id: i64,
    /// SHA-256 of the PPID, hex.
    pub device_id: String,
    /// Platform identity, hex.
    pub ppid: String,
    /// Family, model, stepping, platform type and custom SKU, hex.
    pub fmspc: String,
    /// Name of the trust root.
    pub trust_root: String,
    /// TCB status in Intel's spelling.
    pub tcb_status: String,
    /// When it was first seen.
    pub first_verified_at_ms: i64,
    /// When it was last seen.
    pub last_verified_at_ms: i64,
}

/// Most platforms in one list of all of them.
const MAX_LISTED: i64 = 10_000;

macro_rules! insert_device {
    () => {
        "INSERT INTO node_devices (node_id, device_id, ppid, fmspc, trust_root, tcb_status, first_verified_at_ms, \
         last_verified_at_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (node_id, device_id) DO "
    };
}

impl Store {
    /// The platforms of every node that is not removed, each node's latest last.
    pub async fn devices(&self) -> Result<Vec<DeviceRow>> {
        Ok(sqlx::query_as(
            "SELECT node_id, device_id, ppid, fmspc, trust_root, tcb_status, first_verified_at_ms, \
             last_verified_at_ms FROM node_devices \
             WHERE node_id IN (SELECT id FROM nodes WHERE deleted_at_ms IS NULL) \
             ORDER BY node_id, last_verified_at_ms, device_id LIMIT $1",
        )
        .bind(MAX_LISTED)
        .fetch_all(&self.pool)
        .await?)
    }

    /// The platform that a node was seen to be last.
    pub async fn device_of_node(&self, node_id: i64) -> Result<Option<DeviceRow>> {
        Ok(sqlx::query_as(
            "SELECT node_id, device_id, ppid, fmspc, trust_root, tcb_status, first_verified_at_ms, \
             last_verified_at_ms FROM node_devices WHERE node_id = $1 \
             ORDER BY last_verified_at_ms DESC, device_id LIMIT 1",
        )
        .bind(node_id)
        .fetch_optional(&self.pool)
        .await?)
    }

    /// Serial of the list of registered platforms that was last accepted from a signer.
    pub async fn platform_list_serial(&self, signer: &str) -> Result<Option<i64>> {
        let row: Option<(i64,)> = sqlx::query_as("SELECT serial FROM platform_lists WHERE signer = $1")
            .bind(signer)
            .fetch_optional(&self.pool)
            .await?;
        Ok(row.map(|(serial,)| serial))
    }
}

impl Change {
    /// Notes that a node was seen to be a platform.
    pub async fn put_device(&mut self, row: &DeviceRow) -> Result<()> {
        self.insert_device(
            concat!(
                insert_device!(),
                "UPDATE SET fmspc = excluded.fmspc, trust_root = excluded.trust_root, \
                 tcb_status = excluded.tcb_status, last_verified_at_ms = excluded.last_verified_at_ms"
            ),
            row,
        )
        .await
    }

    /// Notes as what platform a node was certified; what evidence showed already stays.
    pub async fn note_certified_device(&mut self, row: &DeviceRow) -> Result<()> {
        self.insert_device(concat!(insert_device!(), "NOTHING"), row).await
    }

    async fn insert_device(&mut self, insert: &'static str, row: &DeviceRow) -> Result<()> {
        sqlx::query(insert)
            .bind(row.node_id)
            .bind(&row.device_id)
            .bind(&row.ppid)
            .bind(&row.fmspc)
            .bind(&row.trust_root)
            .bind(&row.tcb_status)
            .bind(row.first_verified_at_ms)
            .bind(row.last_verified_at_ms)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Notes that a list was accepted from a signer; false, and nothing changed, when one with a higher
    /// serial was.
    pub async fn accept_platform_list(&mut self, signer: &str, serial: i64, now_ms: i64) -> Result<bool> {
        let done = sqlx::query(
            "INSERT INTO platform_lists (signer, serial, accepted_at_ms) VALUES ($1, $2, $3) \
             ON CONFLICT (signer) DO UPDATE SET serial = excluded.serial, \
             accepted_at_ms = excluded.accepted_at_ms WHERE platform_lists.serial <= excluded.serial",
        )
        .bind(signer)
        .bind(serial)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(done.rows_affected() > 0)
    }
}
