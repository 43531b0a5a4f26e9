//! What holds for an application that has owners, besides its documents, which stand with all others'.

use std::collections::BTreeMap;

use cloister_app_compose::{AppId, ComposeHash};
use cloister_kms_api::approvals::{
    Action, ApprovalError, ApprovalStatement, Approvals, MAX_SERIAL, Owners, verify,
};
use cloister_kms_api::log::Approval;
use cloister_kms_api::{KmsError, KmsErrorCode, OwnedApp};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// Most revocations of one application that are kept one by one.
const MAX_REVOCATIONS: usize = 10_000;
/// How far ahead of this KMS's clock a serial may be.
const MAX_AHEAD: SignedDuration = SignedDuration::from_hours(24);

/// Owners of an application, and what they revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ownership {
    /// Who approves.
    pub(crate) owners: Owners,
    /// Serial of the statement that made them owners.
    pub(crate) serial: u64,
    /// Documents that owners revoked, with the serial of the last revocation.
    #[serde(default)]
    revoked: BTreeMap<ComposeHash, u64>,
    /// Greatest serial of revocations that are not kept one by one any more: it holds for every document.
    #[serde(default)]
    revoked_until: u64,
}

impl Ownership {
    /// The first owners of an application.
    pub(crate) const fn first(owners: Owners, serial: u64) -> Self {
        Self { owners, serial, revoked: BTreeMap::new(), revoked_until: 0 }
    }

    /// Whether enough owners approve of what happens to `app_id`.
    pub(crate) fn approve(
        &self,
        app_id: AppId,
        action: Action,
        Approvals { serial, signatures }: &Approvals,
        now: Timestamp,
    ) -> Result<Approval, KmsError> {
        check_serial(*serial, now)?;
        let statement = ApprovalStatement { app_id, action, serial: *serial };
        let signers = verify(&statement, &self.owners, signatures).map_err(|error| refused(&error))?;
        Ok(Approval { serial: *serial, signers })
    }

    /// No approval of `document` counts up to this serial.
    pub(crate) fn revoked_until(&self, document: &ComposeHash) -> u64 {
        self.revoked.get(document).map_or(self.revoked_until, |serial| (*serial).max(self.revoked_until))
    }

    /// Owners revoked `document`; whether that is new.
    pub(crate) fn revoke(&mut self, document: ComposeHash, serial: u64) -> bool {
        if serial <= self.revoked_until(&document) {
            return false;
        }
        self.revoked.insert(document, serial);
        if self.revoked.len() > MAX_REVOCATIONS {
            self.forget_oldest();
        }
        true
    }

    /// What is forgotten of one document holds for all of them from then on: nothing comes back.
    fn forget_oldest(&mut self) {
        let oldest = self.revoked.iter().min_by_key(|(_, serial)| **serial);
        let Some((document, serial)) = oldest.map(|(document, serial)| (*document, *serial)) else { return };
        self.revoked.remove(&document);
        self.revoked_until = self.revoked_until.max(serial);
    }

    /// For another KMS, with the documents of the application.
    pub(crate) fn export(&self, documents: Vec<ComposeHash>) -> OwnedApp {
        OwnedApp {
            owners: self.owners.clone(),
            serial: self.serial,
            documents,
            revoked: self.revoked.clone(),
            revoked_until: self.revoked_until,
        }
    }

    /// From another KMS, with the documents of the application.
    pub(crate) fn import(app: OwnedApp) -> (Self, Vec<ComposeHash>) {
        let OwnedApp { owners, serial, documents, revoked, revoked_until } = app;
        (Self { owners, serial, revoked, revoked_until }, documents)
    }
}

/// Serials are times, and none of the future, up to clocks that differ: one that is much greater would leave none for
/// whoever wants to take back what it allowed, or to have other owners.
pub(crate) fn check_serial(serial: u64, now: Timestamp) -> Result<(), KmsError> {
    let latest = now.saturating_add(MAX_AHEAD).unwrap_or(now).as_millisecond();
    let latest = u64::try_from(latest).unwrap_or_default().clamp(1, MAX_SERIAL);
    if (1..=latest).contains(&serial) {
        return Ok(());
    }
    Err(KmsError::new(
        KmsErrorCode::BadRequest,
        format!(
            "serial {serial} cannot be used: take Unix time in milliseconds, 1 to {latest} now, which is a day ahead \
             of this KMS's clock"
        ),
    ))
}

fn refused(error: &ApprovalError) -> KmsError {
    let code = match error {
        ApprovalError::NotEnough { .. } => KmsErrorCode::ApprovalsRequired,
        ApprovalError::TooMany(_) | ApprovalError::Signature { .. } => KmsErrorCode::BadRequest,
    };
    KmsError::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::owners;

    fn document(number: u64) -> ComposeHash {
        ComposeHash::of(&number.to_be_bytes())
    }

    #[test]
    fn revocations_are_kept_however_many_there_are() {
        let mut ownership = Ownership::first(owners(1, &[0]), 1);
        let many = MAX_REVOCATIONS as u64 + 3;
        for number in 1..=many {
            assert!(ownership.revoke(document(number), number));
        }
        assert_eq!(ownership.revoked.len(), MAX_REVOCATIONS);
        for number in [1, 2, 3, 4, many] {
            assert!(ownership.revoked_until(&document(number)) >= number);
            assert!(!ownership.revoke(document(number), number));
        }
        // The price: what was never revoked needs an approval that is newer than what was forgotten.
        assert_eq!(ownership.revoked_until(&document(0)), 3);
    }
}
