//! Applications that have owners.

use std::collections::{BTreeMap, BTreeSet};

use cloister_app_compose::ComposeHash;
use cloister_kms_api::admin::{AllowApp, SetOwners};
use cloister_kms_api::approvals::{Action, MAX_SERIAL};
use cloister_kms_api::log::{Approval, Event};
use cloister_kms_api::{KmsError, KmsErrorCode};
use proptest::prelude::*;

use super::lab::{self, Lab, allow, app, events, first};
use crate::owner::{Owner, approvals, owners};
use crate::state::{Keys, NewState};

const REQUIRED: Result<(), KmsErrorCode> = Err(KmsErrorCode::ApprovalsRequired);
const BAD: Result<(), KmsErrorCode> = Err(KmsErrorCode::BadRequest);

fn document(number: u8) -> ComposeHash {
    allow(0, number).compose_hash
}

fn code(told: Result<(), KmsError>) -> Result<(), KmsErrorCode> {
    told.map_err(|error| error.code)
}

/// These owners let `application` run a document.
fn approved(application: u8, number: u8, serial: u64, signers: &[u8]) -> AllowApp {
    let action = Action::AllowComposeHash(document(number));
    AllowApp {
        approvals: Some(approvals(app(application), action, serial, signers)),
        ..allow(application, number)
    }
}

fn revoked(application: u8, number: u8, serial: u64, signers: &[u8]) -> AllowApp {
    let action = Action::RevokeComposeHash(document(number));
    AllowApp {
        approvals: Some(approvals(app(application), action, serial, signers)),
        ..allow(application, number)
    }
}

/// `threshold` of `members` own `application` from now on, say `signers`.
fn set(application: u8, threshold: u32, members: &[u8], serial: u64, signers: &[u8]) -> SetOwners {
    let owners = owners(threshold, members);
    let action = Action::SetOwners(owners.digest());
    let signatures = approvals(app(application), action, serial, signers).signatures;
    SetOwners { app_id: app(application), owners, serial, signatures }
}

async fn try_allow(keys: &Keys, allow: AllowApp) -> Result<(), KmsErrorCode> {
    code(keys.allow_app(allow).await)
}

