//! The store as the rest of the gateway sees it: opened, written to, closed.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::JoinHandle;

use cloister_verifier::Clock;
use redb::{Database, ReadableDatabase as _};
use tokio::sync::{Semaphore, oneshot};
use tracing::warn;

use super::age::Times;
use super::changes::{Change, Ready};
use super::disk::{Backing, Dir, Disk, OpenError};
use super::eviction::Eviction;
use super::filer::Filer;
use super::filing::Tables;
use super::holds::SessionHold;
use super::journal::Journal;
use super::layouts;
use super::log::ReceiptLog;
use super::pending::Generation;
use super::segments::{Position, Segments};
use super::shared::{Shared, counter};
use super::syncer::Syncer;
use super::tables::{
    AGE, COUNTERS, JOURNAL_OFFSET, JOURNAL_SEGMENT, LAYOUT, NEXT_GENERATION, NameKind, VERSION, name,
};
use super::trouble::Trouble;
use super::writer::{Answer, Waiting, Writer};
use super::{Finished, StoreError, UsageRow};

/// Most bytes that are not in the database yet; more callers than that wait for room.
pub(super) const MAX_PENDING_BYTES: usize = 64 << 20;

/// How long things are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Receipts, in seconds.
    pub receipts_s: u64,
    /// Usage rows, in seconds.
    pub rows_s: u64,
    /// Usage rows that a control plane was told, in seconds.
    pub posted_rows_s: u64,
    /// Whether a control plane is told.
    pub is_posting: bool,
    /// Whether receipts are logged for anybody to compare.
    pub is_logging: bool,
}

impl Default for Settings {
    /// Receipts stay a week, usage rows 400 days, and a week when a control plane has them.
    fn default() -> Self {
        const DAY: u64 = 24 * 60 * 60;
        Self {
            receipts_s: 7 * DAY,
            rows_s: 400 * DAY,
            posted_rows_s: 7 * DAY,
            is_posting: false,
            is_logging: true,
        }
    }
}

/// Keeps what stays of requests. What was acknowledged survives the end of the process, however it ends; a loss of power
/// may take what was acknowledged in the last moments before it. Clones are handles of the same store; it is closed
/// when the last one is dropped, which waits for what is being written.
#[derive(Debug, Clone)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Closed before the threads that it reads from.
    log: Option<ReceiptLog>,
    /// And what wakes its thread.
    writer: Option<(Arc<Writer>, SyncSender<()>)>,
    /// Each ends when the one before it has.
    threads: Vec<JoinHandle<()>>,
    room: Arc<Semaphore>,
    shared: Arc<Shared>,
    settings: Settings,
    /// Nobody else may use the directory before all else is closed.
    _dir: Dir,
}

impl Store {
    /// Opens the store in a directory; makes both where there are none.
    ///
    /// Fails if another process has it open, or if what is there cannot be read: records are never begun anew over
    /// old ones. After a crash, this reads the whole database, about a second for a GiB; receipts are not in it. A database
    /// of an earlier version is brought up to this one, which takes as much room again as it has usage and receipts,
    /// or fails and loses nothing.
    pub fn open(dir: &Path, settings: Settings, clock: Clock) -> Result<Self, OpenError> {
        Self::open_with(dir, settings, clock, Backing::file())
    }

    pub(crate) fn open_with(
        dir: &Path,
        settings: Settings,
        times: impl Into<Times>,
        backing: Backing,
    ) -> Result<Self, OpenError> {
        let dir = Dir::take(dir)?;
        let segments = Segments::open(&dir, &backing)?;
        if !dir.has_database()? && (ReceiptLog::exists(&dir)? || !segments.numbers()?.is_empty()) {
            return Err(OpenError::Lost(dir.join("")));
        }
        let disk = dir.database(backing, begin)?;
        layouts::take_over(&dir, &disk, &segments)?;
        let (journal, gathering) = recover(&dir, &disk, segments, settings)?;
        let age = disk.read(|transaction| counter(transaction, AGE)).map_err(cannot_read(&dir))?;
        let shared = Arc::new(Shared::new(disk, journal, gathering, times.into(), age));
        let log = settings.is_logging.then(|| ReceiptLog::open(&dir, &shared)).transpose()?;
        let syncer = Syncer { shared: Arc::clone(&shared) };
        let filer = Filer { shared: Arc::clone(&shared), eviction: Eviction::new(settings) };
        let (syncing, wake_syncer) = woken("record-syncer", |wakes| syncer.run(&wakes))?;
        let (filing, wake_filer) = woken("record-filer", |wakes| filer.run(&wakes))?;
        let writer = Arc::new(Writer::new(Arc::clone(&shared), [wake_syncer, wake_filer]));
        let worker = Arc::clone(&writer);
        let (writing, wake_writer) = woken("record-writer", move |wakes| worker.run(&wakes))?;
        Ok(Self(Arc::new(Inner {
            log,
            writer: Some((writer, wake_writer)),
            threads: vec![writing, syncing, filing],
            room: Arc::new(Semaphore::new(MAX_PENDING_BYTES)),
            shared,
            settings,
            _dir: dir,
        })))
    }

