//! How much a key may use in a minute: windows that slide, so that a minute never holds twice its limit.

use std::time::Duration;

use http::{HeaderName, HeaderValue};
use parking_lot::Mutex;

/// Length of a window.
const MINUTE: Duration = Duration::from_mins(1);

/// Headers that tell of a limit, of what is left of it, and of when it is whole again: of the limit that refuses, or else of that of
/// requests.
const PLAIN: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];
/// The same of the limit of tokens.
const TOKENS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-tokens"),
    HeaderName::from_static("x-ratelimit-remaining-tokens"),
    HeaderName::from_static("x-ratelimit-reset-tokens"),
];

/// Instants are durations since a beginning that the caller chose.
type Instant = Duration;

/// One limit: so many units in any minute, as near as two counts can tell: of the minute before, as much counts as
/// still overlaps.
#[derive(Debug)]
pub struct Window {
    limit: u64,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    minute: u64,
    now: u64,
    before: u64,
}

impl Counts {
    fn at(mut self, minute: u64) -> Self {
        // A clock that steps back stays in its minute.
        match minute.saturating_sub(self.minute) {
            0 => self,
            1 => {
                (self.before, self.now, self.minute) = (self.now, 0, minute);
                self
            }
            _ => Self { minute, now: 0, before: 0 },
        }
    }
}

impl Counts {
    /// What counts so many seconds into the minute.
    const fn used(self, into: u64) -> u64 {
        self.now.saturating_add(self.before.saturating_mul(60 - into) / 60)
    }

    /// Seconds until less than the limit counts, if nothing else is used.
    fn wait(self, into: u64, limit: u64) -> u64 {
        let next = Self { minute: self.minute + 1, now: 0, before: self.now };
        let later = (into + 1..60).map(|at| self.used(at)).chain((0..60).map(|at| next.used(at)));
        let waits = (1..).zip(later);
        waits.into_iter().find(|(_, used)| *used < limit).map_or(120 - into, |(wait, _)| wait)
    }
}

/// What a limit says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Whether there is room.
    pub admitted: bool,
    /// The limit.
    pub limit: u64,
    /// What is left of it, if that is known.
    pub remaining: Option<u64>,
    /// Seconds, at least 1: where there is no room, until there is some if nothing else is used, otherwise until the
    /// minute of the clock is over.
    pub reset_s: u64,
}

impl Window {
    /// A limit in units per minute.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self { limit, counts: Mutex::default() }
    }

    /// Takes units if there is room for one of them. More than the limit may be taken at once: what an answer uses
    /// is known when it is over.
    pub fn take(&self, units: u64, now: Instant) -> Decision {
        let seconds = now.as_secs();
        let (minute, into) = (seconds / MINUTE.as_secs(), seconds % MINUTE.as_secs());
        let mut counts = self.counts.lock();
        *counts = counts.at(minute);
        let used = counts.used(into);
        let admitted = used < self.limit;
        let (used, reset_s) = if admitted {
            counts.now = counts.now.saturating_add(units);
            (used.saturating_add(units), 60 - into)
        } else {
            (used, counts.wait(into, self.limit))
        };
        Decision { admitted, limit: self.limit, remaining: Some(self.limit.saturating_sub(used)), reset_s }
    }

    /// Counts units that were used without asking.
    pub fn used(&self, units: u64, now: Instant) {
        let minute = now.as_secs() / MINUTE.as_secs();
        let mut counts = self.counts.lock();
        *counts = counts.at(minute);
        counts.now = counts.now.saturating_add(units);
    }
}

/// The limits of a key.
#[derive(Debug, Default)]
pub struct Limits {
    /// Requests that may begin.
    pub requests: Option<Window>,
    /// Tokens that may be used; what an answer used counts when it is over.
    pub tokens: Option<Window>,
}

/// What limits say, each where there is one that was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Left {
    /// About requests.
    pub requests: Option<Decision>,
    /// About tokens.
    pub tokens: Option<Decision>,
}

impl Limits {
    /// Takes a request; `Err` if a limit has no room.
    pub fn begin(&self, now: Instant) -> Result<Left, Left> {
        // Tokens first: a request that is refused for them uses no request.
        let tokens = self.tokens.as_ref().map(|window| window.take(0, now));
        if tokens.is_some_and(|decision| !decision.admitted) {
            return Err(Left { requests: None, tokens });
        }
        let requests = self.requests.as_ref().map(|window| window.take(1, now));
        let left = Left { requests, tokens };
        if left.refusal().is_some() { Err(left) } else { Ok(left) }
    }

    /// Counts what an answer used.
    pub fn end(&self, tokens: u64, now: Instant) {
        if let Some(window) = &self.tokens {
            window.used(tokens, now);
        }
    }
}

