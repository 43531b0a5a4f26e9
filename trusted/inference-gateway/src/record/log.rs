//! The log of receipts: a hash of each, in the order in which they were kept, for anybody to compare.
//!
//! Receipts are durable before they are logged, and stay until they are. So after a crash, what is not in the log yet
//! is still there to be appended, and each receipt that can be read is in the log once.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use cloister_aci::log::Record;
use cloister_transparency_log::{Leaf, Log, LogError, SigningKey};
use parking_lot::Mutex;
use redb::{ReadTransaction, ReadableTable as _};
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::blocks::Blocks as _;
use super::disk::{Dir, OpenError};
use super::filing::Tables;
use super::shared::Shared;
use super::tables::{IS_LOGGING, LOG_KEY, LOG_SEGMENTS, NEXT_RECEIPT, RECEIPTS, ReceiptEntry, SECRETS};
use super::{Disk, StoreError, turns};

/// Directory of the log in the state directory.
const DIR: &str = "receipt-log";
/// Name of the log in its checkpoints; the key tells logs apart.
const ORIGIN: &str = "cloister/receipt-log";
/// Receipts that are appended together: each time waits for the disk, and keeps the processor for as long as they are many.
const BATCH: usize = 512;
/// With so many receipts that wait it does not keep up.
const BEHIND: usize = 1 << 16;
/// Time in which receipts gather, so that many share a wait for the disk.
const GATHER: Duration = Duration::from_millis(200);
/// Pause after a failure.
const PAUSE: Duration = Duration::from_secs(10);

/// Most bytes of records that wait in memory for the log.
const MOST_WAITING: usize = 4 << 20;

/// Records of the receipts that were filed last, so that they are not read again. Those that it has no room for are in the
/// journal.
#[derive(Debug, Default)]
pub(super) struct ToLog(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// Number of the first one's receipt.
    first: u64,
    records: VecDeque<Bytes>,
    bytes: usize,
}

impl ToLog {
    /// Adds those of receipts in a row that were filed.
    pub(super) fn put(&self, first: u64, records: impl Iterator<Item = Bytes>) {
        for (number, record) in (first..).zip(records) {
            let mut waiting = self.0.lock();
            let is_next = number == waiting.first.saturating_add(waiting.records.len() as u64);
            if !is_next || waiting.bytes >= MOST_WAITING {
                *waiting = Waiting { first: number, ..Waiting::default() };
            }
            waiting.bytes += record.len();
            waiting.records.push_back(record);
            drop(waiting);
            turns::end_if_over();
        }
    }

    /// Some from that of this receipt on; `None` if it is not there. Those before it are not needed any more.
    fn since(&self, from: u64, most: usize) -> Option<Vec<Bytes>> {
        let mut waiting = self.0.lock();
        let logged = usize::try_from(from.checked_sub(waiting.first)?).ok()?.min(waiting.records.len());
        let logged: usize = waiting.records.drain(..logged).map(|record| record.len()).sum();
        (waiting.first, waiting.bytes) = (from, waiting.bytes.saturating_sub(logged));
        let records: Vec<_> = waiting.records.iter().take(most).cloned().collect();
        (!records.is_empty()).then_some(records)
    }
}

/// From which receipt on which records of the log are about receipts in a row. A new one begins whenever logging does, and
/// behind what cannot be read.
#[derive(Debug, Clone, Copy)]
struct Segment {
    receipt: u64,
    index: u64,
}

