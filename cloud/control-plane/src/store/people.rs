//! People who log in: passwords, links that set them, sessions and second factors.

use sqlx::FromRow;

use super::{Change, Result, Store, Subject};

/// A session ends when it was not used for this long.
pub(crate) const SESSION_IDLE_MS: i64 = 2 * 60 * 60 * 1000;
/// A session ends at this age, however busy it is.
pub(crate) const SESSION_AGE_MS: i64 = 12 * 60 * 60 * 1000;
/// A session's last use is known to this.
const USE_RESOLUTION_MS: i64 = 60_000;

/// A user as an administrator sees it.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct PersonRow {
    /// Id.
    pub id: i64,
    /// Login name.
    pub username: String,
    /// Mail address; may be empty.
    pub email: String,
    /// `admin` or `user`.
    pub role: String,
    /// 1 if there is a password.
    pub has_password: i64,
    /// 1 if there is a second factor that works.
    pub has_second_factor: i64,
    /// Backup codes that were not used.
    pub backup_codes: i64,
    /// Creation time.
    pub created_at_ms: i64,
}

/// A second factor.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub(crate) struct SecondFactorRow {
    /// Its sealed secret.
    pub(crate) sealed_secret: String,
    /// When a code showed that it works.
    pub(crate) confirmed_at_ms: Option<i64>,
}

const PERSON: &str = "SELECT u.id, u.username, u.email, u.role, u.created_at_ms, \
     (SELECT COUNT(*) FROM passwords p WHERE p.user_id = u.id) AS has_password, \
     (SELECT COUNT(*) FROM second_factors s WHERE s.user_id = u.id AND s.confirmed_at_ms IS NOT NULL) \
     AS has_second_factor, (SELECT COUNT(*) FROM backup_codes b WHERE b.user_id = u.id) AS backup_codes \
     FROM users u WHERE u.id = $1";
const PEOPLE: &str = "SELECT u.id, u.username, u.email, u.role, u.created_at_ms, \
     (SELECT COUNT(*) FROM passwords p WHERE p.user_id = u.id) AS has_password, \
     (SELECT COUNT(*) FROM second_factors s WHERE s.user_id = u.id AND s.confirmed_at_ms IS NOT NULL) \
     AS has_second_factor, (SELECT COUNT(*) FROM backup_codes b WHERE b.user_id = u.id) AS backup_codes \
     FROM users u WHERE u.id > $1 ORDER BY u.id LIMIT $2";

impl Store {
    /// Whether anybody logs in with a password.
    pub(crate) async fn has_passwords(&self) -> Result<bool> {
        let row: Option<(i64,)> =
            sqlx::query_as("SELECT user_id FROM passwords LIMIT 1").fetch_optional(&self.pool).await?;
        Ok(row.is_some())
    }

    /// A user, and how that one logs in.
    pub async fn person(&self, id: i64) -> Result<Option<PersonRow>> {
        Ok(sqlx::query_as(PERSON).bind(id).fetch_optional(&self.pool).await?)
    }

    /// The same for users with a greater id, in the order of ids.
    pub async fn people(&self, after: i64, limit: i64) -> Result<Vec<PersonRow>> {
        Ok(sqlx::query_as(PEOPLE).bind(after).bind(limit).fetch_all(&self.pool).await?)
    }

    /// The id of the user with a login name.
    pub(crate) async fn user_named(&self, username: &str) -> Result<Option<i64>> {
        let row: Option<(i64,)> = sqlx::query_as("SELECT id FROM users WHERE username = $1")
            .bind(username)
            .fetch_optional(&self.pool)
            .await?;
        Ok(row.map(|(id,)| id))
    }

    /// The password of a user, as a PHC string.
    pub(crate) async fn password(&self, user_id: i64) -> Result<Option<String>> {
        let row: Option<(String,)> = sqlx::query_as("SELECT phc FROM passwords WHERE user_id = $1")
            .bind(user_id)
            .fetch_optional(&self.pool)
            .await?;
        Ok(row.map(|(phc,)| phc))
    }

    /// The user that a link is for, while it works.
    pub(crate) async fn linked_user(&self, token_hash: &str, now_ms: i64) -> Result<Option<i64>> {
        let row: Option<(i64,)> =
            sqlx::query_as("SELECT user_id FROM password_links WHERE token_hash = $1 AND expires_at_ms > $2")
                .bind(token_hash)
                .bind(now_ms)
                .fetch_optional(&self.pool)
                .await?;
        Ok(row.map(|(id,)| id))
    }

