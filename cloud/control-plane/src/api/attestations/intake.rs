//! How many quotes are taken in: anybody may send them.

use axum::http::StatusCode;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::api::error::{ApiError, ApiResult, RETRY_AFTER_S};

/// Quotes that are verified, or wait for collateral, at a time.
const MAX_AT_A_TIME: usize = 32;
/// New quotes that are stored within a period.
const MAX_NEW: u32 = 1_000;
const PERIOD_MS: i64 = 10 * 60 * 1000;

/// What this process takes in.
pub(crate) struct Intake {
    at_a_time: Semaphore,
    /// The current period, and the new quotes in it.
    new: Mutex<(i64, u32)>,
}

impl Default for Intake {
    fn default() -> Self {
        Self { at_a_time: Semaphore::new(MAX_AT_A_TIME), new: Mutex::default() }
    }
}

impl Intake {
    /// A place for a verification.
    pub(super) fn place(&self) -> ApiResult<SemaphorePermit<'_>> {
        self.at_a_time.try_acquire().map_err(|_| {
            ApiError::plain(StatusCode::TOO_MANY_REQUESTS, "Too many quotes are being verified")
                .retry_after(RETRY_AFTER_S)
        })
    }

    /// Room for a quote that is not stored yet.
    pub(super) fn count_new(&self, now_ms: i64) -> ApiResult<()> {
        let period = now_ms.div_euclid(PERIOD_MS);
        let mut new = self.new.lock();
        if new.0 != period {
            *new = (period, 0);
        }
        if new.1 < MAX_NEW {
            new.1 += 1;
            return Ok(());
        }
        let left_s = (PERIOD_MS - now_ms.rem_euclid(PERIOD_MS)) / 1000 + 1;
        let text = "Too many new quotes were sent; known ones are still verified";
        Err(ApiError::plain(StatusCode::TOO_MANY_REQUESTS, text)
            .retry_after(u32::try_from(left_s).unwrap_or(RETRY_AFTER_S)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_new_quotes_fit_in_a_period() {
        let intake = Intake::default();
        for _ in 0..MAX_NEW {
            intake.count_new(0).unwrap();
        }
        assert!(intake.count_new(PERIOD_MS - 1).is_err());
        assert!(intake.count_new(PERIOD_MS).is_ok());
    }

    #[test]
    fn only_so_many_are_verified_at_a_time() {
        let intake = Intake::default();
        let places: Vec<_> = (0..MAX_AT_A_TIME).map(|_| intake.place().unwrap()).collect();
        assert!(intake.place().is_err());
        drop(places);
        assert!(intake.place().is_ok());
    }
}
