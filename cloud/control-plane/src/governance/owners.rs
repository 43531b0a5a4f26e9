//! What owners said about an application without a contract, as far as their signatures were handed in here. The
//! key management service verifies each of them again and is the one that enforces it.

use std::collections::BTreeMap;

use cloister_app_compose::{AppId, ComposeHash};
use cloister_kms_api::approvals::{Action, ApprovalStatement, Approvals, MAX_SIGNATURES, OwnerKey, Owners};

use super::{CannotTell, Question, Standing};
use crate::store::{
    AppOwnersRow, ApprovalRow, ApprovedAction, OwnerProposalRow, Store, StoreError, StoredOwners,
};

/// Owners of an application, and everything that was signed.
#[derive(Debug, Clone)]
pub(crate) struct Ownership {
    pub(crate) row: AppOwnersRow,
    pub(crate) proposal: Option<OwnerProposalRow>,
    /// Only of present owners.
    approvals: Vec<ApprovalRow>,
    revoked: BTreeMap<ComposeHash, i64>,
}

/// Owners who signed one statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ballot<'a> {
    pub(crate) serial: i64,
    pub(crate) signed: Vec<&'a ApprovalRow>,
}

/// What a key management service is told about one document.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Signed {
    /// Signatures that allow it.
    pub(crate) allow: Option<Approvals>,
    /// Signatures that took it back, as long as no later ones allow it again.
    pub(crate) revocation: Option<Approvals>,
}

impl Ownership {
    /// The owners of an application, if it has some.
    pub(crate) async fn of(store: &Store, app_id: AppId) -> Result<Option<Self>, StoreError> {
        let Some(row) = store.app_owners(app_id).await? else { return Ok(None) };
        let proposal = store.owner_proposal(app_id).await?;
        let mut approvals = store.approvals_of_app(app_id).await?;
        let present: Vec<String> = row.owners.0.keys().iter().map(OwnerKey::fingerprint).collect();
        approvals.retain(|approval| present.contains(&approval.key_fingerprint));
        let revoked = store.owner_revocations(app_id).await?.into_iter();
        let revoked = revoked.map(|row| (row.compose_hash, row.serial)).collect();
        Ok(Some(Self { row, proposal, approvals, revoked }))
    }

    pub(crate) const fn owners(&self) -> &Owners {
        &self.row.owners.0
    }

    /// How many must sign.
    pub(crate) fn threshold(&self) -> usize {
        usize::try_from(self.owners().threshold()).unwrap_or(usize::MAX)
    }

    /// What present owners signed, oldest first.
    pub(crate) fn approvals(&self) -> &[ApprovalRow] {
        &self.approvals
    }

    /// No approval of the document counts up to this serial.
    pub(crate) fn revoked_until(&self, hash: &ComposeHash) -> i64 {
        self.revoked.get(hash).copied().unwrap_or_default()
    }

    /// The serial for a statement that allows a document: the same for everybody who is told at a time, and greater
    /// than that of every revocation.
    pub(crate) fn next_serial(&self) -> i64 {
        let last = self.revoked.values().copied().max().unwrap_or_default();
        last.max(self.row.serial).saturating_add(1)
    }