    /// The user of a session that has not ended, and whether its last use is to be noted.
    pub(crate) async fn session(&self, token_hash: &str, now_ms: i64) -> Result<Option<(i64, bool)>> {
        let row: Option<(i64, i64)> = sqlx::query_as(
            "SELECT user_id, used_at_ms FROM sessions \
             WHERE token_hash = $1 AND used_at_ms > $2 AND created_at_ms > $3",
        )
        .bind(token_hash)
        .bind(now_ms - SESSION_IDLE_MS)
        .bind(now_ms - SESSION_AGE_MS)
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(|(id, used_at_ms)| (id, now_ms - used_at_ms >= USE_RESOLUTION_MS)))
    }

    /// The second factor of a user, whether or not it works already.
    pub(crate) async fn second_factor(&self, user_id: i64) -> Result<Option<SecondFactorRow>> {
        Ok(sqlx::query_as("SELECT sealed_secret, confirmed_at_ms FROM second_factors WHERE user_id = $1")
            .bind(user_id)
            .fetch_optional(&self.pool)
            .await?)
    }
}

impl Change {
    /// Makes a user a member of a workspace that exists.
    pub(crate) async fn insert_membership(&mut self, user_id: i64, workspace_id: i64) -> Result<()> {
        sqlx::query("INSERT INTO memberships (user_id, workspace_id, role) VALUES ($1, $2, 'owner')")
            .bind(user_id)
            .bind(workspace_id)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Makes the link of a user. The one before works no longer.
    pub(crate) async fn put_password_link(
        &mut self,
        user_id: i64,
        token_hash: &str,
        expires_at_ms: i64,
    ) -> Result<()> {
        self.about(Subject::User(user_id)).await?;
        sqlx::query(
            "INSERT INTO password_links (user_id, token_hash, expires_at_ms) VALUES ($1, $2, $3) \
             ON CONFLICT (user_id) DO UPDATE SET token_hash = excluded.token_hash, \
             expires_at_ms = excluded.expires_at_ms",
        )
        .bind(user_id)
        .bind(token_hash)
        .bind(expires_at_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Uses up a link; whose it was, if it still worked.
    pub(crate) async fn take_password_link(&mut self, token_hash: &str, now_ms: i64) -> Result<Option<i64>> {
        let row: Option<(i64,)> = sqlx::query_as(
            "DELETE FROM password_links WHERE token_hash = $1 AND expires_at_ms > $2 RETURNING user_id",
        )
        .bind(token_hash)
        .bind(now_ms)
        .fetch_optional(&mut *self.transaction)
        .await?;
        Ok(row.map(|(id,)| id))
    }

    /// Gives a user another password. Every session of the user ends, and what applications may do in
    /// the name of the user; no link works any more.
    pub(crate) async fn set_password(&mut self, user_id: i64, phc: &str, now_ms: i64) -> Result<()> {
        self.about(Subject::User(user_id)).await?;
        sqlx::query(
            "INSERT INTO passwords (user_id, phc, changed_at_ms) VALUES ($1, $2, $3) ON CONFLICT (user_id) \
             DO UPDATE SET phc = excluded.phc, changed_at_ms = excluded.changed_at_ms",
        )
        .bind(user_id)
        .bind(phc)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        sqlx::query("DELETE FROM password_links WHERE user_id = $1")
            .bind(user_id)
            .execute(&mut *self.transaction)
            .await?;
        self.end_oauth_keys_of(user_id, now_ms).await?;
        self.end_sessions_of(user_id).await
    }

    /// Begins a session.
    pub(crate) async fn insert_session(&mut self, token_hash: &str, user_id: i64, now_ms: i64) -> Result<()> {
        sqlx::query(
            "INSERT INTO sessions (token_hash, user_id, created_at_ms, used_at_ms) VALUES ($1, $2, $3, $3)",
        )
        .bind(token_hash)
        .bind(user_id)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Notes the last use of a session.
    pub(crate) async fn touch_session(&mut self, token_hash: &str, now_ms: i64) -> Result<()> {
        sqlx::query("UPDATE sessions SET used_at_ms = $2 WHERE token_hash = $1 AND used_at_ms < $2")
            .bind(token_hash)
            .bind(now_ms)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Ends a session.
    pub(crate) async fn end_session(&mut self, token_hash: &str) -> Result<()> {
        sqlx::query("DELETE FROM sessions WHERE token_hash = $1")
            .bind(token_hash)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Ends every session of a user.
    pub(crate) async fn end_sessions_of(&mut self, user_id: i64) -> Result<()> {
        sqlx::query("DELETE FROM sessions WHERE user_id = $1")
            .bind(user_id)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Keeps the secret of a second factor that does not work yet; whether there is none that does.
    pub(crate) async fn begin_second_factor(&mut self, user_id: i64, sealed_secret: &str) -> Result<bool> {
        self.about(Subject::User(user_id)).await?;
        let done = sqlx::query(
            "INSERT INTO second_factors (user_id, sealed_secret, last_step) VALUES ($1, $2, 0) \
             ON CONFLICT (user_id) DO UPDATE SET sealed_secret = excluded.sealed_secret, last_step = 0 \
             WHERE second_factors.confirmed_at_ms IS NULL",
        )
        .bind(user_id)
        .bind(sealed_secret)
        .execute(&mut *self.transaction)
        .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Lets the second factor with this secret work from now on; whether it waited for that.
    pub(crate) async fn confirm_second_factor(
        &mut self,
        user_id: i64,
        sealed_secret: &str,
        now_ms: i64,
    ) -> Result<bool> {
        self.about(Subject::User(user_id)).await?;
        let done = sqlx::query(
            "UPDATE second_factors SET confirmed_at_ms = $3 \
             WHERE user_id = $1 AND sealed_secret = $2 AND confirmed_at_ms IS NULL",
        )
        .bind(user_id)
        .bind(sealed_secret)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Uses up the code of a step; whether neither it nor one of a later step was used before.
    pub(crate) async fn take_step(&mut self, user_id: i64, step: i64) -> Result<bool> {
        let done =
            sqlx::query("UPDATE second_factors SET last_step = $2 WHERE user_id = $1 AND last_step < $2")
                .bind(user_id)
                .bind(step)
                .execute(&mut *self.transaction)
                .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Uses up a backup code; whether it was there.
    pub(crate) async fn take_backup_code(&mut self, user_id: i64, code_hash: &str) -> Result<bool> {
        self.about(Subject::User(user_id)).await?;
        let done = sqlx::query("DELETE FROM backup_codes WHERE user_id = $1 AND code_hash = $2")
            .bind(user_id)
            .bind(code_hash)
            .execute(&mut *self.transaction)
            .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Replaces all backup codes of a user.
    pub(crate) async fn set_backup_codes(&mut self, user_id: i64, hashes: &[String]) -> Result<()> {
        self.about(Subject::User(user_id)).await?;
        self.forget_backup_codes(user_id).await?;
        for hash in hashes {
            sqlx::query("INSERT INTO backup_codes (user_id, code_hash) VALUES ($1, $2)")
                .bind(user_id)
                .bind(hash)
                .execute(&mut *self.transaction)
                .await?;
        }
        Ok(())
    }

    /// Forgets the second factor of a user, and the backup codes; whether there was one.
    pub(crate) async fn remove_second_factor(&mut self, user_id: i64) -> Result<bool> {
        self.about(Subject::User(user_id)).await?;
        self.forget_backup_codes(user_id).await?;
        let done = sqlx::query("DELETE FROM second_factors WHERE user_id = $1")
            .bind(user_id)
            .execute(&mut *self.transaction)
            .await?;
        Ok(done.rows_affected() > 0)
    }

    async fn forget_backup_codes(&mut self, user_id: i64) -> Result<()> {
        sqlx::query("DELETE FROM backup_codes WHERE user_id = $1")
            .bind(user_id)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Forgets sessions that have ended, links that work no longer, logins that did not come back, and guesses that nobody repeated for a day.
    pub(crate) async fn delete_ended_logins(&mut self, now_ms: i64) -> Result<u64> {
        const DAY_MS: i64 = 24 * 60 * 60 * 1000;
        let mut total = 0;
        for (sql, before_ms) in [
            ("DELETE FROM sessions WHERE used_at_ms <= $1", now_ms - SESSION_IDLE_MS),
            ("DELETE FROM sessions WHERE created_at_ms <= $1", now_ms - SESSION_AGE_MS),
            ("DELETE FROM password_links WHERE expires_at_ms <= $1", now_ms),
            ("DELETE FROM openid_logins WHERE expires_at_ms <= $1", now_ms),
            ("DELETE FROM guesses WHERE at_ms <= $1", now_ms - DAY_MS),
        ] {
            total += sqlx::query(sql).bind(before_ms).execute(&mut *self.transaction).await?.rows_affected();
        }
        Ok(total)
    }
}
