//! The VMs of this node: their files, their power, and who may change them.
//!
//! Every change of a VM runs as a task of its own under the VM's lock, so that a caller who hangs up
//! interrupts nothing and two callers cannot meet. [`power`] says what may follow what; [`directory`] is
//! what survives; the process itself is its own witness (see [`crate::vmm`]).

mod adopt;
mod backends;
mod claims;
mod deadline;
mod directory;
mod live;
mod machine;
mod network;
mod orderly;
mod power;
mod spec;
mod status;
mod supervise;
mod view;
mod vm;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use cloister_node_api::{VmNetwork, VmReport, VmSpec};
use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

pub(crate) use claims::Claims;
pub(crate) use deadline::Overdue;
pub(crate) use live::Live;
pub(crate) use vm::Vm;

use crate::development::DevelopmentPlatform;
use crate::error::VmError;
use crate::gpus::Gpus;
use crate::guest_images::GuestImages;
use crate::host::Budget;
use crate::images::AppImages;
use crate::ports::HostPorts;
use crate::vmm::Hypervisor;
use directory::VmDirectory;
use vm::PrepareError;

/// What all VMs of the node share.
pub(crate) struct Host {
    pub(crate) data_dir: PathBuf,
    pub(crate) socket_dir: PathBuf,
    pub(crate) hypervisor: Hypervisor,
    /// The hardware that this node plays; `None` where there is some.
    pub(crate) development: Option<Arc<DevelopmentPlatform>>,
    pub(crate) images: Arc<GuestImages>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) gpus: Gpus,
    pub(crate) ports: HostPorts,
    pub(crate) app_images: AppImages,
    pub(crate) claims: Claims,
    pub(crate) relay_command: Vec<String>,
    pub(crate) snp_c_bit_position: u32,
    /// Told whenever a report would say something new.
    pub(crate) changed: Notify,
    /// Everything that runs in the background.
    pub(crate) tasks: TaskTracker,
    /// The node is going away.
    pub(crate) stopping: CancellationToken,
    /// VMs that end now do so because the node goes away; what was wanted stays on disk.
    pub(crate) retiring: AtomicBool,
}

impl Host {
    fn is_retiring(&self) -> bool {
        self.retiring.load(Ordering::Acquire)
    }

    fn vms_dir(&self) -> PathBuf {
        self.data_dir.join("vms")
    }
}

/// All VMs of the node.
pub(crate) struct Vms {
    host: Arc<Host>,
    known: RwLock<HashMap<Uuid, Arc<Vm>>>,
}

impl Vms {
    /// The VMs on disk: running ones are adopted, those that should run are started.
    pub(crate) async fn load(host: Arc<Host>) -> io::Result<Arc<Self>> {
        let dir = host.vms_dir();
        let ids = blocking(move || {
            crate::files::make_dir(&dir)?;
            VmDirectory::list(&dir)
        })
        .await?;
        let vms = Arc::new(Self { host, known: RwLock::default() });
        let adopt = |id: Uuid| {
            let vms = Arc::clone(&vms);
            async move {
                let vm = vms.entry(id);
                if let Err(error) = vm.adopt().await {
                    tracing::error!(vm = %id, error = &error as &dyn std::error::Error, "cannot bring a VM back");
                }
                vms.drop_if_gone(&vm);
            }
        };
        join_all(ids.into_iter().map(adopt)).await;
        Ok(vms)
    }

    /// Takes an order and makes the disks of a VM.
    pub(crate) async fn prepare(self: &Arc<Self>, spec: VmSpec) -> Result<VmReport, VmError> {
        spec::check(&spec)?;
        let vms = Arc::clone(self);
        self.detached(async move {
            loop {
                let vm = vms.entry(spec.vm_uuid);
                let result = vm.prepare(spec.clone()).await;
                vms.drop_if_gone(&vm);
                match result {
                    Ok(()) => return vm.report().ok_or(VmError::Unknown),
                    Err(PrepareError::Removed) => {}
                    Err(PrepareError::Failed(error)) => return Err(error),
                }
            }
        })
        .await
    }

    /// Turns a VM on.
    pub(crate) async fn start(&self, id: Uuid) -> Result<VmReport, VmError> {
        self.change(id, |vm| async move { vm.start().await }).await
    }

    /// Asks a guest to power off.
    pub(crate) async fn shutdown(
        &self,
        id: Uuid,
        limit: Duration,
        overdue: Overdue,
    ) -> Result<VmReport, VmError> {
        self.change(id, move |vm| async move { vm.shutdown(limit, overdue).await }).await
    }

