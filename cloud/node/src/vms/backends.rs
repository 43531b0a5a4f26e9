//! The VMs of this node as the ingress sees them.

use std::io;
use std::sync::PoisonError;

use cloister_app_compose::{AppId, InstanceId};
use futures_util::future::BoxFuture;
use tokio::net::TcpStream;
use uuid::Uuid;

use super::{Live, Vms};
use crate::backends::{Backend, Backends, Readiness};
use crate::flows::Flow;

impl Backends for Vms {
    fn resolve(&self, id: &str) -> Vec<Backend> {
        let Ok(app) = id.parse::<AppId>() else { return Vec::new() };
        let instance = InstanceId::from_bytes(*app.as_bytes());
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        // The control plane said which app a VM is; the instance, only its guest did. So the name of an app
        // never leads to a guest that claims it, not even while the app does not run. Whether it is that of an
        // app, or of an instance, on another node, the control plane knows.
        let is_app = known.values().any(|vm| vm.look().app_id == Some(app));
        let named = known.values().filter_map(|vm| {
            let view = vm.look();
            let is_named =
                if is_app { view.app_id == Some(app) } else { view.guest.instance_id == Some(instance) };
            if !is_named {
                return None;
            }
            // Most are ready, and that needs no report.
            let readiness =
                if view.is_ready() { Readiness::Ready } else { Readiness::of(&view.report(vm.id)?)? };
            Some(Backend { vm: vm.id, readiness, is_claim: !is_app })
        });
        named.collect()
    }

    fn begin(&self, vm: Uuid) -> Option<Flow> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(&vm)?.begin_flow()
    }

    fn connect(&self, vm: Uuid, port: u16) -> BoxFuture<'_, io::Result<TcpStream>> {
        Box::pin(async move {
            let live = self.get(vm).ok().and_then(|vm| vm.view().live).ok_or(io::ErrorKind::NotFound)?;
            match connect(&live, port).await {
                // The forward was closed in favour of others, or the table in memory is of another time.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    live.forget_forwards().await;
                    connect(&live, port).await
                }
                other => other,
            }
        })
    }
}

async fn connect(live: &Live, port: u16) -> io::Result<TcpStream> {
    let address = live.address(port).await.map_err(io::Error::other)?;
    TcpStream::connect(address).await
}
