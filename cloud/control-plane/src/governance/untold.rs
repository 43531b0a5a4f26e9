//! Revocations reach every key management service of the installation, also one that did not answer when the owners
//! signed: whoever has the roots gives keys until it has heard.
//!
//! What is to be told is written in the transaction of the revocation, tried at once and then after
//! [`FIRST_PAUSE_MS`], twice as long each time, up to [`LONGEST_PAUSE_MS`], until the service has heard of it.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use cloister_kms_api::KmsErrorCode;
use cloister_kms_api::admin::AllowApp;
use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::owners;
use crate::App;
use crate::kms::{Kms, KmsCallError, Kmses};
use crate::store::{Change, RevocationRow, StoreError, UntoldRow};

/// How often it is looked whether something is due.
const EVERY: Duration = Duration::from_secs(5);
/// Tries of a round at one service; the next round takes the next ones.
const BATCH: i64 = 100;
/// Tries at a time at one service.
const AT_ONCE: usize = 8;
/// Time until the second try, in milliseconds.
const FIRST_PAUSE_MS: i64 = 5_000;
/// Longest time between two tries.
const LONGEST_PAUSE_MS: i64 = 60 * 60 * 1000;
/// Longest description of a failure that is kept, in characters.
const MAX_ERROR_CHARS: usize = 300;

/// Why a service has not heard of a revocation.
#[derive(Debug, thiserror::Error)]
enum TellError {
    #[error(transparent)]
    Kms(#[from] KmsCallError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Runs until it is stopped.
pub(crate) async fn run(app: Arc<App>, stop: CancellationToken) {
    loop {
        if let Err(error) = tell_due(&app).await {
            warn!(error = &error as &dyn Error, "revocations could not be told");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Every service that may have keys of an application without a contract has to hear of a revocation.
pub(crate) async fn enqueue(
    change: &mut Change,
    kmses: &Kmses,
    app_id: cloister_app_compose::AppId,
    row: RevocationRow,
    now_ms: i64,
) -> Result<(), StoreError> {
    for kms in kmses.all().iter().filter(|kms| kms.contract().is_none()) {
        change.put_untold(app_id, row, kms.id(), now_ms).await?;
    }
    Ok(())
}

/// Tells what is due; how much of it was heard. A service that does not answer holds up no other one.
pub(crate) async fn tell_due(app: &App) -> Result<usize, StoreError> {
    let now_ms = app.clock.now_ms();
    let services = app.store.services_with_due_untold(now_ms).await?;
    let told = join_all(services.into_iter().map(|kms_id| tell_service(app, kms_id, now_ms))).await;
    told.into_iter().try_fold(0, |count, heard| Ok(count + heard?))
}

/// Tells one service what is due, until it does not answer: what is left is due in the next round, too.
async fn tell_service(app: &App, kms_id: i64, now_ms: i64) -> Result<usize, StoreError> {
    let mut heard = 0;
    for part in app.store.due_untold(kms_id, now_ms, BATCH).await?.chunks(AT_ONCE) {
        let mut is_silent = false;
        for tried in join_all(part.iter().map(|row| attempt(app, row))).await {
            match tried? {
                Tried::Heard => heard += 1,
                Tried::Silence => is_silent = true,
                Tried::Refused | Tried::BySomebodyElse => {}
            }
        }
        if is_silent {
            break;
        }
    }
    Ok(heard)
}

/// What came of a try.
enum Tried {
    Heard,
    Refused,
    /// The service cannot be told anything now.
    Silence,
    BySomebodyElse,
}

/// One try, unless somebody else makes it.
async fn attempt(app: &App, row: &UntoldRow) -> Result<Tried, StoreError> {
    let mut change = app.store.change().await?;
    let next_ms = app.clock.now_ms().saturating_add(pause_ms(row.attempts));
    if !change.take_untold(row, next_ms).await? {
        return Ok(Tried::BySomebodyElse);
    }
    change.commit().await?;
    let told = tell(app, row).await;
    let mut change = app.store.change().await?;
    match &told {
        Ok(()) => {
            let revocation = RevocationRow { compose_hash: row.compose_hash, serial: row.serial };
            change.delete_untold(row.app_id, revocation, row.kms_id).await?;
        }
        Err(error) => {
            warn!(app_id = %row.app_id, error = error as &dyn Error, "a revocation was not heard");
            let words: String = error.to_string().chars().take(MAX_ERROR_CHARS).collect();
            change.note_untold(row, &words).await?;
        }
    }
    change.commit().await?;
    Ok(match told {
        Ok(()) => Tried::Heard,
        Err(TellError::Kms(error)) if error.is_transient() => Tried::Silence,
        Err(_) => Tried::Refused,
    })
}

fn pause_ms(attempts: i64) -> i64 {
    let doublings = u32::try_from(attempts.clamp(0, 16)).unwrap_or_default();
    FIRST_PAUSE_MS.saturating_mul(1_i64 << doublings).min(LONGEST_PAUSE_MS)
}

async fn tell(app: &App, row: &UntoldRow) -> Result<(), TellError> {
    let Some((_, signed)) = owners::revocation(&app.store, row.app_id, row.compose_hash).await? else {
        // Owners allowed it again since: what they signed then is told with the next start.
        return Ok(());
    };
    let kms = app.kmses.get(row.kms_id).ok_or(KmsCallError::Unknown)?;
    let plain = AllowApp::new(row.app_id, row.compose_hash);
    let refused = if signed.is_some() {
        let revoke = AllowApp { approvals: signed, ..plain.clone() };
        let told = kms.revoke_app(&revoke).await;
        match told.as_ref().err().and_then(refusal) {
            Some(KmsErrorCode::ApprovalsRequired | KmsErrorCode::BadRequest) => told.err(),
            _ => return Ok(told?),
        }
    } else {
        None
    };
    // It holds until the next approval there, which is all that a service without these owners can do.
    kms.revoke_app(&plain).await?;
    match refused {
        // Owners approve there, so that only the clock can be what it does not like: it has to hear what lasts.
        Some(error)
            if refusal(&error) == Some(KmsErrorCode::BadRequest)
                && kms.app_owners(row.app_id).await?.owners.is_some() =>
        {
            Err(error.into())
        }
        Some(_) => {
            info!(app_id = %row.app_id, kms = kms.slug(), "the service knows other owners, or none");
            Ok(())
        }
        None => Ok(()),
    }
}

fn refusal(error: &KmsCallError) -> Option<KmsErrorCode> {
    match error {
        KmsCallError::Refused { refusal, .. } => Some(refusal.code),
        _ => None,
    }
}

/// The service that enforces what owners say is told at once, so that the answer can say whether it heard.
pub(crate) async fn tell_now(
    app: &App,
    kms: &Kms,
    revoke: &AllowApp,
    serial: i64,
) -> Result<Result<(), KmsCallError>, StoreError> {
    let told = kms.revoke_app(revoke).await;
    if told.is_ok() {
        let revocation = RevocationRow { compose_hash: revoke.compose_hash, serial };
        let mut change = app.store.change().await?;
        change.delete_untold(revoke.app_id, revocation, kms.id()).await?;
        change.commit().await?;
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pauses_grow_to_an_hour() {
        let pauses: Vec<i64> = (0..12).map(pause_ms).collect();
        assert_eq!(pauses[..3], [5_000, 10_000, 20_000]);
        assert!(pauses.is_sorted());
        for attempts in [10, 40, i64::MAX] {
            assert_eq!(pause_ms(attempts), LONGEST_PAUSE_MS);
        }
        assert_eq!(pause_ms(-1), FIRST_PAUSE_MS);
    }
}
