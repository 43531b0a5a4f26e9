//! Busy polling: for a moment after something happened the gateway looks for what comes next instead of sleeping.
//!
//! Waking a processor up takes tens of microseconds, in virtual machines above all, and every request waits for that
//! twice: when it comes, and when its upstream has answered. Looking takes a processor's time, and is of use only where
//! something comes soon. So it goes on only while it pays, as the kernel's polling of idle guests does; otherwise it is
//! tried now and then.
//!
//! It is for a runtime of one worker. Of several, the one that looks would wake another again and again, to have its work
//! taken, and that one would be the one that asks the kernel.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
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
    odds: Odds,
    begin: Notify,
}

impl Default for BusyPoll {
    /// Never looks, until it is [told](Self::set_longest) for how long.
    fn default() -> Self {
        Self {
            started: Instant::now(),
            longest: AtomicU64::new(0),
            last: AtomicU64::new(0),
            is_looking: AtomicBool::new(false),
            odds: Odds::default(),
            begin: Notify::new(),
        }
    }
}

impl BusyPoll {
    /// How long it looks at most after something happened; zero is never, and so is anything outside of a runtime of one
    /// worker.
    pub fn set_longest(&self, longest: Duration) {
        let is_alone = Handle::try_current().is_ok_and(|runtime| runtime.metrics().num_workers() == 1);
        self.longest.store(if is_alone { nanoseconds(longest) } else { 0 }, Ordering::Relaxed);
    }

    /// Something happened that something else may follow soon.
    pub fn note(&self) {
        if self.longest.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.last.store(nanoseconds(self.started.elapsed()), Ordering::Relaxed);
        if !self.is_looking.load(Ordering::Relaxed) && self.odds.takes_chance() {
            self.begin.notify_one();
        }
    }

    /// Looks, until it is told to stop. One task of the runtime does this: whenever nothing else is to be done, the runtime
    /// asks the kernel what is new instead of waiting for it.
    pub async fn run(&self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.begin.notified() => {}
            }
            self.is_looking.store(true, Ordering::Relaxed);
            self.look().await;
            self.is_looking.store(false, Ordering::Relaxed);
        }
    }

    /// Looks until nothing has happened for too long.
    async fn look(&self) {
        let mut seen = self.last.load(Ordering::Relaxed);
        loop {
            yield_now().await;
            let last = self.last.load(Ordering::Relaxed);
            if last != seen {
                self.odds.hit();
                seen = last;
                continue;
            }
            let silent = nanoseconds(self.started.elapsed()).saturating_sub(last);
            if silent >= self.longest.load(Ordering::Relaxed) {
                self.odds.miss();
                return;
            }
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether it pays. What two threads do to it at once may count once only.
#[derive(Debug, Default)]
struct Odds {
    counts: AtomicU32,
    /// How often it was not tried in a row.
    passed: AtomicU32,
}

impl Odds {
    fn takes_chance(&self) -> bool {
        let passed = self.passed.load(Ordering::Relaxed);
        let takes = self.counts.load(Ordering::Relaxed) > 0 || passed >= TRIED_ONCE_IN - 1;
        self.passed.store(if takes { 0 } else { passed + 1 }, Ordering::Relaxed);
        takes
    }

    fn hit(&self) {
        let counts = self.counts.load(Ordering::Relaxed);
        self.counts.store(MOST.min(counts + 1), Ordering::Relaxed);
    }

    fn miss(&self) {
        let counts = self.counts.load(Ordering::Relaxed);
        self.counts.store(counts.saturating_sub(MISS), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Chances that are taken of so many, where each ends in a miss after so many hits.
    fn taken(odds: &Odds, of: u32, hits: u32) -> u32 {
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
        let odds = Odds::default();
        assert_eq!(taken(&odds, 640, 0), 10, "nothing comes in time: tried now and then");
        assert_eq!(taken(&odds, 640, 1), 10, "one in time of two that come");
        let paying = taken(&odds, 640, 3);
        assert!(paying > 640 - 64, "{paying}");
        let after = taken(&odds, 640, 0);
        assert!((10..=20).contains(&after), "it ends soon when nothing comes any more: {after}");
    }

    /// How often it looks when so many things happen, each after it has stopped to look for what follows the one before: by
    /// itself, or because it is told to.
    async fn looks(longest: Duration, happen: u32, is_told: bool) -> u32 {
        let (poll, stop) = (Arc::new(BusyPoll::default()), CancellationToken::new());
        let (its, stopped) = (Arc::clone(&poll), stop.clone());
        let looking = tokio::spawn(async move { its.run(stopped).await });
        let mut looks = 0;
        for _ in 0..happen {
            poll.set_longest(longest);
            poll.note();
            // Whoever was woken has its turn.
            yield_now().await;
            yield_now().await;
            looks += u32::from(poll.is_looking.load(Ordering::Relaxed));
            if is_told {
                poll.set_longest(Duration::ZERO);
            }
            while poll.is_looking.load(Ordering::Relaxed) {
                yield_now().await;
            }
        }
        stop.cancel();
        looking.await.unwrap();
        looks
    }

    #[tokio::test]
    async fn it_looks_now_and_then_and_only_for_so_long() {
        // So long that it is seen to look, however slow the machine is.
        assert_eq!(looks(Duration::from_hours(1), 2 * TRIED_ONCE_IN, true).await, 2);
        assert_eq!(looks(Duration::ZERO, 2 * TRIED_ONCE_IN, false).await, 0);
        assert!(
            looks(Duration::from_micros(50), 2 * TRIED_ONCE_IN, false).await <= 2,
            "it has ended by itself"
        );
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn beside_other_workers_it_never_looks() {
        let poll = BusyPoll::default();
        poll.set_longest(Duration::from_millis(50));
        for _ in 0..2 * TRIED_ONCE_IN {
            poll.note();
        }
        assert_eq!(poll.last.load(Ordering::Relaxed), 0);
    }
}
