//! Requests that are under way: a control plane is told of them from time to time, so that what it set aside for them
//! stays set aside, however long they take.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::Current;
use super::hooks::CallError;
use super::wire::{Kept, Lasting};

/// How often they are told: a third of the time after which Cloister's control plane gives up on a request.
pub(super) const EVERY: Duration = Duration::from_mins(20);
/// The same while the control plane does not answer.
const AGAIN: Duration = Duration::from_mins(1);
/// Most that are told at once.
const BATCH: usize = 500;

/// All requests with leave of a control plane, and who pays for them.
#[derive(Debug, Default)]
pub(super) struct UnderWay(Mutex<HashMap<String, Option<String>>>);

/// One of them, until it is dropped.
#[derive(Debug)]
pub struct Begun {
    all: Arc<UnderWay>,
    request_id: String,
}

impl UnderWay {
    /// A request got leave.
    pub(super) fn begin(self: &Arc<Self>, request_id: &str, user_id: Option<&str>) -> Begun {
        self.0.lock().insert(request_id.to_owned(), user_id.map(ToOwned::to_owned));
        Begun { all: Arc::clone(self), request_id: request_id.to_owned() }
    }

    /// Tells of all that are under way, again and again, until it is aborted.
    pub(super) async fn run(self: Arc<Self>, hooks: Current, every: Duration) {
        let mut pause = every;
        loop {
            sleep(pause).await;
            pause = match self.tell(&hooks).await {
                Ok(()) => every,
                // Another control plane may set nothing aside.
                Err(error @ CallError::Status(StatusCode::NOT_FOUND)) => {
                    debug!(%error, "the control plane does not want to know what is under way");
                    every
                }
                Err(error) => {
                    warn!(%error, "the control plane cannot be told what is under way; it will be");
                    every.min(AGAIN)
                }
            };
        }
    }

    async fn tell(&self, hooks: &Current) -> Result<(), CallError> {
        let all: Vec<(String, Option<String>)> = self.0.lock().clone().into_iter().collect();
        for some in all.chunks(BATCH) {
            let requests =
                some.iter().map(|(request_id, user_id)| Lasting { request_id, user_id: user_id.as_deref() });
            let now = Arc::clone(&hooks.read());
            now.keep(&Kept { requests: requests.collect() }).await?;
        }
        Ok(())
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.all.0.lock().remove(&self.request_id);
    }
}
