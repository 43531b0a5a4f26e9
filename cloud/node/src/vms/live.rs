//! A VM that runs, for as long as it does.

use std::net::SocketAddr;
use std::time::Duration;

use cloister_guest_channel::status::NodeMessage;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::deadline::{Deadline, Overdue};
use crate::error::VmError;
use crate::ports::HostPorts;
use crate::vmm::{Channels, Events, Forward, Monitor, MonitorError, PortForwards, Process, PublishError};

/// Time that the hypervisor gets to flush its disks and end.
const QUIT_LIMIT: Duration = Duration::from_secs(3);
/// Time that the kernel gets to end a killed process.
const KILL_LIMIT: Duration = Duration::from_secs(15);

/// Handles to a VM's process.
#[derive(Debug)]
pub(crate) struct Live {
    pub(super) process: Process,
    monitor: Monitor,
    forwards: PortForwards,
    outbox: mpsc::Sender<NodeMessage>,
    stop_by: watch::Sender<Option<Deadline<Instant>>>,
}

/// Ends of a VM's channels, for who accompanies it.
#[derive(Debug)]
pub(super) struct Ends {
    /// The queue from which the status channel takes messages.
    pub(super) messages: mpsc::Receiver<NodeMessage>,
    pub(super) events: Events,
}

impl Live {
    /// Handles to `process`, and what whoever accompanies it needs. From now on it is heard why it ends.
    pub(super) async fn new(process: Process, channels: &Channels) -> (Self, Ends) {
        let events = Events::listen(channels.events.clone()).await;
        let (outbox, messages) = mpsc::channel(4);
        let live = Self {
            process,
            monitor: Monitor::new(channels.monitor.clone()),
            forwards: PortForwards::default(),
            outbox,
            stop_by: watch::Sender::new(None),
        };
        (live, Ends { messages, events })
    }

    /// The loopback address of a guest's port.
    pub(crate) async fn address(&self, port: u16) -> Result<SocketAddr, MonitorError> {
        self.forwards.address(&self.monitor, port).await
    }

    /// Makes the guest's mapped ports those of `wanted`.
    pub(super) async fn publish(&self, wanted: &[Forward], ports: &HostPorts) -> Result<(), PublishError> {
        self.forwards.publish(&self.monitor, wanted, |host| ports.is_for_mappings(host)).await
    }

    /// Has the mapped ports looked up at the next [`Live::publish`]: another node's life made them.
    pub(super) async fn doubt_mappings(&self) {
        self.forwards.doubt().await;
    }

    /// The mapped ports that there are.
    pub(super) async fn published(&self) -> Result<Vec<Forward>, MonitorError> {
        self.forwards.published(&self.monitor).await
    }

    /// Forgets the forwards after one did not work.
    pub(crate) async fn forget_forwards(&self) {
        self.forwards.forget().await;
    }

    /// Whether the guest was halted by a write for which the host had no space. It goes on with that
    /// write, and is halted again if there is still no space.
    pub(super) async fn resume_after_full_disk(&self) -> bool {
        let status = self.monitor.execute("query-status", json!({})).await.unwrap_or_default();
        let is_halted = status.get("status").is_some_and(|status| status == "io-error");
        is_halted && self.monitor.execute("cont", json!({})).await.is_ok()
    }

    /// Asks the guest to power off within `limit`; [`Deadline::after`] says what counts of this and what was
    /// said before.
    pub(super) fn ask_to_stop(&self, limit: Duration, overdue: Overdue) {
        let timeout_s = u32::try_from(limit.as_secs()).unwrap_or(u32::MAX);
        // A full queue holds the same message already.
        let _ = self.outbox.try_send(NodeMessage::Shutdown { timeout_s });
        let said = Deadline { at: Instant::now() + limit, overdue };
        self.stop_by.send_modify(|stop_by| *stop_by = Some(said.after(*stop_by)));
    }

    /// Forgets a deadline that has passed and after which the guest is left running; whether there was one.
    pub(super) fn give_up_if_due(&self) -> bool {
        self.stop_by.send_if_modified(|stop_by| {
            let is_due = |known: Deadline<Instant>| {
                known.overdue == Overdue::KeepRunning && known.at <= Instant::now()
            };
            stop_by.take_if(|known| is_due(*known)).is_some()
        })
    }

    /// Returns when the guest's time to power off is over, with what happens then.
    pub(super) async fn stop_is_due(&self) -> Overdue {
        let mut stop_by = self.stop_by.subscribe();
        loop {
            let deadline = *stop_by.borrow_and_update();
            let due = async {
                match deadline {
                    Some(deadline) => {
                        tokio::time::sleep_until(deadline.at).await;
                        deadline.overdue
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                overdue = due => return overdue,
                _ = stop_by.changed() => {}
            }
        }
    }

    /// Takes the power away and returns when the process is gone. Data that the guest has not flushed
    /// is lost, data that it has is on the disk.
    pub(super) async fn power_off(&self) -> Result<(), VmError> {
        let quit = async {
            let _ = self.monitor.execute("quit", json!({})).await;
            self.process.ended().await;
        };
        if tokio::time::timeout(QUIT_LIMIT, quit).await.is_ok() {
            return Ok(());
        }
        kill(&self.process).await
    }
}

/// Ends a VM's process without a word and returns when it is gone.
pub(super) async fn kill(process: &Process) -> Result<(), VmError> {
    process.kill().map_err(VmError::storage("end the CVM"))?;
    if process.ends_within(KILL_LIMIT).await { Ok(()) } else { Err(VmError::Undead) }
}
