//! Changes that wait until those who decide for an application have allowed them.

use std::fmt;

use cloister_app_compose::{AppId, ComposeHash};
use sqlx::FromRow;
use uuid::Uuid;

use super::{Change, Result, Store};
use crate::operations::named_enum;

named_enum!(
    /// What a prepared change does.
    PreparedKind {
        /// Gives its CVM another configuration.
        Update = "update",
        /// Makes another CVM like it.
        Replica = "replica",
    }
);

named_enum!(
    /// How a prepared change stands. One whose time is over is forgotten whatever its state is.
    PreparedState {
        /// Waiting.
        Pending = "pending",
        /// Carried out.
        Committed = "committed",
        /// Another change took its place.
        Superseded = "superseded",
    }
);

/// A prepared change.
#[derive(Clone, PartialEq, Eq, FromRow)]
pub struct PreparedChangeRow {
    /// Its number.
    pub id: i64,
    /// What it does.
    #[sqlx(try_from = "String")]
    pub kind: PreparedKind,
    /// The CVM that it changes, or that the new one is to be like.
    pub cvm_id: i64,
    /// Workspace of the CVM.
    pub workspace_id: i64,
    /// Application of the CVM.
    #[sqlx(try_from = "String")]
    pub app_id: AppId,
    /// The document that has to be allowed.
    #[sqlx(try_from = "String")]
    pub compose_hash: ComposeHash,
    /// The device that it has to be allowed on, 64 hex digits.
    pub device_id: String,
    /// Everything that the commit carries out, JSON; empty once it ended.
    pub request: String,
    /// How it stands.
    #[sqlx(try_from = "String")]
    pub state: PreparedState,
    /// Who prepared it.
    pub user_id: i64,
    /// When.
    pub created_at_ms: i64,
    /// When it is forgotten.
    pub expires_at_ms: i64,
    /// The transaction that allowed it, as the commit said.
    pub transaction_hash: Option<String>,
    /// What came of it.
    pub correlation_id: Option<String>,
}

// The request belongs to the tenant and into no log.
impl fmt::Debug for PreparedChangeRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedChangeRow")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .field("cvm_id", &self.cvm_id)
            .field("compose_hash", &self.compose_hash)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// What has to be allowed for a change that waits.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct OpenChange {
    /// Its number.
    pub id: i64,
    /// What it does.
    #[sqlx(try_from = "String")]
    pub kind: PreparedKind,
    /// The CVM that it is about.
    pub cvm_id: i64,
    /// The document.
    #[sqlx(try_from = "String")]
    pub compose_hash: ComposeHash,
    /// The device, 64 hex digits.
    pub device_id: String,
    /// Who prepared it.
    pub user_id: i64,
    /// When.
    pub created_at_ms: i64,
    /// When it is forgotten.
    pub expires_at_ms: i64,
}

/// A change to be kept.
#[derive(Clone, Copy)]
pub struct NewPreparedChange<'a> {
    /// Its number, from [`Change::next_prepared_change`].
    pub id: i64,
    /// What it does.
    pub kind: PreparedKind,
    /// The CVM that it is about.
    pub cvm_id: i64,
    /// Workspace of the CVM.
    pub workspace_id: i64,
    /// Application of the CVM.
    pub app_id: AppId,
    /// The document that has to be allowed.
    pub compose_hash: ComposeHash,
    /// The device that it has to be allowed on, 64 hex digits.
    pub device_id: &'a str,
    /// Everything that the commit carries out, JSON.
    pub request: &'a str,
    /// Who prepares it.
    pub user_id: i64,
    /// Hash of its commit token, hex.
    pub token_hash: &'a str,
    /// When it is forgotten.
    pub expires_at_ms: i64,
}

macro_rules! select_prepared {
    ($condition:literal) => {
        concat!(
            "SELECT id, kind, cvm_id, workspace_id, app_id, compose_hash, device_id, request, state, user_id, \
             created_at_ms, expires_at_ms, transaction_hash, correlation_id FROM prepared_changes WHERE ",
            $condition
        )
    };
}