    /// Keeps everything about a request; answers when it is written. Who stops to wait may find it kept nevertheless.
    pub async fn finish(&self, finished: Finished) -> Result<(), StoreError> {
        self.write(Ready::finished(finished, &self.0.settings)?).await.map(drop)
    }

    /// Keeps a session record under its id until a time, in seconds since the Unix epoch, and as long as a receipt
    /// cites it; what is there already stays. Answers when it is written.
    pub async fn keep_session(&self, id: &str, document: Vec<u8>, expires_at: u64) -> Result<(), StoreError> {
        self.write(Change::session(id, document, expires_at)?.into()).await.map(drop)
    }

    /// A session record that has not ended stays for as long as it is held.
    #[must_use]
    pub fn hold_session(&self, id: &str) -> SessionHold {
        self.0.shared.holds.hold(name(NameKind::Session, None, id))
    }

    /// Remembers a fingerprint until a time, in seconds since the Unix epoch; false if it was remembered already. A clock
    /// that jumps ahead makes it forget nothing. Answers when it is written. Fails when a million are remembered.
    pub async fn first_time(&self, fingerprint: [u8; 32], until: u64) -> Result<bool, StoreError> {
        match self.write(Change::Fingerprint { fingerprint, until }.into()).await? {
            Answer::Yes => Ok(true),
            Answer::No => Ok(false),
            Answer::Full => Err(StoreError::new("too many fingerprints are remembered")),
        }
    }

    /// A control plane does not take a row: it is kept beside the others. Answers when that is in the database: a loss of
    /// power must not take it and leave that the row was [`posted`](Self::posted).
    pub async fn put_aside(&self, row: &UsageRow) -> Result<(), StoreError> {
        self.keep_aside(Change::set_aside(row)?).await
    }

    /// The same of a row that cannot be read: another version of the program may be able to.
    pub async fn put_unreadable_aside(&self, number: u64, row: Vec<u8>) -> Result<(), StoreError> {
        self.keep_aside(Change::SetAside { number, row: row.into() }).await
    }

    async fn keep_aside(&self, change: Change) -> Result<(), StoreError> {
        let mut filed = self.0.shared.filed.subscribe();
        self.write(change.into()).await?;
        let next = self.0.shared.pending.read().next();
        filed.wait_for(|filed| *filed >= next).await.map(drop).map_err(|_| StoreError::closed())
    }

    /// A control plane took a row after all that was set aside. Answers when that is written.
    pub async fn taken(&self, number: u64) -> Result<(), StoreError> {
        self.write(Change::Taken { number }.into()).await.map(drop)
    }

    /// The control plane was told all rows before this number, but for those that are set aside. Answers when that is
    /// written.
    pub async fn posted(&self, next: u64) -> Result<(), StoreError> {
        self.write(Change::Posted { next }.into()).await.map(drop)
    }

    /// What keeps records from being kept as they should be, if anything does: nothing new is to be begun then. It is
    /// tried again and again, and over when it works.
    #[must_use]
    pub fn trouble(&self) -> Option<Trouble> {
        self.shared().troubles.worst()
    }

    /// Memory that changes take that are not in the database yet, in bytes, about; at most 64 MiB.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        MAX_PENDING_BYTES.saturating_sub(self.0.room.available_permits())
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.0.shared
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub(super) fn receipt_log(&self) -> Option<&ReceiptLog> {
        self.0.log.as_ref()
    }

