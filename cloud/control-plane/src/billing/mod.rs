//! What is done about money by itself: budgets are watched, and the distant past is added up once for all.
//!
//! What things cost is in `cloister_metering`, what was used in `store/metering.rs`, who pays in `store/billing.rs`.
//! Several control planes may do this at the same time: each budget is taken by one of them, in the transaction that
//! writes its events.

mod budgets;
mod month;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::App;
use crate::store::StoreError;

pub(crate) use budgets::standing;
pub(crate) use month::Month;

/// How often it is looked whether something is due.
const EVERY: Duration = Duration::from_secs(10);
/// Workspaces whose past is added up in a round.
const SETTLED_AT_ONCE: i64 = 100;

/// Runs until it is stopped; a failing round is tried again at the next one.
pub(crate) async fn run(app: Arc<App>, stop: CancellationToken) {
    loop {
        if let Err(error) = round(&app).await {
            warn!(error = &error as &dyn Error, "budgets or the past could not be looked at");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Looks once at everything that is due.
pub(crate) async fn round(app: &App) -> Result<(), StoreError> {
    budgets::round(app).await?;
    settle(app).await
}

/// Adds up what workspaces used until two days ago. One that fails does not hold up the others.
async fn settle(app: &App) -> Result<(), StoreError> {
    let now_ms = app.clock.now_ms();
    let due = app.store.unsettled(now_ms, SETTLED_AT_ONCE).await?;
    for workspace_id in due {
        if let Err(error) = settle_one(app, workspace_id, now_ms).await {
            let error = &error as &dyn Error;
            warn!(workspace_id, error, "the past of a workspace could not be added up");
        }
    }
    Ok(())
}

async fn settle_one(app: &App, workspace_id: i64, now_ms: i64) -> Result<(), StoreError> {
    let mut change = app.store.change().await?;
    change.settle(workspace_id, now_ms).await?;
    change.commit().await
}
