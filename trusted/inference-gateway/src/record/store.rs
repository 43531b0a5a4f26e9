//! The store as the rest of the gateway sees it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use cloister_transparency_log::Log;
use cloister_verifier::Clock;
use redb::{Database, ReadTransaction, ReadableDatabase as _, ReadableTable as _};
use rust_decimal::Decimal;
use serde::Serialize;
use tokio::sync::{Semaphore, oneshot, watch};

use super::changes::{Answer, Change, Tables, parse_row};
use super::disk::{Backing, Dir, Disk, OpenError};
use super::eviction::Eviction;
use super::log::{self, ReceiptLog, of_log};
use super::tables::{
    COUNTERS, LAYOUT, NAMES, NEXT_POST, NEXT_RECEIPT, NEXT_ROW, NameKind, RECEIPTS, ROWS, ReceiptEntry,
    SESSION_ENDS, SESSIONS, SPENT, VERSION, name,
};
use super::writer::{Waiting, Writer};
use super::{Finished, Lookup, Row, StoreError};
use crate::admission::KeyHash;

/// Most bytes that wait to be written; more callers than that wait for room.
const MAX_WAITING_BYTES: usize = 64 << 20;
/// Most usage rows that are read at once.
const MAX_ROWS: usize = 10_000;

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

/// A usage row with what is known besides.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageRow {
    /// Its number: from 0, without gaps, in the order in which rows were kept.
    pub number: u64,
    /// Whose request it was.
    pub api_key_hash: String,
    /// The row.
    #[serde(flatten)]
    pub row: Row,
}

/// Proof that a receipt is in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Inclusion {
    /// Its index.
    pub index: u64,
    /// The exact text of its leaf.
    pub record: String,
    /// A signed checkpoint: its second line is the size of the tree that the proof is for.
    pub checkpoint: String,
    /// Hashes of the proof in the order of RFC 6962, 64 hex digits each.
    pub hashes: Vec<String>,
}

/// Keeps what stays of requests, durably. Clones are handles of the same store; it is closed when the last one is
/// dropped, which waits for what is being written.
#[derive(Debug, Clone)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Closed before the writer, which it reads from.
    log: Option<ReceiptLog>,
    sender: Option<Sender<Waiting>>,
    writer: Option<JoinHandle<()>>,
    room: Arc<Semaphore>,
    shared: Arc<Shared>,
    settings: Settings,
}

/// What threads share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) disk: Disk,
    clock: Clock,
    /// The receipt that is to be logged next.
    pub(super) logged: AtomicU64,
    /// Numbers of the next receipt and the next row.
    kept: watch::Sender<(u64, u64)>,
}

impl Shared {
    /// Seconds since the Unix epoch.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.clock.now().as_second()).unwrap_or(0)
    }

    /// Receipts before this one are in the log.
    pub(super) fn logged(&self) -> u64 {
        self.logged.load(Ordering::Acquire)
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<(u64, u64)> {
        self.kept.subscribe()
    }

    /// All receipts and rows before these are durable.
    pub(super) fn tell_kept(&self, next: (u64, u64)) {
        self.kept.send_if_modified(|kept| std::mem::replace(kept, next) != next);
    }
}

impl Store {
    /// Opens the store in a directory; makes both where there are none.
    ///
    /// Fails if another process has it open, or if what is there cannot be read: records are never begun anew over
    /// old ones. After a crash, this reads the whole database, about a second for a GiB.
    pub fn open(dir: &Path, settings: Settings, clock: Clock) -> Result<Self, OpenError> {
        Self::open_with(dir, settings, clock, Backing::file())
    }

    pub(super) fn open_with(
        dir: &Path,
        settings: Settings,
        clock: Clock,
        backing: Backing,
    ) -> Result<Self, OpenError> {
        let dir = Dir::take(dir)?;
        if ReceiptLog::exists(&dir)? && !dir.has_database()? {
            return Err(OpenError::Lost(dir.join("")));
        }
        let disk = dir.database(backing, begin)?;
        let cannot_read =
            |error: StoreError| OpenError::Damaged(dir.database_path(), redb::Error::Corrupted(error.0));
        let found = disk.read(|transaction| counter(transaction, VERSION)).map_err(cannot_read)?;
        if found != Some(LAYOUT) {
            let found = found.unwrap_or_default();
            return Err(OpenError::Layout { path: dir.database_path(), found, known: LAYOUT });
        }
        disk.write(|transaction| {
            let mut tables = Tables::open(transaction)?;
            if !settings.is_logging {
                ReceiptLog::end(&mut tables)?;
            }
            set_posting(&mut tables, settings.is_posting)
        })
        .map_err(cannot_read)?;
        let shared = Arc::new(Shared {
            disk,
            clock,
            logged: AtomicU64::new(u64::MAX),
            kept: watch::Sender::default(),
        });
        let log = settings.is_logging.then(|| ReceiptLog::open(&dir, &shared)).transpose()?;
        let (sender, receiver) = mpsc::channel();
        let writer = Writer {
            shared: Arc::clone(&shared),
            eviction: Eviction::new(settings),
            is_failing: false,
            _dir: dir,
        };
        let writer = std::thread::Builder::new()
            .name("record-writer".to_owned())
            .spawn(move || writer.run(&receiver))
            .map_err(OpenError::System)?;
        Ok(Self(Arc::new(Inner {
            log,
            sender: Some(sender),
            writer: Some(writer),
            room: Arc::new(Semaphore::new(MAX_WAITING_BYTES)),
            shared,
            settings,
        })))
    }

