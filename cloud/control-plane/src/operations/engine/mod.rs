//! Workers: they lease operations, drive them step by step and record every transition.
//!
//! A worker that dies loses its lease; the next one continues at the recorded step. Because steps are
//! idempotent and a transition is one transaction, a crash at any moment changes nothing but time.

mod attempt;
mod told;
mod transition;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, error, info, info_span, warn};
use uuid::Uuid;

use self::attempt::Attempt;
use self::transition::{Ending, Transition, prove, rest, settle};
use super::machine::{CvmStatus, OperationKind, OperationStatus, Step};
use super::steps::{Context, Nodes, Patience};
use crate::clock::{Clock, NoRandomness, Random};
use crate::governance::{Contracts, NoContracts};
use crate::kms::Kmses;
use crate::store::{OperationRow, Store, StoreError};
use crate::webhooks::{EmitError, emit};

/// How long a worker may stay silent before another one takes its operation over.
const LEASE: Duration = Duration::from_secs(15);
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
    /// Operations driven at the same time by this process. Most of them wait for a guest, some for as long
    /// as a boot may take, and none may keep another from beginning.
    pub concurrency: usize,
    /// How long an application must do well, or badly, before a change believes it.
    pub patience: Patience,
    /// Watches step boundaries.
    pub observer: Option<Observer>,
    /// Asked before a document or a CVM comes to an application under a contract; without chains nothing may.
    pub contracts: Arc<dyn Contracts>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            concurrency: 512,
            patience: Patience::default(),
            observer: None,
            contracts: Arc::new(NoContracts),
        }
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
    steps: Context<N>,
    clock: Clock,
    random: Random,
    wake: Arc<Notify>,
    options: EngineOptions,
}

/// An operation that one task of one process drives.
struct Leased {
    operation: OperationRow,
    /// New with every lease, so that a task that lost its own cannot go on beside its successor, not
    /// even in the same process.
    lease: Uuid,
}

