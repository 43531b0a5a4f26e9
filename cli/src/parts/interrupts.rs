//! Ctrl-C and the signals of service managers.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// Counts requests to stop; from its making on, they no longer end the process by themselves.
#[derive(Debug)]
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    /// Takes over SIGINT and SIGTERM.
    pub(crate) fn install() -> Result<Self, Failure> {
        let take = |kind| signal(kind).map_err(|error| Failure::local("cannot handle signals", error));
        Ok(Self { interrupt: take(SignalKind::interrupt())?, terminate: take(SignalKind::terminate())? })
    }

    /// Waits for the next request to stop.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
