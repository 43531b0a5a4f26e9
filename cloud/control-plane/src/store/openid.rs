//! People whom an OpenID provider knows, and logins on their way through it.

use sqlx::FromRow;

use super::{Change, Result, Store, Subject};

/// A login on its way.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub(crate) struct OpenidLoginRow {
    /// Where the person goes on.
    pub(crate) next: String,
    /// Who it is, once the provider has said so.
    pub(crate) user_id: Option<i64>,
}

impl Store {
    /// The user whom a provider calls so.
    pub(crate) async fn user_of_openid(&self, issuer: &str, subject: &str) -> Result<Option<i64>> {
        let row: Option<(i64,)> =
            sqlx::query_as("SELECT user_id FROM openid_identities WHERE issuer = $1 AND subject = $2")
                .bind(issuer)
                .bind(subject)
                .fetch_optional(&self.pool)
                .await?;
        Ok(row.map(|(id,)| id))
    }

    /// What a user is called by a provider: issuer and subject.
    pub(crate) async fn openid_of_user(&self, user_id: i64) -> Result<Option<(String, String)>> {
        Ok(sqlx::query_as("SELECT issuer, subject FROM openid_identities WHERE user_id = $1")
            .bind(user_id)
            .fetch_optional(&self.pool)
            .await?)
    }

    /// A login that waits for a code of the second factor, by its cookie.
    pub(crate) async fn waiting_openid_login(
        &self,
        token_hash: &str,
        now_ms: i64,
    ) -> Result<Option<OpenidLoginRow>> {
        Ok(sqlx::query_as(
            "SELECT next, user_id FROM openid_logins \
             WHERE token_hash = $1 AND user_id IS NOT NULL AND expires_at_ms > $2",
        )
        .bind(token_hash)
        .bind(now_ms)
        .fetch_optional(&self.pool)
        .await?)
    }
}

impl Change {
    /// Says whom a provider means by a subject; instead of what the user was called before. Fails as a duplicate where
    /// that is another user.
    pub(crate) async fn put_openid(
        &mut self,
        user_id: i64,
        (issuer, subject): (&str, &str),
        now_ms: i64,
    ) -> Result<()> {
        self.about(Subject::User(user_id)).await?;
        self.end_openid_logins_of(user_id).await?;
        sqlx::query(
            "INSERT INTO openid_identities (user_id, issuer, subject, linked_at_ms) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (user_id) DO UPDATE SET issuer = excluded.issuer, subject = excluded.subject, \
             linked_at_ms = excluded.linked_at_ms",
        )
        .bind(user_id)
        .bind(issuer)
        .bind(subject)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Forgets what a provider calls a user.
    pub(crate) async fn remove_openid(&mut self, user_id: i64) -> Result<()> {
        self.about(Subject::User(user_id)).await?;
        self.end_openid_logins_of(user_id).await?;
        sqlx::query("DELETE FROM openid_identities WHERE user_id = $1")
            .bind(user_id)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    async fn end_openid_logins_of(&mut self, user_id: i64) -> Result<()> {
        sqlx::query("DELETE FROM openid_logins WHERE user_id = $1")
            .bind(user_id)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Begins a login; whether there was room among those that are on their way. Those that are too old are forgotten.
    pub(crate) async fn insert_openid_login(
        &mut self,
        token_hash: &str,
        login: &OpenidLoginRow,
        (now_ms, expires_at_ms): (i64, i64),
        most: i64,
    ) -> Result<bool> {
        sqlx::query("DELETE FROM openid_logins WHERE expires_at_ms <= $1")
            .bind(now_ms)
            .execute(&mut *self.transaction)
            .await?;
        let done = sqlx::query(
            "INSERT INTO openid_logins (token_hash, next, user_id, expires_at_ms) SELECT $1, $2, \
             CAST($3 AS BIGINT), CAST($4 AS BIGINT) \
             WHERE (SELECT COUNT(*) FROM openid_logins) < $5",
        )
        .bind(token_hash)
        .bind(&login.next)
        .bind(login.user_id)
        .bind(expires_at_ms)
        .bind(most)
        .execute(&mut *self.transaction)
        .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Uses up a login that comes back from the provider.
    pub(crate) async fn take_openid_login(
        &mut self,
        token_hash: &str,
        now_ms: i64,
    ) -> Result<Option<OpenidLoginRow>> {
        Ok(sqlx::query_as(
            "DELETE FROM openid_logins WHERE token_hash = $1 AND user_id IS NULL AND expires_at_ms > $2 \
             RETURNING next, user_id",
        )
        .bind(token_hash)
        .bind(now_ms)
        .fetch_optional(&mut *self.transaction)
        .await?)
    }

    /// Uses up a login of a user that waited for a code; whether nobody else did.
    pub(crate) async fn take_waiting_openid_login(
        &mut self,
        token_hash: &str,
        user_id: i64,
        now_ms: i64,
    ) -> Result<bool> {
        let done = sqlx::query(
            "DELETE FROM openid_logins WHERE token_hash = $1 AND user_id = $2 AND expires_at_ms > $3",
        )
        .bind(token_hash)
        .bind(user_id)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(done.rows_affected() > 0)
    }
}
