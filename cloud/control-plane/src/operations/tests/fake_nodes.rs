//! One node in memory that counts what it is asked and fails when told to.

use std::collections::HashMap;

use cloister_node_api::{
    DrainRequest, ExitReason, NodeError, NodeErrorCode, ShutdownRequest, VmHealth, VmReport, VmSpec, VmState,
};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::clock::Clock;
use crate::operations::{NodeCallError, Nodes, Step};

/// What the node does when a step's call arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Refuse for good.
    Refuse(&'static str),
    /// Refuse once, for good.
    RefuseOnce(&'static str),
    /// Do it, but lose the answer, this many times.
    LoseAnswer(u32),
    /// Never boot, or power off, or end a drain.
    Hang,
    /// Boot fails.
    BootError(&'static str),
    /// The next boot fails.
    BootErrorOnce(&'static str),
    /// The next boot fails, and the one after it hangs.
    BootErrorThenHang(&'static str),
    /// The VM ends in the next boot.
    ExitOnce(Option<ExitReason>),
    /// The application of the next boot does badly.
    UnhealthyOnce(&'static str),
}

#[derive(Default)]
pub(crate) struct FakeNodes {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    vms: HashMap<Uuid, VmReport>,
    /// What each was prepared with last.
    specs: HashMap<Uuid, VmSpec>,
    /// What each was started with last.
    started: HashMap<Uuid, VmSpec>,
    faults: HashMap<Step, Fault>,
    /// Transitions from off to on; one too many would be a second VM.
    power_ons: u32,
    /// By which it says when VMs start and end; without one it does not say.
    clock: Option<Clock>,
}

impl State {
    fn now(&self) -> Option<Timestamp> {
        self.clock.as_ref().map(Clock::now)
    }
}

impl FakeNodes {
    pub(crate) fn set_fault(&self, step: Step, fault: Fault) {
        self.state.lock().faults.insert(step, fault);
    }

    /// Reports from now on say when VMs start and end.
    pub(crate) fn set_clock(&self, clock: Clock) {
        self.state.lock().clock = Some(clock);
    }

    /// Whether a VM runs and its application was started.
    pub(crate) fn is_up(&self, vm: Uuid) -> bool {
        let is_up = |report: &VmReport| {
            report.state == VmState::Running && report.boot_progress.as_deref() == Some("done")
        };
        self.state.lock().vms.get(&vm).is_some_and(is_up)
    }

    pub(crate) fn clear_faults(&self) {
        self.state.lock().faults.clear();
        self.changed.notify_waiters();
    }

    /// A guest that hung is up after all.
    pub(crate) fn boot(&self, vm: Uuid) {
        if let Some(report) = self.state.lock().vms.get_mut(&vm) {
            report.boot_progress = Some("done".to_owned());
        }
        self.changed.notify_waiters();
    }

    pub(crate) fn power_ons(&self) -> u32 {
        self.state.lock().power_ons
    }

    pub(crate) fn state_of(&self, vm: Uuid) -> Option<VmState> {
        self.state.lock().vms.get(&vm).map(|report| report.state)
    }

    pub(crate) fn spec_of(&self, vm: Uuid) -> Option<VmSpec> {
        self.state.lock().specs.get(&vm).cloned()
    }

    /// What a VM runs, if it runs.
    pub(crate) fn runs(&self, vm: Uuid) -> Option<VmSpec> {
        let state = self.state.lock();
        let is_running = state.vms.get(&vm).is_some_and(|report| report.state == VmState::Running);
        state.started.get(&vm).filter(|_| is_running).cloned()
    }

    pub(crate) fn is_draining(&self, vm: Uuid) -> bool {
        self.state.lock().vms.get(&vm).is_some_and(|report| report.draining)
    }

    /// A guest that was asked to power off in vain is let run on.
    pub(crate) fn lapse(&self, vm: Uuid) {
        if let Some(report) = self.state.lock().vms.get_mut(&vm) {
            (report.state, report.draining) = (VmState::Running, false);
        }
        self.changed.notify_waiters();
    }

    pub(crate) fn vm_count(&self) -> usize {
        self.state.lock().vms.len()
    }

    /// Carries out a call unless a fault forbids it; the answer may be lost afterwards.
    fn call<T>(
        &self,
        step: Step,
        act: impl FnOnce(&mut State) -> Result<T, NodeCallError>,
    ) -> Result<T, NodeCallError> {
        let mut state = self.state.lock();
        if let Some(Fault::Refuse(message)) = state.faults.get(&step) {
            return Err(refusal(NodeErrorCode::Invalid, message));
        }
        if let Some(Fault::RefuseOnce(message)) = state.faults.get(&step) {
            let refused = refusal(NodeErrorCode::Invalid, message);
            state.faults.remove(&step);
            return Err(refused);
        }
        let outcome = act(&mut state)?;
        if let Some(Fault::LoseAnswer(times)) = state.faults.get_mut(&step)
            && *times > 0
        {
            *times -= 1;
            return Err(NodeCallError::Unreachable { node: "alpha".to_owned() });
        }
        drop(state);
        self.changed.notify_waiters();
        Ok(outcome)
    }
}

fn refusal(code: NodeErrorCode, message: &str) -> NodeCallError {
    NodeCallError::Refused(NodeError { code, message: message.to_owned() })
}

fn known(state: &mut State, vm: Uuid) -> Result<&mut VmReport, NodeCallError> {
    state.vms.get_mut(&vm).ok_or_else(|| refusal(NodeErrorCode::UnknownVm, "unknown VM"))
}

fn power_off(state: &mut State, vm: Uuid) -> Result<VmReport, NodeCallError> {
    let now = state.now();
    let report = known(state, vm)?;
    if report.state != VmState::Stopped {
        report.exited_at = now;
    }
    report.state = VmState::Stopped;
    report.boot_progress = None;
    (report.health, report.health_detail, report.draining) = (None, None, false);
    Ok(report.clone())
}

impl Nodes for FakeNodes {
    async fn prepare(&self, _node: i64, spec: &VmSpec) -> Result<VmReport, NodeCallError> {
        self.call(Step::PrepareDisk, |state| {
            let fresh = || VmReport::new(spec.vm_uuid, VmState::Stopped);
            state.specs.insert(spec.vm_uuid, spec.clone());
            Ok(state.vms.entry(spec.vm_uuid).or_insert_with(fresh).clone())
        })
    }

    async fn start(&self, _node: i64, vm: Uuid) -> Result<VmReport, NodeCallError> {
        self.call(Step::StartVm, |state| {
            let report = known(state, vm)?;
            report.draining = false;
            if report.state == VmState::Running {
                return Ok(report.clone());
            }
            let fault = state.faults.get(&Step::AwaitBoot).cloned();
            match fault {
                Some(Fault::BootErrorOnce(_) | Fault::ExitOnce(_) | Fault::UnhealthyOnce(_)) => {
                    state.faults.remove(&Step::AwaitBoot);
                }
                Some(Fault::BootErrorThenHang(_)) => {
                    state.faults.insert(Step::AwaitBoot, Fault::Hang);
                }
                _ => {}
            }
            state.started.extend(state.specs.get(&vm).cloned().map(|spec| (vm, spec)));
            let now = state.now();
            let report = known(state, vm)?;
            (report.started_at, report.exited_at, report.exit_reason) = (now, None, None);
            report.state = VmState::Running;
            report.boot_error = None;
            match fault {
                Some(
                    Fault::BootError(reason)
                    | Fault::BootErrorOnce(reason)
                    | Fault::BootErrorThenHang(reason),
                ) => {
                    report.boot_error = Some(reason.to_owned());
                }
                Some(Fault::ExitOnce(reason)) => {
                    (report.state, report.exited_at, report.exit_reason) = (VmState::Exited, now, reason);
                }
                Some(Fault::UnhealthyOnce(reason)) => {
                    report.boot_progress = Some("done".to_owned());
                    report.health = Some(VmHealth::Unhealthy);
                    report.health_detail = Some(reason.to_owned());
                }
                Some(Fault::Hang) => report.boot_progress = Some("booting".to_owned()),
                _ => report.boot_progress = Some("done".to_owned()),
            }
            let report = report.clone();
            state.power_ons += 1;
            Ok(report)
        })
    }

    async fn drain(&self, _node: i64, vm: Uuid, _request: DrainRequest) -> Result<VmReport, NodeCallError> {
        let report = self.call(Step::Drain, |state| {
            let report = known(state, vm)?;
            report.draining = true;
            Ok(report.clone())
        })?;
        while self.state.lock().faults.get(&Step::Drain) == Some(&Fault::Hang) {
            self.changed.notified().await;
        }
        Ok(report)
    }

    async fn shutdown(
        &self,
        _node: i64,
        vm: Uuid,
        _request: ShutdownRequest,
    ) -> Result<VmReport, NodeCallError> {
        self.call(Step::RequestShutdown, |state| {
            if state.faults.get(&Step::AwaitPowerOff) == Some(&Fault::Hang) {
                let report = known(state, vm)?;
                report.state = VmState::Stopping;
                return Ok(report.clone());
            }
            power_off(state, vm)
        })
    }

    async fn stop(&self, _node: i64, vm: Uuid) -> Result<VmReport, NodeCallError> {
        self.call(Step::StopVm, |state| power_off(state, vm))
    }

    async fn look(&self, _node: i64, vm: Uuid) -> Result<VmReport, NodeCallError> {
        known(&mut self.state.lock(), vm).cloned()
    }

    async fn remove(&self, _node: i64, vm: Uuid) -> Result<(), NodeCallError> {
        self.call(Step::RemoveVm, |state| {
            state.vms.remove(&vm);
            Ok(())
        })
    }

    async fn changed(&self, _vm: Uuid) {
        self.changed.notified().await;
    }
}
