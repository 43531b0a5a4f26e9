//! VMs and processes from before the node's start.

use std::sync::Arc;

use cloister_node_api::{ExitReason, VmState};

use super::live::{self, Live};
use super::power::{Event, has_process};
use super::vm::{Control, Vm};
use super::{blocking, spec};
use crate::error::VmError;
use crate::vmm::Process;

impl Vm {
    /// Brings a VM from before the node's start back under control.
    pub(super) async fn adopt(self: &Arc<Self>) -> Result<(), VmError> {
        let mut control = self.control.lock().await;
        let dir = self.dir.clone();
        let (order, power, guest) =
            blocking(move || Ok((dir.read_order()?, dir.read_power()?, dir.read_guest())))
                .await
                .map_err(VmError::storage("read a CVM's specification"))?;
        let Some(order) = order else {
            // The order was never acknowledged.
            return self.remove(&mut control).await;
        };
        let ordered = spec::need(&order.spec)?;
        if let Err(error) = self.host.ports.claim(self.id, &order.spec.ports) {
            tracing::error!(vm = %self.id, %error, "two VMs are to have one port of the host");
        }
        (control.order, control.power, control.written) = (Some(order), power, power);
        if let Some(instance) = guest.instance_id {
            self.host.claims.claim(instance, self.id);
        }
        self.view.send_modify(|view| view.guest = guest);
        self.publish(&control);
        let found =
            Process::find(&self.dir.channels().pid_file).map_err(VmError::storage("find a CVM's process"))?;
        let event = if let Some(process) = found {
            tracing::info!(vm = %self.id, pid = process.pid(), "adopted a running VM");
            // A later order may be for other things than the process has.
            let need = self.dir.read_need().unwrap_or(ordered);
            let share = self.host.budget.acknowledge(self.id, need);
            let (live, ends) = Live::new(process, &self.dir.channels()).await;
            // An earlier life of the node made the mappings that there are.
            live.doubt_mappings().await;
            self.attach(&mut control, live, ends, share);
            if let Err(error) = self.map_ports(&control).await {
                tracing::warn!(vm = %self.id, %error, "cannot map the ports of an adopted VM");
            }
            Event::FoundRunning
        } else {
            Event::FoundGone
        };
        let result = self.apply(&mut control, event).await;
        if result.is_err() && control.running.is_none() && has_process(control.power.state) {
            control.power.exit_reason = Some(ExitReason::NotStartedAgain);
            self.record(&mut control, VmState::Exited).await?;
        }
        result
    }

    /// Ends a process that runs although nothing here says so: the node died, or failed, at its start.
    pub(super) async fn end_stray(&self, control: &Control) -> Result<(), VmError> {
        let pid_file = self.dir.channels().pid_file;
        match Process::find(&pid_file).map_err(VmError::storage("find a CVM's process"))? {
            Some(process) if control.running.is_none() => live::kill(&process).await,
            _ => Ok(()),
        }
    }
}
