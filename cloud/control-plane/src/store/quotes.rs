//! Quotes that were verified for somebody, with what they were verified with.

use sqlx::FromRow;

use super::{Change, Result, Store};

/// A stored quote.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct QuoteRow {
    /// SHA-256 of the quote's bytes, hex.
    pub checksum: String,
    /// The quote, base64.
    pub quote: String,
    /// When it first came.
    pub uploaded_at_ms: i64,
    /// When the verdict was found.
    pub verified_at_ms: i64,
    /// 0 or 1: the verdict.
    pub verified: i64,
    /// The verdict in detail, JSON.
    pub verdict: String,
    /// SHA-256 of the collateral's document, hex.
    pub collateral_digest: Option<String>,
}

/// A quote in the list of recent ones.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct RecentQuoteRow {
    /// SHA-256 of the quote's bytes, hex.
    pub checksum: String,
    /// When it first came.
    pub uploaded_at_ms: i64,
    /// 0 or 1: the verdict.
    pub verified: i64,
}

const BY_CHECKSUM: &str = "SELECT checksum, quote, uploaded_at_ms, verified_at_ms, verified, verdict, \
     collateral_digest FROM quotes WHERE checksum = $1";

impl Store {
    /// The quote with this checksum.
    pub async fn quote(&self, checksum: &str) -> Result<Option<QuoteRow>> {
        Ok(sqlx::query_as(BY_CHECKSUM).bind(checksum).fetch_optional(&self.pool).await?)
    }

    /// A stretch of the quotes, newest first.
    pub async fn recent_quotes(&self, limit: i64, offset: i64) -> Result<Vec<RecentQuoteRow>> {
        Ok(sqlx::query_as(
            "SELECT checksum, uploaded_at_ms, verified FROM quotes \
             ORDER BY uploaded_at_ms DESC, checksum DESC LIMIT $1 OFFSET $2",
        )
        .bind(limit)
        .bind(offset)
        .fetch_all(&self.pool)
        .await?)
    }

    /// The collateral with this digest.
    pub async fn collateral(&self, digest: &str) -> Result<Option<String>> {
        let row: Option<(String,)> = sqlx::query_as("SELECT document FROM collaterals WHERE digest = $1")
            .bind(digest)
            .fetch_optional(&self.pool)
            .await?;
        Ok(row.map(|(document,)| document))
    }
}

impl Change {
    /// Keeps a collateral document.
    pub async fn put_collateral(&mut self, digest: &str, document: &str) -> Result<()> {
        // The empty update locks the row on PostgreSQL, so that housekeeping does not remove it before
        // the quote that needs it is there.
        sqlx::query(
            "INSERT INTO collaterals (digest, document) VALUES ($1, $2) \
             ON CONFLICT (digest) DO UPDATE SET document = excluded.document",
        )
        .bind(digest)
        .bind(document)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Keeps a quote with its verdict. One that is known keeps the time of its upload.
    pub async fn put_quote(&mut self, row: &QuoteRow) -> Result<QuoteRow> {
        sqlx::query(
            "INSERT INTO quotes (checksum, quote, uploaded_at_ms, verified_at_ms, verified, verdict, \
             collateral_digest) VALUES ($1, $2, $3, $4, $5, $6, $7) \
             ON CONFLICT (checksum) DO UPDATE SET verified_at_ms = excluded.verified_at_ms, \
             verified = excluded.verified, verdict = excluded.verdict, \
             collateral_digest = excluded.collateral_digest",
        )
        .bind(&row.checksum)
        .bind(&row.quote)
        .bind(row.uploaded_at_ms)
        .bind(row.verified_at_ms)
        .bind(row.verified)
        .bind(&row.verdict)
        .bind(&row.collateral_digest)
        .execute(&mut *self.transaction)
        .await?;
        Ok(sqlx::query_as(BY_CHECKSUM).bind(&row.checksum).fetch_one(&mut *self.transaction).await?)
    }

    /// Forgets the oldest quotes beyond the newest `keep`, at most `limit` of them; how many it were.
    pub async fn delete_old_quotes(&mut self, keep: i64, limit: i64) -> Result<u64> {
        let done = sqlx::query(
            "DELETE FROM quotes WHERE checksum IN (SELECT checksum FROM quotes \
             ORDER BY uploaded_at_ms DESC, checksum DESC LIMIT $2 OFFSET $1)",
        )
        .bind(keep)
        .bind(limit)
        .execute(&mut *self.transaction)
        .await?;
        Ok(done.rows_affected())
    }

    /// Forgets at most `limit` collaterals that no quote refers to; how many it were.
    pub async fn delete_unused_collaterals(&mut self, limit: i64) -> Result<u64> {
        let done = sqlx::query(
            "DELETE FROM collaterals WHERE digest IN (SELECT digest FROM collaterals \
             WHERE NOT EXISTS (SELECT 1 FROM quotes WHERE collateral_digest = digest) LIMIT $1)",
        )
        .bind(limit)
        .execute(&mut *self.transaction)
        .await?;
        Ok(done.rows_affected())
    }
}