/// The open log, and the thread that appends to it.
#[derive(Debug)]
pub(super) struct ReceiptLog {
    pub(super) log: Log,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Drop for ReceiptLog {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl ReceiptLog {
    /// Whether there is a log in the directory.
    pub(super) fn exists(dir: &Dir) -> Result<bool, OpenError> {
        let path = dir.join(DIR);
        path.try_exists().map_err(OpenError::file(path))
    }

    /// Remembers that receipts are not logged.
    pub(super) fn end(tables: &mut Tables<'_>) -> Result<(), StoreError> {
        tables.counters.remove(IS_LOGGING)?;
        Ok(())
    }

    /// Opens the log and begins to append what is not in it. Reads the whole log, a second for a million receipts.
    pub(super) fn open(dir: &Dir, shared: &Arc<Shared>) -> Result<Self, OpenError> {
        let of_store = OpenError::Log;
        let key = log_key(&shared.disk).map_err(of_store)?;
        let log = Log::open(&dir.join(DIR), key, ORIGIN).map_err(|error| of_store(of_log(&error)))?;
        let segment = begin(shared, &log).map_err(of_store)?;
        let worker = Worker { shared: Arc::clone(shared), log: log.clone(), segment };
        shared.logged.store(worker.next(), Ordering::Release);
        let stop = CancellationToken::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let (runtime, stopped) = (runtime.map_err(OpenError::System)?, stop.clone());
        let thread = std::thread::Builder::new()
            .name("receipt-log".to_owned())
            .spawn(move || runtime.block_on(worker.run(stopped)))
            .map_err(OpenError::System)?;
        Ok(Self { log, stop, thread: Some(thread) })
    }
}

/// The key of the log, made when it is asked for the first time.
fn log_key(disk: &Disk) -> Result<SigningKey, StoreError> {
    disk.write(|transaction| {
        let mut secrets = transaction.open_table(SECRETS)?;
        let known = secrets.get(LOG_KEY)?.map(|seed| SigningKey::from_seed(seed.value()));
        if let Some(key) = known {
            return Ok(key);
        }
        let key = SigningKey::generate(getrandom::fill)
            .map_err(|_| StoreError::new("the system gives no random bytes"))?;
        secrets.insert(LOG_KEY, &*key.seed())?;
        Ok(key)
    })
}

/// Where the log goes on. Fails if records and log are not of the same time.
fn begin(shared: &Shared, log: &Log) -> Result<Segment, StoreError> {
    shared.disk.write(|transaction| {
        let mut tables = Tables::open(transaction)?;
        let next_receipt = tables.counter(NEXT_RECEIPT)?;
        let mut segments = transaction.open_table(LOG_SEGMENTS)?;
        let is_logging = tables.counters.get(IS_LOGGING)?.is_some();
        if !is_logging {
            tables.counters.insert(IS_LOGGING, 1)?;
            segments.insert(next_receipt, log.size())?;
        }
        let last = segments.last()?.map(|(receipt, index)| (receipt.value(), index.value()));
        let (receipt, index) = last.ok_or_else(|| StoreError::damaged("the log's place"))?;
        let logged = log.size().checked_sub(index);
        let logged = logged.ok_or_else(|| StoreError::new("an older log was put in the place of the log"))?;
        let next = receipt.saturating_add(logged);
        let mut is_its = next <= next_receipt;
        if let Some(last) = next.checked_sub(1).filter(|_| is_its && logged > 0)
            && let Some(block) = tables.receipts.block_of(last)?
            && let Ok(Some(last)) = block.receipt(&shared.journal.segments, last)
        {
            let logged = log.records(log.size() - 1, 1).map_err(|error| of_log(&error))?;
            is_its = logged == [record(&ReceiptEntry::parse(&last)?).into_bytes()];
        }
        if !is_its {
            return Err(StoreError::new("older records were put in the place of the records"));
        }
        Ok(Segment { receipt, index })
    })
}

/// The index of a receipt in the log; `None` if it is not there.
pub(super) fn index_of(
    transaction: &ReadTransaction,
    receipt: u64,
    size: u64,
) -> Result<Option<u64>, StoreError> {
    let segments = transaction.open_table(LOG_SEGMENTS)?;
    let segment = segments.range(..=receipt)?.next_back().transpose()?;
    let Some(segment) =
        segment.map(|(receipt, index)| Segment { receipt: receipt.value(), index: index.value() })
    else {
        return Ok(None);
    };
    let after = segments.range(receipt.saturating_add(1)..)?.next().transpose()?;
    let end = after.map_or(size, |(_, index)| index.value());
    let index = segment.index.saturating_add(receipt - segment.receipt);
    Ok((index < end).then_some(index))
}

/// The record of a receipt, as it stands in the log.
pub(super) fn record(entry: &ReceiptEntry<'_>) -> String {
    Record::new(entry.id, entry.document, entry.served_at).text()
}

struct Worker {
    shared: Arc<Shared>,
    log: Log,
    segment: Segment,
}

impl Worker {
    /// The receipt that is to be logged next. A record that was not acknowledged may be in the log nevertheless.
    fn next(&self) -> u64 {
        self.segment.receipt.saturating_add(self.log.size().saturating_sub(self.segment.index))
    }

    async fn run(mut self, stop: CancellationToken) {
        let mut kept = self.shared.subscribe();
        let mut is_failing = false;
        loop {
            let outcome = self.append().await;
            let pause = match &outcome {
                Ok(true) => Duration::ZERO,
                Ok(false) => GATHER,
                Err(_) => PAUSE,
            };
            if let Err(failure) = &outcome
                && !is_failing
            {
                error!(%failure, "receipts cannot be logged; they are kept until they are");
            }
            is_failing = outcome.is_err();
            let more = async {
                tokio::time::sleep(pause).await;
                if matches!(outcome, Ok(false)) {
                    let _ = kept.changed().await;
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = more => {}
            }
        }
    }

    /// Appends some receipts; false if there are none. What cannot be read is left out, and holds up no other.
    async fn append(&mut self) -> Result<bool, StoreError> {
        let from = self.next();
        let (kept, _) = self.shared.kept();
        turns::set_short(usize::try_from(kept.saturating_sub(from)).unwrap_or(usize::MAX), BEHIND);
        let Found { leaves, after_lost } = self.found(from)?;
        if leaves.is_empty() {
            let Some(number) = after_lost else { return Ok(false) };
            self.go_on(number)?;
            error!(from, to = number - 1, "receipts are not logged: they cannot be read, or are not there");
            return Ok(true);
        }
        let appended = self.log.append_all(leaves).await;
        self.shared.logged.store(self.next(), Ordering::Release);
        appended.map(|_| true).map_err(|error| of_log(&error))
    }

    fn found(&self, from: u64) -> Result<Found, StoreError> {
        let mut found = Found { leaves: Vec::with_capacity(BATCH), after_lost: None };
        if let Some(records) = self.shared.to_log.since(from, BATCH) {
            for record in records {
                found.leaves.push(record.to_vec().into());
                turns::end_if_over();
            }
            return Ok(found);
        }
        let segments = &self.shared.journal.segments;
        self.shared.disk.read(|transaction| {
            transaction.open_table(RECEIPTS)?.since(segments, from, |number, receipt| {
                if number != from.saturating_add(found.leaves.len() as u64) {
                    found.after_lost = Some(number);
                    return ControlFlow::Break(());
                }
                found.leaves.push(record(receipt).into_bytes().into());
                turns::end_if_over();
                if found.leaves.len() < BATCH { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })
        })?;
        Ok(found)
    }

    /// Leaves out all receipts before this one.
    fn go_on(&mut self, number: u64) -> Result<(), StoreError> {
        let segment = Segment { receipt: number, index: self.log.size() };
        self.shared.disk.write(|transaction| {
            transaction.open_table(LOG_SEGMENTS)?.insert(segment.receipt, segment.index)?;
            Ok(())
        })?;
        self.segment = segment;
        self.shared.logged.store(self.next(), Ordering::Release);
        Ok(())
    }
}

/// What is to be logged next.
struct Found {
    /// Of receipts in a row.
    leaves: Vec<Leaf>,
    /// The first receipt that can be read after those, if one between cannot be, or is not there.
    after_lost: Option<u64>,
}

pub(super) fn of_log(error: &LogError) -> StoreError {
    StoreError(format!("the log of receipts: {error}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(number: u64) -> Bytes {
        number.to_string().into_bytes().into()
    }

    proptest! {
        #[test]
        fn records_are_those_of_their_receipts(steps in prop::collection::vec(any::<(bool, bool, u8)>(), 0..40)) {
            let (to_log, mut first, mut next, mut from) = (ToLog::default(), 0_u64, 0_u64, 0_u64);
            // Each puts so many, after a gap or not, or looks for so many, of which one may not be logged.
            for (is_put, is_gap, count) in steps {
                let count = usize::from(count % 8) + 1;
                if is_put {
                    if is_gap {
                        next += 1;
                        first = next;
                    }
                    to_log.put(next, (next..next + count as u64).map(record));
                    next += count as u64;
                    continue;
                }
                let found = to_log.since(from, count);
                let wanted: Vec<_> = (from..next).take(count).map(record).collect();
                let is_there = from >= first && from < next;
                prop_assert_eq!(found, is_there.then_some(wanted));
                // Those that are not there are in the journal; of the others some may not have been logged.
                from = if is_there { next.min(from + count as u64 - u64::from(is_gap)) } else { from.max(first) };
            }
        }
    }

    #[test]
    fn records_that_have_no_room_are_left_to_the_journal() {
        let (to_log, large) = (ToLog::default(), Bytes::from(vec![0; MOST_WAITING]));
        to_log.put(5, [record(5), large, record(7), record(8)].into_iter());
        assert_eq!(to_log.since(5, 9), None);
        for _ in 0..2 {
            assert_eq!(to_log.since(7, 1), Some(vec![record(7)]));
        }
        assert_eq!(to_log.since(8, 9), Some(vec![record(8)]));
        assert_eq!(to_log.since(9, 9), None);
    }
}
