//! Owners of applications without a contract, and what they signed. The key management service holds what
//! counts; this is what it was told, and what it is to be told.

use cloister_app_compose::{AppId, ComposeHash};
use cloister_kms_api::approvals::Owners;
use sqlx::FromRow;

use super::{Change, Result, Store};
use crate::operations::named_enum;

/// Most signatures of one application that are not over revocations, and most that are: whatever else was signed,
/// there is room to take something back.
pub const MAX_APPROVALS: i64 = 10_000;
/// Most signatures of both kinds.
const MAX_SIGNATURES: i64 = 2 * MAX_APPROVALS;

named_enum!(
    /// What owners sign.
    ApprovedAction {
        /// The application may run a document.
        Allow = "allow_compose_hash",
        /// It may not any more.
        Revoke = "revoke_compose_hash",
        /// It has other owners from now on.
        SetOwners = "set_owners",
    }
);

/// Owners as they are stored: canonical JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredOwners(pub Owners);

impl TryFrom<String> for StoredOwners {
    type Error = serde_json::Error;

    fn try_from(text: String) -> std::result::Result<Self, serde_json::Error> {
        serde_json::from_str(&text).map(Self)
    }
}

impl StoredOwners {
    fn text(&self) -> Result<String> {
        serde_json::to_string(&self.0).map_err(|error| sqlx::Error::Encode(error.into()).into())
    }
}

/// Owners of an application.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct AppOwnersRow {
    /// The application.
    #[sqlx(try_from = "String")]
    pub app_id: AppId,
    /// The workspace in which they were set.
    pub workspace_id: i64,
    /// Who, and how many of them must agree.
    #[sqlx(try_from = "String")]
    pub owners: StoredOwners,
    /// Serial of the statement that made them owners.
    pub serial: i64,
    /// When they became owners here.
    pub set_at_ms: i64,
}

/// Other owners that wait for the approval of the present ones.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct OwnerProposalRow {
    /// Who, and how many of them must agree.
    #[sqlx(try_from = "String")]
    pub owners: StoredOwners,
    /// Serial of the statement that is to be signed.
    pub serial: i64,
    /// When they were proposed.
    pub proposed_at_ms: i64,
}

/// A signature of an owner, without the signature itself.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct ApprovalRow {
    /// What was signed.
    #[sqlx(try_from = "String")]
    pub action: ApprovedAction,
    /// Of what: a compose hash, or the digest of owners.
    pub subject: String,
    /// Serial of the statement.
    pub serial: i64,
    /// Whose key.
    pub key_fingerprint: String,
    /// When it was handed in.
    pub created_at_ms: i64,
}

/// A signature that is handed in.
#[derive(Debug, Clone, Copy)]
pub struct NewApproval<'a> {
    /// The application.
    pub app_id: AppId,
    /// What was signed.
    pub action: ApprovedAction,
    /// Of what.
    pub subject: &'a str,
    /// Serial of the statement.
    pub serial: i64,
    /// Whose key.
    pub key_fingerprint: &'a str,
    /// As `ssh-keygen` writes it.
    pub signature: &'a str,
    /// Who handed it in.
    pub user_id: i64,
}

/// A document that owners took back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRow)]
pub struct RevocationRow {
    /// The document.
    #[sqlx(try_from = "String")]
    pub compose_hash: ComposeHash,
    /// No approval up to this serial counts.
    pub serial: i64,
}

const OWNERS: &str =
    "SELECT app_id, workspace_id, owners, serial, set_at_ms FROM app_owners WHERE app_id = $1";
const PROPOSAL: &str = "SELECT owners, serial, proposed_at_ms FROM owner_proposals WHERE app_id = $1";
const APPROVALS: &str = "SELECT action, subject, serial, key_fingerprint, created_at_ms FROM approvals \
     WHERE app_id = $1 ORDER BY id LIMIT $2";
const SIGNATURES: &str = "SELECT key_fingerprint, signature FROM approvals \
     WHERE app_id = $1 AND action = $2 AND subject = $3 AND serial = $4 ORDER BY id LIMIT $5";
const REVOCATIONS: &str =
    "SELECT compose_hash, serial FROM owner_revocations WHERE app_id = $1 ORDER BY compose_hash LIMIT $2";