const BY_TOKEN: &str = select_prepared!("token_hash = $1 AND expires_at_ms > $2");
const PENDING: &str =
    select_prepared!("cvm_id = $1 AND kind = $2 AND state = 'pending' AND expires_at_ms > $3");
const OPEN_OF_APP: &str = "SELECT id, kind, cvm_id, compose_hash, device_id, user_id, created_at_ms, expires_at_ms \
     FROM prepared_changes WHERE app_id = $1 AND workspace_id = $2 AND state = 'pending' AND expires_at_ms > $3 \
     ORDER BY id LIMIT $4";

impl Store {
    /// The change whose commit token has this hash, in whatever state, until its time is over.
    pub async fn prepared_change_by_token(
        &self,
        token_hash: &str,
        now_ms: i64,
    ) -> Result<Option<PreparedChangeRow>> {
        Ok(sqlx::query_as(BY_TOKEN).bind(token_hash).bind(now_ms).fetch_optional(&self.pool).await?)
    }

    /// The change of a kind that waits for a CVM.
    pub async fn pending_change(
        &self,
        cvm_id: i64,
        kind: PreparedKind,
        now_ms: i64,
    ) -> Result<Option<PreparedChangeRow>> {
        Ok(sqlx::query_as(PENDING)
            .bind(cvm_id)
            .bind(kind.as_str())
            .bind(now_ms)
            .fetch_optional(&self.pool)
            .await?)
    }

    /// At most `limit` changes that wait for the CVMs of an application in a workspace, oldest first.
    pub async fn open_changes_of_app(
        &self,
        app_id: AppId,
        workspace_id: i64,
        now_ms: i64,
        limit: i64,
    ) -> Result<Vec<OpenChange>> {
        Ok(sqlx::query_as(OPEN_OF_APP)
            .bind(app_id.to_string())
            .bind(workspace_id)
            .bind(now_ms)
            .bind(limit)
            .fetch_all(&self.pool)
            .await?)
    }
}

impl Change {
    /// A number for a new change; its commit token is made from it.
    pub async fn next_prepared_change(&mut self) -> Result<i64> {
        self.next_id("prepared_changes").await
    }

    /// The change of a kind that waits for a CVM, also one whose time is over.
    pub async fn pending_change(
        &mut self,
        cvm_id: i64,
        kind: PreparedKind,
    ) -> Result<Option<PreparedChangeRow>> {
        Ok(sqlx::query_as(PENDING)
            .bind(cvm_id)
            .bind(kind.as_str())
            .bind(i64::MIN)
            .fetch_optional(&mut *self.transaction)
            .await?)
    }

    /// How many changes wait in a workspace.
    pub async fn count_pending_changes(&mut self, workspace_id: i64, now_ms: i64) -> Result<i64> {
        let (count,): (i64,) = sqlx::query_as(
            "SELECT COUNT(*) FROM prepared_changes \
             WHERE workspace_id = $1 AND state = 'pending' AND expires_at_ms > $2",
        )
        .bind(workspace_id)
        .bind(now_ms)
        .fetch_one(&mut *self.transaction)
        .await?;
        Ok(count)
    }

