//! From a data directory to the state of a KMS, and from nothing to the first one.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cloister_app_compose::AppId;
use cloister_kms_api::admin::PolicyDocument;
use cloister_kms_api::log::{Approval, Event};
use cloister_kms_api::{BootstrapResponse, OwnedApp, RootKeys, SecretHex};
use cloister_transparency_log::{Log, LogError, SigningKey};
use cloister_verifier::Clock;

use super::content::{LogMark, State};
use super::file::{DataDir, LOG_DIR, LOG_VERIFIER_KEY_FILE, ROOT_CA_FILE, STATE_FILE};
use super::holders::Holders;
use super::ownership::Ownership;
use super::recovery::{RecoveryError, recover};
use super::sealing::{SealingKey, UnsealError};
use super::writer::{WriteError, Writer};
use super::{Boundaries, InvalidRoots, Keys};
use crate::clock::{NoRandomness, Random};
use crate::policy::Authority;

/// Why there is no state to work with. A KMS that finds one of these does not start: it never makes a new
/// root over an old one.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another process works here.
    #[error("{}: another KMS uses this data directory", .0.display())]
    Busy(PathBuf),
    /// A file cannot be used.
    #[error("{}: cannot be used", .0.display())]
    File(PathBuf, #[source] io::Error),
    /// The sealing key cannot be used.
    #[error("the sealing key cannot be used")]
    SealingKey,
    /// The state cannot be opened.
    #[error(
        "{}: the state does not open, and no new one is made: restore a copy, or onboard an empty directory \
         from another KMS", .path.display()
    )]
    Unseal {
        /// The file.
        path: PathBuf,
        /// Why.
        source: UnsealError,
    },
    /// The state opens, and is not understood.
    #[error("{}: the state was written by another version of this program", .0.display())]
    Content(PathBuf, #[source] serde_json::Error),
    /// It contradicts itself.
    #[error("the state cannot be used")]
    Roots(#[from] InvalidRoots),
    /// There was a state once.
    #[error(
        "{}: this directory has belonged to a KMS ({found} is there), but its state is gone, and no new one \
         is made over it: restore {STATE_FILE}, or use an empty directory", .path.display()
    )]
    Lost {
        /// The directory.
        path: PathBuf,
        /// What is left of it.
        found: &'static str,
    },
    /// There is one already.
    #[error("there is a state already")]
    Exists,
    /// The log cannot be opened.
    #[error("the release log cannot be opened")]
    Log(#[from] LogError),
    /// State and log do not belong together.
    #[error("the state and the release log do not belong together")]
    Recovery(#[from] RecoveryError),
    /// It cannot be written.
    #[error("the state cannot be written")]
    Write(#[from] WriteError),
    /// No randomness.
    #[error(transparent)]
    Random(#[from] NoRandomness),
}

/// A data directory with what is needed to use it; cheap to clone.
#[derive(Clone)]
pub(crate) struct Store {
    dir: Arc<DataDir>,
    secret: Arc<zeroize::Zeroizing<[u8; 32]>>,
    random: Random,
    boundaries: Boundaries,
    authority: Authority,
    clock: Clock,
}

/// What a data directory holds.
pub(crate) enum Opened {
    /// Nothing yet.
    New,
    /// A KMS that has roots, whose onboarding is finished or not.
    Bootstrapped {
        /// Its state.
        keys: Keys,
        /// Whether onboarding is finished.
        finished: bool,
    },
}

/// A first state.
pub(crate) struct NewState {
    /// Name or address under which the KMS will be reached.
    pub(crate) domain: String,
    /// All roots, oldest first.
    pub(crate) roots: Vec<RootKeys>,
    /// How the first one was made, if it was made here.
    pub(crate) bootstrap: Option<BootstrapResponse>,
    /// The rules to begin with.
    pub(crate) policy: PolicyDocument,
    /// Applications that have owners. What `policy` says about them does not count.
    pub(crate) owned: BTreeMap<AppId, OwnedApp>,
    /// How it came into being, for the log.
    pub(crate) origin: Event,
}

impl Store {
    /// Takes the directory. `secret` seals the state.
    pub(crate) fn take(
        path: &Path,
        secret: zeroize::Zeroizing<[u8; 32]>,
        authority: Authority,
        clock: Clock,
        boundaries: Boundaries,
    ) -> Result<Self, StateError> {
        let dir = DataDir::take(path)
            .map_err(|error| StateError::File(path.to_owned(), error))?
            .ok_or_else(|| StateError::Busy(path.to_owned()))?;
        let (dir, secret) = (Arc::new(dir), Arc::new(secret));
        Ok(Self { dir, secret, random: Random::system(), boundaries, authority, clock })
    }

    /// Reads what is there. May take seconds: the whole log is checked.
    pub(crate) fn open(&self) -> Result<Opened, StateError> {
        let path = self.dir.join(STATE_FILE);
        let sealed = self.dir.read(STATE_FILE).map_err(|error| StateError::File(path.clone(), error))?;
        let Some(sealed) = sealed else {
            self.refuse_remains()?;
            return Ok(Opened::New);
        };
        let key = self.key()?;
        let text = key.open(&sealed).map_err(|source| StateError::Unseal { path: path.clone(), source })?;
        let mut state: State =
            serde_json::from_slice(&text).map_err(|error| StateError::Content(path, error))?;
        drop(text);
        super::check_roots(&state.roots)?;
        let log = self.open_log(&state)?;
        recover(&mut state, &log)?;
        let finished = state.finished;
        let mut writer = self.writer(state, key);
        if !writer.state.outbox.is_empty() {
            writer.append_outbox(&log, "recovery")?;
            writer.empty_outbox("recovery");
        }
        let keys = Keys::new(writer, log, self.authority.clone(), self.clock.clone())?;
        keys.publish();
        Ok(Opened::Bootstrapped { keys, finished })
    }

    /// Makes the first state. `name` names the change where a test listens.
    pub(crate) fn create(&self, new: NewState, name: &str) -> Result<Keys, StateError> {
        let existing = self.dir.read(STATE_FILE);
        if existing.map_err(|error| StateError::File(self.dir.join(STATE_FILE), error))?.is_some() {
            return Err(StateError::Exists);
        }
        self.refuse_remains()?;
        let log_key = SigningKey::generate(|bytes| self.random.fill(bytes))?;
        let now = self.clock.now();
        let (owned, policy, events) = new.rules();
        let state = State {
            finished: false,
            domain: new.domain,
            roots: new.roots,
            bootstrap: new.bootstrap,
            policy,
            owned,
            log_key: SecretHex::from(log_key.seed().to_vec()),
            log: LogMark::default(),
            outbox: Vec::new(),
            changed_at: now,
            holders: Holders::default(),
        };
        super::check_roots(&state.roots)?;
        self.writer(state.clone(), self.key()?).commit(state, events, now, name)?;
        match self.open()? {
            Opened::Bootstrapped { keys, .. } => Ok(keys),
            Opened::New => Err(StateError::Lost { path: self.dir.join(""), found: STATE_FILE }),
        }
    }

    /// A directory without state must never have had one: the log and the public files come after it.
    fn refuse_remains(&self) -> Result<(), StateError> {
        for found in [LOG_DIR, ROOT_CA_FILE, LOG_VERIFIER_KEY_FILE] {
            let path = self.dir.join(found);
            if path.try_exists().map_err(|error| StateError::File(path, error))? {
                return Err(StateError::Lost { path: self.dir.join(""), found });
            }
        }
        Ok(())
    }

    fn open_log(&self, state: &State) -> Result<Log, StateError> {
        let seed = state.log_key.as_ref().try_into().map_err(|_| StateError::SealingKey)?;
        Ok(Log::open(
            &self.dir.join(LOG_DIR),
            SigningKey::from_seed(seed),
            &format!("{}/release-log", state.domain),
        )?)
    }

    fn key(&self) -> Result<SealingKey, StateError> {
        SealingKey::new(&self.secret).ok_or(StateError::SealingKey)
    }

    fn writer(&self, state: State, key: SealingKey) -> Writer {
        Writer {
            dir: Arc::clone(&self.dir),
            key,
            random: self.random,
            boundaries: self.boundaries.clone(),
            state,
            appended: 0,
            broken: false,
        }
    }
}

impl NewState {
    /// What holds for applications, and what the log says of it.
    fn rules(&self) -> (BTreeMap<AppId, Ownership>, PolicyDocument, Vec<Event>) {
        let (mut policy, mut owned) = (self.policy.clone(), BTreeMap::new());
        let mut events =
            vec![self.origin.clone(), Event::PlatformRulesSet { rules: policy.platform.clone() }];
        for (app_id, app) in &self.owned {
            let (ownership, documents) = Ownership::import(app.clone());
            let (owners, serial) = (ownership.owners.clone(), ownership.serial);
            events.push(Event::OwnersSet { app_id: *app_id, owners, serial, approved_by: Vec::new() });
            owned.insert(*app_id, ownership);
            policy.apps.insert(*app_id, documents);
        }
        policy.apps.retain(|_, documents| !documents.is_empty());
        for (app_id, documents) in &policy.apps {
            let approval = owned.contains_key(app_id).then(|| Approval { serial: 0, signers: Vec::new() });
            events.extend(documents.iter().map(|compose_hash| Event::AppAllowed {
                app_id: *app_id,
                compose_hash: *compose_hash,
                approval: approval.clone(),
            }));
        }
        (owned, policy, events)
    }
}
