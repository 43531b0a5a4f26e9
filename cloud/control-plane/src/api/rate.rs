//! How often somebody may ask for something: each API key for anything, each workspace for what costs more than a
//! request. Answers tell what a key has left in the headers of draft-ietf-httpapi-ratelimit-headers-10; what is too often
//! is refused with 429 and `Retry-After`. Counted by the time that passes: a clock that is set changes nothing.

use std::hash::Hash;
use std::num::NonZeroU32;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};

use super::error::ApiError;
use crate::clock::Clock;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const WINDOW_S: u64 = 60;
/// Keys that are remembered before those that have all their requests again are forgotten.
const MAX_REMEMBERED: usize = 10_000;

impl governor::clock::Clock for Clock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.passed()
    }
}

/// What each of some has left. All of a quota may be taken at once; it comes back one by one.
pub(crate) struct Rates<K: Clone + Eq + Hash>(
    Option<RateLimiter<K, HashMapStateStore<K>, Clock, StateInformationMiddleware>>,
);

/// What one has left, for its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Left {
    limit: u32,
    remaining: u32,
    /// Until all of them are there again, or the next one is.
    wait: Duration,
}

impl<K: Clone + Eq + Hash> Rates<K> {
    /// So many in a minute; `None` is no limit.
    pub(crate) fn per_minute(limit: Option<NonZeroU32>, clock: &Clock) -> Self {
        Self::of(limit.map(Quota::per_minute), clock)
    }

    /// One at a time, with at least a period between two.
    pub(crate) fn every(period: Duration, clock: &Clock) -> Self {
        Self::of(Quota::with_period(period), clock)
    }

    fn of(quota: Option<Quota>, clock: &Clock) -> Self {
        Self(quota.map(|quota| {
            let limiter = RateLimiter::hashmap_with_clock(quota, clock.clone());
            limiter.with_middleware::<StateInformationMiddleware>()
        }))
    }

    /// Takes one. `None` when there is no limit.
    pub(crate) fn take(&self, key: &K) -> Result<Option<Left>, Left> {
        let Some(limiter) = &self.0 else { return Ok(None) };
        if limiter.len() > MAX_REMEMBERED {
            limiter.retain_recent();
        }
        match limiter.check_key(key) {
            Ok(state) => {
                let quota = state.quota();
                let (limit, remaining) = (quota.burst_size().get(), state.remaining_burst_capacity());
                let wait = quota.replenish_interval().saturating_mul(limit.saturating_sub(remaining));
                Ok(Some(Left { limit, remaining, wait }))
            }
            Err(refused) => {
                let wait = refused.wait_time_from(governor::clock::Clock::now(limiter.clock()));
                Err(Left { limit: refused.quota().burst_size().get(), remaining: 0, wait })
            }
        }
    }
}

impl Left {
    /// Whole seconds, rounded up: who waits for less is refused again.
    fn wait_s(self) -> u64 {
        self.wait.as_secs() + u64::from(self.wait.subsec_nanos() > 0)
    }

    /// How many there are when none is used.
    pub(crate) const fn limit(self) -> u32 {
        self.limit
    }

    /// How many there are now.
    pub(crate) const fn remaining(self) -> u32 {
        self.remaining
    }

    /// Whole seconds until all of them are there again, or for who was refused until the next one is; at least one.
    pub(crate) fn retry_after_s(self) -> u32 {
        u32::try_from(self.wait_s()).unwrap_or(u32::MAX).max(1)
    }

    /// Says it in the headers of an answer.
    pub(crate) fn tell(self, response: &mut Response) {
        let headers = [
            (POLICY, format!("\"key\";q={};w={WINDOW_S}", self.limit)),
            (LIMIT, format!("\"key\";r={};t={}", self.remaining, self.wait_s())),
        ];
        for (name, text) in headers {
            if let Ok(value) = HeaderValue::from_str(&text) {
                response.headers_mut().insert(name, value);
            }
        }
    }

    /// Refuses what came too soon.
    pub(crate) fn error(self, detail: impl Into<String>) -> ApiError {
        ApiError::plain(StatusCode::TOO_MANY_REQUESTS, detail).retry_after(self.retry_after_s())
    }

    /// The refusal of a request of an API key that came too soon.
    pub(crate) fn refusal(self) -> Response {
        let detail = format!(
            "This API key makes more than {} requests in a minute; wait for the seconds that Retry-After says",
            self.limit
        );
        let mut response = self.error(detail).into_response();
        self.tell(&mut response);
        response
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn rates(per_minute: u32) -> (Rates<i64>, Clock) {
        let clock = Clock::manual(Timestamp::UNIX_EPOCH);
        (Rates::per_minute(NonZeroU32::new(per_minute), &clock), clock)
    }

    #[test]
    fn a_key_has_its_requests_at_once_and_gets_them_back_one_by_one() {
        let (rates, clock) = rates(3);
        let left = |remaining, wait_s| Left { limit: 3, remaining, wait: Duration::from_secs(wait_s) };
        for (remaining, wait_s) in [(2, 20), (1, 40), (0, 60)] {
            assert_eq!(rates.take(&1), Ok(Some(left(remaining, wait_s))));
        }
        assert_eq!(rates.take(&1), Err(left(0, 20)));
        assert_eq!(rates.take(&2), Ok(Some(left(2, 20))), "another key has its own");
        clock.advance_ms(19_999);
        assert_eq!(rates.take(&1).map_err(Left::wait_s), Err(1));
        clock.advance_ms(1);
        assert!(rates.take(&1).is_ok());
        clock.advance_ms(3_600_000);
        assert_eq!(rates.take(&1), Ok(Some(left(2, 20))), "no more than a minute's");
    }

    #[test]
    fn a_clock_that_is_set_neither_gives_nor_takes() {
        let (rates, clock) = rates(1);
        for by_ms in [-3_600_000, 7_200_000, -1] {
            assert!(rates.take(&1).is_ok());
            clock.set_ms(by_ms);
            assert_eq!(rates.take(&1).map_err(Left::wait_s), Err(60), "{by_ms}");
            clock.advance_ms(60_000);
        }
    }

    #[test]
    fn who_is_refused_has_the_next_one_after_what_it_is_told() {
        let (rates, clock) = rates(7);
        while rates.take(&1).is_ok() {}
        let refused = rates.take(&1).unwrap_err();
        assert_eq!((refused.limit(), refused.retry_after_s()), (7, 9), "a seventh of a minute, rounded up");
        clock.advance_ms(i64::from(refused.retry_after_s()) * 1000);
        assert!(rates.take(&1).is_ok());
    }

    #[test]
    fn keys_that_have_all_their_requests_are_forgotten() {
        let (rates, clock) = rates(60);
        for key in 0..=10_000 {
            assert!(rates.take(&key).is_ok());
        }
        clock.advance_ms(60_000);
        assert!(rates.take(&-1).is_ok());
        assert_eq!(rates.0.as_ref().map(RateLimiter::len), Some(1));
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let (rates, _) = rates(0);
        assert_eq!(rates.take(&1), Ok(None));
    }
}
