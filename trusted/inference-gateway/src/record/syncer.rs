//! The thread that makes durable what was written, and finds out when a bad disk is well again.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::filer::wait_for;
use super::shared::Shared;
use super::trouble::Trouble;

/// Time in which changes gather, so that many share a wait for the disk: a loss of power takes what came in it.
const GATHER: Duration = Duration::from_millis(20);
/// How often a bad disk is tried.
const PROBE: Duration = Duration::from_millis(250);
/// As long as this nobody has to be woken.
const IDLE: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(super) struct Syncer {
    pub(super) shared: Arc<Shared>,
}

impl Syncer {
    /// Works until nobody can wake it any more.
    pub(super) fn run(self, wakes: &Receiver<()>) {
        let troubles = &self.shared.troubles;
        loop {
            let is_bad = troubles.has(Trouble::Writing) || troubles.has(Trouble::Syncing);
            if is_bad {
                if wait_for(wakes, PROBE, || false) {
                    return;
                }
                self.shared.probe();
            } else if wakes.recv_timeout(IDLE) == Err(RecvTimeoutError::Disconnected) {
                return;
            } else {
                thread::sleep(GATHER);
                // Who files makes it durable, too: what came since then is not that old.
                while let Some(left) = self.left_to_gather() {
                    thread::sleep(left);
                }
                self.shared.journal.sync(troubles);
            }
        }
    }

    fn left_to_gather(&self) -> Option<Duration> {
        GATHER.checked_sub(self.shared.journal.since_sync()).filter(|left| !left.is_zero())
    }
}