    /// Keeps a change. There may be none of its kind that waits for its CVM.
    pub async fn insert_prepared_change(&mut self, new: &NewPreparedChange<'_>, now_ms: i64) -> Result<()> {
        self.about(super::Subject::PreparedChange(new.id)).await?;
        sqlx::query(
            "INSERT INTO prepared_changes (id, kind, cvm_id, workspace_id, app_id, compose_hash, device_id, \
             request, state, user_id, token_hash, created_at_ms, expires_at_ms) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'pending', $9, $10, $11, $12)",
        )
        .bind(new.id)
        .bind(new.kind.as_str())
        .bind(new.cvm_id)
        .bind(new.workspace_id)
        .bind(new.app_id.to_string())
        .bind(new.compose_hash.to_string())
        .bind(new.device_id)
        .bind(new.request)
        .bind(new.user_id)
        .bind(new.token_hash)
        .bind(now_ms)
        .bind(new.expires_at_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Lets a change wait until another time.
    pub async fn extend_prepared_change(&mut self, id: i64, expires_at_ms: i64) -> Result<()> {
        self.about(super::Subject::PreparedChange(id)).await?;
        sqlx::query("UPDATE prepared_changes SET expires_at_ms = $2 WHERE id = $1")
            .bind(id)
            .bind(expires_at_ms)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Ends the change of a kind that waits for a CVM because another one takes its place. Those whose place was
    /// taken before are forgotten, so that nobody fills the table by changing their mind.
    pub async fn supersede_prepared_changes(
        &mut self,
        cvm_id: i64,
        kind: PreparedKind,
        now_ms: i64,
    ) -> Result<()> {
        sqlx::query("DELETE FROM prepared_changes WHERE cvm_id = $1 AND kind = $2 AND state = 'superseded'")
            .bind(cvm_id)
            .bind(kind.as_str())
            .execute(&mut *self.transaction)
            .await?;
        sqlx::query(
            "UPDATE prepared_changes SET state = 'superseded', request = '', ended_at_ms = $3 \
             WHERE cvm_id = $1 AND kind = $2 AND state = 'pending'",
        )
        .bind(cvm_id)
        .bind(kind.as_str())
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Ends what waits for a CVM that is given another configuration in another way: what has its document was
    /// carried out with that, everything else was made from what the CVM has not any more.
    pub async fn end_prepared_updates(
        &mut self,
        cvm_id: i64,
        compose_hash: ComposeHash,
        correlation_id: Uuid,
        now_ms: i64,
    ) -> Result<()> {
        sqlx::query(
            "UPDATE prepared_changes SET state = CASE WHEN compose_hash = $2 THEN 'committed' ELSE 'superseded' END, \
             correlation_id = CASE WHEN compose_hash = $2 THEN $3 ELSE NULL END, request = '', ended_at_ms = $4 \
             WHERE cvm_id = $1 AND kind = 'update' AND state = 'pending'",
        )
        .bind(cvm_id)
        .bind(compose_hash.to_string())
        .bind(correlation_id.to_string())
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Ends a change because it is carried out; false, and nothing changed, if it does not wait any more.
    pub async fn commit_prepared_change(
        &mut self,
        id: i64,
        transaction_hash: Option<&str>,
        correlation_id: Uuid,
        now_ms: i64,
    ) -> Result<bool> {
        let done = sqlx::query(
            "UPDATE prepared_changes SET state = 'committed', request = '', transaction_hash = $2, \
             correlation_id = $3, ended_at_ms = $4 WHERE id = $1 AND state = 'pending' AND expires_at_ms > $4",
        )
        .bind(id)
        .bind(transaction_hash)
        .bind(correlation_id.to_string())
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Forgets the changes of a CVM, which is being deleted.
    pub(super) async fn delete_prepared_changes(&mut self, cvm_id: i64) -> Result<()> {
        sqlx::query("DELETE FROM prepared_changes WHERE cvm_id = $1")
            .bind(cvm_id)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Forgets at most `limit` changes whose time is over; how many it were.
    pub async fn delete_expired_prepared_changes(&mut self, now_ms: i64, limit: i64) -> Result<u64> {
        let done = sqlx::query(
            "DELETE FROM prepared_changes WHERE id IN \
             (SELECT id FROM prepared_changes WHERE expires_at_ms <= $1 LIMIT $2)",
        )
        .bind(now_ms)
        .bind(limit)
        .execute(&mut *self.transaction)
        .await?;
        Ok(done.rows_affected())
    }
}
