//! What is forgotten, and when.
//!
//! | Job | Entity | Kept | Why |
//! |---|---|---|---|
//! | expired provisions | provision cache | 14 days | spec section 3: later creates are rejected |

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::clock::Clock;
use crate::store::{Store, StoreError};

const EVERY: Duration = Duration::from_mins(10);
/// Rows deleted per transaction, so that a large backlog never holds the write lock for long.
const BATCH: i64 = 500;

/// Runs until it is stopped; a failing round is tried again at the next one.
pub(crate) async fn run(store: Store, clock: Clock, stop: CancellationToken) {
    loop {
        match forget_expired_provisions(&store, &clock).await {
            Ok(0) => {}
            Ok(count) => debug!(count, "expired provisions were forgotten"),
            Err(error) => warn!(error = &error as &dyn std::error::Error, "housekeeping failed"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

async fn forget_expired_provisions(store: &Store, clock: &Clock) -> Result<u64, StoreError> {
    let mut total = 0;
    loop {
        let mut change = store.change().await?;
        let count = change.delete_expired_provisions(clock.now_ms(), BATCH).await?;
        change.commit().await?;
        total += count;
        if count < BATCH.unsigned_abs() {
            return Ok(total);
        }
    }
}