impl<N: Nodes> Engine<N> {
    /// Starts the workers. `wake` is what [`super::Lifecycle`] notifies.
    pub async fn start(
        store: Store,
        nodes: Arc<N>,
        kmses: Arc<Kmses>,
        clock: Clock,
        random: Random,
        wake: Arc<Notify>,
        options: EngineOptions,
    ) -> Result<Self, EngineError> {
        store.release_leases_of_the_dead().await?;
        let shared = Arc::new(Shared {
            steps: Context {
                store: store.clone(),
                nodes,
                kmses,
                contracts: Arc::clone(&options.contracts),
                clock: clock.clone(),
                patience: options.patience,
            },
            store,
            clock,
            random,
            wake,
            options,
        });
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

/// Why the engine could not start, or look for work.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No randomness for the name of a lease.
    #[error(transparent)]
    Random(#[from] NoRandomness),
    /// What webhooks are told cannot be written.
    #[error(transparent)]
    Emit(#[from] EmitError),
}

impl<N: Nodes> Shared<N> {
    async fn dispatch(self: Arc<Self>, stop: CancellationToken, tasks: TaskTracker) {
        let slots = Arc::new(Semaphore::new(self.options.concurrency));
        while !stop.is_cancelled() {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            match self.lease_next().await {
                Ok(Some(leased)) => {
                    let (shared, stop) = (Arc::clone(&self), stop.clone());
                    let span = info_span!("operation", correlation_id = %leased.operation.correlation_id,
                        kind = %leased.operation.kind, cvm_id = leased.operation.cvm_id);
                    tasks.spawn(
                        async move {
                            tokio::select! {
                                () = stop.cancelled() => {}
                                () = shared.drive(leased) => {}
                            }
                            shared.wake.notify_one();
                            drop(slot);
                        }
                        .instrument(span),
                    );
                    continue;
                }
                Ok(None) => {}
                Err(error) => {
                    error!(error = &error as &dyn std::error::Error, "cannot look for operations");
                }
            }
            drop(slot);
            let _ = tokio::time::timeout(LOOK_FOR_WORK_EVERY, self.wake.notified()).await;
        }
    }

    async fn lease_next(&self) -> Result<Option<Leased>, EngineError> {
        let lease = self.random.uuid()?;
        let operation = self.store.lease_operation(lease, self.clock.now_ms(), self.lease_end_ms()).await?;
        Ok(operation.map(|operation| Leased { operation, lease }))
    }

    fn lease_end_ms(&self) -> i64 {
        self.in_ms(LEASE)
    }

    fn in_ms(&self, duration: Duration) -> i64 {
        self.clock.now_ms().saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
    }

    /// Drives an operation until it ends, or until this worker may not go on.
    async fn drive(&self, mut leased: Leased) {
        loop {
            let operation = &leased.operation;
            let rules = operation.rules();
            let path = if operation.failure.is_some() { rules.undo } else { rules.steps };
            let step = usize::try_from(operation.step).ok().and_then(|index| path.get(index)).copied();
            let next = match step {
                Some(step) => self.take_step(leased, step).await.map_err(EngineError::from),
                None => self.finish(&leased).await.map(|()| None),
            };
            match next {
                Ok(Some(continued)) => leased = continued,
                Ok(None) => return,
                Err(error) => {
                    // The lease runs out and the operation is taken up again.
                    error!(error = &error as &dyn std::error::Error, "an operation cannot be recorded");
                    return;
                }
            }
        }
    }

    /// Carries out one step and records what became of it; `None` when the lease was lost.
    async fn take_step(&self, mut leased: Leased, step: Step) -> Result<Option<Leased>, StoreError> {
        let operation = &mut leased.operation;
        let Some(cvm) = self.store.cvm_even_deleted(operation.cvm_id).await? else { return Ok(None) };
        let coming = match operation.to_revision {
            Some(id) if operation.failure.is_none() => self.store.revision(id).await?,
            _ => None,
        };
        if operation.step_deadline_ms == 0 {
            operation.step_deadline_ms = self.in_ms(attempt::limit(step, operation, &cvm));
            let begun = Transition::at(operation);
            if !self.record(&mut leased, begun).await? {
                return Ok(None);
            }
        }
        self.reached(&leased.operation, step, Boundary::Before);
        let attempt = self.attempt(&leased, step, &cvm, coming.as_ref()).await?;
        let operation = &mut leased.operation;
        let next = match attempt {
            Attempt::LeaseLost => return Ok(None),
            Attempt::Done(found) => {
                self.reached(operation, step, Boundary::CarriedOut);
                Transition::done(operation, step, found)
            }
            Attempt::Failed(reason) if operation.failure.is_some() || step.is_optional() => {
                warn!(%step, reason, "a step is skipped");
                Transition::skipped(operation, step)
            }
            Attempt::Failed(reason) => {
                warn!(%step, reason, "a step failed");
                Transition::failed(operation, step, &cvm, reason)
            }
            Attempt::Cancelled => Transition::cancelled(operation, step),
        };
        leased.operation.step_deadline_ms = 0;
        let recorded = self.record(&mut leased, next).await?;
        if recorded {
            self.reached(&leased.operation, step, Boundary::Recorded);
        }
        Ok(recorded.then_some(leased))
    }

    /// Records a transition in one transaction; whether the lease still held.
    async fn record(&self, leased: &mut Leased, next: Transition) -> Result<bool, StoreError> {
        let now_ms = self.clock.now_ms();
        let operation = &mut leased.operation;
        let mut change = self.store.change().await?;
        let cvm = match next.event {
            Some(_) => change.lock_cvm(operation.cvm_id).await?,
            None => None,
        };
        let id = operation.correlation_id;
        let (until_ms, deadline_ms) = (self.lease_end_ms(), operation.step_deadline_ms);
        let advanced = change
            .advance_operation(id, leased.lease, until_ms, next.step, deadline_ms, next.failure.as_deref())
            .await?;
        let Some(cancel) = advanced else { return Ok(false) };
        if let (Some(cvm), Some(event)) = (cvm, &next.event) {
            let event = format!("instance.{}.{event}", operation.kind);
            change.append_event(id, &event, cvm.status.as_str(), now_ms).await?;
            settle(&mut change, operation, &cvm, &next, now_ms).await?;
        }
        change.commit().await?;
        operation.recovered_to =
            next.recovered.map(|status| status.as_str().to_owned()).or(operation.recovered_to.take());
        (operation.step, operation.failure) = (next.step, next.failure);
        operation.cancel_requested = cancel;
        Ok(true)
    }

    /// Ends an operation: its final event, the CVM's status, its release and what webhooks are told in one
    /// transaction.
    async fn finish(&self, leased: &Leased) -> Result<(), EngineError> {
        let operation = &leased.operation;
        let now_ms = self.clock.now_ms();
        let mut change = self.store.change().await?;
        // What may delete the CVM locks its workspace first, as creations and rollouts do.
        if operation.rules().target.is_none()
            && let Some(cvm) = change.cvm(operation.cvm_id).await?
        {
            change.lock_workspace(cvm.workspace_id).await?;
        }
        let Some(cvm) = change.lock_cvm(operation.cvm_id).await? else { return Ok(()) };
        let Ending { status, event, cvm_status } = Ending::of(operation);
        let id = operation.correlation_id;
        if !change.finish_operation(id, leased.lease, status, now_ms).await? {
            return Ok(());
        }
        // A successor that told this operation to end has the CVM already, and its status with it.
        let holds_cvm = cvm.operation_id.as_deref() == Some(id.to_string().as_str());
        let shown =
            if holds_cvm { cvm_status.map_or("deleted", CvmStatus::as_str) } else { cvm.status.as_str() };
        let event = format!("instance.{}.{event}", operation.kind);
        change.append_event(id, &event, shown, now_ms).await?;
        if let (OperationStatus::Failed, Some(revision)) = (status, operation.to_revision) {
            change.drop_pending_revision(revision).await?;
        }
        prove(&mut change, operation, &cvm, cvm_status, now_ms).await?;
        match cvm_status {
            _ if !holds_cvm => {}
            Some(cvm_status) => rest(&mut change, operation, &cvm, cvm_status, now_ms).await?,
            None => change.delete_cvm(&cvm, now_ms).await?,
        }
        emit(&mut change, self.random, &told::ended(operation, &cvm, shown), now_ms).await?;
        change.commit().await?;
        info!(event, reason = operation.failure, "operation ended");
        Ok(())
    }

    fn reached(&self, operation: &OperationRow, step: Step, boundary: Boundary) {
        if let Some(observer) = &self.options.observer {
            observer(operation.kind, step, boundary);
        }
    }
}
