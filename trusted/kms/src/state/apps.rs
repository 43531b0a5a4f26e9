//! Which document an application may run, and who says so.

use cloister_app_compose::{AppId, ComposeHash};
use cloister_kms_api::admin::{AllowApp, SetOwners};
use cloister_kms_api::approvals::{Action, Approvals};
use cloister_kms_api::log::{Approval, Event};
use cloister_kms_api::{KmsError, KmsErrorCode};
use jiff::Timestamp;

use super::ownership::{Ownership, check_serial};
use super::{Keys, State};

/// Most documents of one application: old ones are taken back.
const MAX_DOCUMENTS: usize = 10_000;

type Changed = Result<((), Vec<Event>), KmsError>;

impl Keys {
    /// Lets an application run a document, if its owners approve, or it has none. Idempotent.
    pub(crate) async fn allow_app(&self, allow: AllowApp) -> Result<(), KmsError> {
        self.refuse_where_a_contract_decides(&allow.app_id)?;
        if self.policy().apps.get(&allow.app_id).is_some_and(|known| known.contains(&allow.compose_hash)) {
            return Ok(());
        }
        self.change("allow-app", move |state, now| state.allow(&allow, now)).await
    }

    /// Takes that back; lastingly, if its owners approve. Idempotent.
    pub(crate) async fn revoke_app(&self, revoke: AllowApp) -> Result<(), KmsError> {
        self.refuse_where_a_contract_decides(&revoke.app_id)?;
        self.change("revoke-app", move |state, now| state.revoke(&revoke, now)).await
    }

    /// Gives an application its owners, or other ones if the present ones approve. Idempotent.
    pub(crate) async fn set_owners(&self, set: SetOwners) -> Result<(), KmsError> {
        self.refuse_where_a_contract_decides(&set.app_id)?;
        check_serial(set.serial, self.now())?;
        self.change("set-owners", move |state, now| state.set_owners(set, now)).await
    }

    /// An application that has owners already has them under every authority.
    fn refuse_where_a_contract_decides(&self, app_id: &AppId) -> Result<(), KmsError> {
        match self.contract() {
            Some(contract) if !self.snapshot().owned.contains_key(app_id) => Err(KmsError::new(
                KmsErrorCode::ContractDecides,
                format!("what applications may run says the contract {contract}; change it there"),
            )),
            _ => Ok(()),
        }
    }
}

impl State {
    fn allow(&mut self, allow: &AllowApp, now: Timestamp) -> Changed {
        let AllowApp { app_id, compose_hash, approvals } = allow;
        let documents = self.policy.apps.get(app_id).map(Vec::as_slice).unwrap_or_default();
        if documents.contains(compose_hash) {
            return Ok(((), Vec::new()));
        }
        if documents.len() >= MAX_DOCUMENTS {
            return Err(bad(format!(
                "application {app_id} has {MAX_DOCUMENTS} documents; revoke old ones first"
            )));
        }
        let approval = match self.owned.get(app_id) {
            Some(ownership) => {
                Some(approve_document(ownership, *app_id, *compose_hash, approvals.as_ref(), now)?)
            }
            None => refuse_idle(*app_id, approvals.as_ref())?,
        };
        self.policy.apps.entry(*app_id).or_default().push(*compose_hash);
        Ok(((), vec![Event::AppAllowed { app_id: *app_id, compose_hash: *compose_hash, approval }]))
    }

    fn revoke(&mut self, revoke: &AllowApp, now: Timestamp) -> Changed {
        let AllowApp { app_id, compose_hash, approvals } = revoke;
        let (mut approval, mut is_new) = (None, false);
        match (self.owned.get_mut(app_id), approvals) {
            (Some(ownership), Some(approvals)) => {
                let action = Action::RevokeComposeHash(*compose_hash);
                let approved = ownership.approve(*app_id, action, approvals, now)?;
                is_new = ownership.revoke(*compose_hash, approved.serial);
                // An old one says nothing about now: then it is the operator who takes the document.
                approval = is_new.then_some(approved);
            }
            (None, _) => approval = refuse_idle(*app_id, approvals.as_ref())?,
            (Some(_), None) => {}
        }
        if !self.take_document(app_id, compose_hash) && !is_new {
            return Ok(((), Vec::new()));
        }
        Ok(((), vec![Event::AppRevoked { app_id: *app_id, compose_hash: *compose_hash, approval }]))
    }

