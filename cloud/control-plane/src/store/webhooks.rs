//! Webhooks of workspaces: where to, what of, and with which sealed secret.

use std::fmt;

use sqlx::FromRow;

use super::{Change, Engine, Result, Store};

/// A webhook.
#[derive(Clone, PartialEq, Eq, FromRow)]
pub struct WebhookRow {
    /// Id.
    pub id: i64,
    /// Its workspace.
    pub workspace_id: i64,
    /// Where its requests go.
    pub url: String,
    /// Name for people.
    pub name: Option<String>,
    /// Kinds of events that it is told of, a JSON array of names.
    pub events: String,
    /// 1 while it is told anything.
    pub enabled: i64,
    /// Why the service disabled it.
    pub disabled_reason: Option<String>,
    /// What its requests are signed with, sealed for this webhook.
    pub sealed_secret: String,
    /// The secret before it, sealed too.
    pub previous_sealed_secret: Option<String>,
    /// Until when the secret before it signs, too.
    pub previous_until_ms: Option<i64>,
    /// Creation time.
    pub created_at_ms: i64,
    /// Time of the last change.
    pub updated_at_ms: i64,
}

/// Its URL may hold a token of the receiver, and secrets are nobody's business.
impl fmt::Debug for WebhookRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, workspace_id, name, events, enabled, .. } = self;
        f.debug_struct("WebhookRow")
            .field("id", id)
            .field("workspace_id", workspace_id)
            .field("name", name)
            .field("events", events)
            .field("enabled", enabled)
            .finish_non_exhaustive()
    }
}

/// A webhook to be stored.
#[derive(Clone)]
pub struct NewWebhook<'a> {
    /// Its id, from [`Change::next_webhook_id`]: the secret is sealed for it.
    pub id: i64,
    /// Its workspace.
    pub workspace_id: i64,
    /// Where its requests go.
    pub url: &'a str,
    /// Name for people.
    pub name: Option<&'a str>,
    /// Kinds of events, a JSON array of names.
    pub events: &'a str,
    /// What its requests are signed with, sealed.
    pub sealed_secret: &'a str,
}

/// What becomes of a webhook; `None` leaves something as it is.
#[derive(Debug, Clone, Copy, Default)]
pub struct WebhookChange<'a> {
    /// Where its requests go.
    pub url: Option<&'a str>,
    /// Name for people; `Some(None)` takes it away.
    pub name: Option<Option<&'a str>>,
    /// Kinds of events, a JSON array of names.
    pub events: Option<&'a str>,
    /// Whether it is told anything. Disabling it ends its deliveries.
    pub enabled: Option<bool>,
}

const WEBHOOKS: &str = "SELECT id, workspace_id, url, name, events, enabled, disabled_reason, sealed_secret, \
     previous_sealed_secret, previous_until_ms, created_at_ms, updated_at_ms FROM webhooks \
     WHERE workspace_id = $1 AND deleted_at_ms IS NULL ORDER BY id";
const WEBHOOK: &str = "SELECT id, workspace_id, url, name, events, enabled, disabled_reason, sealed_secret, \
     previous_sealed_secret, previous_until_ms, created_at_ms, updated_at_ms FROM webhooks \
     WHERE workspace_id = $1 AND id = $2 AND deleted_at_ms IS NULL";
const WEBHOOK_LOCKED: &str = "SELECT id, workspace_id, url, name, events, enabled, disabled_reason, sealed_secret, \
     previous_sealed_secret, previous_until_ms, created_at_ms, updated_at_ms FROM webhooks \
     WHERE workspace_id = $1 AND id = $2 AND deleted_at_ms IS NULL FOR NO KEY UPDATE";

impl Store {
    /// The webhooks of a workspace, oldest first.
    pub async fn webhooks(&self, workspace_id: i64) -> Result<Vec<WebhookRow>> {
        Ok(sqlx::query_as(WEBHOOKS).bind(workspace_id).fetch_all(&self.pool).await?)
    }

    /// A webhook of a workspace.
    pub async fn webhook(&self, workspace_id: i64, id: i64) -> Result<Option<WebhookRow>> {
        Ok(sqlx::query_as(WEBHOOK).bind(workspace_id).bind(id).fetch_optional(&self.pool).await?)
    }
}

impl Change {
    /// How many webhooks a workspace has. Lock the workspace first where a limit depends on it.
    pub async fn count_webhooks(&mut self, workspace_id: i64) -> Result<i64> {
        let (count,): (i64,) =
            sqlx::query_as("SELECT COUNT(*) FROM webhooks WHERE workspace_id = $1 AND deleted_at_ms IS NULL")
                .bind(workspace_id)
                .fetch_one(&mut *self.transaction)
                .await?;
        Ok(count)
    }

    /// The id of the next new webhook.
    pub async fn next_webhook_id(&mut self) -> Result<i64> {
        self.next_id("webhooks").await
    }

    /// A webhook of a workspace, which nobody else changes meanwhile.
    pub async fn lock_webhook(&mut self, workspace_id: i64, id: i64) -> Result<Option<WebhookRow>> {
        let query = match self.engine {
            Engine::Sqlite => WEBHOOK,
            Engine::Postgres => WEBHOOK_LOCKED,
        };
        Ok(sqlx::query_as(query).bind(workspace_id).bind(id).fetch_optional(&mut *self.transaction).await?)
    }