impl Store {
    /// Who owns an application, if somebody does.
    pub async fn app_owners(&self, app_id: AppId) -> Result<Option<AppOwnersRow>> {
        Ok(sqlx::query_as(OWNERS).bind(app_id.to_string()).fetch_optional(&self.pool).await?)
    }

    /// The owners that an application is to get.
    pub async fn owner_proposal(&self, app_id: AppId) -> Result<Option<OwnerProposalRow>> {
        Ok(sqlx::query_as(PROPOSAL).bind(app_id.to_string()).fetch_optional(&self.pool).await?)
    }

    /// What was signed for an application, oldest first.
    pub async fn approvals_of_app(&self, app_id: AppId) -> Result<Vec<ApprovalRow>> {
        Ok(sqlx::query_as(APPROVALS)
            .bind(app_id.to_string())
            .bind(MAX_SIGNATURES)
            .fetch_all(&self.pool)
            .await?)
    }

    /// Fingerprints and signatures over one statement, oldest first.
    pub async fn approval_signatures(
        &self,
        app_id: AppId,
        action: ApprovedAction,
        subject: &str,
        serial: i64,
    ) -> Result<Vec<(String, String)>> {
        Ok(sqlx::query_as(SIGNATURES)
            .bind(app_id.to_string())
            .bind(action.as_str())
            .bind(subject)
            .bind(serial)
            .bind(MAX_APPROVALS)
            .fetch_all(&self.pool)
            .await?)
    }

    /// Documents of an application that its owners took back.
    pub async fn owner_revocations(&self, app_id: AppId) -> Result<Vec<RevocationRow>> {
        Ok(sqlx::query_as(REVOCATIONS)
            .bind(app_id.to_string())
            .bind(MAX_APPROVALS)
            .fetch_all(&self.pool)
            .await?)
    }
}

