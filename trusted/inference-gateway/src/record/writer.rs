//! Writes: everything that waits goes to the journal at once. What is judged, is judged in order.
//!
//! Whoever has a change writes it, and those of others that wait meanwhile: a write that the kernel takes at once costs
//! less than a switch to another thread. What may take longer is left to a thread.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard, RwLockWriteGuard};
use redb::ReadableTableMetadata as _;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::StoreError;
use super::changes::Change;
use super::journal::State;
use super::pending::Pending;
use super::shared::Shared;
use super::tables::FINGERPRINTS;

/// Most changes that are written at once.
const MAX_BATCH: usize = 1024;
/// No change is added to a batch that is this large, in bytes.
const MAX_BATCH_BYTES: usize = 8 << 20;
/// Most bytes that are written without the thread.
const MAX_AT_ONCE_BYTES: usize = 256 << 10;
/// A write that takes longer than this keeps a task from others that it could do: the disk does not follow. What takes a
/// processor away for a moment is no sign of that.
const SLOW: Duration = Duration::from_millis(25);
/// So long after such a write everything is left to the thread.
const SLOW_FOR: Duration = Duration::from_secs(1);
/// Fingerprints that are remembered at once. They are forgotten after some minutes: who sends more than this many
/// requests in them is refused.
const MAX_FINGERPRINTS: u64 = 1 << 20;

/// What becomes of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// It holds.
    Yes,
    /// The fingerprint was known.
    No,
    /// No more fingerprints can be remembered now.
    Full,
}

/// A change on its way to the journal.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) change: Change,
    /// The same, as the journal carries it.
    pub(super) carried: Bytes,
    pub(super) caller: oneshot::Sender<Result<Answer, StoreError>>,
    /// The memory that it takes until it is in the database.
    pub(super) room: OwnedSemaphorePermit,
}

/// Writes changes.
#[derive(Debug)]
pub(super) struct Writer {
    shared: Arc<Shared>,
    waiting: Mutex<Vec<Waiting>>,
    /// Who has it judges and writes.
    turn: Mutex<Turn>,
    /// Who has something to do when there are changes: they end when nobody can wake them any more.
    others: [SyncSender<()>; 2],
}