    async fn write(&self, Ready { change, carried }: Ready) -> Result<Answer, StoreError> {
        let bytes = u32::try_from(change.bytes().min(MAX_PENDING_BYTES)).unwrap_or(u32::MAX);
        let room = tokio::select! {
            biased;
            room = Arc::clone(&self.0.room).acquire_many_owned(bytes) => room,
            // Nobody knows when there would be room.
            () = self.0.shared.troubles.begin() => return Err(StoreError::closed()),
        };
        let room = room.map_err(|_| StoreError::closed())?;
        let (caller, answer) = oneshot::channel();
        let (writer, wake) = self.0.writer.as_ref().ok_or_else(StoreError::closed)?;
        let is_judged = change.is_judged();
        writer.put(Waiting { change, carried, caller, room });
        let left = LeftToThread(Some(wake));
        if is_judged {
            // Only the thread does that.
            drop(left);
        } else {
            // Others that are about to end put theirs beside it: one write carries all.
            tokio::task::yield_now().await;
            left.unless(writer.write_soon());
        }
        answer.await.map_err(|_| StoreError::closed())?
    }
}

/// Wakes the writer's thread when it is dropped: what waits is written by it, whoever went away.
struct LeftToThread<'a>(Option<&'a SyncSender<()>>);

impl LeftToThread<'_> {
    fn unless(mut self, is_written: bool) {
        if is_written {
            self.0 = None;
        }
    }
}

impl Drop for LeftToThread<'_> {
    fn drop(&mut self) {
        if let Some(wake) = self.0 {
            // Who is full is awake.
            let _ = wake.try_send(());
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        drop(self.log.take());
        drop(self.writer.take());
        for thread in self.threads.drain(..) {
            // A thread that panicked has told its callers by going away.
            let _ = thread.join();
        }
        self.shared.journal.end_writing();
    }
}

/// A thread that works when it is woken.
fn woken(
    name: &str,
    work: impl FnOnce(Receiver<()>) + Send + 'static,
) -> Result<(JoinHandle<()>, SyncSender<()>), OpenError> {
    let (wake, wakes) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || work(wakes));
    Ok((thread.map_err(OpenError::System)?, wake))
}

/// Fills a new database.
fn begin(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(COUNTERS)?.insert(VERSION, LAYOUT)?;
    transaction.commit()?;
    drop(database.begin_read()?);
    Ok(())
}

pub(super) fn cannot_read(dir: &Dir) -> impl Fn(StoreError) -> OpenError {
    let path = dir.database_path();
    move |error| OpenError::Damaged(path.clone(), redb::Error::Corrupted(error.0))
}

/// Files what the journal has and the database has not, brings the database in step with the settings, and says what gathers
/// next.
fn recover(
    dir: &Dir,
    disk: &Disk,
    segments: Segments,
    settings: Settings,
) -> Result<(Journal, Generation), OpenError> {
    let filed = disk.read(|transaction| {
        let counter = |name| counter(transaction, name).map(Option::unwrap_or_default);
        Ok(Position { segment: counter(JOURNAL_SEGMENT)?, offset: counter(JOURNAL_OFFSET)? })
    });
    let cannot_file = |error| OpenError::Recovery(dir.database_path(), error);
    let end = segments.each_since(filed.map_err(cannot_read(dir))?, |found| {
        let changes = || found.changes.iter().map(|(place, change)| (change, *place));
        if found.changes.is_empty() {
            return Ok(());
        }
        let filed = disk.write(|transaction| {
            let mut tables = Tables::open(transaction)?;
            tables.file(tables.counter(NEXT_GENERATION)?, changes())
        });
        filed.map_err(cannot_file)
    });
    let journal = Journal::begin(segments, end?).map_err(OpenError::file(dir.join("")))?;
    let recovered = disk.write(|transaction| {
        let mut tables = Tables::open(transaction)?;
        // All segments before it go when their receipts have gone.
        tables.set_position(journal.end())?;
        if !settings.is_logging {
            ReceiptLog::end(&mut tables)?;
        }
        tables.set_posting(settings.is_posting)?;
        let owed = tables.owed()?;
        if !settings.is_posting && !owed.is_empty() {
            let rows = owed.iter().map(|owed| owed.end - owed.start).sum::<u64>();
            warn!(
                rows,
                "a control plane was not told of all usage; what it is owed waits until there is one again"
            );
        }
        let gathering = Generation::new(tables.counter(NEXT_GENERATION)?, tables.next()?);
        Ok((gathering, tables.first_segment()?))
    });
    let (gathering, first_segment) = recovered.map_err(cannot_file)?;
    journal.forget_before(first_segment);
    Ok((journal, gathering))
}
