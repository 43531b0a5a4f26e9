//! One VM: what was ordered, what is, and the operations that bring them together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cloister_guest_channel::status::GuestStatus;
use cloister_node_api::{ExitReason, VmReport, VmSpec, VmState};
use tokio::sync::{Mutex, watch};
use uuid::Uuid;

use super::deadline::Overdue;
use super::directory::{GuestRecord, Order, PowerRecord, VmDirectory};
use super::live::{Ends, Live};
use super::orderly::MAX_SHUTDOWN;
use super::power::{Action, Event, has_process, step};
use super::view::View;
use super::{Host, blocking, machine, spec, supervise};
use crate::clock;
use crate::error::VmError;
use crate::flows::Flows;
use crate::host::{Share, require_free_disk};
use crate::vmm::launch;

const TOO_SMALL_DISK: &str = "a CVM's disk can grow and never shrink: ask for at least the size that it has";

/// One VM. Operations take turns; looking at it never waits for them.
pub(crate) struct Vm {
    pub(super) id: Uuid,
    pub(super) dir: VmDirectory,
    pub(super) host: Arc<Host>,
    pub(super) control: Mutex<Control>,
    pub(super) view: watch::Sender<View>,
    /// What flows through it, from here and from other nodes.
    pub(super) flows: Flows,
    /// Set once, under the lock of `control`: this VM takes no orders any more.
    removed: AtomicBool,
}

/// What operations change, one at a time.
#[derive(Debug)]
pub(super) struct Control {
    /// `None` before the first order and after the removal.
    pub(super) order: Option<Order>,
    pub(super) power: PowerRecord,
    /// What of `power` is on disk.
    pub(super) written: PowerRecord,
    pub(super) running: Option<(Arc<Live>, Share)>,
}

impl Control {
    /// Whether `live` is the process that runs now.
    pub(super) fn is_running(&self, live: &Arc<Live>) -> bool {
        self.running.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, live))
    }
}

/// Why a VM was not prepared.
pub(super) enum PrepareError {
    /// It is being removed: look for it again.
    Removed,
    Failed(VmError),
}

impl From<VmError> for PrepareError {
    fn from(error: VmError) -> Self {
        Self::Failed(error)
    }
}

impl Vm {
    pub(super) fn new(id: Uuid, dir: VmDirectory, host: Arc<Host>) -> Arc<Self> {
        let control =
            Control { order: None, power: PowerRecord::NEW, written: PowerRecord::NEW, running: None };
        Arc::new(Self {
            id,
            dir,
            host,
            control: Mutex::new(control),
            view: watch::Sender::new(View::NOTHING),
            flows: Flows::default(),
            removed: AtomicBool::new(false),
        })
    }

