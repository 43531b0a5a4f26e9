//! Where verification runs: on at most as many threads as there are cores, with a bounded queue.

use std::num::NonZero;
use std::sync::Arc;
use std::thread;

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

    /// Runs `work` on a thread of its own when its turn comes; [`VerifyError::Busy`] when too many wait.
    /// Work that nobody waits for any more still ends before another begins in its place.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, VerifyError> + Send + 'static,
    ) -> Result<T, VerifyError> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| VerifyError::Busy)?;
        let turn = Arc::clone(&self.workers).acquire_owned().await.map_err(|_| VerifyError::Interrupted)?;
        tokio::task::spawn_blocking(move || {
            let outcome = work();
            drop((turn, place));
            outcome
        })
        .await
        .map_err(|_| VerifyError::Interrupted)?
    }
}
