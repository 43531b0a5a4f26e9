//! Where verification runs: on at most as many threads as there are cores, with a bounded queue, and never
//! in the way of other work of the runtime.

use std::num::NonZero;
use std::sync::Arc;
use std::thread;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

use crate::VerifyError;

/// Most verifications that wait for each one that may run.
const QUEUE_PER_WORKER: usize = 64;

/// A bounded share of the runtime's blocking threads; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    /// Permits to be in the queue or to run.
    places: Arc<Semaphore>,
    /// Permits to run.
    workers: Arc<Semaphore>,
}

impl Pool {
    /// A pool of `workers`, or of as many as there are cores.
    pub(crate) fn new(workers: Option<NonZero<usize>>) -> Self {
        let cores = thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
        let workers = workers.unwrap_or(cores).get();
        Self {
            places: Arc::new(Semaphore::new(workers.saturating_mul(QUEUE_PER_WORKER.saturating_add(1)))),
            workers: Arc::new(Semaphore::new(workers)),
        }
    }

    /// Runs `work` when its turn comes, on a thread that the runtime can spare; [`VerifyError::Busy`] when
    /// too many wait. Work that has begun ends before another begins in its place, whether or not anybody
    /// still waits for it.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, VerifyError> + Send + 'static,
    ) -> Result<T, VerifyError> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| VerifyError::Busy)?;
        let turn = Arc::clone(&self.workers).acquire_owned().await.map_err(|_| VerifyError::Interrupted)?;
        let work = move || {
            let outcome = work();
            drop((turn, place));
            outcome
        };
        if Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread {
            // The runtime gives this thread's other work to another one, and nobody waits for a wake-up: the
            // two of a hand-over cost as much as a sixth of a verification on an idle virtual machine.
            return tokio::task::block_in_place(work);
        }
        tokio::task::spawn_blocking(work).await.map_err(|_| VerifyError::Interrupted)?
    }
}
