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
    /// Where in `approvals` the signatures over each thing are: thousands of them are looked at by subject.
    by_subject: BTreeMap<(ApprovedAction, String), Vec<usize>>,
    revoked: BTreeMap<ComposeHash, i64>,
    next_serial: i64,
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
        Ok(Some(Self::new(row, proposal, approvals, revoked)))
    }

    fn new(
        row: AppOwnersRow,
        proposal: Option<OwnerProposalRow>,
        approvals: Vec<ApprovalRow>,
        revoked: BTreeMap<ComposeHash, i64>,
    ) -> Self {
        let mut by_subject: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (index, approval) in approvals.iter().enumerate() {
            by_subject.entry((approval.action, approval.subject.clone())).or_default().push(index);
        }
        let last = revoked.values().copied().max().unwrap_or_default();
        let next_serial = last.max(row.serial).saturating_add(1);
        Self { row, proposal, approvals, by_subject, revoked, next_serial }
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

    /// What was signed, each once, oldest first.
    pub(crate) fn subjects(&self) -> Vec<(ApprovedAction, &str)> {
        let mut subjects: Vec<_> = self.by_subject.iter().collect();
        subjects.sort_by_key(|(_, indices)| indices.first().copied());
        subjects.into_iter().map(|((action, subject), _)| (*action, subject.as_str())).collect()
    }

    /// No approval of the document counts up to this serial.
    pub(crate) fn revoked_until(&self, hash: &ComposeHash) -> i64 {
        self.revoked.get(hash).copied().unwrap_or_default()
    }

    /// The serial for a statement that allows a document: the same for everybody who is told at a time, and greater
    /// than that of every revocation.
    pub(crate) const fn next_serial(&self) -> i64 {
        self.next_serial
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
        let own = self.by_subject.get(&(kind, subject)).into_iter().flatten();
        for row in own.filter_map(|index| self.approvals.get(*index)) {
            if counts(row.serial) {
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

impl Ownership {
    async fn revocation_in_force(
        &self,
        store: &Store,
        hash: ComposeHash,
    ) -> Result<Option<(i64, Option<Approvals>)>, StoreError> {
        let serial = self.revoked_until(&hash);
        if serial == 0 || self.allows(hash) {
            return Ok(None);
        }
        let signed = self.signatures(store, Action::RevokeComposeHash(hash), serial).await?;
        Ok(Some((serial, signed)))
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
    let allowing = Action::AllowComposeHash(hash);
    let serial = ownership.ballot(allowing).serial;
    let allow = ownership.signatures(store, allowing, serial).await?;
    let revocation = ownership.revocation_in_force(store, hash).await?.and_then(|(_, signed)| signed);
    Ok(Signed { allow, revocation })
}

/// Serial of the revocation of a document, if one is in force, with what present owners signed of it: those who
/// signed may all own the application no more.
pub(crate) async fn revocation(
    store: &Store,
    app_id: AppId,
    hash: ComposeHash,
) -> Result<Option<(i64, Option<Approvals>)>, StoreError> {
    match Ownership::of(store, app_id).await? {
        Some(ownership) => ownership.revocation_in_force(store, hash).await,
        None => Ok(None),
    }
}

/// Owners as they are stored.
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

#[cfg(test)]
mod tests {
    use cloister_kms_api::approvals::Owners;

    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOZ0oDJ1LCuB4+z3CZ2sL1i5HSCQNwEMxIFP9s+rD5Vq";

    fn document(number: u64) -> ComposeHash {
        ComposeHash::of(&number.to_be_bytes())
    }

    #[test]
    fn as_much_as_is_kept_is_sorted_by_what_it_is_about() {
        const COUNT: u64 = 10_000;
        let app_id = AppId::from_bytes([1; 20]);
        let row = owners_row(app_id, 1, Owners::new(1, vec![KEY.parse().unwrap()]).unwrap(), 3, 0);
        let approval = |number: u64| ApprovalRow {
            action: if number.is_multiple_of(3) { ApprovedAction::Revoke } else { ApprovedAction::Allow },
            subject: document(number % 5_000).to_string(),
            serial: 10 + i64::try_from(number).unwrap(),
            key_fingerprint: "SHA256:x".to_owned(),
            created_at_ms: 0,
        };
        let approvals: Vec<_> = (0..COUNT).rev().map(approval).collect();
        let revoked = (0..COUNT).map(|number| (document(number), 5)).collect();
        let own = Ownership::new(row, None, approvals.clone(), revoked);
        assert_eq!(own.next_serial(), 6);
        let subjects = own.subjects();
        assert_eq!(subjects.first(), Some(&(approvals[0].action, approvals[0].subject.as_str())));
        let mut expected: Vec<_> = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        for row in &approvals {
            if seen.insert((row.action, &row.subject)) {
                expected.push((row.action, row.subject.as_str()));
            }
        }
        assert_eq!(subjects, expected);
        for (kind, subject) in subjects {
            let hash = subject.parse().unwrap();
            let action = match kind {
                ApprovedAction::Revoke => Action::RevokeComposeHash(hash),
                _ => Action::AllowComposeHash(hash),
            };
            let ballot = own.ballot(action);
            let latest = approvals.iter().find(|row| row.action == kind && row.subject == subject);
            assert_eq!(ballot.signed, [latest.unwrap()]);
            assert_eq!(ballot.serial, ballot.signed[0].serial);
        }
        assert!(own.ballot(Action::AllowComposeHash(document(COUNT))).signed.is_empty());
    }
}
