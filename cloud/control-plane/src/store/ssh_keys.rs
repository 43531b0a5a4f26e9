//! Keys that users log in to CVMs with.

use sqlx::FromRow;

use super::{Change, Result, Store};

/// A key of a user.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct SshKeyRow {
    /// Id.
    pub id: i64,
    /// Whose.
    pub user_id: i64,
    /// Login name of that user.
    pub username: String,
    /// Name for people.
    pub name: String,
    /// One line in OpenSSH's form.
    pub public_key: String,
    /// `SHA256:…`
    pub fingerprint: String,
    /// `ed25519`, `rsa`, …
    pub key_type: String,
    /// When it was added.
    pub created_at_ms: i64,
}

/// A key to be stored.
#[derive(Debug, Clone)]
pub struct NewSshKey<'a> {
    /// Whose.
    pub user_id: i64,
    /// Name for people.
    pub name: &'a str,
    /// One line in OpenSSH's form.
    pub public_key: &'a str,
    /// `SHA256:…`
    pub fingerprint: &'a str,
    /// `ed25519`, `rsa`, …
    pub key_type: &'a str,
}

macro_rules! select_key {
    ($condition:literal) => {
        concat!(
            "SELECT k.id, k.user_id, u.username, k.name, k.public_key, k.fingerprint, k.key_type, \
             k.created_at_ms FROM user_ssh_keys k JOIN users u ON u.id = k.user_id \
             WHERE k.deleted_at_ms IS NULL AND ",
            $condition
        )
    };
}

const OF_USER: &str = select_key!("k.user_id = $1 ORDER BY k.id LIMIT 1000");
const OF_WORKSPACE: &str = select_key!(
    "k.user_id IN (SELECT user_id FROM memberships WHERE workspace_id = $1) ORDER BY k.id LIMIT 10000"
);

impl Store {
    /// The keys of a user, oldest first.
    pub async fn ssh_keys_of(&self, user_id: i64) -> Result<Vec<SshKeyRow>> {
        Ok(sqlx::query_as(OF_USER).bind(user_id).fetch_all(&self.pool).await?)
    }

    /// The keys of all members of a workspace, oldest first.
    pub async fn ssh_keys_of_members(&self, workspace_id: i64) -> Result<Vec<SshKeyRow>> {
        Ok(sqlx::query_as(OF_WORKSPACE).bind(workspace_id).fetch_all(&self.pool).await?)
    }
}

impl Change {
    /// How many keys a user has; none is added to them before this change ends.
    pub async fn lock_ssh_keys(&mut self, user_id: i64) -> Result<i64> {
        // Locks the row on PostgreSQL; on SQLite a change holds everything anyway.
        sqlx::query("UPDATE users SET role = role WHERE id = $1")
            .bind(user_id)
            .execute(&mut *self.transaction)
            .await?;
        let (count,): (i64,) =
            sqlx::query_as("SELECT COUNT(*) FROM user_ssh_keys WHERE user_id = $1 AND deleted_at_ms IS NULL")
                .bind(user_id)
                .fetch_one(&mut *self.transaction)
                .await?;
        Ok(count)
    }

    /// Adds a key; one that the user has already is a duplicate ([`super::StoreError::is_duplicate`]).
    pub async fn insert_ssh_key(&mut self, new: &NewSshKey<'_>, now_ms: i64) -> Result<i64> {
        let id = self.next_id("user_ssh_keys").await?;
        self.about(super::Subject::SshKey(id)).await?;
        sqlx::query(
            "INSERT INTO user_ssh_keys (id, user_id, name, public_key, fingerprint, live_fingerprint, \
             key_type, created_at_ms) VALUES ($1, $2, $3, $4, $5, $5, $6, $7)",
        )
        .bind(id)
        .bind(new.user_id)
        .bind(new.name)
        .bind(new.public_key)
        .bind(new.fingerprint)
        .bind(new.key_type)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(id)
    }

    /// Deletes a key of a user; whether there was such a living key.
    pub async fn delete_ssh_key(&mut self, user_id: i64, id: i64, now_ms: i64) -> Result<bool> {
        self.about(super::Subject::SshKey(id)).await?;
        let done = sqlx::query(
            "UPDATE user_ssh_keys SET deleted_at_ms = $3, live_fingerprint = NULL \
             WHERE user_id = $1 AND id = $2 AND deleted_at_ms IS NULL",
        )
        .bind(user_id)
        .bind(id)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(done.rows_affected() > 0)
    }
}
