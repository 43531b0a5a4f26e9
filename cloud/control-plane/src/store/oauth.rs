//! What applications may do in the name of people: codes, and keys that are renewed.

use cloister_management_api::KeyScope;
use sqlx::FromRow;

use super::{Change, NewApiKey, Result, Store, Subject};

/// A code that a person consented to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewOauthCode {
    /// SHA-256 of the code in hex.
    pub(crate) code_hash: String,
    /// The application.
    pub(crate) client_id: String,
    /// Where the code goes, as the application wrote it.
    pub(crate) redirect_uri: String,
    /// SHA-256 of the verifier, base64url.
    pub(crate) challenge: String,
    /// Who consented.
    pub(crate) user_id: i64,
    /// Where the application may act.
    pub(crate) workspace_id: i64,
    /// What it may do there.
    pub(crate) scope: KeyScope,
    /// When the code works no longer.
    pub(crate) expires_at_ms: i64,
}

/// A code that was presented.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub(crate) struct OauthCodeRow {
    pub(crate) client_id: String,
    pub(crate) redirect_uri: String,
    pub(crate) challenge: String,
    pub(crate) user_id: i64,
    pub(crate) workspace_id: i64,
    #[sqlx(try_from = "String")]
    pub(crate) scope: KeyScope,
    /// This time included.
    pub(crate) uses: i64,
    pub(crate) api_key_id: Option<i64>,
    pub(crate) expires_at_ms: i64,
}

/// A refresh token that was presented.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub(crate) struct RefreshRow {
    /// This time included.
    pub(crate) uses: i64,
    pub(crate) expires_at_ms: i64,
}

/// A key that an application has.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub(crate) struct OauthKeyRow {
    pub(crate) id: i64,
    pub(crate) user_id: i64,
    pub(crate) username: String,
    pub(crate) workspace_id: i64,
    /// What the person allowed; the key may do less until it is renewed.
    #[sqlx(try_from = "String")]
    pub(crate) oauth_scope: KeyScope,
    pub(crate) oauth_client: String,
}

const OF_KEY: &str = "SELECT k.id, k.user_id, u.username, k.workspace_id, k.oauth_scope, k.oauth_client FROM api_keys k \
     JOIN users u ON u.id = k.user_id WHERE k.id = $1 AND k.oauth_client IS NOT NULL AND k.revoked_at_ms IS NULL";
const OF_TOKEN: &str = "SELECT k.id, k.user_id, u.username, k.workspace_id, k.oauth_scope, k.oauth_client FROM api_keys k \
     JOIN users u ON u.id = k.user_id WHERE k.oauth_client IS NOT NULL AND k.revoked_at_ms IS NULL \
     AND (k.key_hash = $1 OR k.id = (SELECT r.api_key_id FROM oauth_refresh_tokens r WHERE r.token_hash = $1))";

impl Store {
    /// Whether there is such a code, or was a short time ago.
    pub(crate) async fn has_oauth_code(&self, code_hash: &str) -> Result<bool> {
        let row: Option<(i64,)> = sqlx::query_as("SELECT uses FROM oauth_codes WHERE code_hash = $1")
            .bind(code_hash)
            .fetch_optional(&self.pool)
            .await?;
        Ok(row.is_some())
    }

    /// Who has the key of a living application, by its access token or any of its refresh tokens.
    pub(crate) async fn oauth_key_of_token(&self, token_hash: &str) -> Result<Option<OauthKeyRow>> {
        Ok(sqlx::query_as(OF_TOKEN).bind(token_hash).fetch_optional(&self.pool).await?)
    }

    /// The same by the number of the key.
    pub(crate) async fn oauth_key(&self, id: i64) -> Result<Option<OauthKeyRow>> {
        Ok(sqlx::query_as(OF_KEY).bind(id).fetch_optional(&self.pool).await?)
    }
}

