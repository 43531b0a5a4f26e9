//! A data directory and what tests look at.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use cloister_app_compose::{AppId, ComposeHash, InstanceId};
use cloister_kms_api::Hex;
use cloister_kms_api::admin::{AllowApp, PolicyDocument};
use cloister_kms_api::log::{Caller, Event, Record, Released};
use cloister_verifier::Clock;
use jiff::Timestamp;
use tempfile::TempDir;
use zeroize::Zeroizing;

use crate::clock::Random;
use crate::policy::Authority;
use crate::state::{Boundaries, Holder, Keys, NewState, Opened, StateError, Store, make_root};

pub(super) struct Lab {
    pub(super) dir: TempDir,
    seconds: Arc<AtomicI64>,
}

pub(super) fn now() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

pub(super) fn app(number: u8) -> AppId {
    AppId::from_bytes([number; 20])
}

pub(super) fn allow(application: u8, document: u8) -> AllowApp {
    AllowApp::new(app(application), ComposeHash::from_bytes([document; 32]))
}

pub(super) fn holder(number: u8) -> Holder {
    (app(number), Some(InstanceId::from_bytes([number; 20])))
}

impl Lab {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir, seconds: Arc::new(AtomicI64::new(0)) }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.dir.path().join("kms")
    }

    fn clock(&self) -> Clock {
        let seconds = Arc::clone(&self.seconds);
        Clock::from_fn(move || {
            now() + jiff::SignedDuration::from_secs(seconds.fetch_add(1, Ordering::Relaxed))
        })
    }

    pub(super) fn store(&self, secret: u8) -> Result<Store, StateError> {
        self.store_at(&self.path(), secret)
    }

    pub(super) fn store_at(&self, path: &Path, secret: u8) -> Result<Store, StateError> {
        let secret = Zeroizing::new([secret; 32]);
        Store::take(path, secret, Authority::BuiltIn, self.clock(), Boundaries::default())
    }

    /// Opens what must be there.
    pub(super) fn open(&self) -> Result<Keys, StateError> {
        match self.store(1)?.open()? {
            Opened::Bootstrapped { keys, .. } => Ok(keys),
            Opened::New => panic!("there should be a state"),
        }
    }

    pub(super) fn create(&self) -> Keys {
        self.store(1).unwrap().create(first(), "bootstrap").unwrap()
    }
}

pub(super) fn first() -> NewState {
    let (root, _) = make_root(None, Random::system(), now()).unwrap();
    let origin =
        Event::Bootstrapped { k256_pubkey: root.info.k256_pubkey.clone(), domain: "kms.example".to_owned() };
    NewState {
        domain: "kms.example".to_owned(),
        roots: vec![root],
        bootstrap: None,
        policy: PolicyDocument::default(),
        owned: BTreeMap::new(),
        origin,
    }
}

/// What the log says, without times.
pub(super) fn events(keys: &Keys) -> Vec<Event> {
    let records = keys.log().records(0, 100_000).unwrap();
    records.iter().map(|record| serde_json::from_slice::<Record>(record).unwrap().event).collect()
}

/// A CVM gets its keys.
pub(super) async fn give(keys: &Keys, holder: Holder) {
    let version = keys.snapshot().current.version();
    keys.note_keys_given(holder, version).unwrap();
    keys.record(release(Released::AppKeys, holder, version)).await.unwrap();
}

/// A CVM tells that it is done.
pub(super) async fn confirm(keys: &Keys, holder: Holder, version: u32) {
    keys.note_resealed(holder, version).unwrap();
    keys.record(release(Released::ResealConfirmed, holder, version)).await.unwrap();
}

fn release(released: Released, (app_id, instance_id): Holder, root_version: u32) -> Event {
    Event::Release {
        released,
        caller: Caller { app_id: Some(app_id), instance_id, ..Caller::default() },
        root_version,
        name_hash: None::<Hex>,
        authorized_at: None,
    }
}
