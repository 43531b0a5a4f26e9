//! How many requests each key may begin in a minute of the clock.

use std::collections::HashMap;

use parking_lot::Mutex;

const MINUTE_MS: i64 = 60_000;

/// Counts the requests of the running minute. A key costs memory only in minutes in which it is used.
#[derive(Debug)]
pub(crate) struct Rate {
    limit: u32,
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    minute: i64,
    begun: HashMap<i64, u32>,
}

/// A key used up its minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused {
    /// Requests per minute.
    pub(crate) limit: u32,
    /// When the next minute begins, in seconds since the Unix epoch.
    pub(crate) reset_at_s: i64,
}

impl Rate {
    /// So many requests for each key.
    pub(crate) fn new(limit: u32) -> Self {
        Self { limit, running: Mutex::default() }
    }

    /// Takes a request of a key.
    pub(crate) fn take(&self, key: i64, now_ms: i64) -> Result<(), Refused> {
        let minute = now_ms.div_euclid(MINUTE_MS);
        let mut running = self.running.lock();
        if running.minute != minute {
            *running = Running { minute, begun: HashMap::new() };
        }
        let begun = running.begun.entry(key).or_default();
        if *begun >= self.limit {
            return Err(Refused { limit: self.limit, reset_at_s: (minute + 1) * (MINUTE_MS / 1000) });
        }
        *begun += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_begins_only_so_many_requests_in_a_minute() {
        let rate = Rate::new(2);
        assert_eq!((rate.take(1, 0), rate.take(1, 59_999)), (Ok(()), Ok(())));
        assert_eq!(rate.take(1, 59_999), Err(Refused { limit: 2, reset_at_s: 60 }));
        assert_eq!(rate.take(2, 59_999), Ok(()), "another key has its own");
        assert_eq!(rate.take(1, 60_000), Ok(()));
        assert_eq!(Rate::new(0).take(1, 0), Err(Refused { limit: 0, reset_at_s: 60 }));
    }
}
