//! Taking a VM out of service without a loss: draining, and asking the guest to power off.

use std::sync::Arc;
use std::time::Duration;

use super::deadline::{Deadline, Overdue};
use super::live::Live;
use super::power::{Event, has_process};
use super::vm::Vm;
use crate::clock;
use crate::error::VmError;
use crate::flows::Flow;

/// Longest time that a guest can get to power off.
pub(super) const MAX_SHUTDOWN: Duration = Duration::from_hours(1);

impl Vm {
    /// The right to one stream with it; none while it is not ready, such as while it drains. Whoever waits
    /// for the end of its streams after the drain began misses none that was granted before.
    pub(crate) fn begin_flow(&self) -> Option<Flow> {
        let flow = self.flows.begin();
        self.look().is_ready().then_some(flow)
    }

    /// From now on it gets no new streams, also over a restart of the node, until the next start.
    pub(super) async fn begin_drain(self: &Arc<Self>) -> Result<(), VmError> {
        let mut control = self.existing().await?;
        if !has_process(control.power.state) {
            return Ok(());
        }
        control.power.draining = true;
        let state = control.power.state;
        self.record(&mut control, state).await
    }

    /// It may get streams again: whoever drained it will not power it off. Starts nothing.
    pub(super) async fn end_drain(self: &Arc<Self>) -> Result<(), VmError> {
        let mut control = self.existing().await?;
        if !control.power.draining {
            return Ok(());
        }
        control.power.draining = false;
        let state = control.power.state;
        self.record(&mut control, state).await
    }

    /// Returns when nothing flows through it any more, or its drain ended otherwise.
    pub(super) async fn drained(&self) {
        let mut view = self.watch();
        tokio::select! {
            () = self.flows.ended() => {}
            _ = view.wait_for(|view| view.live.is_none() || !view.power.draining) => {}
        }
    }

    /// Asks the guest to power off and returns.
    pub(super) async fn shutdown(self: &Arc<Self>, limit: Duration, overdue: Overdue) -> Result<(), VmError> {
        let mut control = self.existing().await?;
        if has_process(control.power.state) {
            let said = Deadline { at: clock::now() + limit.min(MAX_SHUTDOWN), overdue };
            let known = control.power.deadline();
            control.power.set_deadline(Some(said.after(known)));
        }
        self.apply(&mut control, Event::Shutdown).await
    }

    /// Notes that the guest of `live` did not power off in time and is left running. It is in service again:
    /// whoever still wants it off drains it and asks again.
    pub(super) async fn shutdown_lapsed(self: &Arc<Self>, live: &Arc<Live>) {
        let mut control = self.control.lock().await;
        if !control.is_running(live) || !live.give_up_if_due() {
            return;
        }
        control.power.set_deadline(None);
        control.power.draining = false;
        if let Err(error) = self.apply(&mut control, Event::Lapsed).await {
            tracing::error!(vm = %self.id, error = &error as &dyn std::error::Error, "cannot note that a VM runs on");
        }
    }
}
