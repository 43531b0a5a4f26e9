//! What is forgotten, and when.
//!
//! | Job | Entity | Kept | Why |
//! |---|---|---|---|
//! | expired provisions | provision cache | 14 days | spec section 3: later creates are rejected |
//! | expired changes | changes that wait to be allowed | 14 days, while the CVM lives | a commit token holds for so long |
//! | stale updates | documents provisioned for a CVM | 14 days, while the CVM lives | spec section 3 |
//! | old events | what webhooks are to be told | 14 days | by then nothing that it tells of can be acted on |
//! | too many events | the same | newest [`KEPT_EVENTS`] of a workspace | a workspace that is busy must not fill the disk |
//! | old deliveries | what became of it, with attempts | 30 days | people look at what went wrong |
//! | previous secrets | of webhooks | until both secrets need not sign any more | a secret is kept while it is used |
//! | deleted webhooks | their rows, without secrets | while a delivery tells of them | |
//! | old attempts | what gateways told of inference | 90 days; sums by the hour for ever | told again, it is known; people look at what was charged |
//! | old requests | requests with an idempotency key, and their answers | 1 day | nobody repeats one later |
//! | lapsed reservations | of credit, for inference | an hour, if nobody tells how the request ended, or that it is under way | a gateway that stopped must not keep credit from its owner |
//! | old quotes | verified quotes | newest [`KEPT_QUOTES`] | anybody may have quotes verified |
//! | ended logins | sessions, links for passwords, logins by OpenID, wrong guesses | until they end; a day after the last guess | nothing asks for them |
//! | expired grants | codes and refresh tokens of applications | an hour after they expire; until then | one that is presented again was stolen |
//! | unused collateral | collateral of quotes | while a quote refers to it | nothing shows it afterwards |

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::clock::Clock;
use crate::store::{Store, StoreError};

const EVERY: Duration = Duration::from_mins(10);
/// Rows deleted per transaction, so that a large backlog never holds the write lock for long.
const BATCH: i64 = 500;
/// How long events are kept: as long as a commit token that one of them may hold.
const KEPT_EVENTS_MS: i64 = 14 * 24 * 60 * 60 * 1000;
/// Events that a workspace keeps, whatever their age.
const KEPT_EVENTS: i64 = 100_000;
/// How long deliveries are kept.
const KEPT_DELIVERIES_MS: i64 = 30 * 24 * 60 * 60 * 1000;
/// How long it is known of each attempt at inference that it was recorded.
pub(crate) const KEPT_ATTEMPTS_MS: i64 = 90 * 24 * 60 * 60 * 1000;
/// How long a request is known by its idempotency key.
pub(crate) const KEPT_REQUESTS: Duration = Duration::from_hours(24);
/// Quotes that are kept; none is larger than 64 KiB.
const KEPT_QUOTES: i64 = 4096;

/// Runs until it is stopped; a failing round is tried again at the next one.
pub(crate) async fn run(store: Store, clock: Clock, stop: CancellationToken) {
    loop {
        match round(&store, clock.now_ms()).await {
            Ok(0) => {}
            Ok(count) => debug!(count, "what is no longer needed was forgotten"),
            Err(error) => warn!(error = &error as &dyn std::error::Error, "housekeeping failed"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

#[derive(Clone, Copy)]
enum Job {
    ExpiredProvisions,
    ExpiredChanges,
    StaleUpdates,
    OldEvents,
    OldDeliveries,
    PreviousSecrets,
    DeletedWebhooks,
    OldAttempts,
    OldRequests,
    LapsedReservations,
    OldQuotes,
    UnusedCollaterals,
    EndedLogins,
    ExpiredGrants,
}

const JOBS: [Job; 14] = [
    Job::ExpiredProvisions,
    Job::ExpiredChanges,
    Job::StaleUpdates,
    Job::OldEvents,
    Job::OldDeliveries,
    Job::PreviousSecrets,
    Job::DeletedWebhooks,
    Job::OldAttempts,
    Job::OldRequests,
    Job::LapsedReservations,
    Job::OldQuotes,
    Job::UnusedCollaterals,
    Job::EndedLogins,
    Job::ExpiredGrants,
];

async fn round(store: &Store, now_ms: i64) -> Result<u64, StoreError> {
    let mut total = 0;
    for job in JOBS {
        total += job.run(store, now_ms).await?;
    }
    for (workspace, newest) in store.events_beyond(KEPT_EVENTS).await? {
        total += forget_events(store, workspace, newest).await?;
    }
    Ok(total)
}

/// Forgets the events of a workspace up to a number.
async fn forget_events(store: &Store, workspace: i64, newest: i64) -> Result<u64, StoreError> {
    let mut total = 0;
    loop {
        let mut change = store.change().await?;
        let count = change.delete_webhook_events_up_to(workspace, newest, BATCH).await?;
        change.commit().await?;
        total += count;
        if count < BATCH.unsigned_abs() {
            return Ok(total);
        }
    }
}

impl Job {
    /// Deletes batch by batch until there is nothing left to delete.
    async fn run(self, store: &Store, now_ms: i64) -> Result<u64, StoreError> {
        let mut total = 0;
        loop {
            let mut change = store.upkeep().await?;
            let count = match self {
                Self::ExpiredProvisions => change.delete_expired_provisions(now_ms, BATCH).await?,
                Self::ExpiredChanges => change.delete_expired_prepared_changes(now_ms, BATCH).await?,
                Self::StaleUpdates => change.delete_stale_update_provisions(now_ms, BATCH).await?,
                Self::OldEvents => {
                    change.delete_old_webhook_events(now_ms.saturating_sub(KEPT_EVENTS_MS), BATCH).await?
                }
                Self::OldDeliveries => {
                    change.delete_old_deliveries(now_ms.saturating_sub(KEPT_DELIVERIES_MS), BATCH).await?
                }
                Self::PreviousSecrets => change.forget_previous_secrets(now_ms, BATCH).await?,
                Self::DeletedWebhooks => change.delete_forgotten_webhooks(BATCH).await?,
                Self::OldAttempts => {
                    change.delete_old_attempts(now_ms.saturating_sub(KEPT_ATTEMPTS_MS), BATCH).await?
                }
                Self::OldRequests => change.delete_old_requests(now_ms, KEPT_REQUESTS, BATCH).await?,
                Self::LapsedReservations => change.delete_lapsed_reservations(now_ms, BATCH).await?,
                Self::OldQuotes => change.delete_old_quotes(KEPT_QUOTES, BATCH).await?,
                Self::UnusedCollaterals => change.delete_unused_collaterals(BATCH).await?,
                Self::ExpiredGrants => change.delete_expired_grants(now_ms).await?,
                Self::EndedLogins => change.delete_ended_logins(now_ms).await?,
            };
            change.commit().await?;
            total += count;
            if count < BATCH.unsigned_abs() {
                return Ok(total);
            }
        }
    }
}
