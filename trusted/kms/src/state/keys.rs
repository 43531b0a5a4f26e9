use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cloister_kms_api::log::{Event, Record};
use cloister_kms_api::{KmsError, KmsErrorCode, KmsKeyResponse};
use cloister_transparency_log::Log;
use cloister_verifier::Clock;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::error;

use super::holders::{Holder, Holders};
use super::writer::Writer;
use super::{InvalidRoots, Snapshot, State, WriteError};
use crate::policy::{Authority, BootInfo, ChainAuthority, Contract, Grant, Question, decide_app};

/// After how many records of the log the state is written although nothing changed: so many are read again
/// at start.
const RECORDS_BETWEEN_WRITES: u64 = 20_000;

/// The roots, the policy and the log of a KMS that has them; cheap to clone.
///
/// To release keys: [`Keys::authorize`], take them from the [`Keys::snapshot`], [`Keys::note_keys_given`]
/// where they are all keys of a CVM, and [`Keys::record`] before the answer leaves. To refuse:
/// [`Keys::record`] too.
#[derive(Clone)]
pub(crate) struct Keys(Arc<Inner>);

struct Inner {
    snapshot: watch::Sender<Arc<Snapshot>>,
    holders: Mutex<Holders>,
    log: Log,
    authority: Authority,
    clock: Clock,
    writer: Arc<Mutex<Writer>>,
    /// Size of the log when the state was last written, about.
    saved: AtomicU64,
}

impl Keys {
    pub(super) fn new(
        writer: Writer,
        log: Log,
        authority: Authority,
        clock: Clock,
    ) -> Result<Self, InvalidRoots> {
        let (snapshot, _) = watch::channel(Arc::new(Snapshot::of(&writer.state)?));
        let holders = Mutex::new(writer.state.holders.clone());
        let saved = AtomicU64::new(writer.state.log.size);
        let writer = Arc::new(Mutex::new(writer));
        Ok(Self(Arc::new(Inner { snapshot, holders, log, authority, clock, writer, saved })))
    }

