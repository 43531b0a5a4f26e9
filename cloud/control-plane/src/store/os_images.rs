//! Guest images of the catalogue.

use std::collections::BTreeSet;

use cloister_app_compose::OsImageHash;
use sqlx::FromRow;

use super::{Change, Result, Store};

/// A guest image of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct OsImageRow {
    /// Hash that names its contents.
    #[sqlx(try_from = "String")]
    pub os_image_hash: OsImageHash,
    /// Name.
    pub name: String,
    /// Dotted version.
    pub version: String,
    /// 0 or 1: a development image.
    pub is_dev: i64,
    /// 0 or 1: brings drivers for GPUs.
    pub supports_gpu: i64,
    /// Bytes of all its files.
    pub size_bytes: i64,
    /// When it was added.
    pub added_at_ms: i64,
    /// When it was retired, if it was.
    pub retired_at_ms: Option<i64>,
    /// Living CVMs that have it.
    pub cvm_count: i64,
}

impl OsImageRow {
    /// Whether new CVMs may have it.
    #[must_use]
    pub const fn is_offered(&self) -> bool {
        self.retired_at_ms.is_none()
    }
}

macro_rules! select_image {
    ($condition:literal) => {
        concat!(
            "SELECT os_image_hash, name, version, is_dev, supports_gpu, size_bytes, added_at_ms, \
             retired_at_ms, (SELECT COUNT(*) FROM cvms c WHERE c.os_image_hash = i.os_image_hash \
             AND c.deleted_at_ms IS NULL) AS cvm_count FROM os_images i ",
            $condition
        )
    };
}

const ALL: &str = select_image!("WHERE state <> 'forgotten' ORDER BY added_at_ms, os_image_hash");
const BY_HASH: &str = select_image!("WHERE os_image_hash = $1 AND state <> 'forgotten'");
// What was forgotten stays retired: nodes may still have its files.
const RETIRED: &str = "SELECT os_image_hash FROM os_images WHERE state <> 'offered'";

impl Store {
    /// Every image, the retired ones too, oldest first.
    pub async fn os_images(&self) -> Result<Vec<OsImageRow>> {
        Ok(sqlx::query_as(ALL).fetch_all(&self.pool).await?)
    }

    /// The image with a hash.
    pub async fn os_image(&self, hash: OsImageHash) -> Result<Option<OsImageRow>> {
        Ok(sqlx::query_as(BY_HASH).bind(hash.to_string()).fetch_optional(&self.pool).await?)
    }

    /// Images that no new CVM is to get, whichever nodes still have them.
    pub async fn retired_os_images(&self) -> Result<BTreeSet<OsImageHash>> {
        let rows: Vec<(String,)> = sqlx::query_as(RETIRED).fetch_all(&self.pool).await?;
        Ok(rows.into_iter().filter_map(|(hash,)| hash.parse().ok()).collect())
    }

    /// Images of the catalogue that a node should have: those that are offered, and of the retired ones those
    /// of its living CVMs.
    pub async fn os_images_for_node(&self, node_id: i64) -> Result<Vec<OsImageHash>> {
        let rows: Vec<(String,)> = sqlx::query_as(
            "SELECT os_image_hash FROM os_images i WHERE state = 'offered' OR EXISTS (SELECT 1 FROM cvms c \
             WHERE c.node_id = $1 AND c.os_image_hash = i.os_image_hash AND c.deleted_at_ms IS NULL) \
             ORDER BY added_at_ms, os_image_hash",
        )
        .bind(node_id)
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().filter_map(|(hash,)| hash.parse().ok()).collect())
    }
}

impl Change {
    /// Adds an image, or offers a retired one again.
    pub async fn put_os_image(&mut self, row: &OsImageRow) -> Result<()> {
        self.about(super::Subject::OsImage(row.os_image_hash)).await?;
        sqlx::query(
            "INSERT INTO os_images (os_image_hash, name, version, is_dev, supports_gpu, size_bytes, state, \
             added_at_ms) VALUES ($1, $2, $3, $4, $5, $6, 'offered', $7) \
             ON CONFLICT (os_image_hash) DO UPDATE SET state = 'offered', retired_at_ms = NULL",
        )
        .bind(row.os_image_hash.to_string())
        .bind(&row.name)
        .bind(&row.version)
        .bind(row.is_dev)
        .bind(row.supports_gpu)
        .bind(row.size_bytes)
        .bind(row.added_at_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// How many images are offered besides the one with this hash.
    pub async fn count_other_os_images(&mut self, hash: OsImageHash) -> Result<i64> {
        let (count,): (i64,) =
            sqlx::query_as("SELECT COUNT(*) FROM os_images WHERE state = 'offered' AND os_image_hash <> $1")
                .bind(hash.to_string())
                .fetch_one(&mut *self.transaction)
                .await?;
        Ok(count)
    }

    /// Retires an image; whether there is one with this hash. The time of the first call stays.
    pub async fn retire_os_image(&mut self, hash: OsImageHash, now_ms: i64) -> Result<bool> {
        self.about(super::Subject::OsImage(hash)).await?;
        let done = sqlx::query(
            "UPDATE os_images SET state = 'retired', retired_at_ms = COALESCE(retired_at_ms, $2) \
             WHERE os_image_hash = $1 AND state <> 'forgotten'",
        )
        .bind(hash.to_string())
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Whether no new CVM is to get an image.
    pub async fn is_os_image_retired(&mut self, hash: OsImageHash) -> Result<bool> {
        let row: Option<(i64,)> =
            sqlx::query_as("SELECT 1 FROM os_images WHERE os_image_hash = $1 AND state <> 'offered'")
                .bind(hash.to_string())
                .fetch_optional(&mut *self.transaction)
                .await?;
        Ok(row.is_some())
    }

    /// Forgets a retired image that no living CVM has; whether it was forgotten.
    pub async fn forget_os_image(&mut self, hash: OsImageHash) -> Result<bool> {
        self.about(super::Subject::OsImage(hash)).await?;
        let done = sqlx::query(
            "UPDATE os_images SET state = 'forgotten' WHERE os_image_hash = $1 AND state = 'retired' AND NOT EXISTS \
             (SELECT 1 FROM cvms c WHERE c.os_image_hash = $1 AND c.deleted_at_ms IS NULL)",
        )
        .bind(hash.to_string())
        .execute(&mut *self.transaction)
        .await?;
        Ok(done.rows_affected() > 0)
    }
}
