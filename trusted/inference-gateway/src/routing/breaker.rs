//! Whether a route is worth trying.
//!
//! | State | A request comes | It succeeds | It fails |
//! |---|---|---|---|
//! | closed | goes through | failures are forgotten | counts; the last one of a row opens |
//! | open | does not go through until the pause is over, then one does: half open | closes | opens, for twice as long |
//! | half open | does not go through | closes | opens, for twice as long |
//! | on trial: an answer to the one has begun | goes through | closes | opens, for twice as long |

use std::time::Duration;

use parking_lot::Mutex;

/// Failures in a row that open.
const FAILURES: u32 = 5;
/// The first pause.
const PAUSE: Duration = Duration::from_secs(5);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_mins(2);
/// A probe that nobody heard of again is given up after this long.
const PROBE: Duration = Duration::from_mins(2);

/// Instants are durations since a beginning that the caller chose.
type Instant = Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed { failures: u32 },
    Open { until: Instant, pause: Duration },
    HalfOpen { since: Instant, pause: Duration },
    OnTrial { pause: Duration },
}

/// How a route stands, for the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// Requests go through.
    Healthy,
    /// None goes through.
    Resting,
    /// One is on its way, to see.
    Probing,
}

/// Watches one route.
#[derive(Debug)]
pub struct Breaker(Mutex<State>);

impl Default for Breaker {
    fn default() -> Self {
        Self(Mutex::new(State::Closed { failures: 0 }))
    }
}

impl Breaker {
    /// Whether a request may go through now. Who is told yes reports how it went.
    pub fn admits(&self, now: Instant) -> bool {
        let mut state = self.0.lock();
        match *state {
            State::Closed { .. } | State::OnTrial { .. } => true,
            State::Open { until, pause } if now >= until => {
                *state = State::HalfOpen { since: now, pause };
                true
            }
            State::HalfOpen { since, pause } if now >= since + PROBE => {
                *state = State::HalfOpen { since: now, pause };
                true
            }
            State::Open { .. } | State::HalfOpen { .. } => false,
        }
    }

    /// An answer has begun: a probe says enough for others to follow, however long the rest of it takes.
    pub fn began(&self) {
        let mut state = self.0.lock();
        if let State::HalfOpen { pause, .. } = *state {
            *state = State::OnTrial { pause };
        }
    }

    /// A request went well.
    pub fn succeeded(&self) {
        *self.0.lock() = State::Closed { failures: 0 };
    }

    /// A request failed, by the route's own fault.
    pub fn failed(&self, now: Instant) {
        let mut state = self.0.lock();
        *state = match *state {
            State::Closed { failures } if failures + 1 < FAILURES => State::Closed { failures: failures + 1 },
            State::Closed { .. } => State::Open { until: now + PAUSE, pause: PAUSE },
            State::HalfOpen { pause, .. } | State::OnTrial { pause } => {
                let pause = (pause * 2).min(LONGEST_PAUSE);
                State::Open { until: now + pause, pause }
            }
            // What was on its way when the route was given up says nothing new.
            open @ State::Open { .. } => open,
        };
    }

    /// A request that was let through was given up before it said anything about the route: a probe may go out again.
    pub fn withdrawn(&self, now: Instant) {
        let mut state = self.0.lock();
        if let State::HalfOpen { pause, .. } = *state {
            *state = State::Open { until: now, pause };
        }
    }

    /// How it stands.
    pub fn health(&self) -> Health {
        match *self.0.lock() {
            State::Closed { .. } | State::OnTrial { .. } => Health::Healthy,
            State::Open { .. } => Health::Resting,
            State::HalfOpen { .. } => Health::Probing,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MOMENT: Duration = Duration::from_millis(1);

    fn fail(breaker: &Breaker, times: u32, now: Instant) {
        for _ in 0..times {
            assert!(breaker.admits(now));
            breaker.failed(now);
        }
    }

    #[test]
    fn it_opens_rests_probes_and_recovers() {
        let breaker = Breaker::default();
        fail(&breaker, FAILURES - 1, Duration::ZERO);
        breaker.succeeded();
        fail(&breaker, FAILURES, MOMENT);
        let opened = MOMENT;
        assert!(!breaker.admits(PAUSE));
        assert!(breaker.admits(PAUSE + opened) && !breaker.admits(PAUSE + opened), "one probe");
        assert_eq!(breaker.health(), Health::Probing);
        breaker.failed(PAUSE);
        assert!(!breaker.admits(PAUSE * 2 + opened));
        assert!(breaker.admits(PAUSE * 3));
        breaker.succeeded();
        assert_eq!(breaker.health(), Health::Healthy);
    }

    #[test]
    fn others_follow_a_probe_whose_answer_has_begun() {
        let breaker = Breaker::default();
        fail(&breaker, FAILURES, Duration::ZERO);
        assert!(breaker.admits(PAUSE) && !breaker.admits(PAUSE));
        breaker.began();
        assert!(breaker.admits(PAUSE) && breaker.admits(PAUSE));
        breaker.withdrawn(PAUSE);
        assert!(breaker.admits(PAUSE), "another client that left says nothing");
        // It is not trusted yet: one failure is enough.
        breaker.failed(PAUSE);
        assert!(!breaker.admits(PAUSE * 2 + MOMENT) && breaker.admits(PAUSE * 3), "twice the pause");
        breaker.began();
        breaker.succeeded();
        breaker.began();
        fail(&breaker, FAILURES - 1, PAUSE * 3);
        assert_eq!(breaker.health(), Health::Healthy);
    }

    #[test]
    fn a_lost_probe_does_not_close_a_route_for_ever() {
        let breaker = Breaker::default();
        fail(&breaker, FAILURES, Duration::ZERO);
        assert!(breaker.admits(PAUSE));
        assert!(!breaker.admits(PROBE));
        assert!(breaker.admits(PAUSE + PROBE));
    }

    #[test]
    fn a_probe_that_is_given_up_makes_room_for_another() {
        let breaker = Breaker::default();
        fail(&breaker, FAILURES, Duration::ZERO);
        assert!(breaker.admits(PAUSE));
        breaker.withdrawn(PAUSE);
        assert!(breaker.admits(PAUSE) && !breaker.admits(PAUSE));
        breaker.succeeded();
        breaker.withdrawn(PAUSE);
        assert_eq!(breaker.health(), Health::Healthy);
    }

    proptest! {
        /// Whatever happens, a route is tried again within the longest pause, and a probe is alone.
        #[test]
        fn it_always_recovers(steps in prop::collection::vec((0_u8..5, 0_u64..40), 0..200)) {
            let breaker = Breaker::default();
            let mut now = Duration::ZERO;
            for (step, seconds) in steps {
                now += Duration::from_secs(seconds);
                match step {
                    0 => drop(breaker.admits(now)),
                    1 => breaker.failed(now),
                    2 => breaker.withdrawn(now),
                    3 => breaker.began(),
                    _ => breaker.succeeded(),
                }
            }
            let later = now + LONGEST_PAUSE.max(PROBE);
            prop_assert!(breaker.admits(later));
            prop_assert!(breaker.health() == Health::Healthy || !breaker.admits(later));
        }
    }
}
