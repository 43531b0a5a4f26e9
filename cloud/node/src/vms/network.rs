//! How a VM is connected to the world.

use cloister_guest_channel::GUEST_ADDRESS;
use cloister_node_api::{PortMapping, VmNetwork};

use super::live::Live;
use super::vm::{Control, Vm};
use crate::error::VmError;
use crate::vmm::{Forward, PublishError};

impl Vm {
    /// Makes the mapped ports those of the order, if the VM runs.
    pub(super) async fn map_ports(&self, control: &Control) -> Result<(), VmError> {
        match control.running.as_ref().zip(control.order.as_ref()) {
            Some(((live, _), order)) => self.map_ports_of(live, &order.spec.ports).await,
            None => Ok(()),
        }
    }

    /// Makes the mapped ports of a process these.
    pub(super) async fn map_ports_of(&self, live: &Live, ports: &[PortMapping]) -> Result<(), VmError> {
        let wanted = self.host.ports.forwards(ports)?;
        live.publish(&wanted, &self.host.ports).await.map_err(|error| match error {
            PublishError::Taken(_) => VmError::OutOfResources(format!("{error}: choose another port")),
            PublishError::Monitor(error) => VmError::Monitor(error),
        })
    }

    /// How it is connected now.
    pub(super) async fn network(&self) -> Result<VmNetwork, VmError> {
        let view = self.view();
        let ports = match &view.live {
            Some(live) => live.published().await?,
            None => Vec::new(),
        };
        Ok(VmNetwork {
            internal_ip: view.live.as_ref().and_then(|_| GUEST_ADDRESS.parse().ok()),
            last_heard_at: view.heard_at,
            ports: ports.iter().map(mapping).collect(),
        })
    }
}

fn mapping(forward: &Forward) -> PortMapping {
    PortMapping {
        protocol: forward.protocol,
        host_address: forward.host.ip().to_string(),
        host_port: forward.host.port(),
        vm_port: forward.guest_port,
    }
}
