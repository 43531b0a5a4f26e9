//! Deleting CVMs at the time that their owners set, also when that passed while nothing ran.
//!
//! A deletion is taken up in the transaction that accepts the ordinary delete operation: whoever takes the
//! schedule back before that keeps the CVM, and of several control planes one begins it. One that failed,
//! because the node was away for instance, is begun again after [`RETRY_AFTER_MS`].

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::App;
use crate::audit::{self, System};
use crate::operations::{LifecycleRequest, OperationKind, RequestError};
use crate::store::DueDeletion;

/// How often the schedule is looked at.
const EVERY: Duration = Duration::from_secs(5);
/// Deletions that are begun in a round; the next round takes the next ones.
const BATCH: i64 = 100;
/// How long after a deletion that failed the next one is begun.
const RETRY_AFTER_MS: i64 = 10 * 60 * 1000;

/// Runs until it is stopped.
pub(crate) async fn run(app: Arc<App>, stop: CancellationToken) {
    loop {
        if let Err(error) = begin_due(&app).await {
            warn!(error = &error as &dyn Error, "scheduled deletions could not be begun");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Begins the deletions that are due; how many it were. One that cannot be begun does not hold up the others.
pub(crate) async fn begin_due(app: &App) -> Result<usize, RequestError> {
    let now_ms = app.clock.now_ms();
    let mut begun = 0;
    for due in app.store.due_deletions(now_ms, now_ms - RETRY_AFTER_MS, BATCH).await? {
        match begin(app, due, now_ms).await {
            Ok(true) => begun += 1,
            Ok(false) => {}
            Err(RequestError::Store(error)) => return Err(error.into()),
            Err(error) => {
                warn!(cvm_id = due.cvm_id, error = &error as &dyn Error, "a scheduled deletion cannot begin");
            }
        }
    }
    Ok(begun)
}

/// Begins one deletion, unless it is not wanted any more or somebody else began it.
async fn begin(app: &App, due: DueDeletion, now_ms: i64) -> Result<bool, RequestError> {
    let work = begin_recorded(app, due, now_ms);
    audit::as_system(System::ScheduledDelete, ("delete_cvm", "cvm"), due.workspace_id, &app.clock, work).await
}

async fn begin_recorded(app: &App, due: DueDeletion, now_ms: i64) -> Result<bool, RequestError> {
    let mut change = app.store.change().await?;
    if !change.take_due_deletion(due.cvm_id, now_ms, now_ms - RETRY_AFTER_MS).await? {
        return Ok(false);
    }
    let request = LifecycleRequest { kind: OperationKind::Delete, force: false };
    app.lifecycle.request_in(&mut change, due.cvm_id, request, due.user_id).await?;
    change.commit().await?;
    app.lifecycle.wake();
    info!(cvm_id = due.cvm_id, "a scheduled deletion began");
    Ok(true)
}