    /// The statement about this that most owners signed, the latest of those; nobody has to have. Of revocations the
    /// one in force counts until somebody signs a later one.
    pub(crate) fn ballot(&self, action: Action) -> Ballot<'_> {
        let (kind, subject) = named(&action);
        let (floor, next) = match &action {
            Action::AllowComposeHash(hash) | Action::RevokeComposeHash(hash) => {
                (self.revoked_until(hash), self.next_serial())
            }
            Action::SetOwners(_) => (self.row.serial, self.proposal.as_ref().map_or(0, |row| row.serial)),
        };
        let mut by_serial: BTreeMap<i64, Vec<&ApprovalRow>> = BTreeMap::new();
        let counts = |serial: i64| serial > floor || (serial == floor && kind == ApprovedAction::Revoke);
        for row in &self.approvals {
            if row.action == kind && row.subject == subject && counts(row.serial) {
                by_serial.entry(row.serial).or_default().push(row);
            }
        }
        let most =
            by_serial.into_iter().max_by_key(|(serial, signed)| (*serial > floor, signed.len(), *serial));
        most.map_or(Ballot { serial: next, signed: Vec::new() }, |(serial, signed)| Ballot { serial, signed })
    }

    /// Whether enough signed.
    pub(crate) fn is_approved(&self, ballot: &Ballot<'_>) -> bool {
        ballot.signed.len() >= self.threshold()
    }

    /// Whether the owners let the application run a document.
    pub(crate) fn allows(&self, hash: ComposeHash) -> bool {
        self.is_approved(&self.ballot(Action::AllowComposeHash(hash)))
    }

    /// What owners sign for this.
    pub(crate) fn statement(&self, action: Action, serial: i64) -> ApprovalStatement {
        ApprovalStatement {
            app_id: self.row.app_id,
            action,
            serial: u64::try_from(serial).unwrap_or_default(),
        }
    }

    /// Signatures of present owners over a statement, for the key management service.
    pub(crate) async fn signatures(
        &self,
        store: &Store,
        action: Action,
        serial: i64,
    ) -> Result<Option<Approvals>, StoreError> {
        let (kind, subject) = named(&action);
        let mut rows = store.approval_signatures(self.row.app_id, kind, &subject, serial).await?;
        let present: Vec<String> = self.owners().keys().iter().map(OwnerKey::fingerprint).collect();
        rows.retain(|(fingerprint, _)| present.contains(fingerprint));
        rows.truncate(MAX_SIGNATURES);
        if rows.is_empty() {
            return Ok(None);
        }
        let signatures = rows.into_iter().map(|(_, signature)| signature).collect();
        Ok(Some(Approvals { serial: u64::try_from(serial).unwrap_or_default(), signatures }))
    }
}

/// How an action is stored.
pub(crate) fn named(action: &Action) -> (ApprovedAction, String) {
    match action {
        Action::AllowComposeHash(hash) => (ApprovedAction::Allow, hash.to_string()),
        Action::RevokeComposeHash(hash) => (ApprovedAction::Revoke, hash.to_string()),
        Action::SetOwners(digest) => (ApprovedAction::SetOwners, digest.to_string()),
    }
}

/// Whether an application has owners.
pub(crate) async fn are_known(store: &Store, app_id: AppId) -> Result<bool, StoreError> {
    Ok(store.app_owners(app_id).await?.is_some())
}

/// What owners said to each question. Devices are none of their business: where no contract decides, everything
/// that is allowed may run on every device that the key management service lets in.
pub(super) async fn standings(
    store: &Store,
    app_id: AppId,
    questions: &[Question],
) -> Result<Vec<Standing>, CannotTell> {
    let ownership = Ownership::of(store, app_id).await.map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "approvals cannot be read");
        CannotTell::Chain("the approvals of the owners cannot be read".to_owned())
    })?;
    let standing = |question: &Question| Standing {
        compose_hash_allowed: ownership.as_ref().is_some_and(|own| own.allows(question.compose_hash)),
        device_id_allowed: false,
        allow_any_device: true,
    };
    Ok(questions.iter().map(standing).collect())
}

/// What the key management service is told about a document of an application; nothing without owners.
pub(crate) async fn signed(store: &Store, app_id: AppId, hash: ComposeHash) -> Result<Signed, StoreError> {
    let Some(ownership) = Ownership::of(store, app_id).await? else { return Ok(Signed::default()) };
    let (allowing, revoking) = (Action::AllowComposeHash(hash), Action::RevokeComposeHash(hash));
    let serial = ownership.ballot(allowing).serial;
    let allow = ownership.signatures(store, allowing, serial).await?;
    let revoked_until = ownership.revoked_until(&hash);
    let revocation = if revoked_until == 0 || ownership.allows(hash) {
        None
    } else {
        ownership.signatures(store, revoking, revoked_until).await?
    };
    Ok(Signed { allow, revocation })
}

/// Owners as they are stored, and a revocation.
pub(crate) fn owners_row(
    app_id: AppId,
    workspace_id: i64,
    owners: Owners,
    serial: u64,
    now_ms: i64,
) -> AppOwnersRow {
    let serial = i64::try_from(serial).unwrap_or(i64::MAX);
    AppOwnersRow { app_id, workspace_id, owners: StoredOwners(owners), serial, set_at_ms: now_ms }
}