impl Change {
    /// Keeps the owners of an application, unless later ones are known. A proposal of just them is done, and
    /// one that is older than they are is outdated.
    pub async fn put_app_owners(&mut self, row: &AppOwnersRow, set_by: i64) -> Result<()> {
        self.about(super::Subject::Owners(row.app_id)).await?;
        let app_id = row.app_id.to_string();
        sqlx::query(
            "INSERT INTO app_owners (app_id, workspace_id, owners, serial, set_at_ms, set_by) \
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (app_id) DO UPDATE SET owners = excluded.owners, \
             serial = excluded.serial, set_at_ms = excluded.set_at_ms, set_by = excluded.set_by \
             WHERE app_owners.serial < excluded.serial",
        )
        .bind(&app_id)
        .bind(row.workspace_id)
        .bind(row.owners.text()?)
        .bind(row.serial)
        .bind(row.set_at_ms)
        .bind(set_by)
        .execute(&mut *self.transaction)
        .await?;
        sqlx::query("DELETE FROM owner_proposals WHERE app_id = $1 AND serial <= $2")
            .bind(&app_id)
            .bind(row.serial)
            .execute(&mut *self.transaction)
            .await?;
        sqlx::query("DELETE FROM approvals WHERE app_id = $1 AND action = $2 AND serial <= $3")
            .bind(&app_id)
            .bind(ApprovedAction::SetOwners.as_str())
            .bind(row.serial)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// The proposal that waits; the owners are locked until this change ends.
    pub async fn lock_owner_proposal(&mut self, app_id: AppId) -> Result<Option<OwnerProposalRow>> {
        // Locks the row on PostgreSQL; on SQLite a change holds everything anyway.
        sqlx::query("UPDATE app_owners SET serial = serial WHERE app_id = $1")
            .bind(app_id.to_string())
            .execute(&mut *self.transaction)
            .await?;
        Ok(sqlx::query_as(PROPOSAL).bind(app_id.to_string()).fetch_optional(&mut *self.transaction).await?)
    }

    /// Keeps what owners an application is to get, in the place of what was proposed before.
    pub async fn put_owner_proposal(
        &mut self,
        app_id: AppId,
        row: &OwnerProposalRow,
        proposed_by: i64,
    ) -> Result<()> {
        self.about(super::Subject::Owners(app_id)).await?;
        sqlx::query("DELETE FROM approvals WHERE app_id = $1 AND action = $2")
            .bind(app_id.to_string())
            .bind(ApprovedAction::SetOwners.as_str())
            .execute(&mut *self.transaction)
            .await?;
        sqlx::query(
            "INSERT INTO owner_proposals (app_id, owners, serial, proposed_at_ms, proposed_by) \
             VALUES ($1, $2, $3, $4, $5) ON CONFLICT (app_id) DO UPDATE SET owners = excluded.owners, \
             serial = excluded.serial, proposed_at_ms = excluded.proposed_at_ms, \
             proposed_by = excluded.proposed_by",
        )
        .bind(app_id.to_string())
        .bind(row.owners.text()?)
        .bind(row.serial)
        .bind(row.proposed_at_ms)
        .bind(proposed_by)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// How many signatures an application has that share their room with those of a kind.
    pub async fn count_approvals(&mut self, app_id: AppId, beside: ApprovedAction) -> Result<i64> {
        let count = match beside {
            ApprovedAction::Revoke => "SELECT COUNT(*) FROM approvals WHERE app_id = $1 AND action = $2",
            _ => "SELECT COUNT(*) FROM approvals WHERE app_id = $1 AND action <> $2",
        };
        let (count,): (i64,) = sqlx::query_as(count)
            .bind(app_id.to_string())
            .bind(ApprovedAction::Revoke.as_str())
            .fetch_one(&mut *self.transaction)
            .await?;
        Ok(count)
    }

    /// Keeps a signature; the same again changes nothing.
    pub async fn insert_approval(&mut self, new: &NewApproval<'_>, now_ms: i64) -> Result<()> {
        self.about(super::Subject::Owners(new.app_id)).await?;
        let id = self.next_id("approvals").await?;
        sqlx::query(
            "INSERT INTO approvals (id, app_id, action, subject, serial, key_fingerprint, signature, user_id, \
             created_at_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
             ON CONFLICT (app_id, action, subject, serial, key_fingerprint) DO NOTHING",
        )
        .bind(id)
        .bind(new.app_id.to_string())
        .bind(new.action.as_str())
        .bind(new.subject)
        .bind(new.serial)
        .bind(new.key_fingerprint)
        .bind(new.signature)
        .bind(new.user_id)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Fingerprints of the keys that signed one statement.
    pub async fn approval_signers(
        &mut self,
        app_id: AppId,
        action: ApprovedAction,
        subject: &str,
        serial: i64,
    ) -> Result<Vec<String>> {
        let rows: Vec<(String,)> = sqlx::query_as(
            "SELECT key_fingerprint FROM approvals \
             WHERE app_id = $1 AND action = $2 AND subject = $3 AND serial = $4 ORDER BY id LIMIT $5",
        )
        .bind(app_id.to_string())
        .bind(action.as_str())
        .bind(subject)
        .bind(serial)
        .bind(MAX_APPROVALS)
        .fetch_all(&mut *self.transaction)
        .await?;
        Ok(rows.into_iter().map(|(fingerprint,)| fingerprint).collect())
    }

    /// A document is taken back, lastingly; the later of two revocations counts. Signatures that can never count
    /// again make room.
    pub async fn put_owner_revocation(
        &mut self,
        app_id: AppId,
        row: RevocationRow,
        now_ms: i64,
    ) -> Result<()> {
        sqlx::query(
            "INSERT INTO owner_revocations (app_id, compose_hash, serial, revoked_at_ms) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (app_id, compose_hash) DO UPDATE SET serial = excluded.serial, \
             revoked_at_ms = excluded.revoked_at_ms WHERE owner_revocations.serial < excluded.serial",
        )
        .bind(app_id.to_string())
        .bind(row.compose_hash.to_string())
        .bind(row.serial)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        sqlx::query(
            "DELETE FROM approvals WHERE app_id = $1 AND subject = $2 \
             AND ((action = $3 AND serial <= $5) OR (action = $4 AND serial < $5))",
        )
        .bind(app_id.to_string())
        .bind(row.compose_hash.to_string())
        .bind(ApprovedAction::Allow.as_str())
        .bind(ApprovedAction::Revoke.as_str())
        .bind(row.serial)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }
}
