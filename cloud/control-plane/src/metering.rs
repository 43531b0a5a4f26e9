//! What meters need beside the changes of CVMs: an eye on silent nodes, and the prices of a new list.
//!
//! | When | What |
//! |---|---|
//! | a control plane starts with other prices | all meters that run end, and run on at the new prices |
//! | it is the first that meters | CVMs that live get their meters, from now on |
//! | a node has said nothing for [`LONGEST_SILENCE`] | the meters of its CVMs end with its last report |

use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::clock::Clock;
use crate::store::{Store, StoreError};

/// How long a node may be silent before its CVMs count as lost: longer than it takes to restart a control plane.
/// Shorter silence counts as if it had not been.
pub(crate) const LONGEST_SILENCE: Duration = Duration::from_mins(5);
const EVERY: Duration = Duration::from_secs(30);

/// A node whose last report is from this moment or earlier is silent.
pub(crate) fn longest_silence_before(now_ms: i64) -> i64 {
    now_ms.saturating_sub(i64::try_from(LONGEST_SILENCE.as_millis()).unwrap_or(i64::MAX))
}

/// Runs until it is stopped; a failing round is tried again at the next one.
pub(crate) async fn run(store: Store, clock: Clock, stop: CancellationToken) {
    let mut is_priced = false;
    loop {
        match round(&store, &clock, is_priced).await {
            Ok(()) => is_priced = true,
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "metering failed; it is tried again");
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// What was not seen is settled first, at the prices of its time. Prices are looked at once: control planes of one
/// installation that were started with different lists do not take turns.
pub(crate) async fn round(store: &Store, clock: &Clock, is_priced: bool) -> Result<(), StoreError> {
    let now_ms = clock.now_ms();
    let lost = store.stop_meters_of_silent(None, longest_silence_before(now_ms), now_ms).await?;
    if lost > 0 {
        warn!(cvms = lost, "nodes are silent; nothing of their CVMs is metered until they report");
    }
    if !is_priced && store.apply_prices(&fingerprint(store), clock.now_ms()).await? {
        info!("the meters of all CVMs go by the price list of this control plane");
    }
    Ok(())
}

/// Differs for lists that differ.
fn fingerprint(store: &Store) -> String {
    hex::encode(Sha256::digest(format!("{:?}", store.prices())))
}

#[cfg(test)]
mod tests;