    /// Whether it was removed for good; a VM of the same id is another one.
    pub(super) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// A glance at what is known now; to be dropped at once.
    pub(super) fn look(&self) -> watch::Ref<'_, View> {
        self.view.borrow()
    }

    /// What is known, as it changes.
    pub(super) fn watch(&self) -> watch::Receiver<View> {
        self.view.subscribe()
    }

    /// What is known now.
    pub(crate) fn view(&self) -> View {
        self.view.borrow().clone()
    }

    /// The report on it; `None` when there is no such VM.
    pub(crate) fn report(&self) -> Option<VmReport> {
        self.look().report(self.id)
    }

    /// Takes an order and makes the disks.
    pub(super) async fn prepare(self: &Arc<Self>, spec: VmSpec) -> Result<(), PrepareError> {
        let mut control = self.control.lock().await;
        if self.is_removed() {
            return Err(PrepareError::Removed);
        }
        if control.order.as_ref().is_some_and(|order| order.spec == spec) {
            return Ok(self.map_ports(&control).await?);
        }
        // A VM whose order could not be read has files all the same.
        let is_new = control.order.is_none() && !self.dir.exists();
        let result = match self.host.ports.claim(self.id, &spec.ports) {
            Ok(()) => self.store(&control, spec).await,
            Err(error) => Err(error),
        };
        if let Ok(order) = &result {
            control.order = Some(order.clone());
        }
        // Whichever order holds now, the ports of the other one are free.
        self.host.ports.keep(self.id, control.order.as_ref().map_or(&[], |order| &order.spec.ports));
        match result {
            Ok(_) => {
                self.publish(&control);
                Ok(self.map_ports(&control).await?)
            }
            Err(error) if is_new => {
                self.remove(&mut control).await?;
                Err(error.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn store(&self, control: &Control, spec: VmSpec) -> Result<Order, VmError> {
        let node_token = match &control.order {
            Some(order) => order.node_token.clone(),
            None => clock::node_token().map_err(VmError::storage("make a secret"))?,
        };
        let (dir, order) = (self.dir.clone(), Order { spec, node_token });
        let host = Arc::clone(&self.host);
        blocking(move || {
            host.gpus.devices(&spec::need(&order.spec)?.gpus)?;
            host.ports.forwards(&order.spec.ports)?;
            let storage = VmError::storage("store the CVM's specification");
            let wanted = u64::from(order.spec.disk_gb) << 30;
            if wanted < dir.data_bytes().map_err(VmError::storage("see the CVM's disk"))? {
                return Err(VmError::Invalid(TOO_SMALL_DISK.to_owned()));
            }
            require_free_disk(&host.data_dir)?;
            dir.create()
                .and_then(|()| dir.ensure_data(order.spec.disk_gb))
                .and_then(|()| dir.write_order(&order))
                .map_err(storage)?;
            Ok(order)
        })
        .await
    }

    /// Turns it on; a running one stays as it is.
    pub(super) async fn start(self: &Arc<Self>) -> Result<(), VmError> {
        let mut control = self.existing().await?;
        self.apply(&mut control, Event::Start).await
    }

    /// Takes the power away and returns when the process is gone.
    pub(super) async fn stop(self: &Arc<Self>) -> Result<(), VmError> {
        let mut control = self.existing().await?;
        self.end_stray(&control).await?;
        self.apply(&mut control, Event::Stop).await
    }

    /// Takes the power away and removes every file.
    pub(super) async fn delete(self: &Arc<Self>) -> Result<(), VmError> {
        let mut control = self.control.lock().await;
        if has_process(control.power.state) {
            let stopped = self.apply(&mut control, Event::Stop).await;
            // What could not be written down is about to be removed.
            if control.running.is_some() {
                stopped?;
            }
        }
        self.remove(&mut control).await
    }

    /// Powers the guest off for the time that the node is away; what was wanted stays wanted.
    pub(super) async fn suspend(&self, limit: Duration) -> Result<(), VmError> {
        let control = self.control.lock().await;
        let Some((live, _)) = &control.running else { return Ok(()) };
        live.ask_to_stop(limit, Overdue::TakePower);
        if live.process.ends_within(limit).await { Ok(()) } else { live.power_off().await }
    }

    /// Notes that the process of `live` ended.
    pub(super) async fn process_ended(self: &Arc<Self>, live: &Arc<Live>, reason: Option<ExitReason>) {
        let mut control = self.control.lock().await;
        if !control.is_running(live) || self.host.is_retiring() {
            return;
        }
        control.power.exit_reason = reason;
        if let Err(error) = self.apply(&mut control, Event::ProcessEnded).await {
            tracing::error!(vm = %self.id, error = &error as &dyn std::error::Error, "cannot note the end of a VM");
        }
        tracing::info!(vm = %self.id, state = ?control.power.state, ?reason, "a VM's process ended");
    }

    /// Takes what the guest said and tells whether it is news.
    pub(super) fn guest_said(&self, mut status: GuestStatus) -> bool {
        status.instance_id = status.instance_id.filter(|instance| self.host.claims.claim(*instance, self.id));
        let is_news = self.view.send_if_modified(|view| {
            let is_news = view.live.is_some() && view.guest.status.as_ref() != Some(&status);
            view.heard_at = Some(clock::now());
            if is_news {
                view.guest.instance_id = status.instance_id.or(view.guest.instance_id);
                view.guest.status = Some(status);
            }
            is_news
        });
        if is_news {
            self.host.changed.notify_one();
        }
        is_news
    }

    pub(super) async fn existing(&self) -> Result<tokio::sync::MutexGuard<'_, Control>, VmError> {
        let control = self.control.lock().await;
        if control.order.is_some() { Ok(control) } else { Err(VmError::Unknown) }
    }

    /// Goes through the table of power states. What a crash must not forget is written before it is done;
    /// what takes power away is done all the same when the disk takes no more.
    pub(super) async fn apply(self: &Arc<Self>, control: &mut Control, event: Event) -> Result<(), VmError> {
        let (next, action) = step(control.power.state, event)
            .ok_or(VmError::Conflict("the CVM is powering off: wait until it has stopped"))?;
        if event == Event::Start {
            control.power.draining = false;
        }
        match (action, control.running.as_ref().map(|(live, _)| Arc::clone(live))) {
            (Action::Launch, _) if self.host.is_retiring() => Err(VmError::Stopping),
            (Action::Launch, _) => {
                self.launch(control).await?;
                // Whatever was noted before, the power is new.
                control.power.state = VmState::Stopped;
                control.power.draining = false;
                self.record(control, next).await
            }
            (Action::AskGuest, Some(live)) => {
                let noted = self.record(control, next).await;
                let (left, overdue) = control.power.deadline().map_or_else(Default::default, |deadline| {
                    let left = deadline.at.duration_since(clock::now());
                    (Duration::try_from(left).unwrap_or_default(), deadline.overdue)
                });
                live.ask_to_stop(left.min(MAX_SHUTDOWN), overdue);
                noted
            }
            (Action::Kill, Some(live)) => {
                let noted = self.record(control, next).await;
                live.power_off().await?;
                noted.and(Box::pin(self.apply(control, Event::ProcessEnded)).await)
            }
            (Action::None | Action::AskGuest | Action::Kill, _) => self.record(control, next).await,
        }
    }

    /// Writes a new power state down and shows it.
    pub(super) async fn record(&self, control: &mut Control, next: VmState) -> Result<(), VmError> {
        let before = std::mem::replace(&mut control.power.state, next);
        let now = clock::now();
        match (has_process(before), has_process(next)) {
            (false, true) => {
                control.power.started_at = Some(now);
                (control.power.exited_at, control.power.exit_reason) = (None, None);
            }
            (true, false) => control.power.exited_at = Some(now),
            _ => {}
        }
        if !has_process(next) {
            control.running = None;
            control.power.set_deadline(None);
            control.power.draining = false;
        }
        self.publish(control);
        if control.power == control.written {
            return Ok(());
        }
        let (dir, power) = (self.dir.clone(), control.power);
        blocking(move || dir.write_power(&power))
            .await
            .map_err(VmError::storage("note the CVM's power state"))?;
        control.written = power;
        Ok(())
    }

    /// Starts the process; on failure nothing is left behind.
    async fn launch(self: &Arc<Self>, control: &mut Control) -> Result<(), VmError> {
        let order = control.order.clone().ok_or(VmError::Unknown)?;
        let share = self.host.budget.reserve(self.id, spec::need(&order.spec)?)?;
        let (dir, host) = (self.dir.clone(), Arc::clone(&self.host));
        let guest = GuestRecord { status: None, ..self.view().guest };
        let ports = order.spec.ports.clone();
        let machine = blocking(move || machine::make(&dir, &host, &order, &guest)).await?;
        let process = launch(&self.host.hypervisor.program, &machine).await?;
        tracing::info!(vm = %self.id, pid = process.pid(), "started a VM");
        let (live, ends) = Live::new(process, &self.dir.channels()).await;
        // Without the ports that were ordered it would run and not be of use.
        if let Err(error) = self.map_ports_of(&live, &ports).await {
            live.power_off().await?;
            return Err(error);
        }
        self.view.send_modify(|view| (view.guest.status, view.heard_at) = (None, None));
        self.attach(control, live, ends, share);
        Ok(())
    }

    /// Takes a process over: from now on it is heard and watched.
    pub(super) fn attach(self: &Arc<Self>, control: &mut Control, live: Live, ends: Ends, share: Share) {
        let live = Arc::new(live);
        control.running = Some((Arc::clone(&live), share));
        // Before it is heard: what a guest says counts from here on.
        self.view.send_modify(|view| view.live = Some(Arc::clone(&live)));
        let workspace = control.order.as_ref().map_or(0, |order| order.spec.workspace_id);
        self.host.tasks.spawn(supervise::run(Arc::clone(self), live, ends, workspace));
    }

    pub(super) fn publish(&self, control: &Control) {
        self.view.send_modify(|view| {
            view.app_id = control.order.as_ref().map(|order| order.spec.app_id);
            view.node_token = control.order.as_ref().map(|order| order.node_token.clone());
            view.power = control.power;
            view.live = control.running.as_ref().map(|(live, _)| Arc::clone(live));
        });
        self.host.changed.notify_one();
    }

    pub(super) async fn remove(&self, control: &mut Control) -> Result<(), VmError> {
        self.end_stray(control).await?;
        let dir = self.dir.clone();
        blocking(move || dir.remove()).await.map_err(VmError::storage("remove the CVM's files"))?;
        control.order = None;
        self.host.claims.release(self.id);
        self.host.ports.keep(self.id, &[]);
        self.removed.store(true, Ordering::Release);
        self.publish(control);
        Ok(())
    }
}
