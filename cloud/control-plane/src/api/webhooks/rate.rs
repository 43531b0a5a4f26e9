//! How often a workspace may ask for requests to be sent.

use std::collections::HashMap;

use axum::http::StatusCode;
use parking_lot::Mutex;

use crate::api::error::{ApiError, ApiResult};

/// Tests, repetitions and replays of a workspace in a minute.
const MAX_PER_MINUTE: u32 = 60;
const MINUTE_MS: i64 = 60_000;

/// What each workspace asked for in the current minute: somebody else's server may stand at the address.
#[derive(Default)]
pub(crate) struct SendRate(Mutex<HashMap<i64, (i64, u32)>>);

impl SendRate {
    /// Counts one; refuses it when it is too many.
    pub(super) fn take(&self, workspace_id: i64, now_ms: i64) -> ApiResult<()> {
        let minute = now_ms.div_euclid(MINUTE_MS);
        let mut asked = self.0.lock();
        asked.retain(|_, (at, _)| *at == minute);
        let (_, count) = asked.entry(workspace_id).or_insert((minute, 0));
        *count += 1;
        if *count <= MAX_PER_MINUTE {
            return Ok(());
        }
        let left_s = (MINUTE_MS - now_ms.rem_euclid(MINUTE_MS) + 999) / 1000;
        let text =
            format!("A workspace sends tests, repetitions and replays {MAX_PER_MINUTE} times a minute");
        Err(ApiError::plain(StatusCode::TOO_MANY_REQUESTS, text)
            .retry_after(u32::try_from(left_s).unwrap_or(60)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_asks_only_so_often_in_a_minute() {
        let rate = SendRate::default();
        for _ in 0..MAX_PER_MINUTE {
            rate.take(1, 0).unwrap();
        }
        assert!(rate.take(1, MINUTE_MS - 1).is_err());
        assert!(rate.take(2, 0).is_ok());
        assert!(rate.take(1, MINUTE_MS).is_ok());
    }
}