    /// Adds a webhook, enabled.
    pub async fn insert_webhook(&mut self, new: &NewWebhook<'_>, now_ms: i64) -> Result<()> {
        self.about(super::Subject::Webhook(new.id)).await?;
        sqlx::query(
            "INSERT INTO webhooks (id, workspace_id, url, name, events, enabled, sealed_secret, \
             created_at_ms, updated_at_ms) VALUES ($1, $2, $3, $4, $5, 1, $6, $7, $7)",
        )
        .bind(new.id)
        .bind(new.workspace_id)
        .bind(new.url)
        .bind(new.name)
        .bind(new.events)
        .bind(new.sealed_secret)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Changes a webhook of a workspace; what it is then, or `None` when there is none. One that is disabled
    /// ends its deliveries; one that is enabled again begins with what happens from then on.
    pub async fn update_webhook(
        &mut self,
        workspace_id: i64,
        id: i64,
        to: &WebhookChange<'_>,
        now_ms: i64,
    ) -> Result<Option<WebhookRow>> {
        let Some(old) = self.lock_webhook(workspace_id, id).await? else { return Ok(None) };
        self.about(super::Subject::Webhook(id)).await?;
        let enabled = to.enabled.map_or(old.enabled, i64::from);
        let reason = old.disabled_reason.as_deref().filter(|_| to.enabled.is_none());
        sqlx::query(
            "UPDATE webhooks SET url = $2, name = $3, events = $4, enabled = $5, disabled_reason = $6, \
             updated_at_ms = $7 WHERE id = $1",
        )
        .bind(id)
        .bind(to.url.unwrap_or(&old.url))
        .bind(to.name.unwrap_or(old.name.as_deref()))
        .bind(to.events.unwrap_or(&old.events))
        .bind(enabled)
        .bind(reason)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        if enabled == 0 {
            self.end_deliveries(id, "the webhook was disabled").await?;
        }
        self.lock_webhook(workspace_id, id).await
    }

    /// Gives a webhook another secret, sealed; the present one signs until a time, too. Whether there is such a
    /// webhook.
    pub async fn rotate_webhook_secret(
        &mut self,
        workspace_id: i64,
        id: i64,
        sealed_secret: &str,
        previous_until_ms: i64,
        now_ms: i64,
    ) -> Result<bool> {
        self.about(super::Subject::Webhook(id)).await?;
        let done = sqlx::query(
            "UPDATE webhooks SET previous_sealed_secret = sealed_secret, previous_until_ms = $4, \
             sealed_secret = $3, updated_at_ms = $5 WHERE workspace_id = $1 AND id = $2 AND deleted_at_ms IS NULL",
        )
        .bind(workspace_id)
        .bind(id)
        .bind(sealed_secret)
        .bind(previous_until_ms)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Deletes a webhook of a workspace, with its secrets; whether there was one. Its deliveries end.
    pub async fn delete_webhook(&mut self, workspace_id: i64, id: i64, now_ms: i64) -> Result<bool> {
        self.about(super::Subject::Webhook(id)).await?;
        let done = sqlx::query(
            "UPDATE webhooks SET deleted_at_ms = $3, updated_at_ms = $3, enabled = 0, sealed_secret = '', \
             previous_sealed_secret = NULL, previous_until_ms = NULL \
             WHERE workspace_id = $1 AND id = $2 AND deleted_at_ms IS NULL",
        )
        .bind(workspace_id)
        .bind(id)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        if done.rows_affected() > 0 {
            self.end_deliveries(id, "the webhook was deleted").await?;
        }
        Ok(done.rows_affected() > 0)
    }

    /// Disables a webhook because of what its receiver answered to a delivery, and ends its deliveries; unless it leads
    /// elsewhere by now.
    pub async fn retire_webhook(&mut self, id: i64, delivery: i64, reason: &str, now_ms: i64) -> Result<()> {
        let done = sqlx::query(
            "UPDATE webhooks SET enabled = 0, disabled_reason = $2, updated_at_ms = $3 \
             WHERE id = $1 AND enabled = 1 \
             AND url = (SELECT d.request_url FROM webhook_deliveries d WHERE d.id = $4)",
        )
        .bind(id)
        .bind(reason)
        .bind(now_ms)
        .bind(delivery)
        .execute(&mut *self.transaction)
        .await?;
        if done.rows_affected() > 0 {
            self.end_deliveries(id, "the webhook was disabled").await?;
        }
        Ok(())
    }

    /// Forgets previous secrets that do not sign any more; how many it were.
    pub async fn forget_previous_secrets(&mut self, now_ms: i64, limit: i64) -> Result<u64> {
        let done = sqlx::query(
            "UPDATE webhooks SET previous_sealed_secret = NULL, previous_until_ms = NULL WHERE id IN \
             (SELECT id FROM webhooks WHERE previous_until_ms <= $1 ORDER BY id LIMIT $2)",
        )
        .bind(now_ms)
        .bind(limit)
        .execute(&mut *self.transaction)
        .await?;
        Ok(done.rows_affected())
    }

    /// Forgets deleted webhooks that no delivery tells of any more; how many it were.
    pub async fn delete_forgotten_webhooks(&mut self, limit: i64) -> Result<u64> {
        let done = sqlx::query(
            "DELETE FROM webhooks WHERE id IN (SELECT w.id FROM webhooks w WHERE w.deleted_at_ms IS NOT NULL \
             AND NOT EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.webhook_id = w.id) \
             ORDER BY w.id LIMIT $1)",
        )
        .bind(limit)
        .execute(&mut *self.transaction)
        .await?;
        Ok(done.rows_affected())
    }
}