    /// Keeps everything about a request; answers when it is on the disk. Who stops to wait may find it kept
    /// nevertheless.
    pub async fn finish(&self, finished: Finished) -> Result<(), StoreError> {
        self.write(Change::finished(finished, self.0.settings.receipts_s)?).await.map(drop)
    }

    /// A receipt by its id or by the id of its answer, for who made the request. It takes as long to find none as
    /// to find that it is another key's: nothing tells them apart.
    pub fn receipt(&self, id: &str, asker: KeyHash) -> Result<Lookup, StoreError> {
        let found = self.find(id, asker)?;
        Ok(found.map_or(Lookup::Absent, |(_, document)| Lookup::Found(document)))
    }

    /// Number and document of a receipt that has not had its time.
    pub(super) fn find(&self, id: &str, asker: KeyHash) -> Result<Option<(u64, Vec<u8>)>, StoreError> {
        let names = [NameKind::Receipt, NameKind::Chat].map(|kind| name(kind, Some(asker), id));
        let now = self.0.shared.now();
        self.0.shared.disk.read(|transaction| {
            let table = transaction.open_table(NAMES)?;
            // Both names are looked for, whatever is found.
            let [by_id, by_chat] = names.map(|name| table.get(&name).map(|found| found.map(|n| n.value())));
            let Some(number) = by_id?.or(by_chat?) else { return Ok(None) };
            let receipts = transaction.open_table(RECEIPTS)?;
            let Some(bytes) = receipts.get(number)? else { return Ok(None) };
            let entry = ReceiptEntry::parse(bytes.value())?;
            let is_current = entry.served_at.saturating_add(self.0.settings.receipts_s) > now;
            Ok(is_current.then(|| (number, entry.document.to_vec())))
        })
    }

    /// Keeps a session record under its id until a time, in seconds since the Unix epoch, and as long as a receipt
    /// cites it; what is there already stays. Answers when it is on the disk.
    pub async fn keep_session(&self, id: &str, document: Vec<u8>, expires_at: u64) -> Result<(), StoreError> {
        self.write(Change::session(id, document, expires_at)?).await.map(drop)
    }

    /// A session record. It may stay for an hour longer than it has to.
    pub fn session(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let (name, now) = (name(NameKind::Session, None, id), self.0.shared.now());
        self.0.shared.disk.read(|transaction| {
            let ends = transaction.open_table(SESSION_ENDS)?.get(&name)?.map(|ends| ends.value());
            if ends.is_none_or(|ends| ends <= now) {
                return Ok(None);
            }
            Ok(transaction.open_table(SESSIONS)?.get(&name)?.map(|document| document.value().to_vec()))
        })
    }

    /// Remembers a fingerprint until a time, in seconds since the Unix epoch; false if it was remembered already.
    /// Answers when it is on the disk. Fails when a million are remembered.
    pub async fn first_time(&self, fingerprint: [u8; 32], until: u64) -> Result<bool, StoreError> {
        match self.write(Change::Fingerprint { fingerprint, until }).await? {
            Answer::Yes => Ok(true),
            Answer::No => Ok(false),
            Answer::Full => Err(StoreError::new("too many fingerprints are remembered")),
        }
    }

    /// What a key has spent so far: the exact sum of the costs of all its rows, those that were removed included.
    pub fn spent(&self, key: KeyHash) -> Result<Decimal, StoreError> {
        self.0.shared.disk.read(|transaction| {
            let spent = transaction.open_table(SPENT)?.get(&key.0)?;
            Ok(spent.map_or(Decimal::ZERO, |sum| Decimal::deserialize(*sum.value())))
        })
    }