    /// What the KMS is now.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.0.snapshot.borrow())
    }

    /// Hears of every change, such as a new root.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.0.snapshot.subscribe()
    }

    /// The release log.
    pub(crate) fn log(&self) -> &Log {
        &self.0.log
    }

    /// What time it is.
    pub(crate) fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// Asks who decides whether a machine may have what it asks for. Its evidence was verified before.
    pub(crate) async fn authorize(&self, question: Question, boot: &BootInfo) -> Result<Grant, KmsError> {
        let grant = self.0.authority.ask(&self.snapshot().policy, question, boot).await?;
        // Owners of an application keep their say, whoever else has one: by what they said up to now.
        let snapshot = self.snapshot();
        if question == Question::App && boot.app_id.is_some_and(|id| snapshot.owned.contains_key(&id)) {
            decide_app(&snapshot.policy, boot)?;
        }
        Ok(grant)
    }

    /// The contract that decides, if one does.
    pub(crate) fn contract(&self) -> Option<Contract> {
        self.0.authority.chain().map(ChainAuthority::contract)
    }

    /// Who decides, besides the rules in the state.
    pub(crate) fn authority(&self) -> &Authority {
        &self.0.authority
    }

    /// Appends to the log, and answers with the record's index when it is durable.
    pub(crate) async fn record(&self, event: Event) -> Result<u64, KmsError> {
        let failed = |error: &dyn std::error::Error| {
            error!(error = %error, "the release log cannot be extended");
            KmsError::new(KmsErrorCode::InternalError, "the release log cannot be extended")
        };
        let text = serde_json::to_vec(&Record { at: self.now(), event }).map_err(|error| failed(&error))?;
        let index = self.0.log.append(text).await.map_err(|error| failed(&error))?;
        self.write_sometimes();
        Ok(index)
    }

    /// A CVM gets its keys, of the root with this version and of older ones that are left. To be called
    /// before the release is recorded: the record makes it durable. Fails when the root was retired since.
    pub(crate) fn note_keys_given(&self, holder: Holder, version: u32) -> Result<(), KmsError> {
        let mut holders = self.0.holders.lock();
        let snapshot = self.snapshot();
        if snapshot.live(version).is_none() {
            return Err(KmsError::new(
                KmsErrorCode::InternalError,
                "the root was retired just now; try again",
            ));
        }
        holders.seen(holder, snapshot.oldest_live(), self.now());
        Ok(())
    }

    /// A CVM says that it has nothing under roots older than `version`. To be called before that is
    /// recorded. Idempotent.
    pub(crate) fn note_resealed(&self, holder: Holder, version: u32) -> Result<(), KmsError> {
        let mut holders = self.0.holders.lock();
        if self.snapshot().live(version).is_none() {
            return Err(KmsError::new(
                KmsErrorCode::BadRequest,
                format!("there is no root of version {version} that still has keys"),
            ));
        }
        holders.resealed(holder, version, self.now());
        Ok(())
    }

    /// A CVM is gone, and with it what it has under old roots. One that gets keys meanwhile is not.
    pub(crate) async fn forget(&self, holder: Holder) -> Result<(), KmsError> {
        if !self.holders(|holders| holders.knows(&holder)) {
            return Ok(());
        }
        let ((app_id, instance_id), seen_until) = (holder, self.now());
        self.record(Event::CvmForgotten { app_id, instance_id, seen_until }).await?;
        self.0.holders.lock().forget(&holder, seen_until);
        Ok(())
    }

    /// Who has data under which root, now.
    pub(crate) fn holders<T>(&self, look: impl FnOnce(&Holders) -> T) -> T {
        look(&self.0.holders.lock())
    }

    /// All roots with their keys, and what owners of applications said, for another KMS that may have them: none
    /// that is not in the log yet.
    pub(crate) async fn export(&self) -> Result<KmsKeyResponse, KmsError> {
        let this = self.clone();
        run(move || {
            let mut writer = this.0.writer.lock();
            this.settle(&mut writer, "export")?;
            Ok(writer.state.export())
        })
        .await
    }

    /// Changes the state as `change` says, which answers with what it did and what to record of it; with no
    /// records, nothing changes. `name` names the change where a test listens.
    ///
    /// Whoever stops to wait does not stop the change. The answer comes when the change is durable, in the
    /// log, and in effect.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        name: &'static str,
        change: impl FnOnce(&mut State, Timestamp) -> Result<(T, Vec<Event>), KmsError> + Send + 'static,
    ) -> Result<T, KmsError> {
        let this = self.clone();
        run(move || this.change_blocking(name, change)).await
    }

    fn change_blocking<T>(
        &self,
        name: &str,
        change: impl FnOnce(&mut State, Timestamp) -> Result<(T, Vec<Event>), KmsError>,
    ) -> Result<T, KmsError> {
        let mut writer = self.0.writer.lock();
        // An earlier change may not have come into the log.
        self.settle(&mut writer, name)?;
        let mut next = writer.state.clone();
        self.take_holders(&mut next);
        let now = self.now();
        let (done, events) = change(&mut next, now)?;
        if events.is_empty() {
            return Ok(done);
        }
        Snapshot::of(&next).map_err(WriteError::from)?;
        writer.commit(next, events, now, name)?;
        self.settle(&mut writer, name)?;
        Ok(done)
    }

    /// Brings what is in the file into the log, and into effect.
    fn settle(&self, writer: &mut Writer, name: &str) -> Result<(), KmsError> {
        if writer.state.outbox.is_empty() {
            return Ok(());
        }
        let snapshot = Arc::new(Snapshot::of(&writer.state).map_err(WriteError::from)?);
        writer.append_outbox(&self.0.log, name).map_err(KmsError::from)?;
        let mut holders = self.0.holders.lock();
        holders.abandon(snapshot.oldest_live().saturating_sub(1));
        self.0.snapshot.send_replace(snapshot);
        drop(holders);
        writer.empty_outbox(name);
        writer.publish(&self.snapshot(), &self.0.log.verifier_key());
        Ok(())
    }

    /// Writes the public files, where they are not what they should be.
    pub(super) fn publish(&self) {
        self.0.writer.lock().publish(&self.snapshot(), &self.0.log.verifier_key());
    }

    /// Ends onboarding. Idempotent.
    pub(crate) async fn finish(&self) -> Result<(), KmsError> {
        let writer = Arc::clone(&self.0.writer);
        run(move || {
            let mut writer = writer.lock();
            let next = State { finished: true, ..writer.state.clone() };
            Ok(writer.write(next, "finish")?)
        })
        .await
    }

    /// What the log says up to its size now is contained in `state` then: a note is made before its record.
    fn take_holders(&self, state: &mut State) {
        state.log.size = self.0.log.size();
        state.holders = self.0.holders.lock().clone();
    }

    /// Writes the state when much has happened since it was last written.
    fn write_sometimes(&self) {
        let size = self.0.log.size();
        let saved = self.0.saved.load(Ordering::Relaxed);
        let due = size.saturating_sub(saved) >= RECORDS_BETWEEN_WRITES;
        let (relaxed, saved_at) = (Ordering::Relaxed, &self.0.saved);
        if !due || saved_at.compare_exchange(saved, size, relaxed, relaxed).is_err() {
            return;
        }
        let this = self.clone();
        tokio::task::spawn_blocking(move || this.save());
    }

    /// Writes what is known of CVMs, so that the next start need not read it from the log.
    pub(crate) fn save(&self) {
        let mut writer = self.0.writer.lock();
        if writer.state.log.size == self.0.log.size() || !writer.state.outbox.is_empty() {
            return;
        }
        let mut next = writer.state.clone();
        self.take_holders(&mut next);
        if let Err(error) = writer.write(next, "save") {
            error!(error = %error, "the state could not be saved; nothing is lost, the log has it");
        }
    }
}

/// Runs `work` to its end where it may wait for the disk.
async fn run<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, KmsError> + Send + 'static,
) -> Result<T, KmsError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| KmsError::new(KmsErrorCode::InternalError, "the KMS is stopping"))?
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("snapshot", &self.snapshot()).finish_non_exhaustive()
    }
}
