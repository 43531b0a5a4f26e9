//! How many streams flow through a VM.
//!
//! A stream is a request with its answer, an upgraded connection, a connection that is passed through, or
//! a tunnel of another node. Whoever opens one takes a [`Flow`] for as long as it lasts; whoever wants to
//! turn the VM off without a loss waits until none is left.

use std::sync::Arc;

use tokio::sync::watch;

/// Counts the streams of one VM. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Flows(Arc<watch::Sender<usize>>);

/// One stream; it ends when this is dropped.
#[derive(Debug)]
pub struct Flow(Flows);

impl Flows {
    /// Counts one stream more.
    #[must_use]
    pub fn begin(&self) -> Flow {
        self.0.send_modify(|count| *count += 1);
        Flow(self.clone())
    }

    /// How many streams flow now.
    #[must_use]
    pub fn count(&self) -> usize {
        *self.0.borrow()
    }

    /// Returns when none flows.
    pub async fn ended(&self) {
        // The sender lives as long as this borrow of it, so the wait cannot fail.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn the_end_comes_with_the_last_stream() {
        let flows = Flows::default();
        assert!(flows.ended().now_or_never().is_some(), "nothing flows");
        let (first, second) = (flows.begin(), flows.clone().begin());
        assert_eq!(flows.count(), 2);
        drop(first);
        let mut ended = Box::pin(flows.ended());
        assert!(ended.as_mut().now_or_never().is_none());
        drop(second);
        assert!(ended.now_or_never().is_some());
    }
}
