//! The thread that writes: everything that waits goes to the journal at once. What it judges, it judges in order.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use redb::ReadableTableMetadata as _;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::StoreError;
use super::changes::Change;
use super::shared::Shared;
use super::tables::FINGERPRINTS;

/// Most changes that are written at once.
const MAX_BATCH: usize = 1024;
/// No change is added to a batch that is this large, in bytes.
const MAX_BATCH_BYTES: usize = 8 << 20;
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
    pub(super) carried: Vec<u8>,
    pub(super) caller: oneshot::Sender<Result<Answer, StoreError>>,
    /// The memory that it takes until it is in the database.
    pub(super) room: OwnedSemaphorePermit,
}

/// Writes changes.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    /// Who has something to do when there are changes: they end when nobody can wake them any more.
    pub(super) others: [SyncSender<()>; 2],
}

impl Writer {
    /// Writes until nobody can send any more.
    pub(super) fn run(self, waiting: &Receiver<Waiting>) {
        while let Ok(first) = waiting.recv() {
            let mut bytes = first.change.bytes();
            let mut batch = vec![first];
            while batch.len() < MAX_BATCH && bytes < MAX_BATCH_BYTES {
                let Ok(next) = waiting.try_recv() else { break };
                bytes += next.change.bytes();
                batch.push(next);
            }
            self.write(batch);
        }
    }

    fn write(&self, batch: Vec<Waiting>) {
        let (now, mut new) = (self.shared.aged(), HashSet::new());
        let mut answers: Vec<_> =
            batch.iter().map(|waiting| self.judge(&waiting.change, now, &mut new)).collect();
        let mut told = Vec::with_capacity(batch.len());
        {
            let mut state = self.shared.journal.lock();
            let holding = batch.iter().zip(&answers).filter(|(_, answer)| **answer == Ok(Answer::Yes));
            let carried = holding.map(|(waiting, _)| waiting.carried.as_slice());
            let written = self.shared.journal.append(&mut state, &self.shared.troubles, carried);
            let mut pending = self.shared.pending.write();
            for (waiting, answer) in batch.into_iter().zip(&mut answers) {
                if *answer == Ok(Answer::Yes) {
                    match &written {
                        Ok(()) => pending.gathering.push(waiting.change, waiting.room),
                        Err(error) => *answer = Err(error.clone()),
                    }
                }
                told.push(waiting.caller);
            }
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