impl Left {
    /// The limit that has no room, if one has not.
    #[must_use]
    pub fn refusal(&self) -> Option<Decision> {
        [self.tokens, self.requests].into_iter().flatten().find(|decision| !decision.admitted)
    }

    /// The headers that tell a client, at a time in seconds since the Unix epoch.
    #[must_use]
    pub fn headers(&self, now: u64) -> Vec<(HeaderName, HeaderValue)> {
        let rows = [(PLAIN, self.refusal().or(self.requests)), (TOKENS, self.tokens)];
        let told = rows.into_iter().filter_map(|(names, decision)| Some((names, decision?)));
        told.flat_map(|(names, Decision { limit, remaining, reset_s, .. })| {
            let values = [Some(limit), remaining, Some(now.saturating_add(reset_s))];
            names.into_iter().zip(values).filter_map(|(name, value)| Some((name, value?.into())))
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_minute_holds_its_limit() {
        let window = Window::new(3);
        for remaining in [2, 1, 0] {
            let decision = window.take(1, at(0));
            assert!(decision.admitted && decision.remaining == Some(remaining));
        }
        assert_eq!(
            window.take(1, at(10)),
            Decision { admitted: false, limit: 3, remaining: Some(0), reset_s: 51 }
        );
        assert!(!window.take(1, at(60)).admitted, "the minute before still counts");
        assert!(window.take(1, at(80)).admitted);
        assert!(window.take(1, at(200)).admitted);
    }

    #[test]
    fn tokens_count_when_they_are_known() {
        let limits = Limits { requests: Some(Window::new(2)), tokens: Some(Window::new(100)) };
        let left = limits.begin(at(0)).unwrap();
        assert!(left.requests.is_some() && left.tokens.is_some() && left.refusal().is_none());
        limits.end(500, at(1));
        let refused = limits.begin(at(2)).unwrap_err().refusal().unwrap();
        assert_eq!((refused.limit, refused.remaining), (100, Some(0)));
        assert!(limits.begin(at(70)).is_err(), "the minute before still counts");
        assert!(limits.begin(at(130)).is_ok());
        assert_eq!(Limits::default().begin(at(0)), Ok(Left::default()));
    }

    #[test]
    fn clients_are_told_in_headers() {
        let limits = Limits { requests: Some(Window::new(1)), tokens: Some(Window::new(100)) };
        let told = |left: Left| {
            let headers = left.headers(1000).into_iter();
            headers
                .map(|(name, value)| format!("{}={}", &name.as_str()[12..], value.to_str().unwrap()))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let tokens = "limit-tokens=100 remaining-tokens=100 reset-tokens=1060";
        let left = limits.begin(at(0)).unwrap();
        assert_eq!(told(left), format!("limit=1 remaining=0 reset=1060 {tokens}"));
        let refused = limits.begin(at(0)).unwrap_err();
        assert_eq!(told(refused), format!("limit=1 remaining=0 reset=1061 {tokens}"));
        assert_eq!(told(Left::default()), "");
        let some = Decision { admitted: true, limit: 5, remaining: None, reset_s: 7 };
        assert_eq!(told(Left { requests: Some(some), tokens: None }), "limit=5 reset=1007");
    }

    proptest! {
        /// Who waits as long as it was told, and nobody else asks, is admitted; a second earlier, nobody is.
        #[test]
        fn a_wait_that_is_told_is_long_enough(
            units in prop::collection::vec((0_u64..40, 0_u64..50), 1..10), limit in 1_u64..20, now in 0_u64..200,
        ) {
            let window = Window::new(limit);
            let mut time = now;
            for (step, units) in units {
                time += step;
                window.used(units, at(time));
            }
            let decision = window.take(0, at(time));
            if !decision.admitted {
                prop_assert!(!window.take(0, at(time + decision.reset_s - 1)).admitted);
                prop_assert!(window.take(0, at(time + decision.reset_s)).admitted);
            }
        }

        /// No stretch of a minute admits more than twice the limit, none of the clock's minutes more than the limit.
        #[test]
        fn never_much_more_than_the_limit(steps in prop::collection::vec(0_u64..20, 1..200), limit in 1_u64..10) {
            let window = Window::new(limit);
            let (mut now, mut admitted) = (0_u64, Vec::new());
            for step in steps {
                now += step;
                if window.take(1, at(now)).admitted {
                    admitted.push(now);
                }
            }
            for from in &admitted {
                let within = admitted.iter().filter(|time| (*from..from + 60).contains(*time)).count();
                prop_assert!(within as u64 <= 2 * limit);
                let same = admitted.iter().filter(|time| *time / 60 == from / 60).count();
                prop_assert!(same as u64 <= limit);
            }
        }
    }
}
