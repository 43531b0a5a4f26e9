//! Key management services: a number for each name, which CVMs refer to.

use super::{Change, Result};

impl Change {
    /// The number of the service with this name; a new one the first time.
    pub async fn put_kms(&mut self, slug: &str, now_ms: i64) -> Result<i64> {
        let known: Option<(i64,)> = sqlx::query_as("SELECT id FROM kmses WHERE slug = $1")
            .bind(slug)
            .fetch_optional(&mut *self.transaction)
            .await?;
        if let Some((id,)) = known {
            return Ok(id);
        }
        // Two replicas that start at the same time agree on the number of the first one.
        let id = self.next_id("kmses").await?;
        let (id,): (i64,) = sqlx::query_as(
            "INSERT INTO kmses (id, slug, created_at_ms) VALUES ($1, $2, $3) \
             ON CONFLICT (slug) DO UPDATE SET slug = excluded.slug RETURNING id",
        )
        .bind(id)
        .bind(slug)
        .bind(now_ms)
        .fetch_one(&mut *self.transaction)
        .await?;
        Ok(id)
    }
}
