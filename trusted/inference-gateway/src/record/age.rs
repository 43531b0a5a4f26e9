//! The time by which things have had their time.
//!
//! A clock may jump ahead and be set back, and what was removed in between would be gone for good. So this time runs
//! as fast as a watch that cannot be set, and follows a clock that is ahead of it only when the clock has been ahead
//! for as long as it is: nothing goes before its time has really passed. What passes while nobody runs is found out
//! in the same way. A clock that is behind is followed at once: things stay for longer.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cloister_verifier::Clock;
use tracing::{info, warn};

/// How far a clock may be ahead without a word, in seconds.
const QUIET_S: u64 = 300;

/// What time it is, and how much time has passed since some moment.
#[derive(Clone)]
pub(crate) struct Times {
    clock: Clock,
    watch: Arc<dyn Fn() -> Duration + Send + Sync>,
}

impl Times {
    /// A clock that can be set, and a watch that cannot.
    pub(crate) fn new(clock: Clock, watch: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self { clock, watch: Arc::new(watch) }
    }

    /// Seconds since the Unix epoch.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.clock.now().as_second()).unwrap_or(0)
    }

    /// Time since some moment.
    pub(super) fn passed(&self) -> Duration {
        (self.watch)()
    }
}

impl From<Clock> for Times {
    fn from(clock: Clock) -> Self {
        let began = Instant::now();
        Self::new(clock, move || began.elapsed())
    }
}

impl fmt::Debug for Times {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Times")
    }
}

/// That time.
#[derive(Debug)]
pub(super) struct Age {
    /// Seconds since the Unix epoch.
    time: u64,
    /// What the watch showed then.
    at: Duration,
    /// What it showed when the clock was ahead first.
    ahead: Option<Duration>,
    is_told: bool,
}

impl Age {
    /// It was that time last, in seconds since the Unix epoch, and the watch shows this.
    pub(super) const fn new(time: u64, at: Duration) -> Self {
        Self { time, at, ahead: None, is_told: false }
    }

    /// The time, when the clock and the watch show this. Says once in the log that the clock is far ahead, and once that
    /// it is followed.
    pub(super) fn look(&mut self, clock: u64, watch: Duration) -> u64 {
        let passed = watch.saturating_sub(self.at).as_secs();
        self.time = self.time.saturating_add(passed);
        self.at += Duration::from_secs(passed);
        let lead = clock.saturating_sub(self.time);
        let since = self.ahead.map_or(Duration::ZERO, |ahead| watch.saturating_sub(ahead));
        let is_followed = self.ahead.is_some() && since.as_secs() >= lead;
        if lead == 0 || is_followed {
            (self.time, self.ahead) = (clock, None);
            if std::mem::take(&mut self.is_told) {
                info!("what has had its time is removed again by the machine's clock");
            }
            return self.time;
        }
        self.ahead.get_or_insert(watch);
        if lead > QUIET_S && !std::mem::replace(&mut self.is_told, true) {
            warn!(
                seconds = lead,
                "the machine's clock has jumped ahead, or nothing ran for so long: for as long again, receipts and \
                 usage stay that would have had their time"
            );
        }
        self.time
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: u64 = 1_750_000_000;

    #[test]
    fn a_clock_that_is_ahead_is_followed_when_it_stays_so() {
        let mut age = Age::new(START, Duration::ZERO);
        let mut look =
            |ahead: u64, passed: u64| age.look(START + ahead + passed, Duration::from_secs(passed)) - START;
        assert_eq!((look(0, 10), look(1000, 20), look(1000, 1019), look(1000, 1020)), (10, 20, 1019, 2020));
        // It is set back, and jumps again: the time in between does not count.
        assert_eq!(
            (look(0, 1030), look(500, 1100), look(0, 1500), look(500, 1600)),
            (1030, 1100, 1500, 1600)
        );
        assert_eq!((look(500, 2099), look(500, 2100)), (2099, 2600));
        // A second jump after the first has to wait for both.
        assert_eq!(
            (look(600, 2150), look(900, 2200), look(900, 2549), look(900, 2550)),
            (2650, 2700, 3049, 3450)
        );
    }

    proptest! {
        /// However a clock jumps, if it is never ahead for as long as it is, nothing ages faster than time passes.
        #[test]
        fn nothing_ages_faster_than_time_passes(jumps in prop::collection::vec((0_u64..100_000, 0_u64..100_000, 1_u64..1000), 1..40)) {
            let (mut age, mut real) = (Age::new(START, Duration::ZERO), 0);
            for (ahead, lasts, right) in jumps {
                // It looks at the clock at its beginning and before its end.
                let lasts = lasts.min(ahead.saturating_sub(1));
                for passed in [0, lasts] {
                    let told = age.look(START + real + passed + ahead, Duration::from_secs(real + passed));
                    prop_assert!(ahead == 0 || told <= START + real + passed);
                }
                real += lasts;
                // Then it is right, for a while.
                for passed in [0, right] {
                    prop_assert_eq!(age.look(START + real + passed, Duration::from_secs(real + passed)), START + real + passed);
                }
                real += right;
            }
        }
    }
}
