//! What the threads of the store share, and what it all says together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use redb::{ReadTransaction, ReadableTable as _, ReadableTableMetadata as _};
use tokio::sync::watch;

use super::StoreError;
use super::age::{Age, Times};
use super::disk::Disk;
use super::holds::Holds;
use super::journal::Journal;
use super::log::ToLog;
use super::pending::{Generation, Going, Pending};
use super::rows::Blocks as _;
use super::segments::Position;
use super::tables::{COUNTERS, NEXT_GENERATION, OWED, ROWS, SET_ASIDE};
use super::trouble::Troubles;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) disk: Disk,
    pub(super) journal: Journal,
    /// Who adds to it holds the journal.
    pub(super) pending: RwLock<Pending>,
    pub(super) holds: Arc<Holds>,
    pub(super) troubles: Troubles,
    times: Times,
    age: Mutex<Age>,
    /// The receipt that is to be logged next.
    pub(super) logged: AtomicU64,
    pub(super) to_log: ToLog,
    /// Numbers of the next receipt and the next row.
    kept: watch::Sender<(u64, u64)>,
    /// The generation that the database gets next.
    pub(super) filed: watch::Sender<u64>,
}

impl Shared {
    /// `age`: the time by which things had had their time when the database was written last, in seconds since the Unix
    /// epoch; `None` where that is not known.
    pub(super) fn new(
        disk: Disk,
        journal: Journal,
        gathering: Generation,
        times: Times,
        age: Option<u64>,
    ) -> Self {
        let age = Age::new(age.unwrap_or_else(|| times.now()), times.passed());
        let filed = watch::Sender::new(gathering.number);
        Self {
            disk,
            journal,
            pending: RwLock::new(Pending::new(gathering)),
            holds: Arc::default(),
            troubles: Troubles::default(),
            times,
            age: Mutex::new(age),
            logged: AtomicU64::new(u64::MAX),
            to_log: ToLog::default(),
            kept: watch::Sender::default(),
            filed,
        }
    }

    /// Seconds since the Unix epoch.
    pub(super) fn now(&self) -> u64 {
        self.times.now()
    }

    /// The same for what has had its time: a clock that jumps ahead does not make it go.
    pub(super) fn aged(&self) -> u64 {
        self.age.lock().look(self.times.now(), self.times.passed())
    }

    /// Receipts before this one are in the log.
    pub(super) fn logged(&self) -> u64 {
        self.logged.load(Ordering::Acquire)
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<(u64, u64)> {
        self.kept.subscribe()
    }

    /// All receipts and rows before these are in the database.
    pub(super) fn kept(&self) -> (u64, u64) {
        *self.kept.borrow()
    }

    /// The same, from now on.
    pub(super) fn tell_kept(&self, next: (u64, u64)) {
        self.kept.send_if_modified(|kept| std::mem::replace(kept, next) != next);
    }

    /// What goes to the database next; `None` if there is no change.
    pub(super) fn turn(&self) -> Option<Going> {
        let state = self.journal.lock();
        self.pending.write().turn(state.moves())
    }

    /// Where the journal ends durably, if the database has all of it.
    pub(super) fn all_filed(&self) -> Option<Position> {
        self.journal.sync(&self.troubles);
        let state = self.journal.lock();
        state.whole_end().filter(|_| self.pending.read().is_empty())
    }

    /// Finds out whether the journal can be written to again.
    pub(super) fn probe(&self) {
        self.journal.probe(&self.troubles, &self.pending);
    }

    /// All that was acknowledged, seen at one moment.
    pub(super) fn view<T>(
        &self,
        work: impl FnOnce(&View<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        // What is pending is looked at first: what leaves it is in the database before.
        let pending = || self.pending.read();
        self.disk.read_after(pending, |database, pending| {
            let next = counter(database, NEXT_GENERATION)?.unwrap_or_default();
            work(&View { database, pending: &pending, next })
        })
    }
}

/// The database, and the generations that it does not have.
pub(super) struct View<'a> {
    pub(super) database: &'a ReadTransaction,
    pending: &'a Pending,
    /// The first of these.
    next: u64,
}

impl View<'_> {
    /// Oldest first.
    pub(super) fn generations(&self) -> impl DoubleEndedIterator<Item = &Generation> {
        self.pending.since(self.next)
    }

    /// Numbers and bytes of rows from a number on.
    pub(super) fn rows(&self, from: u64, limit: usize) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
        let mut rows = self.database.open_table(ROWS)?.since(from, limit)?;
        let recent = self.generations().flat_map(|generation| generation.rows(from));
        rows.extend(recent.take(limit - rows.len()).map(|(number, bytes)| (number, bytes.to_vec())));
        Ok(rows)
    }

    /// The same of rows that are set aside.
    pub(super) fn aside(&self, from: u64, limit: usize) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
        let mut recent: BTreeMap<u64, Option<&Bytes>> = BTreeMap::new();
        for generation in self.generations() {
            recent.extend(generation.aside.range(from..).map(|(number, row)| (*number, row.as_ref())));
        }
        let mut rows = BTreeMap::new();
        // Each that is taken makes room for another.
        for entry in
            self.database.open_table(SET_ASIDE)?.range(from..)?.take(limit.saturating_add(recent.len()))
        {
            let (number, bytes) = entry?;
            rows.insert(number.value(), bytes.value().to_vec());
        }
        for (number, row) in recent {
            match row {
                Some(row) => rows.insert(number, row.to_vec()),
                None => rows.remove(&number),
            };
        }
        Ok(rows.into_iter().take(limit).collect())
    }

    /// How many rows are set aside. None of them is read.
    pub(super) fn aside_count(&self) -> Result<u64, StoreError> {
        let filed = self.database.open_table(SET_ASIDE)?;
        let mut recent: BTreeMap<u64, bool> = BTreeMap::new();
        for generation in self.generations() {
            recent.extend(generation.aside.iter().map(|(number, row)| (*number, row.is_some())));
        }
        let mut count = filed.len()?;
        for (number, is_aside) in recent {
            match (is_aside, filed.get(number)?.is_some()) {
                (true, false) => count += 1,
                (false, true) => count = count.saturating_sub(1),
                (true, true) | (false, false) => {}
            }
        }
        Ok(count)
    }

    /// The first rows in a row, from a number on, that a control plane is still to be told: the number of the first, and
    /// the one after the last, which may be [`u64::MAX`].
    pub(super) fn owed(&self, from: u64) -> Result<Option<(u64, u64)>, StoreError> {
        let told = self.generations().map(|generation| generation.posted).max().unwrap_or_default();
        for entry in self.database.open_table(OWED)?.iter()? {
            let (start, end) = entry?;
            let (start, end) = (start.value().max(told).max(from), end.value());
            if start < end {
                return Ok(Some((start, end)));
            }
        }
        Ok(None)
    }
}

pub(super) fn counter(transaction: &ReadTransaction, name: &str) -> Result<Option<u64>, StoreError> {
    Ok(transaction.open_table(COUNTERS)?.get(name)?.map(|value| value.value()))
}
