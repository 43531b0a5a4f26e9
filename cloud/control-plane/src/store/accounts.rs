//! Users, workspaces and API keys.

use cloister_management_api::KeyScope;
use sqlx::FromRow;

use super::{Change, Result, Store};

/// A person or program with an account.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct UserRow {
    /// Id.
    pub id: i64,
    /// Login name.
    pub username: String,
    /// Mail address; may be empty.
    pub email: String,
    /// `admin` or `user`.
    pub role: String,
    /// Creation time.
    pub created_at_ms: i64,
}

/// An owner of CVMs.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct WorkspaceRow {
    /// Id.
    pub id: i64,
    /// Name in URLs.
    pub slug: String,
    /// Name for people.
    pub name: String,
    /// Tier label.
    pub tier: String,
    /// Wallet address that application ids derive from, 40 hex digits.
    pub wallet: String,
    /// The nonce that the next application id will use.
    pub next_app_nonce: i64,
    /// Living CVMs.
    pub cvm_count: i64,
    /// Creation time.
    pub created_at_ms: i64,
}

/// Whom a valid API key stands for: everything that every request needs, in one query.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct Caller {
    /// The key used.
    pub api_key_id: i64,
    /// Its user.
    pub user_id: i64,
    /// The user's login name.
    pub username: String,
    /// The user's mail address.
    pub email: String,
    /// The user's role, `admin` or `user`.
    pub user_role: String,
    /// The workspace that the key is bound to.
    pub workspace_id: i64,
    /// Its slug.
    pub workspace_slug: String,
    /// API version for requests that name none.
    pub default_version: String,
    /// What the key may do.
    #[sqlx(try_from = "String")]
    pub scope: KeyScope,
    /// First characters of the key.
    pub key_prefix: String,
}

impl Caller {
    /// Whether the user may see and change what belongs to the installation.
    #[must_use]
    pub fn is_admin(&self) -> bool {
        self.user_role == "admin"
    }
}

/// An API key as its owner may see it.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct ApiKeyRow {
    /// Id.
    pub id: i64,
    /// Name for people.
    pub name: String,
    /// First characters of the key, to recognise it by.
    pub key_prefix: String,
    /// What it may do.
    #[sqlx(try_from = "String")]
    pub scope: KeyScope,
    /// API version for requests that name none.
    pub default_version: String,
    /// Creation time.
    pub created_at_ms: i64,
    /// When it stops working by itself.
    pub expires_at_ms: Option<i64>,
    /// Last use, to the minute.
    pub last_used_at_ms: Option<i64>,
}

/// A key to be stored.
#[derive(Debug, Clone)]
pub struct NewApiKey {
    /// Its user.
    pub user_id: i64,
    /// The workspace it is bound to.
    pub workspace_id: i64,
    /// Name for people.
    pub name: String,
    /// SHA-256 of the key in hex.
    pub key_hash: String,
    /// First characters of the key.
    pub key_prefix: String,
    /// What it may do.
    pub scope: KeyScope,
    /// API version for requests that name none.
    pub default_version: String,
    /// When it stops working by itself.
    pub expires_at_ms: Option<i64>,
}

const USER: &str = "SELECT id, username, email, role, created_at_ms FROM users WHERE id = $1";
const WORKSPACE: &str = "SELECT id, slug, name, tier, wallet, next_app_nonce, cvm_count, created_at_ms \
     FROM workspaces WHERE id = $1";
const WORKSPACES: &str = "SELECT w.id, w.slug, w.name, w.tier, w.wallet, w.next_app_nonce, w.cvm_count, \
     w.created_at_ms FROM workspaces w JOIN memberships m ON m.workspace_id = w.id WHERE m.user_id = $1 \
     ORDER BY w.id";
const CALLER: &str = "SELECT k.id AS api_key_id, u.id AS user_id, u.username, u.email, u.role AS user_role, \
     w.id AS workspace_id, w.slug AS workspace_slug, k.default_version, k.scope, k.key_prefix \
     FROM api_keys k JOIN users u ON u.id = k.user_id JOIN workspaces w ON w.id = k.workspace_id \
     WHERE k.key_hash = $1 AND k.revoked_at_ms IS NULL AND (k.expires_at_ms IS NULL OR k.expires_at_ms > $2)";