#[derive(Debug, Default)]
struct Turn {
    /// When the kernel last took long for a write.
    slow: Option<Instant>,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, others: [SyncSender<()>; 2]) -> Self {
        Self { shared, waiting: Mutex::default(), turn: Mutex::default(), others }
    }

    /// Takes a change that is to be written soon. Whoever does this [writes](Self::write_soon) or wakes the thread.
    pub(super) fn put(&self, waiting: Waiting) {
        self.waiting.lock().push(waiting);
    }

    /// Writes all that waits if that takes no time to speak of; callers are told. False if the thread is to be woken.
    pub(super) fn write_soon(&self) -> bool {
        // Whoever has the turn looks once more when it is given back.
        while !self.waiting.lock().is_empty() {
            let Some(turn) = self.turn.try_lock() else { break };
            if !self.write_at_once(turn) {
                return false;
            }
        }
        true
    }

    /// Writes what waits, if that takes no time to speak of.
    fn write_at_once(&self, mut turn: MutexGuard<'_, Turn>) -> bool {
        if turn.slow.is_some_and(|slow| slow.elapsed() < SLOW_FOR) || self.shared.troubles.worst().is_some() {
            return false;
        }
        // Who probes a bad disk has the first, who reads from the database the second.
        let Some(state) = self.shared.journal.try_lock() else { return false };
        let Some(pending) = self.shared.pending.try_write() else { return false };
        let batch = {
            let mut waiting = self.waiting.lock();
            let bytes: usize = waiting.iter().map(|waiting| waiting.change.bytes()).sum();
            if bytes > MAX_AT_ONCE_BYTES || waiting.iter().any(|waiting| waiting.change.is_judged()) {
                return false;
            }
            std::mem::take(&mut *waiting)
        };
        if batch.is_empty() {
            return true;
        }
        let began = Instant::now();
        let answers = vec![Ok(Answer::Yes); batch.len()];
        self.write(batch, answers, state, Some(pending));
        if began.elapsed() > SLOW {
            turn.slow = Some(Instant::now());
        }
        true
    }

    /// Writes what was left to the thread, until nobody can wake it any more.
    pub(super) fn run(&self, wakes: &Receiver<()>) {
        while let Ok(()) = wakes.recv() {
            self.write_all();
        }
        self.write_all();
    }

    fn write_all(&self) {
        while !self.waiting.lock().is_empty() {
            let turn = self.turn.lock();
            let batch = self.batch();
            let (now, mut new) = (self.shared.aged(), HashSet::new());
            let answers = batch.iter().map(|waiting| self.judge(&waiting.change, now, &mut new)).collect();
            self.write(batch, answers, self.shared.journal.lock(), None);
            drop(turn);
        }
    }

    /// The first of those that wait.
    fn batch(&self) -> Vec<Waiting> {
        let mut waiting = self.waiting.lock();
        let mut bytes = 0;
        let length = waiting.iter().take(MAX_BATCH).take_while(|next| {
            let has_room = bytes < MAX_BATCH_BYTES;
            bytes += next.change.bytes();
            has_room
        });
        let length = length.count();
        waiting.drain(..length).collect()
    }

    fn write(
        &self,
        batch: Vec<Waiting>,
        mut answers: Vec<Result<Answer, StoreError>>,
        mut state: MutexGuard<'_, State>,
        pending: Option<RwLockWriteGuard<'_, Pending>>,
    ) {
        let mut told = Vec::with_capacity(batch.len());
        {
            let holding = batch.iter().zip(&answers).filter(|(_, answer)| **answer == Ok(Answer::Yes));
            let carried = holding.map(|(waiting, _)| &*waiting.carried);
            let mut written = state.append(&self.shared.troubles, carried);
            let mut pending = pending.unwrap_or_else(|| self.shared.pending.write());
            for (waiting, answer) in batch.into_iter().zip(&mut answers) {
                if *answer == Ok(Answer::Yes) {
                    match &mut written {
                        Ok(at) => {
                            let place = at.frame(&waiting.carried);
                            *at = place.after();
                            pending.push(waiting.change, place, waiting.room);
                        }
                        Err(error) => *answer = Err(error.clone()),
                    }
                }
                told.push(waiting.caller);
            }
            drop(state);
        }
        for (caller, answer) in told.into_iter().zip(answers) {
            // Who went away in the meantime needs no answer; the change holds.
            let _ = caller.send(answer);
        }
        for other in &self.others {
            // Who is full is awake.
            let _ = other.try_send(());
        }
    }

    /// Whether a change holds once it is written. `new` are fingerprints that others bring before it.
    fn judge(&self, change: &Change, now: u64, new: &mut HashSet<[u8; 32]>) -> Result<Answer, StoreError> {
        let Change::Fingerprint { fingerprint, .. } = change else { return Ok(Answer::Yes) };
        let (known, count) = self.shared.view(|view| {
            let table = view.database.open_table(FINGERPRINTS)?;
            let mut known = table.get(fingerprint)?.map(|until| until.value());
            let mut count = table.len()?;
            for generation in view.generations() {
                known = generation.fingerprints.get(fingerprint).copied().max(known);
                count += generation.fingerprints.len() as u64;
            }
            Ok((known, count))
        })?;
        let is_known = known.is_some_and(|until| until > now) || new.contains(fingerprint);
        Ok(match known {
            _ if is_known => Answer::No,
            None if count + new.len() as u64 >= MAX_FINGERPRINTS => Answer::Full,
            _ => {
                new.insert(*fingerprint);
                Answer::Yes
            }
        })
    }
}
