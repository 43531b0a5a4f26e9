//! Ctrl-C and the signals of service managers.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use crate::failure::Failure;

/// Longest time between a request and its echo.
const ECHO: Duration = Duration::from_millis(500);

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

    /// Waits for a request that somebody makes who saw the effect of the one before. Ctrl-C under a
    /// wrapper that passes signals on comes twice at once.
    pub(crate) async fn again(&mut self) {
        let heard = Instant::now();
        loop {
            self.next().await;
            if heard.elapsed() > ECHO {
                return;
            }
        }
    }

    /// Waits for the next request to stop.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