fn documents(keys: &Keys) -> Vec<ComposeHash> {
    keys.policy().apps.get(&app(1)).cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_enough_owners_allow_a_document() {
    let lab = Lab::new();
    let keys = lab.create();
    keys.allow_app(allow(1, 1)).await.unwrap();
    keys.set_owners(set(1, 2, &[0, 1, 2], 10, &[])).await.unwrap();
    assert_eq!(documents(&keys), [], "what no owner approved is taken back");

    assert_eq!(try_allow(&keys, allow(1, 1)).await, REQUIRED);
    assert_eq!(try_allow(&keys, approved(1, 1, 20, &[0])).await, REQUIRED);
    assert_eq!(try_allow(&keys, approved(1, 1, 20, &[0, 0, 7])).await, REQUIRED);
    // Owners of two applications sign for one of them.
    keys.set_owners(set(2, 1, &[0], 10, &[])).await.unwrap();
    let elsewhere = AllowApp { app_id: app(1), ..approved(2, 1, 20, &[0, 1]) };
    assert_eq!(try_allow(&keys, elsewhere).await, BAD);
    let another = AllowApp { compose_hash: document(2), ..approved(1, 1, 20, &[0, 1]) };
    assert_eq!(try_allow(&keys, another).await, BAD);
    let taken = AllowApp { approvals: revoked(1, 1, 20, &[0, 1]).approvals, ..allow(1, 1) };
    assert_eq!(try_allow(&keys, taken).await, BAD, "a revocation allows nothing");
    assert_eq!(documents(&keys), []);

    assert_eq!(try_allow(&keys, approved(1, 1, 20, &[2, 0])).await, Ok(()));
    assert_eq!(try_allow(&keys, allow(1, 1)).await, Ok(()), "again needs nobody");
    let mut signers = [Owner::new(0), Owner::new(2)].map(|owner| owner.key());
    signers.sort();
    let signers = signers.map(|key| key.fingerprint()).to_vec();
    let expected = Event::AppAllowed {
        app_id: app(1),
        compose_hash: document(1),
        approval: Some(Approval { serial: 20, signers }),
    };
    assert_eq!(events(&keys).last(), Some(&expected));

    // The operator may take away, and has not the last word.
    keys.revoke_app(allow(1, 1)).await.unwrap();
    assert_eq!(try_allow(&keys, allow(1, 1)).await, REQUIRED);
    assert_eq!(try_allow(&keys, approved(1, 1, 20, &[0, 1])).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_owners_revoked_does_not_come_back() {
    let lab = Lab::new();
    let keys = lab.create();
    keys.set_owners(set(1, 2, &[0, 1], 10, &[])).await.unwrap();
    let approval = approved(1, 1, 20, &[0, 1]);
    keys.allow_app(approval.clone()).await.unwrap();
    assert_eq!(code(keys.revoke_app(revoked(1, 1, 30, &[0])).await), REQUIRED);
    keys.revoke_app(revoked(1, 1, 30, &[0, 1])).await.unwrap();
    let recorded = events(&keys).len();
    keys.revoke_app(revoked(1, 1, 30, &[0, 1])).await.unwrap();
    assert_eq!(events(&keys).len(), recorded, "once is enough");
    drop(keys);

    let keys = lab.open().unwrap();
    assert_eq!(try_allow(&keys, approval).await, REQUIRED);
    assert_eq!(try_allow(&keys, approved(1, 1, 30, &[0, 1])).await, REQUIRED);
    assert_eq!(documents(&keys), []);
    // Another document has nothing to do with it.
    assert_eq!(try_allow(&keys, approved(1, 2, 25, &[0, 1])).await, Ok(()));
    assert_eq!(try_allow(&keys, approved(1, 1, 31, &[0, 1])).await, Ok(()));
    // Who sends an old revocation again takes the document himself: its owners did not.
    keys.revoke_app(revoked(1, 1, 30, &[0, 1])).await.unwrap();
    let taken = Event::AppRevoked { app_id: app(1), compose_hash: document(1), approval: None };
    assert_eq!(events(&keys).last(), Some(&taken));
    assert_eq!(try_allow(&keys, approved(1, 1, 31, &[0, 1])).await, Ok(()));
    // Even of what was never allowed.
    keys.revoke_app(revoked(1, 3, 40, &[0, 1])).await.unwrap();
    assert_eq!(try_allow(&keys, approved(1, 3, 40, &[0, 1])).await, REQUIRED);
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_are_changed_by_owners() {
    let lab = Lab::new();
    let keys = lab.create();
    let change = async |set: SetOwners| code(keys.set_owners(set).await);
    assert_eq!(change(set(1, 1, &[5], 10, &[5])).await, BAD, "nobody could have signed the first ones");
    for serial in [0, MAX_SERIAL + 1] {
        assert_eq!(change(set(1, 1, &[0, 1], serial, &[])).await, BAD);
    }
    assert_eq!(change(set(1, 2, &[0, 1], 10, &[])).await, Ok(()));
    assert_eq!(change(set(1, 2, &[0, 1], 5, &[])).await, Ok(()), "they are that already");
    for taken_over in [&[][..], &[5, 6], &[0, 5], &[0, 0]] {
        assert_eq!(change(set(1, 1, &[5], 20, taken_over)).await, REQUIRED);
    }
    assert_eq!(change(set(1, 1, &[5], 10, &[0, 1])).await, BAD, "the serial is that of the present ones");
    let elsewhere = SetOwners { app_id: app(1), ..set(2, 1, &[5], 20, &[0, 1]) };
    assert_eq!(change(elsewhere).await, BAD);
    let waiting = approved(1, 2, 15, &[0, 1]);
    keys.allow_app(approved(1, 1, 15, &[0, 1])).await.unwrap();

    assert_eq!(change(set(1, 1, &[5, 6], 20, &[0, 1])).await, Ok(()));
    assert_eq!(documents(&keys), [document(1)], "what owners approved stays");
    assert_eq!(try_allow(&keys, waiting).await, REQUIRED, "they are no owners any more");
    assert_eq!(change(set(1, 2, &[0, 1], 30, &[0, 1])).await, REQUIRED);
    assert_eq!(try_allow(&keys, approved(1, 2, 15, &[6])).await, Ok(()));
    drop(keys);

    let keys = lab.open().unwrap();
    assert_eq!(try_allow(&keys, approved(1, 3, 40, &[0, 1])).await, REQUIRED);
    let told: Vec<_> = events(&keys)
        .into_iter()
        .filter_map(|event| match event {
            Event::OwnersSet { owners, serial, approved_by, .. } => {
                Some((owners.threshold(), serial, approved_by.len()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(told, [(2, 10, 0), (1, 20, 2)]);
}

/// Whoever signs with a serial of the far future leaves none for those who want to take it back.
#[tokio::test(flavor = "multi_thread")]
async fn serials_are_not_of_the_future() {
    const DAY_MS: u64 = 24 * 60 * 60 * 1000;
    let lab = Lab::new();
    let keys = lab.create();
    // The clock goes on by some seconds with each look.
    let latest = u64::try_from(lab::now().as_millisecond()).unwrap() + DAY_MS;
    let refused = |told: Result<(), KmsError>| {
        let error = told.unwrap_err();
        assert_eq!(error.code, KmsErrorCode::BadRequest);
        let named = error.error.split("1 to ").nth(1).and_then(|words| words.split(' ').next());
        let named = named.unwrap().parse::<u64>().unwrap();
        assert!((latest..latest + 600_000).contains(&named), "{}", error.error);
        assert!(error.error.contains("milliseconds"), "{}", error.error);
    };
    for serial in [latest + 3_600_000, latest * 1000, MAX_SERIAL] {
        refused(keys.set_owners(set(1, 1, &[0], serial, &[])).await);
    }
    keys.set_owners(set(1, 1, &[0], latest - DAY_MS, &[])).await.unwrap();
    for serial in [latest + 3_600_000, MAX_SERIAL] {
        refused(keys.allow_app(approved(1, 1, serial, &[0])).await);
        refused(keys.revoke_app(revoked(1, 1, serial, &[0])).await);
        refused(keys.set_owners(set(1, 1, &[1], serial, &[0])).await);
    }
    assert_eq!(documents(&keys), []);
    keys.allow_app(approved(1, 1, latest, &[0])).await.unwrap();
    keys.revoke_app(revoked(1, 1, latest, &[0])).await.unwrap();
    assert_eq!(keys.snapshot().owned[&app(1)].serial, latest - DAY_MS);
}

#[tokio::test(flavor = "multi_thread")]
async fn approvals_of_an_application_without_owners_are_a_mistake() {
    let lab = Lab::new();
    let keys = lab.create();
    assert_eq!(try_allow(&keys, approved(1, 1, 20, &[0])).await, BAD);
    keys.allow_app(allow(1, 1)).await.unwrap();
    assert_eq!(code(keys.revoke_app(revoked(1, 1, 20, &[0])).await), BAD);
    assert_eq!(documents(&keys), [document(1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_kms_has_the_same_owners_from_the_beginning() {
    let (lab, other) = (Lab::new(), Lab::new());
    let keys = lab.create();
    keys.set_owners(set(1, 2, &[0, 1], 10, &[])).await.unwrap();
    keys.allow_app(approved(1, 1, 20, &[0, 1])).await.unwrap();
    keys.revoke_app(revoked(1, 2, 30, &[0, 1])).await.unwrap();
    keys.set_owners(set(3, 1, &[4], 10, &[])).await.unwrap();
    let handed_over = serde_json::to_string(&keys.export().await.unwrap()).unwrap();
    let handed_over: cloister_kms_api::KmsKeyResponse = serde_json::from_str(&handed_over).unwrap();

    let mut new = NewState { roots: handed_over.roots, owned: handed_over.owned_apps, ..first() };
    // Whoever starts the other one says what he likes about applications.
    new.policy.apps =
        [(app(1), vec![document(2)]), (app(3), vec![document(2)]), (app(4), vec![document(2)])].into();
    other.store(1).unwrap().create(new, "onboard").unwrap();
    let replica = other.open().unwrap();
    let apps = [(app(1), vec![document(1)]), (app(4), vec![document(2)])];
    assert_eq!(replica.policy().apps, apps.into());
    assert_eq!(try_allow(&replica, allow(1, 2)).await, REQUIRED);
    assert_eq!(try_allow(&replica, approved(1, 2, 30, &[0, 1])).await, REQUIRED);
    assert_eq!(try_allow(&replica, allow(3, 2)).await, REQUIRED);
    assert_eq!(code(replica.set_owners(set(1, 1, &[5], 10, &[0, 1])).await), BAD);
    let told = events(&replica);
    assert_eq!(told.iter().filter(|event| matches!(event, Event::OwnersSet { .. })).count(), 2);
    // The state of the two is the same.
    assert_eq!(replica.export().await.unwrap().owned_apps, keys.export().await.unwrap().owned_apps);
}

#[derive(Debug, Clone)]
enum Step {
    Set { threshold: u32, members: BTreeSet<u8>, serial: u64, signers: Vec<u8> },
    Allow { document: u8, serial: u64, signers: Option<Vec<u8>> },
    Revoke { document: u8, serial: u64, signers: Option<Vec<u8>> },
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let signers = || proptest::collection::vec(0..4_u8, 0..4);
    let members = proptest::collection::btree_set(0..4_u8, 1..4);
    prop_oneof![
        2 => (1..3_u32, members, 1..9_u64, signers()).prop_map(|(threshold, members, serial, signers)| {
            Step::Set { threshold: threshold.min(u32::try_from(members.len()).unwrap()), members, serial, signers }
        }),
        5 => (0..3_u8, 1..9_u64, proptest::option::weighted(0.8, signers()))
            .prop_map(|(document, serial, signers)| Step::Allow { document, serial, signers }),
        3 => (0..3_u8, 1..9_u64, proptest::option::weighted(0.7, signers()))
            .prop_map(|(document, serial, signers)| Step::Revoke { document, serial, signers }),
        1 => Just(Step::Restart),
    ]
}

/// What should be so, as simply as it can be said.
#[derive(Default)]
struct Model {
    owners: Option<(u32, BTreeSet<u8>, u64)>,
    documents: BTreeSet<u8>,
    revoked: BTreeMap<u8, u64>,
}

impl Model {
    fn approve(&self, signers: &[u8]) -> bool {
        let Some((threshold, members, _)) = &self.owners else { return false };
        let different: BTreeSet<_> = signers.iter().filter(|signer| members.contains(signer)).collect();
        different.len() >= *threshold as usize
    }

    /// Whether the step should succeed.
    fn take(&mut self, step: &Step) -> bool {
        match step {
            Step::Set { threshold, members, serial, signers } => {
                let set = (*threshold, members.clone(), *serial);
                match &self.owners {
                    None if !signers.is_empty() => return false,
                    None => self.documents.clear(),
                    Some((t, m, _)) if t == threshold && m == members => return true,
                    Some((.., last)) if serial <= last || !self.approve(signers) => return false,
                    Some(_) => {}
                }
                self.owners = Some(set);
            }
            Step::Allow { document, serial, signers } => {
                let fresh = self.revoked.get(document).is_none_or(|revoked| serial > revoked);
                let good = match (&self.owners, signers) {
                    (None, signers) => signers.is_none(),
                    (Some(_), None) => false,
                    (Some(_), Some(signers)) => fresh && self.approve(signers),
                };
                if !good {
                    return self.documents.contains(document);
                }
                self.documents.insert(*document);
            }
            Step::Revoke { document, serial, signers } => {
                match (&self.owners, signers) {
                    (_, None) => {}
                    (None, Some(_)) => return false,
                    (Some(_), Some(signers)) if !self.approve(signers) => return false,
                    (Some(_), Some(_)) => {
                        let last = self.revoked.entry(*document).or_default();
                        *last = (*last).max(*serial);
                    }
                }
                self.documents.remove(document);
            }
            Step::Restart => {}
        }
        true
    }
}

async fn take(keys: &Keys, step: Step) -> bool {
    match step {
        Step::Set { threshold, members, serial, signers } => {
            let members: Vec<_> = members.into_iter().collect();
            keys.set_owners(set(1, threshold, &members, serial, &signers)).await.is_ok()
        }
        Step::Allow { document, serial, signers } => {
            let asked =
                signers.map_or_else(|| allow(1, document), |signers| approved(1, document, serial, &signers));
            keys.allow_app(asked).await.is_ok()
        }
        Step::Revoke { document, serial, signers } => {
            let asked =
                signers.map_or_else(|| allow(1, document), |signers| revoked(1, document, serial, &signers));
            keys.revoke_app(asked).await.is_ok()
        }
        Step::Restart => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn owners_have_their_way_whatever_happens(steps in proptest::collection::vec(step(), 1..20)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        runtime.block_on(async {
            let lab = Lab::new();
            let (mut keys, mut model) = (lab.create(), Model::default());
            for step in steps {
                if matches!(step, Step::Restart) {
                    drop(keys);
                    keys = lab.open().unwrap();
                }
                let told = format!("{step:?}");
                prop_assert_eq!(model.take(&step), take(&keys, step).await, "{}", told);
                let mut found = documents(&keys);
                found.sort();
                let mut expected: Vec<_> = model.documents.iter().map(|number| document(*number)).collect();
                expected.sort();
                prop_assert_eq!(found, expected, "{}", told);
            }
            Ok(())
        })?;
    }
}
