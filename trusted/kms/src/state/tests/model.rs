//! The state against a model that forgets nothing.

use std::collections::{BTreeMap, BTreeSet};

use cloister_app_compose::{AppId, ComposeHash};
use cloister_kms_api::admin::{ForgetCvm, RetireRoot};
use proptest::prelude::*;

use super::lab::{Lab, allow, confirm, give, holder};
use crate::state::Keys;

#[derive(Debug, Clone)]
enum Step {
    Allow(u8, u8),
    Revoke(u8, u8),
    Rotate,
    Retire(u32, bool),
    Give(u8),
    Confirm(u8, u32),
    Forget(u8),
    Finish,
    Save,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3_u8, 0..3_u8).prop_map(|(app, document)| Step::Allow(app, document)),
        2 => (0..3_u8, 0..3_u8).prop_map(|(app, document)| Step::Revoke(app, document)),
        2 => Just(Step::Rotate),
        2 => (0..6_u32, any::<bool>()).prop_map(|(version, force)| Step::Retire(version, force)),
        4 => (0..4_u8).prop_map(Step::Give),
        3 => (0..4_u8, 0..6_u32).prop_map(|(number, version)| Step::Confirm(number, version)),
        1 => (0..4_u8).prop_map(Step::Forget),
        1 => Just(Step::Finish),
        1 => Just(Step::Save),
        2 => Just(Step::Restart),
    ]
}

#[derive(Default)]
struct Model {
    apps: BTreeMap<AppId, BTreeSet<ComposeHash>>,
    current: u32,
    oldest: u32,
    holders: BTreeMap<u8, u32>,
}

impl Model {
    /// What the step should do; whether it should succeed.
    fn take(&mut self, step: &Step) -> bool {
        match *step {
            Step::Allow(app, document) => {
                let allow = allow(app, document);
                self.apps.entry(allow.app_id).or_default().insert(allow.compose_hash);
            }
            Step::Revoke(app, document) => {
                let revoke = allow(app, document);
                self.apps.entry(revoke.app_id).or_default().remove(&revoke.compose_hash);
                self.apps.retain(|_, documents| !documents.is_empty());
            }
            Step::Rotate if self.current - self.oldest >= 2 => return false,
            Step::Rotate => self.current += 1,
            Step::Retire(version, _) if version >= 1 && version < self.oldest => {}
            Step::Retire(version, force) => {
                let needed = self.holders.values().any(|under| *under <= version);
                if version != self.oldest || version == self.current || (needed && !force) {
                    return false;
                }
                self.oldest += 1;
                self.holders.retain(|_, under| *under > version);
            }
            Step::Give(number) => {
                self.holders.entry(number).or_insert(self.oldest);
            }
            Step::Confirm(_, version) if !(self.oldest..=self.current).contains(&version) => return false,
            Step::Confirm(number, version) => {
                let under = self.holders.entry(number).or_insert(version);
                *under = version.max(*under);
            }
            Step::Forget(number) => drop(self.holders.remove(&number)),
            Step::Finish | Step::Save | Step::Restart => {}
        }
        true
    }

    fn check(&self, keys: &Keys) {
        let snapshot = keys.snapshot();
        assert_eq!((snapshot.current.version(), snapshot.oldest_live()), (self.current, self.oldest));
        let apps: BTreeMap<_, BTreeSet<_>> = keys
            .policy()
            .apps
            .iter()
            .map(|(app, documents)| (*app, documents.iter().copied().collect()))
            .collect();
        assert_eq!(apps, self.apps);
        let status = keys.rotation_status();
        let pending: Vec<_> = status.pending.iter().map(|cvm| (cvm.app_id, cvm.root_version)).collect();
        let expected: Vec<_> = self
            .holders
            .iter()
            .filter(|(_, under)| **under < self.current)
            .map(|(number, under)| (holder(*number).0, *under))
            .collect();
        assert_eq!(pending, expected);
        assert_eq!(status.resealed, (self.holders.len() - expected.len()) as u64);
    }
}

async fn follow(steps: Vec<Step>) {
    let lab = Lab::new();
    let mut keys = lab.create();
    let first = keys.snapshot().roots[0].info.clone();
    let mut model = Model { current: 1, oldest: 1, ..Model::default() };
    for step in steps {
        let expected = model.take(&step);
        let done = match step {
            Step::Allow(app, document) => keys.allow_app(allow(app, document)).await.is_ok(),
            Step::Revoke(app, document) => keys.revoke_app(allow(app, document)).await.is_ok(),
            Step::Rotate => keys.start_rotation().await.is_ok(),
            Step::Retire(version, force) => keys.retire_root(RetireRoot { version, force }).await.is_ok(),
            Step::Give(number) => {
                give(&keys, holder(number)).await;
                true
            }
            Step::Confirm(number, version) => {
                let live = keys.snapshot().live(version).is_some();
                if live {
                    confirm(&keys, holder(number), version).await;
                } else {
                    assert!(keys.note_resealed(holder(number), version).is_err());
                }
                live
            }
            Step::Forget(number) => {
                let (app_id, instance_id) = holder(number);
                keys.forget_cvm(ForgetCvm { app_id, instance_id }).await.is_ok()
            }
            Step::Finish => keys.finish().await.is_ok(),
            Step::Save => {
                keys.save();
                true
            }
            Step::Restart => {
                drop(keys);
                keys = lab.open().unwrap();
                true
            }
        };
        assert_eq!(done, expected, "{step:?}");
        model.check(&keys);
        assert_eq!(keys.snapshot().roots[0].info.k256_pubkey, first.k256_pubkey);
    }
    drop(keys);
    model.check(&lab.open().unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_state_does_what_the_model_does(steps in prop::collection::vec(step(), 1..24)) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(follow(steps));
    }
}
