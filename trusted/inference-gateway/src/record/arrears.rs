//! What happened and could not be recorded: it is kept in memory until the disk takes it. Its clients were told that they
//! have no answer, but upstreams were paid for it, and what was sent of a stream cannot be taken back.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Finished, Store};

/// Most requests that wait. While any does, the disk is bad and nothing new is begun: there are no more than were under way.
const MOST: usize = 1 << 16;
/// How often a disk is tried.
const PAUSE: Duration = Duration::from_millis(250);

/// Requests whose records wait for the disk.
#[derive(Debug, Default)]
pub struct Arrears {
    requests: Mutex<VecDeque<Finished>>,
    added: Notify,
}

impl Arrears {
    /// A request waits, without a receipt: whatever was signed for it says more than its client got.
    pub fn add(&self, finished: Finished) {
        let mut requests = self.requests.lock();
        if requests.len() >= MOST {
            let request_id = finished.rows.first().map(|row| row.request_id.as_str());
            tracing::error!(request_id, "a request ends without a record: too many wait for the disk");
            return;
        }
        requests.push_back(Finished { receipt: None, ..finished });
        drop(requests);
        self.added.notify_one();
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.requests.lock().len()
    }

    /// Records them as soon as that can be, until it is told to stop.
    pub async fn run(&self, store: &Store, stop: CancellationToken) {
        // A write that is under way is waited for: it may be kept though nobody waits, and would be written again.
        while stop.run_until_cancelled(self.added.notified()).await.is_some() {
            while !self.settle(store).await {
                if stop.run_until_cancelled(sleep(PAUSE)).await.is_none() {
                    return;
                }
            }
        }
    }

    /// Records what waits; false if the disk does not take it.
    async fn settle(&self, store: &Store) -> bool {
        loop {
            // It waits until it is recorded: whoever stops meanwhile loses nothing.
            let Some(next) = self.requests.lock().front().cloned() else { return true };
            if store.finish(next).await.is_err() {
                return false;
            }
            self.requests.lock().pop_front();
        }
    }

    /// Records what waits within a time, or never.
    pub async fn close(&self, store: &Store, patience: Duration) {
        if !matches!(timeout(patience, self.settle(store)).await, Ok(true)) {
            let requests = self.waiting();
            tracing::error!(requests, "requests end without a record: the disk takes nothing");
        }
    }
}
