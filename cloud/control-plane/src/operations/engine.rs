//! Workers: they lease operations, drive them step by step and record every transition.
//!
//! A worker that dies loses its lease; the next one continues at the recorded step. Because steps are
//! idempotent and a transition is one transaction, a crash at any moment changes nothing but time.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use cloister_node_api::VmReport;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, error, info, info_span, warn};
use uuid::Uuid;

use super::machine::{CvmStatus, OperationKind, OperationStatus, Step};
use super::steps::{self, Nodes, StepError};
use crate::clock::{Clock, NoRandomness, Random};
use crate::fleet::observed;
use crate::store::{CvmRow, OperationRow, Store, StoreError};

/// How long a worker may stay silent before another one takes its operation over.
const LEASE: Duration = Duration::from_secs(15);
const RENEW_LEASE_EVERY: Duration = Duration::from_secs(1);
/// How often idle workers look for operations whose lease ended.
const LOOK_FOR_WORK_EVERY: Duration = Duration::from_secs(1);

const CANCELLED: &str = "cancelled on request";

/// A moment in the life of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Boundary {
    /// Nothing of the step has happened.
    Before,
    /// The step was carried out; nothing is recorded yet.
    CarriedOut,
    /// The step is recorded.
    Recorded,
}

/// Called at every boundary; a crash test ends the process in it.
pub type Observer = Arc<dyn Fn(OperationKind, Step, Boundary) + Send + Sync>;

/// How the engine works.
#[derive(Clone)]
pub struct EngineOptions {
    /// Operations driven at the same time by this process.
    pub concurrency: usize,
    /// Watches step boundaries.
    pub observer: Option<Observer>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self { concurrency: 32, observer: None }
    }
}

/// Leases and drives operations until it is stopped; a handle that is cheap to clone.
pub struct Engine<N> {
    shared: Arc<Shared<N>>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

struct Shared<N> {
    store: Store,
    nodes: Arc<N>,
    clock: Clock,
    /// Identity of this process in leases.
    owner: Uuid,
    wake: Arc<Notify>,
    options: EngineOptions,
}

/// What became of one attempt at a step.
enum Attempt {
    Done(Option<Box<VmReport>>),
    Failed(String),
    Cancelled,
    LeaseLost,
}

impl<N: Nodes> Engine<N> {
    /// Starts the workers. `wake` is what [`super::Lifecycle`] notifies.
    pub async fn start(
        store: Store,
        nodes: Arc<N>,
        clock: Clock,
        random: Random,
        wake: Arc<Notify>,
        options: EngineOptions,
    ) -> Result<Self, EngineStartError> {
        store.release_leases_of_the_dead().await?;
        let shared = Arc::new(Shared { store, nodes, clock, owner: random.uuid()?, wake, options });
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(Arc::clone(&shared).dispatch(stop.clone(), tasks.clone()));
        Ok(Self { shared, stop, tasks })
    }

