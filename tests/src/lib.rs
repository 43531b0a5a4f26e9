//! What the journeys and benches share: starting real processes, talking to their API, looking for the
//! virtual machines that they really run.

pub mod api;
pub mod cloud;
pub mod command;
pub mod paths;
pub mod vms;

use std::time::{Duration, Instant};

/// Waits until `look` finds something, at most `patience`; the last word is `what`.
///
/// # Panics
/// When the time is up: a test cannot go on then.
#[expect(clippy::panic, reason = "a test cannot go on without it")]
pub async fn eventually<T>(what: &str, patience: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        if Instant::now() > deadline {
            panic!("waited {} s in vain: {what}", patience.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