const API_KEYS: &str = "SELECT id, name, key_prefix, scope, default_version, created_at_ms, expires_at_ms, \
     last_used_at_ms FROM api_keys WHERE workspace_id = $1 AND revoked_at_ms IS NULL ORDER BY id LIMIT 1000";

impl Store {
    /// Whom the key with this hash stands for; `None` when it is unknown, expired or revoked.
    pub async fn caller(&self, key_hash: &str, now_ms: i64) -> Result<Option<Caller>> {
        Ok(sqlx::query_as(CALLER).bind(key_hash).bind(now_ms).fetch_optional(&self.pool).await?)
    }

    /// The user with this id.
    pub async fn user(&self, id: i64) -> Result<Option<UserRow>> {
        Ok(sqlx::query_as(USER).bind(id).fetch_optional(&self.pool).await?)
    }

    /// The workspace with this id.
    pub async fn workspace(&self, id: i64) -> Result<Option<WorkspaceRow>> {
        Ok(sqlx::query_as(WORKSPACE).bind(id).fetch_optional(&self.pool).await?)
    }

    /// The number of the workspace with a name in URLs.
    pub async fn workspace_id_of(&self, slug: &str) -> Result<Option<i64>> {
        let row: Option<(i64,)> = sqlx::query_as("SELECT id FROM workspaces WHERE slug = $1")
            .bind(slug)
            .fetch_optional(&self.pool)
            .await?;
        Ok(row.map(|(id,)| id))
    }

    /// The workspaces that a user is a member of, oldest first.
    pub async fn workspaces_of(&self, user_id: i64) -> Result<Vec<WorkspaceRow>> {
        Ok(sqlx::query_as(WORKSPACES).bind(user_id).fetch_all(&self.pool).await?)
    }

    /// The living keys of a workspace.
    pub async fn api_keys(&self, workspace_id: i64) -> Result<Vec<ApiKeyRow>> {
        Ok(sqlx::query_as(API_KEYS).bind(workspace_id).fetch_all(&self.pool).await?)
    }

    /// The oldest administrator and that user's oldest workspace.
    pub async fn first_administrator(&self) -> Result<Option<(i64, i64)>> {
        Ok(sqlx::query_as(
            "SELECT u.id, m.workspace_id FROM users u JOIN memberships m ON m.user_id = u.id \
             WHERE u.role = 'admin' ORDER BY u.id, m.workspace_id LIMIT 1",
        )
        .fetch_optional(&self.pool)
        .await?)
    }

    /// How many users there are; zero on a new installation.
    pub async fn user_count(&self) -> Result<i64> {
        let (count,): (i64,) = sqlx::query_as("SELECT COUNT(*) FROM users").fetch_one(&self.pool).await?;
        Ok(count)
    }
}

impl Change {
    /// Adds a user with a role of `admin` or `user`.
    pub async fn insert_user(&mut self, username: &str, email: &str, role: &str, now_ms: i64) -> Result<i64> {
        let id = self.next_id("users").await?;
        self.about(super::Subject::User(id)).await?;
        sqlx::query(
            "INSERT INTO users (id, username, email, role, created_at_ms) VALUES ($1, $2, $3, $4, $5)",
        )
        .bind(id)
        .bind(username)
        .bind(email)
        .bind(role)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(id)
    }

    /// Adds a workspace whose application ids derive from `wallet`, and makes a user its owner.
    pub async fn insert_workspace(
        &mut self,
        slug: &str,
        name: &str,
        wallet: [u8; 20],
        owner: i64,
        now_ms: i64,
    ) -> Result<i64> {
        let id = self.next_id("workspaces").await?;
        self.about(super::Subject::Workspace(id)).await?;
        sqlx::query(
            "INSERT INTO workspaces (id, slug, name, tier, wallet, next_app_nonce, cvm_count, created_at_ms) \
             VALUES ($1, $2, $3, 'ENTERPRISE', $4, 0, 0, $5)",
        )
        .bind(id)
        .bind(slug)
        .bind(name)
        .bind(hex::encode(wallet))
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        sqlx::query("INSERT INTO memberships (user_id, workspace_id, role) VALUES ($1, $2, 'owner')")
            .bind(owner)
            .bind(id)
            .execute(&mut *self.transaction)
            .await?;
        Ok(id)
    }