    /// Takes a VM out of service; returns when nothing flows through it any more, and after `limit`.
    pub(crate) async fn drain(&self, id: Uuid, limit: Duration) -> Result<VmReport, VmError> {
        self.change(id, |vm| async move { vm.begin_drain().await }).await?;
        let vm = self.get(id)?;
        // What still flows then is cut off by whoever goes on; the report tells nothing of it.
        let _ = tokio::time::timeout(limit, vm.drained()).await;
        vm.report().ok_or(VmError::Unknown)
    }

    /// Puts a VM that was drained into service again.
    pub(crate) async fn end_drain(&self, id: Uuid) -> Result<VmReport, VmError> {
        self.change(id, |vm| async move { vm.end_drain().await }).await
    }

    /// Takes a VM's power away.
    pub(crate) async fn stop(&self, id: Uuid) -> Result<VmReport, VmError> {
        self.change(id, |vm| async move { vm.stop().await }).await
    }

    /// How a VM is connected.
    pub(crate) async fn network(&self, id: Uuid) -> Result<VmNetwork, VmError> {
        self.get(id)?.network().await
    }

    /// Removes a VM; fine when there is none.
    pub(crate) async fn delete(self: &Arc<Self>, id: Uuid) -> Result<(), VmError> {
        let (vms, vm) = (Arc::clone(self), self.entry(id));
        self.detached(async move {
            let result = vm.delete().await;
            vms.drop_if_gone(&vm);
            result
        })
        .await
    }

    /// One VM.
    pub(crate) fn get(&self, id: Uuid) -> Result<Arc<Vm>, VmError> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&id).filter(|vm| vm.report().is_some()).cloned().ok_or(VmError::Unknown)
    }

    /// The reports on all VMs, by id.
    pub(crate) fn reports(&self) -> Vec<VmReport> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let mut reports: Vec<_> = known.values().filter_map(|vm| vm.report()).collect();
        reports.sort_by_key(|report| report.vm_uuid);
        reports
    }

    /// The last lines of a VM's console.
    pub(crate) async fn serial_tail(&self, id: Uuid, lines: usize) -> Result<String, VmError> {
        let vm = self.get(id)?;
        blocking(move || vm.dir.serial_tail(lines))
            .await
            .map_err(VmError::storage("read the CVM's console log"))
    }

    /// Powers all VMs off for the time that the node is away.
    pub(crate) async fn suspend_all(&self, limit: Duration) {
        self.host.retiring.store(true, Ordering::Release);
        let vms: Vec<_> =
            self.known.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        join_all(vms.iter().map(async |vm| {
            if let Err(error) = vm.suspend(limit).await {
                tracing::error!(vm = %vm.id, error = &error as &dyn std::error::Error, "cannot power a VM off");
            }
        }))
        .await;
    }

    async fn change<F>(
        &self,
        id: Uuid,
        operation: impl FnOnce(Arc<Vm>) -> F + Send + 'static,
    ) -> Result<VmReport, VmError>
    where
        F: Future<Output = Result<(), VmError>> + Send + 'static,
    {
        let vm = self.get(id)?;
        self.detached(async move {
            operation(Arc::clone(&vm)).await?;
            vm.report().ok_or(VmError::Unknown)
        })
        .await
    }

    /// Runs an operation to its end even when its caller goes away.
    async fn detached<T: Send + 'static>(
        &self,
        operation: impl Future<Output = Result<T, VmError>> + Send + 'static,
    ) -> Result<T, VmError> {
        self.host.tasks.spawn(operation).await.unwrap_or(Err(VmError::Stopping))
    }

    fn entry(&self, id: Uuid) -> Arc<Vm> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let vm = || {
            Vm::new(
                id,
                VmDirectory::new(&self.host.vms_dir(), &self.host.socket_dir, id),
                Arc::clone(&self.host),
            )
        };
        Arc::clone(known.entry(id).or_insert_with(vm))
    }

    /// Forgets a VM that does not exist, unless it was ordered anew meanwhile.
    fn drop_if_gone(&self, vm: &Arc<Vm>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if vm.is_removed() && known.get(&vm.id).is_some_and(|known| Arc::ptr_eq(known, vm)) {
            known.remove(&vm.id);
        }
    }
}

/// Runs what waits for the disk where it holds nobody up.
pub(crate) async fn blocking<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        // Blocking work is never cancelled, so this is a panic of it: let it go on.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