    /// Usage rows from a number on, at most `limit` and at most 10,000; those that have had their time are skipped.
    pub fn usage(&self, from: u64, limit: usize) -> Result<Vec<UsageRow>, StoreError> {
        self.0.shared.disk.read(|transaction| {
            let rows = transaction.open_table(ROWS)?;
            let found = rows.range(from..)?.take(limit.min(MAX_ROWS)).map(|entry| {
                let (number, bytes) = entry?;
                let (key, row) = parse_row(bytes.value())?;
                Ok(UsageRow { number: number.value(), api_key_hash: key.to_string(), row })
            });
            found.collect()
        })
    }

    /// The number of the first row that the control plane was not told; `None` without a control plane.
    pub fn next_to_post(&self) -> Result<Option<u64>, StoreError> {
        self.0.shared.disk.read(|transaction| counter(transaction, NEXT_POST))
    }

    /// The control plane was told all rows before this number. Answers when that is on the disk.
    pub async fn posted(&self, next: u64) -> Result<(), StoreError> {
        self.write(Change::Posted { next }).await.map(drop)
    }

    /// The numbers that the next receipt and the next usage row get: how many there have been.
    pub fn counts(&self) -> Result<(u64, u64), StoreError> {
        self.0.shared.disk.read(|transaction| {
            let counter = |name| counter(transaction, name).map(Option::unwrap_or_default);
            Ok((counter(NEXT_RECEIPT)?, counter(NEXT_ROW)?))
        })
    }

    /// Proof that a receipt is in the log, for who made the request. `None` if there is no such receipt, or no log;
    /// it is appended some moments after the receipt is kept, until when there is no index yet. Reads files.
    pub fn inclusion(&self, id: &str, asker: KeyHash) -> Result<Option<Inclusion>, StoreError> {
        let (Some((number, _)), Some(log)) = (self.find(id, asker)?, self.log()) else { return Ok(None) };
        let found = self.0.shared.disk.read(|transaction| {
            let Some(index) = log::index_of(transaction, number, log.size())? else { return Ok(None) };
            let receipts = transaction.open_table(RECEIPTS)?;
            let record = receipts
                .get(number)?
                .map(|bytes| ReceiptEntry::parse(bytes.value()).map(|entry| log::record(&entry)));
            Ok(record.transpose()?.map(|record| (index, record)))
        })?;
        let Some((index, record)) = found else { return Ok(None) };
        let checkpoint = log.checkpoint().map_err(|error| of_log(&error))?;
        let size = checkpoint.lines().nth(1).and_then(|size| size.parse().ok());
        let size = size.ok_or_else(|| StoreError::damaged("a checkpoint"))?;
        let hashes =
            log.inclusion(index, size).map_err(|error| of_log(&error))?.iter().map(hex::encode).collect();
        let record = String::from_utf8(record).map_err(|_| StoreError::damaged("a record"))?;
        Ok(Some(Inclusion { index, record, checkpoint, hashes }))
    }

    /// The log of receipts, if there is one.
    #[must_use]
    pub fn log(&self) -> Option<&Log> {
        self.0.log.as_ref().map(|log| &log.log)
    }

    /// Tells when there are more receipts or rows: the numbers that the next ones get.
    #[must_use]
    pub fn kept(&self) -> watch::Receiver<(u64, u64)> {
        self.0.shared.subscribe()
    }

    async fn write(&self, change: Change) -> Result<Answer, StoreError> {
        let bytes = u32::try_from(change.bytes().min(MAX_WAITING_BYTES)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.0.room).acquire_many_owned(bytes).await;
        let room = room.map_err(|_| StoreError::closed())?;
        let (caller, answer) = oneshot::channel();
        let sender = self.0.sender.as_ref().ok_or_else(StoreError::closed)?;
        sender.send(Waiting { change, caller, room }).map_err(|_| StoreError::closed())?;
        answer.await.map_err(|_| StoreError::closed())?
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        drop(self.log.take());
        drop(self.sender.take());
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has told its callers by going away.
            let _ = writer.join();
        }
    }
}

fn counter(transaction: &ReadTransaction, name: &str) -> Result<Option<u64>, StoreError> {
    Ok(transaction.open_table(COUNTERS)?.get(name)?.map(|value| value.value()))
}

/// Fills a new database.
fn begin(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(COUNTERS)?.insert(VERSION, LAYOUT)?;
    transaction.commit()?;
    drop(database.begin_read()?);
    Ok(())
}

/// With a control plane, rows from now on are told; without one, it is forgotten what was.
fn set_posting(tables: &mut Tables<'_>, is_posting: bool) -> Result<(), StoreError> {
    let was_posting = tables.counters.get(NEXT_POST)?.is_some();
    if is_posting && !was_posting {
        let next = tables.counter(NEXT_ROW)?;
        tables.counters.insert(NEXT_POST, next)?;
    } else if was_posting && !is_posting {
        tables.counters.remove(NEXT_POST)?;
    }
    Ok(())
}