    /// Stops taking up work and waits until no transition is half-way. Unfinished operations continue
    /// at the next start.
    pub async fn stop(self) {
        self.stop.cancel();
        self.shared.wake.notify_one();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Why the engine could not start.
#[derive(Debug, thiserror::Error)]
pub enum EngineStartError {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No randomness for this process' identity.
    #[error(transparent)]
    Random(#[from] NoRandomness),
}

impl<N: Nodes> Shared<N> {
    async fn dispatch(self: Arc<Self>, stop: CancellationToken, tasks: TaskTracker) {
        let slots = Arc::new(Semaphore::new(self.options.concurrency));
        while !stop.is_cancelled() {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            match self.lease_next().await {
                Ok(Some(operation)) => {
                    let (shared, stop) = (Arc::clone(&self), stop.clone());
                    let span = info_span!("operation", correlation_id = %operation.correlation_id,
                        kind = %operation.kind, cvm_id = operation.cvm_id);
                    tasks.spawn(
                        async move {
                            tokio::select! {
                                () = stop.cancelled() => {}
                                () = shared.drive(operation) => {}
                            }
                            shared.wake.notify_one();
                            drop(slot);
                        }
                        .instrument(span),
                    );
                    continue;
                }
                Ok(None) => {}
                Err(error) => error!(%error, "cannot look for operations"),
            }
            drop(slot);
            let _ = tokio::time::timeout(LOOK_FOR_WORK_EVERY, self.wake.notified()).await;
        }
    }

    async fn lease_next(&self) -> Result<Option<OperationRow>, StoreError> {
        self.store.lease_operation(self.owner, self.clock.now_ms(), self.lease_end_ms()).await
    }

    fn lease_end_ms(&self) -> i64 {
        self.in_ms(LEASE)
    }

    fn in_ms(&self, duration: Duration) -> i64 {
        self.clock.now_ms().saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
    }

    /// Drives an operation until it ends, or until this worker may not go on.
    async fn drive(&self, mut operation: OperationRow) {
        loop {
            let rules = operation.kind.rules();
            let path = if operation.failure.is_some() { rules.undo } else { rules.steps };
            let step = usize::try_from(operation.step).ok().and_then(|index| path.get(index)).copied();
            let next = match step {
                Some(step) => self.take_step(operation, step).await,
                None => self.finish(&operation).await.map(|()| None),
            };
            match next {
                Ok(Some(continued)) => operation = continued,
                Ok(None) => return,
                Err(error) => {
                    // The lease runs out and the operation is taken up again.
                    error!(%error, "an operation cannot be recorded");
                    return;
                }
            }
        }
    }

    /// Carries out one step and records what became of it; `None` when the lease was lost.
    async fn take_step(
        &self,
        mut operation: OperationRow,
        step: Step,
    ) -> Result<Option<OperationRow>, StoreError> {
        let Some(cvm) = self.store.cvm_even_deleted(operation.cvm_id).await? else { return Ok(None) };
        if operation.step_deadline_ms == 0 {
            operation.step_deadline_ms = self.in_ms(step.time_limit());
            let (index, failure) = (operation.step, operation.failure.clone());
            if !self.move_to(&mut operation, index, failure, None, None).await? {
                return Ok(None);
            }
        }
        self.reached(&operation, step, Boundary::Before);
        let attempt = self.attempt(&operation, step, &cvm).await?;
        let undoing = operation.failure.is_some();
        let (index, failure, event, report) = match attempt {
            Attempt::LeaseLost => return Ok(None),
            Attempt::Done(report) => {
                self.reached(&operation, step, Boundary::CarriedOut);
                (operation.step + 1, operation.failure.clone(), step.as_str().to_owned(), report)
            }
            Attempt::Failed(reason) if undoing => {
                warn!(%step, reason, "an undo step is skipped");
                (operation.step + 1, operation.failure.clone(), format!("{step}.skipped"), None)
            }
            Attempt::Failed(reason) => {
                warn!(%step, reason, "a step failed");
                (0, Some(reason), format!("{step}.failed"), None)
            }
            Attempt::Cancelled => (0, Some(CANCELLED.to_owned()), format!("{step}.cancelled"), None),
        };
        operation.step_deadline_ms = 0;
        let recorded =
            self.move_to(&mut operation, index, failure, Some((&cvm, &event)), report.as_deref()).await?;
        if recorded {
            self.reached(&operation, step, Boundary::Recorded);
        }
        Ok(recorded.then_some(operation))
    }

    /// Tries a step until it succeeds, fails for good, runs out of time, is cancelled or loses its lease.
    async fn attempt(
        &self,
        operation: &OperationRow,
        step: Step,
        cvm: &CvmRow,
    ) -> Result<Attempt, StoreError> {
        let work = self.repeat_while_transient(operation, step, cvm);
        tokio::pin!(work);
        let mut renewal = tokio::time::interval(RENEW_LEASE_EVERY);
        renewal.tick().await;
        let mut cancelled = operation.cancel_requested != 0;
        loop {
            if cancelled && operation.failure.is_none() {
                return Ok(Attempt::Cancelled);
            }
            tokio::select! {
                outcome = &mut work => return Ok(outcome),
                _ = renewal.tick() => {
                    let renewed = self
                        .store
                        .renew_lease(operation.correlation_id, self.owner, self.lease_end_ms())
                        .await?;
                    match renewed {
                        None => return Ok(Attempt::LeaseLost),
                        Some(cancel) => cancelled = cancel,
                    }
                    if self.clock.now_ms() > operation.step_deadline_ms {
                        return Ok(Attempt::Failed(format!(
                            "{step} took longer than the {} s it may take",
                            step.time_limit().as_secs()
                        )));
                    }
                }
            }
        }
    }

    async fn repeat_while_transient(&self, operation: &OperationRow, step: Step, cvm: &CvmRow) -> Attempt {
        let backoff = || {
            ExponentialBuilder::default()
                .with_min_delay(Duration::from_millis(100))
                .with_max_delay(Duration::from_secs(5))
                .without_max_times()
                .with_jitter()
                .build()
        };
        let mut pauses = backoff();
        loop {
            match steps::run(step, &self.nodes, operation, cvm).await {
                Ok(report) => return Attempt::Done(report.map(Box::new)),
                Err(error) if self.should_repeat(&error, operation) => {
                    info!(%step, %error, "a step will be tried again");
                    let pause = pauses.next().unwrap_or(LOOK_FOR_WORK_EVERY);
                    tokio::time::sleep(pause).await;
                }
                Err(error) => return Attempt::Failed(error.to_string()),
            }
        }
    }

    fn should_repeat(&self, error: &StepError, operation: &OperationRow) -> bool {
        error.is_transient() && self.clock.now_ms() < operation.step_deadline_ms
    }

    /// Records a transition in one transaction; whether the lease still held.
    async fn move_to(
        &self,
        operation: &mut OperationRow,
        step: i64,
        failure: Option<String>,
        event: Option<(&CvmRow, &str)>,
        report: Option<&VmReport>,
    ) -> Result<bool, StoreError> {
        let now_ms = self.clock.now_ms();
        let mut change = self.store.change().await?;
        let id = operation.correlation_id;
        let deadline_ms = operation.step_deadline_ms;
        if !change.advance_operation(id, self.owner, step, deadline_ms, failure.as_deref()).await? {
            return Ok(false);
        }
        if let Some((cvm, event)) = event {
            let event = format!("instance.{}.{event}", operation.kind);
            change.append_event(id, &event, cvm.status.as_str(), now_ms).await?;
            if let Some(report) = report {
                change.observe_cvm(cvm.id, &observed(report), now_ms).await?;
            }
        }
        change.commit().await?;
        (operation.step, operation.failure) = (step, failure);
        Ok(true)
    }

    /// Ends an operation: its final event, the CVM's status and its release in one transaction.
    async fn finish(&self, operation: &OperationRow) -> Result<(), StoreError> {
        let now_ms = self.clock.now_ms();
        let rules = operation.kind.rules();
        let mut change = self.store.change().await?;
        let Some(cvm) = change.cvm_even_deleted(operation.cvm_id).await? else { return Ok(()) };
        let (status, ending, cvm_status) = match operation.failure.as_deref() {
            None => (OperationStatus::Completed, "complete", rules.target),
            Some(CANCELLED) => (OperationStatus::Failed, "cancelled", Some(rules.after_cancel)),
            Some(_) => (OperationStatus::Failed, "failed", Some(CvmStatus::Error)),
        };
        let id = operation.correlation_id;
        if !change.finish_operation(id, self.owner, status, now_ms).await? {
            return Ok(());
        }
        // A successor that told this operation to end has the CVM already, and its status with it.
        let holds_cvm = cvm.operation_id.as_deref() == Some(id.to_string().as_str());
        let shown =
            if holds_cvm { cvm_status.map_or("deleted", CvmStatus::as_str) } else { cvm.status.as_str() };
        let event = format!("instance.{}.{ending}", operation.kind);
        change.append_event(id, &event, shown, now_ms).await?;
        if holds_cvm {
            match cvm_status {
                Some(cvm_status) => {
                    change.set_cvm_status(cvm.id, cvm_status, now_ms).await?;
                    if let (CvmStatus::Error, Some(reason)) = (cvm_status, &operation.failure) {
                        change.set_boot_error(cvm.id, reason).await?;
                    }
                    change.release_cvm(cvm.id, id).await?;
                }
                None => change.delete_cvm(&cvm, now_ms).await?,
            }
        }
        change.commit().await?;
        info!(ending, reason = operation.failure, "operation ended");
        Ok(())
    }

    fn reached(&self, operation: &OperationRow, step: Step, boundary: Boundary) {
        if let Some(observer) = &self.options.observer {
            observer(operation.kind, step, boundary);
        }
    }
}
