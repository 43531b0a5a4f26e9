//! The thread that moves what was written into the database, generation by generation.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::StoreError;
use super::eviction::{Due, Eviction};
use super::filing::Tables;
use super::shared::Shared;
use super::tables::AGE;
use super::trouble::Trouble;

/// Time in which changes gather, so that many share a transaction.
const GATHER: Duration = Duration::from_millis(200);
/// What has gathered so many bytes goes at once.
const LARGE: usize = 4 << 20;
/// After so long without changes, what has had its time goes all the same.
const IDLE: Duration = Duration::from_secs(10);
/// Pause after the first failure; each that follows doubles it.
const PAUSE: Duration = Duration::from_millis(500);
/// Longest pause after a failure that was found out at once.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// A pause is so many times as long as the try before it, which may have read the whole database, up to [`LONGEST_REST`].
const RESTS: u32 = 2;
const LONGEST_REST: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(super) struct Filer {
    pub(super) shared: Arc<Shared>,
    pub(super) eviction: Eviction,
}

impl Filer {
    /// Works until nobody can wake it any more; then files what is left, unless it fails: the next start will.
    pub(super) fn run(mut self, wakes: &Receiver<()>) {
        let (mut outcome, mut pause) = (Ok(true), PAUSE);
        loop {
            let wait = if self.eviction.is_behind { Duration::ZERO } else { IDLE };
            let (is_due, is_ending) = match &outcome {
                Err(_) => (true, wait_for(wakes, pause, || false)),
                Ok(_) => match wakes.recv_timeout(wait) {
                    Ok(()) => (false, wait_for(wakes, GATHER, || self.has_much())),
                    Err(end) => (true, end == RecvTimeoutError::Disconnected),
                },
            };
            let had_failed = outcome.is_err();
            let began = Instant::now();
            outcome = self.step(is_due);
            pause = if had_failed { LONGEST_PAUSE.min(2 * pause) } else { PAUSE };
            pause = pause.max(LONGEST_REST.min(began.elapsed() * RESTS));
            if is_ending {
                while outcome == Ok(true) {
                    outcome = self.step(false);
                }
                return;
            }
        }
    }

    fn has_much(&self) -> bool {
        self.shared.pending.read().gathering.bytes() >= LARGE
    }

    /// Files a generation, and removes some of what has had its time, which also happens without changes when it `is_due`.
    /// False if there was no generation.
    fn step(&mut self, is_due: bool) -> Result<bool, StoreError> {
        let outcome = self.file(is_due);
        if self.shared.disk.has_lost() {
            self.shared.troubles.note::<()>(Trouble::Lost, &Err(StoreError::lost()));
        }
        self.shared.troubles.note(Trouble::Filing, &outcome);
        outcome
    }

    fn file(&mut self, is_due: bool) -> Result<bool, StoreError> {
        if self.shared.troubles.has(Trouble::Filing) && !self.shared.disk.reopen() {
            return Err(StoreError::closed());
        }
        let generation = self.shared.turn();
        if generation.is_none() && !is_due {
            return Ok(false);
        }
        let due = self.due();
        let eviction = &mut self.eviction;
        let next = self.shared.disk.write(|transaction| {
            let mut tables = Tables::open(transaction)?;
            let changes = generation.as_ref().map_or(0, |generation| generation.changes.len());
            if let Some(generation) = &generation {
                tables.file(generation.number, &generation.changes)?;
            }
            tables.counters.insert(AGE, due.now)?;
            eviction.step(&mut tables, &due, changes)?;
            tables.next()
        })?;
        if let Some(generation) = &generation {
            self.shared.pending.write().going = None;
            self.shared.filed.send_replace(generation.number + 1);
        }
        self.shared.tell_kept(next);
        Ok(generation.is_some())
    }

    fn due(&self) -> Due {
        // In this order: who holds a session from now on holds one that has not ended.
        let now = self.shared.aged();
        let mut held = self.shared.holds.names();
        held.extend(self.shared.pending.read().gathering.session_ends.keys());
        Due { now, logged: self.shared.logged(), held }
    }
}

/// Lets some time pass, unless there is enough before; tells whether nobody can wake any more.
fn wait_for(wakes: &Receiver<()>, time: Duration, is_enough: impl Fn() -> bool) -> bool {
    let until = Instant::now() + time;
    while !is_enough() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        if wakes.recv_timeout(left) == Err(RecvTimeoutError::Disconnected) {
            return true;
        }
    }
    false
}
