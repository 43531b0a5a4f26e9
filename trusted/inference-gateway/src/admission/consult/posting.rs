//! Tells a control plane of what was used, from the durable rows: each row at least once, whatever happens between.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use futures_util::{StreamExt as _, stream};
use tracing::{error, info, warn};

use super::Current;
use super::wire::Told;
use crate::record::{Store, StoreError, UsageRow};

/// Rows that are read at once.
const BATCH: usize = 256;
/// Rows that are told at the same time: so far from their order they may arrive.
const AT_ONCE: usize = 16;
/// Pauses after failures.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Runs until it is aborted.
pub(super) async fn run(store: Store, hooks: Current) {
    let mut kept = store.kept();
    loop {
        match tell(&store, &hooks).await {
            Ok(true) => {}
            // Until there are more rows. The store's end is the gateway's.
            Ok(false) => {
                if kept.changed().await.is_err() {
                    return;
                }
            }
            Err(failure) => {
                error!(%failure, "the control plane cannot be told what was used");
                tokio::time::sleep(LONGEST_PAUSE).await;
            }
        }
    }
}

/// Tells some rows; false if there are none.
async fn tell(store: &Store, hooks: &Current) -> Result<bool, StoreError> {
    let rows = store.unposted(BATCH)?;
    let Some(last) = rows.last() else { return Ok(false) };
    let next = last.number + 1;
    stream::iter(&rows).for_each_concurrent(AT_ONCE, |row| tell_one(row, hooks)).await;
    store.posted(next).await?;
    Ok(true)
}

/// Tells a row until it is heard.
async fn tell_one(row: &UsageRow, hooks: &Current) {
    let pauses = ExponentialBuilder::default()
        .with_min_delay(FIRST_PAUSE)
        .with_max_delay(LONGEST_PAUSE)
        .without_max_times()
        .build();
    let request_id = &row.row.request_id;
    for (attempt, pause) in pauses.enumerate() {
        let now = Arc::clone(&hooks.read());
        match now.tell(&Told::from(&row.row)).await {
            Ok(()) => {
                if attempt > 0 {
                    info!(request_id, "the control plane was told what was used");
                }
                return;
            }
            Err(error) if error.is_final() => {
                error!(request_id, %error, cost = %row.row.cost, "the control plane will not hear what was used");
                return;
            }
            Err(error) => {
                if attempt == 0 {
                    warn!(request_id, %error, "the control plane was not told what was used; it will be");
                }
                tokio::time::sleep(pause).await;
            }
        }
    }
}
