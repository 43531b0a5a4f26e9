//! CVMs that nobody can say anything of, and meters that go by former prices.

use super::super::{Change, Engine, Result, Store};
use crate::operations::CvmStatus;

/// CVMs of one transaction in the embedded database. Elsewhere one by one, so that two changes that lock several
/// CVMs never wait for each other.
const BATCH: i64 = 200;

const SILENT: &str = "SELECT c.id, n.reported_at_ms FROM nodes n JOIN cvms c ON c.node_id = n.id \
     WHERE n.reported_at_ms <= $1 AND n.deleted_at_ms IS NULL AND c.deleted_at_ms IS NULL \
     AND c.is_established = 1 AND c.unaccounted_since_ms IS NULL LIMIT $2";
const SILENT_ON: &str = "SELECT c.id, n.reported_at_ms FROM nodes n JOIN cvms c ON c.node_id = n.id \
     WHERE n.reported_at_ms <= $1 AND n.id = $3 AND c.deleted_at_ms IS NULL \
     AND c.is_established = 1 AND c.unaccounted_since_ms IS NULL LIMIT $2";
const LIVING: &str = "SELECT id FROM cvms WHERE deleted_at_ms IS NULL AND is_established = 1 AND id > $1 \
     ORDER BY id LIMIT $2";

impl Store {
    /// Stops the meters of CVMs whose nodes, or whose one node, have not reported after a moment: they end with
    /// the last report, and run again from when the node says something of the CVM. Returns how many CVMs it were.
    pub async fn stop_meters_of_silent(
        &self,
        node_id: Option<i64>,
        not_after_ms: i64,
        now_ms: i64,
    ) -> Result<u64> {
        let mut total = 0;
        loop {
            let mut change = self.change().await?;
            let query = match node_id {
                None => sqlx::query_as(SILENT).bind(not_after_ms).bind(change.batch()),
                Some(node) => sqlx::query_as(SILENT_ON).bind(not_after_ms).bind(change.batch()).bind(node),
            };
            let cvms: Vec<(i64, i64)> = query.fetch_all(&mut *change.transaction).await?;
            if cvms.is_empty() {
                return Ok(total);
            }
            for (cvm, reported_at_ms) in cvms {
                change.lose_cvm(cvm, reported_at_ms, now_ms).await?;
                total += 1;
            }
            change.commit().await?;
        }
    }

    /// Makes the meters of all CVMs go by the price list of this store, once for each other list. CVMs that are
    /// older than metering get theirs. Returns whether there was something to do.
    pub async fn apply_prices(&self, fingerprint: &str, now_ms: i64) -> Result<bool> {
        let known: Option<(String,)> = sqlx::query_as("SELECT fingerprint FROM usage_prices WHERE id = 1")
            .fetch_optional(&self.pool)
            .await?;
        if known.as_ref().is_some_and(|(known,)| known == fingerprint) {
            return Ok(false);
        }
        let mut last = 0;
        loop {
            let mut change = self.change().await?;
            let cvms: Vec<(i64,)> = sqlx::query_as(LIVING)
                .bind(last)
                .bind(change.batch())
                .fetch_all(&mut *change.transaction)
                .await?;
            let Some((end,)) = cvms.last() else { break };
            last = *end;
            for (cvm,) in cvms {
                if let Some(row) = change.lock_living_cvm(cvm).await? {
                    let is_first = known.is_none() && row.status == CvmStatus::Running;
                    change.meter_as_told(cvm, is_first, now_ms).await?;
                }
            }
            change.commit().await?;
        }
        // Afterwards: whoever dies before does it again.
        let mut change = self.change().await?;
        sqlx::query(
            "INSERT INTO usage_prices (id, fingerprint) VALUES (1, $1) \
             ON CONFLICT (id) DO UPDATE SET fingerprint = EXCLUDED.fingerprint",
        )
        .bind(fingerprint)
        .execute(&mut *change.transaction)
        .await?;
        change.commit().await?;
        Ok(true)
    }
}

#[cfg(test)]
impl Store {
    /// As it was before anything was metered.
    pub(crate) async fn forget_usage(&self) {
        for table in ["DELETE FROM usage_intervals", "DELETE FROM usage_prices"] {
            sqlx::query(table).execute(&self.pool).await.unwrap();
        }
    }
}

impl Change {
    /// Notes that nobody can say since a moment how a living CVM is. Until its node says something of it,
    /// nothing of it is metered.
    pub async fn lose_cvm(&mut self, id: i64, since_ms: i64, now_ms: i64) -> Result<()> {
        let done = sqlx::query(
            "UPDATE cvms SET unaccounted_since_ms = $2 \
             WHERE id = $1 AND deleted_at_ms IS NULL AND unaccounted_since_ms IS NULL",
        )
        .bind(id)
        .bind(since_ms)
        .execute(&mut *self.transaction)
        .await?;
        match done.rows_affected() {
            0 => Ok(()),
            _ => self.meter(id, now_ms).await,
        }
    }

    const fn batch(&self) -> i64 {
        match self.engine {
            Engine::Sqlite => BATCH,
            Engine::Postgres => 1,
        }
    }
}
