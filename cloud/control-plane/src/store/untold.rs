//! Revocations of owners that key management services have still to hear of.

use cloister_app_compose::{AppId, ComposeHash};
use sqlx::FromRow;

use super::{Change, Result, RevocationRow, Store};

/// Most revocations of an application that are listed as not heard of.
const MAX_LISTED: i64 = 100;

/// A revocation that a key management service has not heard of.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct UntoldRow {
    /// The application.
    #[sqlx(try_from = "String")]
    pub app_id: AppId,
    /// The document that its owners took back.
    #[sqlx(try_from = "String")]
    pub compose_hash: ComposeHash,
    /// The service.
    pub kms_id: i64,
    /// Serial of the revocation.
    pub serial: i64,
    /// Since when it is to be told.
    pub since_ms: i64,
    /// How often that failed.
    pub attempts: i64,
    /// When it is tried next.
    pub next_attempt_at_ms: i64,
    /// Why the last try failed.
    pub error: Option<String>,
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT app_id, compose_hash, kms_id, serial, since_ms, attempts, next_attempt_at_ms, error \
             FROM untold_revocations ",
            $rest
        )
    };
}

impl Store {
    /// What services have still to hear about an application, longest first.
    pub async fn untold_of_app(&self, app_id: AppId) -> Result<Vec<UntoldRow>> {
        let query = select!("WHERE app_id = $1 ORDER BY since_ms, compose_hash, kms_id LIMIT $2");
        Ok(sqlx::query_as(query).bind(app_id.to_string()).bind(MAX_LISTED).fetch_all(&self.pool).await?)
    }

    /// The services that are to be told something now.
    pub async fn services_with_due_untold(&self, now_ms: i64) -> Result<Vec<i64>> {
        let query = "SELECT DISTINCT kms_id FROM untold_revocations WHERE next_attempt_at_ms <= $1";
        let rows: Vec<(i64,)> = sqlx::query_as(query).bind(now_ms).fetch_all(&self.pool).await?;
        Ok(rows.into_iter().map(|(kms_id,)| kms_id).collect())
    }

    /// What a service is to be told now, longest due first.
    pub async fn due_untold(&self, kms_id: i64, now_ms: i64, limit: i64) -> Result<Vec<UntoldRow>> {
        let query =
            select!("WHERE kms_id = $1 AND next_attempt_at_ms <= $2 ORDER BY next_attempt_at_ms LIMIT $3");
        Ok(sqlx::query_as(query).bind(kms_id).bind(now_ms).bind(limit).fetch_all(&self.pool).await?)
    }
}

impl Change {
    /// A revocation is to be told to a service; the later of two is.
    pub async fn put_untold(
        &mut self,
        app_id: AppId,
        row: RevocationRow,
        kms_id: i64,
        now_ms: i64,
    ) -> Result<()> {
        sqlx::query(
            "INSERT INTO untold_revocations (app_id, compose_hash, kms_id, serial, since_ms, attempts, \
             next_attempt_at_ms) VALUES ($1, $2, $3, $4, $5, 0, $5) ON CONFLICT (app_id, compose_hash, kms_id) \
             DO UPDATE SET serial = excluded.serial, attempts = 0, next_attempt_at_ms = excluded.since_ms, \
             error = NULL WHERE untold_revocations.serial < excluded.serial",
        )
        .bind(app_id.to_string())
        .bind(row.compose_hash.to_string())
        .bind(kms_id)
        .bind(row.serial)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Takes a try: the next one is at `next_ms`. Of several who want the same one, one gets it.
    pub async fn take_untold(&mut self, row: &UntoldRow, next_ms: i64) -> Result<bool> {
        let taken = sqlx::query(
            "UPDATE untold_revocations SET attempts = attempts + 1, next_attempt_at_ms = $6 \
             WHERE app_id = $1 AND compose_hash = $2 AND kms_id = $3 AND serial = $4 AND attempts = $5",
        )
        .bind(row.app_id.to_string())
        .bind(row.compose_hash.to_string())
        .bind(row.kms_id)
        .bind(row.serial)
        .bind(row.attempts)
        .bind(next_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(taken.rows_affected() == 1)
    }

    /// Why the last try failed.
    pub async fn note_untold(&mut self, row: &UntoldRow, error: &str) -> Result<()> {
        sqlx::query(
            "UPDATE untold_revocations SET error = $5 \
             WHERE app_id = $1 AND compose_hash = $2 AND kms_id = $3 AND serial = $4",
        )
        .bind(row.app_id.to_string())
        .bind(row.compose_hash.to_string())
        .bind(row.kms_id)
        .bind(row.serial)
        .bind(error)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// The service has heard of it: of this revocation and of those before.
    pub async fn delete_untold(&mut self, app_id: AppId, row: RevocationRow, kms_id: i64) -> Result<()> {
        sqlx::query(
            "DELETE FROM untold_revocations \
             WHERE app_id = $1 AND compose_hash = $2 AND kms_id = $3 AND serial <= $4",
        )
        .bind(app_id.to_string())
        .bind(row.compose_hash.to_string())
        .bind(kms_id)
        .bind(row.serial)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }
}
