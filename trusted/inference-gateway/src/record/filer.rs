//! The thread that moves what was written into the database, generation by generation.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use super::StoreError;
use super::eviction::{Due, Eviction};
use super::filing::Tables;
use super::pending::Generation;
use super::shared::Shared;
use super::tables::AGE;
use super::trouble::Trouble;
use super::turns;

/// Time in which changes gather, so that many share a transaction.
const GATHER: Duration = Duration::from_millis(200);
/// How often it is looked whether that is over sooner.
const LOOK: Duration = Duration::from_millis(10);
/// What has gathered so many bytes goes at once: a larger transaction keeps a processor for longer when it commits.
const LARGE: usize = 1 << 20;
/// With so many bytes that wait it does not keep up.
const BEHIND: usize = 4 * LARGE;
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
        let (mut outcome, mut rest) = (Ok(true), Rest::default());
        loop {
            let wait = if self.eviction.is_behind { Duration::ZERO } else { IDLE };
            let (is_due, is_ending) = match &outcome {
                Err(_) => (true, wait_for(wakes, rest.time, || false)),
                Ok(_) => match wakes.recv_timeout(wait) {
                    Ok(()) => (false, wait_for(wakes, GATHER, || self.has_much())),
                    Err(end) => (true, end == RecvTimeoutError::Disconnected),
                },
            };
            let began = Instant::now();
            if is_ending {
                turns::set_endless();
            } else {
                turns::set_short(self.shared.pending.read().bytes(), BEHIND);
            }
            outcome = self.step(is_due);
            rest = if outcome.is_ok() { Rest::default() } else { rest.longer(began.elapsed()) };
            if is_ending {
                if self.shared.journal.is_unsure() {
                    self.shared.probe();
                    outcome = self.step(false);
                }
                while outcome == Ok(true) {
                    outcome = self.step(false);
                }
                return;
            }
        }
    }

    fn has_much(&self) -> bool {
        self.gathered() >= LARGE
    }

    /// In bytes.
    fn gathered(&self) -> usize {
        self.shared.pending.read().gathering.bytes()
    }

    /// Files a generation, and removes some of what has had its time, which also happens without changes when it `is_due`.
    /// False if there was no generation.
    fn step(&mut self, is_due: bool) -> Result<bool, StoreError> {
        let outcome = self.file(is_due);
        if outcome == Err(StoreError::unsettled()) {
            // Nothing is wrong with the database.
            return outcome;
        }
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
        let Shared { disk, journal, troubles, .. } = &*self.shared;
        let going = self.shared.turn();
        if going.is_none() && !is_due {
            return Ok(false);
        }
        let due = self.due();
        let idle_at = if going.is_none() { self.shared.all_filed() } else { None };
        let eviction = &mut self.eviction;
        let filed = disk.write(|transaction| {
            let mut tables = Tables::open(transaction)?;
            let changes = going.as_ref().map_or(0, |going| going.generation.changes.len());
            if let Some(going) = &going {
                tables.file(going.generation.number, going.changes())?;
            }
            if let Some(position) = idle_at {
                tables.set_position(position)?;
            }
            tables.counters.insert(AGE, due.now)?;
            eviction.step(&mut tables, &journal.segments, &due, changes)?;
            let filed = (tables.next()?, tables.first_segment()?);
            if let Some(going) = &going {
                journal.settle(troubles, going)?;
            }
            Ok(filed)
        });
        let (next, first_segment) = filed.inspect_err(|_| eviction.look_again())?;
        if let Some(going) = &going {
            self.shared.pending.write().arrived();
            self.shared.filed.send_replace(going.generation.number + 1);
            let (first, records) = going.generation.records();
            self.shared.to_log.put(first, records);
        }
        self.shared.tell_kept(next);
        journal.turn(troubles);
        journal.forget_before(first_segment);
        let had_one = going.is_some();
        let generation = going.and_then(|going| Arc::into_inner(going.generation));
        for piece in generation.into_iter().flat_map(Generation::into_pieces) {
            drop(piece);
            turns::end_if_over();
        }
        Ok(had_one)
    }

    fn due(&self) -> Due {
        // In this order: who holds a session from now on holds one that has not ended.
        let now = self.shared.aged();
        let mut held = self.shared.holds.names();
        held.extend(self.shared.pending.read().gathering.session_ends.keys());
        Due { now, logged: self.shared.logged(), held }
    }
}

/// The pause after a failure.
#[derive(Debug, Clone, Copy, Default)]
struct Rest {
    /// By the failures in a row.
    pause: Duration,
    time: Duration,
}

impl Rest {
    /// After one more failure, which took so long.
    fn longer(self, tried: Duration) -> Self {
        let pause = (2 * self.pause).clamp(PAUSE, LONGEST_PAUSE);
        Self { pause, time: pause.max(LONGEST_REST.min(tried * RESTS)) }
    }
}

/// Lets some time pass, unless there is enough before; tells whether nobody can wake any more. Waiting for each wake
/// would cost each change a switch between threads.
pub(super) fn wait_for(wakes: &Receiver<()>, time: Duration, is_enough: impl Fn() -> bool) -> bool {
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || is_enough() {
            return false;
        }
        thread::sleep(left.min(LOOK));
        if wakes.try_recv() == Err(TryRecvError::Disconnected) {
            return true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_failures_and_with_what_a_try_takes() {
        let mut rest = Rest::default();
        for (tried_ms, pause_ms) in [
            (0, 500),
            (1, 1000),
            (900, 2000),
            (3000, 6000),
            (0, 8000),
            (0, 8000),
            (20_000, 40_000),
            (3_600_000, 60_000),
            (0, 8000),
        ] {
            rest = rest.longer(Duration::from_millis(tried_ms));
            assert_eq!(rest.time, Duration::from_millis(pause_ms), "after {tried_ms} ms");
        }
    }

    #[test]
    fn who_waits_hears_the_end_and_that_it_is_enough() {
        let (wake, wakes) = std::sync::mpsc::sync_channel(1);
        wake.send(()).unwrap();
        assert!(!wait_for(&wakes, Duration::from_mins(10), || true));
        assert!(!wait_for(&wakes, Duration::from_millis(1), || false), "a wake is not the end");
        drop(wake);
        assert!(wait_for(&wakes, Duration::from_mins(10), || false));
    }
}
