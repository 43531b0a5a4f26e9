//! How much of the memory of challenges each key may take: no key may fill it for all.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::terms::SKEW_S;
use crate::admission::KeyHash;
use crate::error::{GatewayError, Kind};

/// Challenges of one key that are remembered at once, at most: a sixteenth of all.
const SHARE: u32 = 1 << 16;
/// No challenge is remembered for longer than this, in seconds.
const PERIOD_S: u64 = 2 * SKEW_S + 1;

/// Challenges that came lately, by key. A key takes memory only while some of its challenges may be remembered.
#[derive(Debug, Default)]
pub struct Shares(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    period: u64,
    now: HashMap<KeyHash, u32>,
    before: HashMap<KeyHash, u32>,
}

impl Counts {
    /// What counts in a period: what is remembered came in it or in the one before.
    fn turn(&mut self, period: u64) {
        match period.saturating_sub(self.period) {
            0 => return,
            1 => self.before = std::mem::take(&mut self.now),
            _ => *self = Self::default(),
        }
        self.period = period;
    }
}

impl Shares {
    /// Takes a place for a challenge of a key at a time in seconds since the Unix epoch; fails where the key has taken
    /// its share.
    pub fn take(&self, key: KeyHash, now: u64) -> Result<(), GatewayError> {
        self.take_of(SHARE, key, now)
    }

    fn take_of(&self, share: u32, key: KeyHash, now: u64) -> Result<(), GatewayError> {
        let mut counts = self.0.lock();
        counts.turn(now / PERIOD_S);
        let before = counts.before.get(&key).copied().unwrap_or(0);
        let count = counts.now.entry(key).or_default();
        if before + *count < share {
            *count += 1;
            return Ok(());
        }
        drop(counts);
        Err(GatewayError {
            retry_after: Some(PERIOD_S - now % PERIOD_S),
            ..GatewayError::new(Kind::RateLimited, "This API key has sent too many encrypted requests lately")
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_key_leaves_room_for_others() {
        let (shares, one, other) = (Shares::default(), KeyHash::of("one"), KeyHash::of("other"));
        assert!((0..SHARE).all(|_| shares.take(one, 1000).is_ok()));
        let refused = shares.take(one, 1000).unwrap_err();
        assert_eq!((refused.status().as_u16(), refused.retry_after), (429, Some(202)));
        assert!(shares.take(other, 1000).is_ok());
        assert!(shares.take(one, 1202).is_err(), "they are still remembered");
        assert!(shares.take(one, 1803).is_ok());
        // A clock that is put back does not forget.
        assert!(shares.take(other, 0).is_ok());
    }

    proptest! {
        /// Whenever a key asks, no more of its challenges are remembered than its share.
        #[test]
        fn never_more_than_a_share(steps in prop::collection::vec((0..400_u64, 1..15_u32), 1..60)) {
            let (shares, key, mut now, mut taken) = (Shares::default(), KeyHash::of("one"), 0, Vec::new());
            for (step, count) in steps {
                now += step;
                let took = (0..count).filter(|_| shares.take_of(20, key, now).is_ok()).count();
                taken.push((now, took));
                let remembered = taken.iter().filter(|(at, _)| at + PERIOD_S > now).map(|(_, took)| took);
                prop_assert!(remembered.sum::<usize>() <= 20);
            }
        }
    }
}
