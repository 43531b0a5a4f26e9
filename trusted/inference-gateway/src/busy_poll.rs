//! Busy polling: for a moment after something happened the gateway looks for what comes next instead of sleeping.
//!
//! Waking a processor up takes tens of microseconds, in virtual machines above all, and every request waits for that
//! twice: when it comes, and when its upstream has answered. Looking takes a processor's time, and is of use only where
//! something comes soon. So it goes on only while it pays, as the kernel's polling of idle guests does; otherwise it is
//! tried now and then.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio_util::sync::CancellationToken;

/// While it does not pay, it is tried once in so many times that something happens.
const TRIED_ONCE_IN: u32 = 64;
/// What has come in time counts one; what has not, so much against it. It pays while what counts is more than nothing.
const MISS: u32 = 2;
/// The most that counts.
const MOST: u32 = 16;

/// Looks for what comes next.
#[derive(Debug)]
pub struct BusyPoll {
    started: Instant,
    /// Longest time to look after something happened, in nanoseconds; 0 is never.
    longest: AtomicU64,
    /// When something happened last, in nanoseconds since the start.
    last: AtomicU64,
    is_looking: AtomicBool,
    happened: Notify,
}

impl Default for BusyPoll {
    /// Never looks, until it is [told](Self::set_longest) for how long.
    fn default() -> Self {
        Self {
            started: Instant::now(),
            longest: AtomicU64::new(0),
            last: AtomicU64::new(0),
            is_looking: AtomicBool::new(false),
            happened: Notify::new(),
        }
    }
}

impl BusyPoll {
    /// How long it looks at most after something happened; zero is never.
    pub fn set_longest(&self, longest: Duration) {
        self.longest.store(nanoseconds(longest), Ordering::Relaxed);
    }

    /// Something happened that something else may follow soon: a request came, or went out, or an answer was given.
    pub fn note(&self) {
        if self.longest.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.last.store(nanoseconds(self.started.elapsed()), Ordering::Relaxed);
        if !self.is_looking.load(Ordering::Relaxed) {
            self.happened.notify_one();
        }
    }

    /// Looks, until it is told to stop. One task of the runtime does this: whenever nothing else is to be done, the runtime
    /// asks the kernel what is new instead of waiting for it.
    pub async fn run(&self, stop: CancellationToken) {
        let mut odds = Odds::default();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.happened.notified() => {}
            }
            if odds.takes_chance() {
                self.is_looking.store(true, Ordering::Relaxed);
                self.look(&mut odds).await;
                self.is_looking.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Looks until nothing has happened for too long.
    async fn look(&self, odds: &mut Odds) {
        let mut seen = self.last.load(Ordering::Relaxed);
        loop {
            yield_now().await;
            let last = self.last.load(Ordering::Relaxed);
            if last != seen {
                odds.hit();
                seen = last;
                continue;
            }
            let silent = nanoseconds(self.started.elapsed()).saturating_sub(last);
            if silent >= self.longest.load(Ordering::Relaxed) {
                odds.miss();
                return;
            }
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether it pays.
#[derive(Debug, Default)]
struct Odds {
    counts: u32,
    /// How often it was not tried in a row.
    passed: u32,
}

impl Odds {
    fn takes_chance(&mut self) -> bool {
        if self.counts == 0 && self.passed < TRIED_ONCE_IN - 1 {
            self.passed += 1;
            return false;
        }
        self.passed = 0;
        true
    }

    fn hit(&mut self) {
        self.counts = MOST.min(self.counts + 1);
    }

    fn miss(&mut self) {
        self.counts = self.counts.saturating_sub(MISS);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Chances that are taken of so many, where each ends in a miss after so many hits.
    fn taken(odds: &mut Odds, of: u32, hits: u32) -> u32 {
        let mut taken = 0;
        for _ in 0..of {
            if odds.takes_chance() {
                taken += 1;
                (0..hits).for_each(|_| odds.hit());
                odds.miss();
            }
        }
        taken
    }

    #[test]
    fn it_goes_on_while_it_pays() {
        let mut odds = Odds::default();
        assert_eq!(taken(&mut odds, 640, 0), 10, "nothing comes in time: tried now and then");
        assert_eq!(taken(&mut odds, 640, 1), 10, "one in time of two that come");
        let paying = taken(&mut odds, 640, 3);
        assert!(paying > 640 - 64, "{paying}");
        let after = taken(&mut odds, 640, 0);
        assert!((10..=20).contains(&after), "it ends soon when nothing comes any more: {after}");
    }

    #[tokio::test]
    async fn it_looks_only_for_so_long() {
        let (poll, stop) = (Arc::new(BusyPoll::default()), CancellationToken::new());
        let (its, stopped) = (Arc::clone(&poll), stop.clone());
        let looking = tokio::spawn(async move { its.run(stopped).await });
        for longest in [Duration::ZERO, Duration::from_micros(50)] {
            poll.set_longest(longest);
            for _ in 0..2 * TRIED_ONCE_IN {
                poll.note();
                yield_now().await;
                while poll.is_looking.load(Ordering::Relaxed) {
                    assert!(!longest.is_zero());
                    yield_now().await;
                }
            }
            assert_eq!(poll.last.load(Ordering::Relaxed) == 0, longest.is_zero());
        }
        stop.cancel();
        looking.await.unwrap();
    }
}
