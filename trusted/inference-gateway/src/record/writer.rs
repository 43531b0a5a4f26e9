//! The thread that writes: everything that waits becomes durable at once, so that many share one wait for the disk.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tracing::{error, info};

use super::StoreError;
use super::changes::{Answer, Change, Tables};
use super::disk::Dir;
use super::eviction::{Due, Eviction};
use super::store::Shared;
use super::tables::{NEXT_RECEIPT, NEXT_ROW};

/// Most changes that become durable at once.
const MAX_BATCH: usize = 1024;
/// No change is added to a batch that is this large, in bytes.
const MAX_BATCH_BYTES: usize = 8 << 20;
/// After so long without changes, what has had its time goes all the same.
const IDLE: Duration = Duration::from_secs(10);

/// A change on its way to the disk.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) change: Change,
    pub(super) caller: oneshot::Sender<Result<Answer, StoreError>>,
    /// The room that it takes among those that wait.
    pub(super) room: OwnedSemaphorePermit,
}

/// Applies changes.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) eviction: Eviction,
    /// The last write failed.
    pub(super) is_failing: bool,
    /// Nobody else may use the directory while it runs.
    pub(super) _dir: Dir,
}

impl Writer {
    /// Writes until nobody can send any more.
    pub(super) fn run(mut self, waiting: &Receiver<Waiting>) {
        loop {
            let wait = if self.eviction.is_behind && !self.is_failing { Duration::ZERO } else { IDLE };
            let first = match waiting.recv_timeout(wait) {
                Ok(first) => first,
                Err(RecvTimeoutError::Timeout) => {
                    self.idle();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
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

    fn due(&self) -> Due {
        Due { now: self.shared.now(), logged: self.shared.logged() }
    }

    fn idle(&mut self) {
        if self.is_failing && !self.shared.disk.reopen() {
            return;
        }
        let outcome = self.eviction.idle(&self.shared.disk, self.due());
        self.note(outcome.as_ref().err());
    }

    fn write(&mut self, batch: Vec<Waiting>) {
        let changes: Vec<&Change> = batch.iter().map(|waiting| &waiting.change).collect();
        let outcome = self.apply(&changes);
        self.note(outcome.as_ref().err());
        let answers = match outcome {
            Ok(answers) => answers.into_iter().map(Ok).collect::<Vec<_>>(),
            Err(error) => vec![Err(error); batch.len()],
        };
        for (Waiting { caller, room, .. }, answer) in batch.into_iter().zip(answers) {
            drop(room);
            // Who went away in the meantime needs no answer; the change holds.
            let _ = caller.send(answer);
        }
    }

    fn apply(&mut self, changes: &[&Change]) -> Result<Vec<Answer>, StoreError> {
        if self.is_failing && !self.shared.disk.reopen() {
            return Err(StoreError::closed());
        }
        let due = self.due();
        let eviction = &mut self.eviction;
        let (answers, next) = self.shared.disk.write(|transaction| {
            let mut tables = Tables::open(transaction)?;
            let answers = tables.apply(changes, due.now)?;
            eviction.step(&mut tables, due, changes.len())?;
            Ok((answers, (tables.counter(NEXT_RECEIPT)?, tables.counter(NEXT_ROW)?)))
        })?;
        self.shared.tell_kept(next);
        Ok(answers)
    }

    /// Says once that writing fails, and once that it works again.
    fn note(&mut self, failure: Option<&StoreError>) {
        match (failure, self.is_failing) {
            (Some(failure), false) => error!(%failure, "records cannot be written; requests are refused"),
            (None, true) => info!("records can be written again"),
            _ => {}
        }
        self.is_failing = failure.is_some();
    }
}