    /// Whether the document was allowed.
    fn take_document(&mut self, app_id: &AppId, compose_hash: &ComposeHash) -> bool {
        let Some(documents) = self.policy.apps.get_mut(app_id) else { return false };
        let before = documents.len();
        documents.retain(|known| known != compose_hash);
        let taken = documents.len() < before;
        if documents.is_empty() {
            self.policy.apps.remove(app_id);
        }
        taken
    }

    fn set_owners(
        &mut self,
        SetOwners { app_id, owners, serial, signatures }: SetOwners,
        now: Timestamp,
    ) -> Changed {
        let (approved_by, taken_back) = match self.owned.get_mut(&app_id) {
            None if signatures.is_empty() => {
                self.owned.insert(app_id, Ownership::first(owners.clone(), serial));
                // No owner approved them.
                (Vec::new(), self.policy.apps.remove(&app_id).unwrap_or_default())
            }
            None => {
                return Err(bad(format!(
                    "application {app_id} has no owners yet, who could sign; leave the signatures out"
                )));
            }
            Some(ownership) if ownership.owners == owners => return Ok(((), Vec::new())),
            Some(ownership) => {
                if serial <= ownership.serial {
                    return Err(bad(format!(
                        "the serial must be greater than {}, that of the present owners",
                        ownership.serial
                    )));
                }
                let action = Action::SetOwners(owners.digest());
                let approval = ownership.approve(app_id, action, &Approvals { serial, signatures }, now)?;
                ownership.serial = serial;
                ownership.owners.clone_from(&owners);
                (approval.signers, Vec::new())
            }
        };
        let taken_back = taken_back.into_iter().map(|compose_hash| Event::AppRevoked {
            app_id,
            compose_hash,
            approval: None,
        });
        Ok((
            (),
            [Event::OwnersSet { app_id, owners, serial, approved_by }]
                .into_iter()
                .chain(taken_back)
                .collect(),
        ))
    }
}

/// That the owners let their application run a document.
fn approve_document(
    ownership: &Ownership,
    app_id: AppId,
    compose_hash: ComposeHash,
    approvals: Option<&Approvals>,
    now: Timestamp,
) -> Result<Approval, KmsError> {
    let required = |reason: String| KmsError::new(KmsErrorCode::ApprovalsRequired, reason);
    let Some(approvals) = approvals else {
        let (threshold, owners) = (ownership.owners.threshold(), ownership.owners.keys().len());
        return Err(required(format!(
            "{threshold} of the {owners} owners of application {app_id} must approve {compose_hash}"
        )));
    };
    check_serial(approvals.serial, now)?;
    let revoked_until = ownership.revoked_until(&compose_hash);
    if approvals.serial <= revoked_until {
        return Err(required(format!(
            "owners revoked {compose_hash} with serial {revoked_until}, after this approval; they must sign a new \
             one with a greater serial"
        )));
    }
    ownership.approve(app_id, Action::AllowComposeHash(compose_hash), approvals, now)
}

/// Who sends approvals believes that they are needed: where they are not, he should know.
fn refuse_idle(app_id: AppId, approvals: Option<&Approvals>) -> Result<Option<Approval>, KmsError> {
    match approvals {
        None => Ok(None),
        Some(_) => Err(bad(format!(
            "application {app_id} has no owners here, so no approval counts; set them first, or leave approvals out"
        ))),
    }
}

fn bad(reason: String) -> KmsError {
    KmsError::new(KmsErrorCode::BadRequest, reason)
}
