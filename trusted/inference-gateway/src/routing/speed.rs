//! How quick a route was lately.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Share of a new figure in the mean: one eighth, so that about the last ten answers count.
const SHARE: u64 = 8;

/// Moving means; 0 is unknown.
#[derive(Debug, Default)]
pub struct Speed {
    first_byte_us: AtomicU64,
    /// Thousandths of tokens in a second.
    millitokens_per_second: AtomicU64,
}

impl Speed {
    /// Notes an answer: when its first byte came, and how many tokens came in all its time.
    pub fn note(&self, first_byte: Duration, tokens: u64, whole: Duration) {
        blend(&self.first_byte_us, u64::try_from(first_byte.as_micros()).unwrap_or(u64::MAX));
        let micros = u64::try_from(whole.as_micros()).unwrap_or(u64::MAX);
        if let Some(rate) = tokens.saturating_mul(1_000_000_000).checked_div(micros) {
            blend(&self.millitokens_per_second, rate);
        }
    }

    /// Time to the first byte; `None` before anything was answered.
    pub fn first_byte(&self) -> Option<Duration> {
        let micros = self.first_byte_us.load(Ordering::Relaxed);
        (micros > 0).then(|| Duration::from_micros(micros))
    }

    /// Thousandths of tokens in a second; `None` before anything was answered.
    pub fn millitokens_per_second(&self) -> Option<u64> {
        let rate = self.millitokens_per_second.load(Ordering::Relaxed);
        (rate > 0).then_some(rate)
    }
}

/// Two answers at once may lose one of their figures: a mean does not need each.
fn blend(mean: &AtomicU64, figure: u64) {
    let old = mean.load(Ordering::Relaxed);
    let new = if old == 0 { figure } else { old - old / SHARE + figure / SHARE };
    mean.store(new.max(1), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_follow_what_happens() {
        let speed = Speed::default();
        assert_eq!((speed.first_byte(), speed.millitokens_per_second()), (None, None));
        speed.note(Duration::from_millis(100), 50, Duration::from_secs(1));
        assert_eq!(speed.first_byte(), Some(Duration::from_millis(100)));
        assert_eq!(speed.millitokens_per_second(), Some(50_000));
        for _ in 0..100 {
            speed.note(Duration::from_millis(200), 100, Duration::from_secs(1));
        }
        let first_byte = speed.first_byte().unwrap();
        assert!((Duration::from_millis(190)..=Duration::from_millis(200)).contains(&first_byte));
        speed.note(Duration::MAX, u64::MAX, Duration::ZERO);
    }
}
