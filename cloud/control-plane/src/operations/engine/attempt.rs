//! One step of an operation, tried until something comes of it.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::info;

use super::super::arguments::Arguments;
use super::super::machine::Step;
use super::super::steps::{self, Found, Nodes, StepError};
use super::{LOOK_FOR_WORK_EVERY, Leased, Shared};
use crate::store::{CancelRequest, CvmRow, OperationRow, RevisionRow, StoreError};

const RENEW_LEASE_EVERY: Duration = Duration::from_secs(5);
/// How often a worker asks whether its operation is to end; a look, where a renewal is a write.
const LOOK_FOR_CANCEL_EVERY: Duration = Duration::from_secs(1);

/// What a step gets at least from each worker: one that takes over late, because the service was down, may
/// find it done.
const FAIR_TRY: Duration = Duration::from_secs(10);

/// What a node needs beyond a guest's time to shut down.
const POWER_OFF_GRACE: Duration = Duration::from_secs(30);

/// What became of one attempt at a step.
pub(super) enum Attempt {
    Done(Found),
    Failed(String),
    Cancelled,
    LeaseLost,
}

impl<N: Nodes> Shared<N> {
    /// Tries a step until it succeeds, fails for good, runs out of time, is cancelled or loses its lease.
    pub(super) async fn attempt(
        &self,
        leased: &Leased,
        step: Step,
        cvm: &CvmRow,
        coming: Option<&RevisionRow>,
    ) -> Result<Attempt, StoreError> {
        let operation = &leased.operation;
        let obstacle = Mutex::new(None);
        let work = self.repeat_while_transient(operation, step, cvm, coming, &obstacle);
        tokio::pin!(work);
        let mut look = tokio::time::interval(LOOK_FOR_CANCEL_EVERY);
        look.tick().await;
        let mut renewed = Instant::now();
        let mut wanted = CancelRequest::from_column(operation.cancel_requested);
        let deadline_ms = operation.step_deadline_ms.max(self.in_ms(FAIR_TRY));
        loop {
            if let Some(ended) = ended_early(operation, step, wanted) {
                return Ok(ended);
            }
            tokio::select! {
                outcome = &mut work => return Ok(outcome),
                _ = look.tick() => {
                    let held = if renewed.elapsed() < RENEW_LEASE_EVERY {
                        self.store.look_at_lease(operation.correlation_id, leased.lease).await?
                    } else {
                        renewed = Instant::now();
                        let until_ms = self.lease_end_ms();
                        self.store.renew_lease(operation.correlation_id, leased.lease, until_ms).await?
                    };
                    match held {
                        None => return Ok(Attempt::LeaseLost),
                        Some(cancel) => wanted = cancel,
                    }
                    if self.clock.now_ms() > deadline_ms {
                        let obstacle = obstacle.lock().take();
                        let seen = self.store.cvm_even_deleted(cvm.id).await?;
                        let limit = limit(step, operation, cvm);
                        return Ok(Attempt::Failed(out_of_time(step, limit, obstacle, seen.as_ref())));
                    }
                }
            }
        }
    }

    /// `obstacle` holds why the last try failed.
    async fn repeat_while_transient(
        &self,
        operation: &OperationRow,
        step: Step,
        cvm: &CvmRow,
        coming: Option<&RevisionRow>,
        obstacle: &Mutex<Option<StepError>>,
    ) -> Attempt {
        let mut pauses = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(100))
            .with_max_delay(Duration::from_secs(5))
            .without_max_times()
            .with_jitter()
            .build();
        loop {
            match steps::run(step, &self.steps, operation, cvm, coming).await {
                Ok(found) => return Attempt::Done(found),
                Err(error) if error.is_transient() => {
                    info!(%step, %error, "a step will be tried again");
                    *obstacle.lock() = Some(error);
                    tokio::time::sleep(pauses.next().unwrap_or(LOOK_FOR_WORK_EVERY)).await;
                }
                Err(error) => return Attempt::Failed(error.to_string()),
            }
        }
    }
}

/// How long a step of an operation may take.
pub(super) fn limit(step: Step, operation: &OperationRow, cvm: &CvmRow) -> Duration {
    match step {
        Step::AwaitHealthy => Duration::from_secs(u64::try_from(cvm.health_timeout_s).unwrap_or_default()),
        Step::AwaitPowerOff => match Arguments::of(operation).shutdown_timeout_s {
            // The node takes the power away itself, a moment after the time that it was told.
            Some(timeout_s) => Duration::from_secs(timeout_s.into()) + POWER_OFF_GRACE,
            None => step.time_limit(),
        },
        _ => step.time_limit(),
    }
}

/// What a wish that the operation ends makes of the step at hand.
fn ended_early(operation: &OperationRow, step: Step, wanted: CancelRequest) -> Option<Attempt> {
    let makes_room = wanted == CancelRequest::MakeRoom;
    let skipped = || Attempt::Failed("another operation waits for the CVM".to_owned());
    match operation.failure {
        None if operation.rules().is_decided(operation.step) => makes_room.then(skipped),
        None => (wanted != CancelRequest::No).then_some(Attempt::Cancelled),
        Some(_) => (makes_room && step.gives_way()).then(skipped),
    }
}

/// Why a step that ran out of time failed: what stood in its way says more than the time.
fn out_of_time(step: Step, limit: Duration, obstacle: Option<StepError>, seen: Option<&CvmRow>) -> String {
    let limit_s = limit.as_secs();
    let health = seen.and_then(|cvm| cvm.health_detail.as_deref()).unwrap_or("its guest does not say why");
    match (step, obstacle) {
        (_, Some(obstacle)) => format!("{obstacle} (gave up after {limit_s} s)"),
        (Step::AwaitHealthy, None) => {
            format!("the application was not healthy within {limit_s} s: {health}")
        }
        (_, None) => format!("{step} took longer than the {limit_s} s it may take"),
    }
}