impl Change {
    /// Keeps a code.
    pub(crate) async fn insert_oauth_code(&mut self, code: &NewOauthCode) -> Result<()> {
        sqlx::query(
            "INSERT INTO oauth_codes (code_hash, client_id, redirect_uri, challenge, user_id, workspace_id, scope, \
             uses, expires_at_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, 0, $8)",
        )
        .bind(&code.code_hash)
        .bind(&code.client_id)
        .bind(&code.redirect_uri)
        .bind(&code.challenge)
        .bind(code.user_id)
        .bind(code.workspace_id)
        .bind(code.scope.as_str())
        .bind(code.expires_at_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Counts that a code was presented.
    pub(crate) async fn present_oauth_code(&mut self, code_hash: &str) -> Result<Option<OauthCodeRow>> {
        Ok(sqlx::query_as(
            "UPDATE oauth_codes SET uses = uses + 1 WHERE code_hash = $1 RETURNING client_id, redirect_uri, \
             challenge, user_id, workspace_id, scope, uses, api_key_id, expires_at_ms",
        )
        .bind(code_hash)
        .fetch_optional(&mut *self.transaction)
        .await?)
    }

    /// Says which key came of a code; whether the code was not presented again, or taken back, meanwhile.
    pub(crate) async fn exchanged_oauth_code(&mut self, code_hash: &str, api_key_id: i64) -> Result<bool> {
        let done = sqlx::query("UPDATE oauth_codes SET api_key_id = $2 WHERE code_hash = $1 AND uses = 1")
            .bind(code_hash)
            .bind(api_key_id)
            .execute(&mut *self.transaction)
            .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Stores the key of an application.
    pub(crate) async fn insert_oauth_key(
        &mut self,
        key: &NewApiKey,
        client_id: &str,
        now_ms: i64,
    ) -> Result<i64> {
        let id = self.insert_api_key(key, now_ms).await?;
        sqlx::query("UPDATE api_keys SET oauth_client = $2, oauth_scope = $3 WHERE id = $1")
            .bind(id)
            .bind(client_id)
            .bind(key.scope.as_str())
            .execute(&mut *self.transaction)
            .await?;
        Ok(id)
    }

    /// Gives the key of an application another secret; whether it lives. What was shown with the old one counts no more.
    pub(crate) async fn renew_oauth_key(
        &mut self,
        id: i64,
        (key_hash, key_prefix): (&str, &str),
        scope: KeyScope,
        expires_at_ms: i64,
    ) -> Result<bool> {
        self.about(Subject::ApiKey(id)).await?;
        let done = sqlx::query(
            "UPDATE api_keys SET key_hash = $2, key_prefix = $3, scope = $4, expires_at_ms = $5, \
             stepped_up_at_ms = NULL WHERE id = $1 AND oauth_client IS NOT NULL AND revoked_at_ms IS NULL",
        )
        .bind(id)
        .bind(key_hash)
        .bind(key_prefix)
        .bind(scope.as_str())
        .bind(expires_at_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Keeps what a key is renewed with.
    pub(crate) async fn insert_refresh_token(
        &mut self,
        token_hash: &str,
        api_key_id: i64,
        expires_at_ms: i64,
    ) -> Result<()> {
        sqlx::query(
            "INSERT INTO oauth_refresh_tokens (token_hash, api_key_id, uses, expires_at_ms) VALUES ($1, $2, 0, $3)",
        )
        .bind(token_hash)
        .bind(api_key_id)
        .bind(expires_at_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Counts that a refresh token was presented.
    pub(crate) async fn present_refresh_token(&mut self, token_hash: &str) -> Result<Option<RefreshRow>> {
        Ok(sqlx::query_as(
            "UPDATE oauth_refresh_tokens SET uses = uses + 1 WHERE token_hash = $1 RETURNING uses, expires_at_ms",
        )
        .bind(token_hash)
        .fetch_optional(&mut *self.transaction)
        .await?)
    }

    /// Notes that a code of the second factor was presented with a key.
    pub(crate) async fn step_up(&mut self, api_key_id: i64, now_ms: i64) -> Result<()> {
        self.about(Subject::ApiKey(api_key_id)).await?;
        sqlx::query("UPDATE api_keys SET stepped_up_at_ms = $2 WHERE id = $1")
            .bind(api_key_id)
            .bind(now_ms)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Ends what all applications may do in the name of a user, and takes back the codes on their way.
    pub(crate) async fn end_oauth_keys_of(&mut self, user_id: i64, now_ms: i64) -> Result<()> {
        sqlx::query("DELETE FROM oauth_codes WHERE user_id = $1")
            .bind(user_id)
            .execute(&mut *self.transaction)
            .await?;
        sqlx::query(
            "UPDATE api_keys SET revoked_at_ms = $2 \
             WHERE user_id = $1 AND oauth_client IS NOT NULL AND revoked_at_ms IS NULL",
        )
        .bind(user_id)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Forgets codes and refresh tokens that have expired, and ends keys that nobody can renew.
    pub(crate) async fn delete_expired_grants(&mut self, now_ms: i64) -> Result<u64> {
        const HOUR_MS: i64 = 60 * 60 * 1000;
        let mut total = 0;
        for (sql, at_ms) in [
            // Long enough to know one that is presented again.
            ("DELETE FROM oauth_codes WHERE expires_at_ms <= $1", now_ms - HOUR_MS),
            ("DELETE FROM oauth_refresh_tokens WHERE expires_at_ms <= $1", now_ms),
            (
                "UPDATE api_keys SET revoked_at_ms = $1 WHERE oauth_client IS NOT NULL AND revoked_at_ms IS NULL \
                 AND expires_at_ms <= $1 AND NOT EXISTS \
                 (SELECT 1 FROM oauth_refresh_tokens r WHERE r.api_key_id = api_keys.id)",
                now_ms,
            ),
        ] {
            total += sqlx::query(sql).bind(at_ms).execute(&mut *self.transaction).await?.rows_affected();
        }
        Ok(total)
    }
}
