//! How much is done for anybody: quotes that are taken in, and vendors that are asked.

use axum::http::StatusCode;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::api::error::{ApiError, ApiResult, RETRY_AFTER_S};

/// Quotes that are verified, or wait for collateral, at a time.
const MAX_AT_A_TIME: usize = 32;
/// New quotes that are stored within a period.
const MAX_NEW: u32 = 1_000;
const PERIOD_MS: i64 = 10 * 60 * 1000;
/// Questions to vendors for early data, which is not kept, within a minute: a vendor that is asked too often
/// answers nobody here any more.
const MAX_EARLY: u32 = 60;
const MINUTE_MS: i64 = 60 * 1000;

/// What this process does for anybody.
pub(crate) struct Intake {
    at_a_time: Semaphore,
    new: Allowance,
    early: Allowance,
}

/// So much within each period.
struct Allowance {
    period_ms: i64,
    most: u32,
    /// The current period, and what was used in it.
    used: Mutex<(i64, u32)>,
}

impl Allowance {
    const fn new(most: u32, period_ms: i64) -> Self {
        Self { period_ms, most, used: Mutex::new((0, 0)) }
    }

    /// Uses one, or tells after how many seconds there will be more.
    fn take(&self, now_ms: i64) -> Result<(), u32> {
        let period = now_ms.div_euclid(self.period_ms);
        let mut used = self.used.lock();
        if used.0 != period {
            *used = (period, 0);
        }
        if used.1 < self.most {
            used.1 += 1;
            return Ok(());
        }
        let left_s = (self.period_ms - now_ms.rem_euclid(self.period_ms)) / 1000 + 1;
        Err(u32::try_from(left_s).unwrap_or(RETRY_AFTER_S))
    }
}

impl Default for Intake {
    fn default() -> Self {
        Self {
            at_a_time: Semaphore::new(MAX_AT_A_TIME),
            new: Allowance::new(MAX_NEW, PERIOD_MS),
            early: Allowance::new(MAX_EARLY, MINUTE_MS),
        }
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
        let text = "Too many new quotes were sent; known ones are still verified";
        self.new
            .take(now_ms)
            .map_err(|left_s| ApiError::plain(StatusCode::TOO_MANY_REQUESTS, text).retry_after(left_s))
    }

    /// Leave to ask a vendor for early data, or the reason why not.
    pub(crate) fn may_ask_early(&self, now_ms: i64) -> Result<(), String> {
        self.early
            .take(now_ms)
            .map_err(|left_s| format!("too many evaluations were asked for; try again in {left_s} s"))
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
    fn vendors_are_asked_only_so_often_for_early_data() {
        let intake = Intake::default();
        for _ in 0..MAX_EARLY {
            intake.may_ask_early(MINUTE_MS).unwrap();
        }
        let reason = intake.may_ask_early(2 * MINUTE_MS - 1000).unwrap_err();
        assert!(reason.ends_with("try again in 2 s"), "{reason}");
        intake.may_ask_early(2 * MINUTE_MS).unwrap();
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