    /// Keeps every other change from creating in this workspace before this one ends.
    pub async fn lock_workspace(&mut self, id: i64) -> Result<()> {
        // On SQLite a change holds everything anyway.
        sqlx::query("UPDATE workspaces SET cvm_count = cvm_count WHERE id = $1")
            .bind(id)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Takes the next application nonce of a workspace; returns its wallet and that nonce.
    pub async fn take_app_nonce(&mut self, workspace_id: i64) -> Result<(String, i64)> {
        Ok(sqlx::query_as(
            "UPDATE workspaces SET next_app_nonce = next_app_nonce + 1 WHERE id = $1 \
             RETURNING wallet, next_app_nonce - 1",
        )
        .bind(workspace_id)
        .fetch_one(&mut *self.transaction)
        .await?)
    }

    /// Stores a key.
    pub async fn insert_api_key(&mut self, key: &NewApiKey, now_ms: i64) -> Result<i64> {
        let id = self.next_id("api_keys").await?;
        self.about(super::Subject::ApiKey(id)).await?;
        sqlx::query(
            "INSERT INTO api_keys (id, user_id, workspace_id, name, key_hash, key_prefix, default_version, \
             created_at_ms, expires_at_ms, scope) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        )
        .bind(id)
        .bind(key.user_id)
        .bind(key.workspace_id)
        .bind(&key.name)
        .bind(&key.key_hash)
        .bind(&key.key_prefix)
        .bind(&key.default_version)
        .bind(now_ms)
        .bind(key.expires_at_ms)
        .bind(key.scope.as_str())
        .execute(&mut *self.transaction)
        .await?;
        Ok(id)
    }

    /// Ends a key of a workspace for ever; whether there was such a living key.
    pub async fn revoke_api_key(&mut self, workspace_id: i64, id: i64, now_ms: i64) -> Result<bool> {
        self.about(super::Subject::ApiKey(id)).await?;
        let done = sqlx::query(
            "UPDATE api_keys SET revoked_at_ms = $3 \
             WHERE workspace_id = $1 AND id = $2 AND revoked_at_ms IS NULL",
        )
        .bind(workspace_id)
        .bind(id)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        let is_revoked = done.rows_affected() > 0;
        if is_revoked {
            self.forget_requests_of(id).await?;
        }
        Ok(is_revoked)
    }

    /// Gives a living key of a workspace another end and another default version, each where one is given; the key as
    /// it is then, `None` where there is no such key.
    pub async fn refresh_api_key(
        &mut self,
        workspace_id: i64,
        id: i64,
        expires_at_ms: Option<i64>,
        default_version: Option<&str>,
    ) -> Result<Option<ApiKeyRow>> {
        self.about(super::Subject::ApiKey(id)).await?;
        Ok(sqlx::query_as(
            "UPDATE api_keys SET expires_at_ms = COALESCE($3, expires_at_ms), \
             default_version = COALESCE($4, default_version) \
             WHERE workspace_id = $1 AND id = $2 AND revoked_at_ms IS NULL \
             RETURNING id, name, key_prefix, scope, default_version, created_at_ms, expires_at_ms, last_used_at_ms",
        )
        .bind(workspace_id)
        .bind(id)
        .bind(expires_at_ms)
        .bind(default_version)
        .fetch_optional(&mut *self.transaction)
        .await?)
    }

    /// Notes when keys were used last.
    pub async fn touch_api_keys(&mut self, last_used: &[(i64, i64)]) -> Result<()> {
        for (id, at_ms) in last_used {
            sqlx::query("UPDATE api_keys SET last_used_at_ms = $2 WHERE id = $1")
                .bind(id)
                .bind(at_ms)
                .execute(&mut *self.transaction)
                .await?;
        }
        Ok(())
    }
}
