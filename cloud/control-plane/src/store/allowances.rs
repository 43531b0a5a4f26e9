//! What is asked of those who decide about an application.

use std::collections::BTreeMap;

use cloister_app_compose::{AppId, ComposeHash};
use sqlx::FromRow;

use super::{Result, Store};

/// Most CVMs of an application that are asked about.
const MAX_CVMS: i64 = 10_000;

/// What a CVM runs, and where: nothing else of it, because there may be many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AskedCvm {
    /// The CVM.
    pub id: i64,
    /// Number of the key management service that its keys come from.
    pub kms_id: Option<i64>,
    /// Its document.
    pub compose_hash: ComposeHash,
    /// Platform that its node was seen to be last.
    pub device_id: Option<[u8; 32]>,
}

#[derive(FromRow)]
struct Row {
    id: i64,
    kms_id: Option<i64>,
    #[sqlx(try_from = "String")]
    compose_hash: ComposeHash,
    node_id: i64,
}

impl Store {
    /// The living CVMs of an application in a workspace, oldest first, at most 10,000.
    pub async fn asked_cvms(&self, app_id: AppId, workspace_id: i64) -> Result<Vec<AskedCvm>> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT id, kms_id, compose_hash, node_id FROM cvms \
             WHERE workspace_id = $1 AND app_id = $2 AND deleted_at_ms IS NULL ORDER BY id LIMIT $3",
        )
        .bind(workspace_id)
        .bind(app_id.to_string())
        .bind(MAX_CVMS)
        .fetch_all(&self.pool)
        .await?;
        let devices = self.latest_devices().await?;
        let asked = |row: Row| AskedCvm {
            id: row.id,
            kms_id: row.kms_id,
            compose_hash: row.compose_hash,
            device_id: devices.get(&row.node_id).copied(),
        };
        Ok(rows.into_iter().map(asked).collect())
    }

    /// The platform that each node was seen to be last.
    pub async fn latest_devices(&self) -> Result<BTreeMap<i64, [u8; 32]>> {
        // Each node's latest comes last.
        let devices = self.devices().await?.into_iter();
        let device = |row: super::DeviceRow| {
            Some((row.node_id, <[u8; 32]>::try_from(hex::decode(row.device_id).ok()?).ok()?))
        };
        Ok(devices.filter_map(device).collect())
    }

    /// Number of the key management service that an application of a workspace has its keys from, or had them while
    /// it had CVMs.
    pub async fn kms_of_app(&self, app_id: AppId, workspace_id: i64) -> Result<Option<i64>> {
        let row: Option<(Option<i64>,)> = sqlx::query_as(
            "SELECT kms_id FROM cvms WHERE workspace_id = $1 AND app_id = $2 \
             ORDER BY CASE WHEN deleted_at_ms IS NULL THEN 0 ELSE 1 END, id DESC LIMIT 1",
        )
        .bind(workspace_id)
        .bind(app_id.to_string())
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.and_then(|(kms,)| kms))
    }
}
