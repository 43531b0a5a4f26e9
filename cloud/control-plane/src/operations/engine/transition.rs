//! Where an operation goes after a step, and what else changes with that.

use super::super::arguments::Arguments;
use super::super::machine::{CvmStatus, OperationStatus, Reach, RevisionState, Rules, Step};
use super::super::steps::Found;
use super::CANCELLED;
use crate::fleet::observed;
use crate::store::{Change, CvmRow, OperationRow, StoreError};

/// The next place of an operation.
pub(super) struct Transition {
    /// Index of the step, on the undo path once `failure` is set.
    pub(super) step: i64,
    pub(super) failure: Option<String>,
    /// Name of the event, without the operation's kind.
    pub(super) event: Option<String>,
    pub(super) found: Found,
    /// Status that the CVM has again, or `Error` where something could not be undone.
    pub(super) recovered: Option<CvmStatus>,
}

impl Transition {
    /// Where it is: a worker takes the step up.
    pub(super) fn at(operation: &OperationRow) -> Self {
        Self {
            step: operation.step,
            failure: operation.failure.clone(),
            event: None,
            found: Found::default(),
            recovered: None,
        }
    }

    /// The step succeeded.
    pub(super) fn done(operation: &OperationRow, step: Step, found: Found) -> Self {
        let rules = operation.rules();
        let recovers = operation.failure.is_some() && rules.is_recovered_by(operation.step);
        Self {
            step: operation.step + 1,
            event: Some(step.as_str().to_owned()),
            found,
            recovered: rules.recovered.filter(|_| recovers),
            ..Self::at(operation)
        }
    }

    /// The step did not succeed, and the operation goes on. What could not be undone leaves the CVM in error, unless a later
    /// step gives it its status again.
    pub(super) fn skipped(operation: &OperationRow, step: Step) -> Self {
        let event = Some(format!("{step}.skipped"));
        if operation.failure.is_none() {
            return Self { step: operation.step + 1, event, ..Self::at(operation) };
        }
        let recovered = (!step.is_optional()).then_some(CvmStatus::Error);
        Self {
            step: operation.rules().undo_beyond(step, operation.step),
            event,
            recovered,
            ..Self::at(operation)
        }
    }

    /// The step failed: what was done is undone as far as the CVM's policy wants it.
    pub(super) fn failed(operation: &OperationRow, step: Step, cvm: &CvmRow, reason: String) -> Self {
        let rules = operation.rules();
        let keeps = cvm.rollback_on_failure == 0
            && rules.recovered == Some(CvmStatus::Running)
            && rules.has_applied(operation.step);
        let undoing = if keeps {
            Self { step: rules.undo_nothing(), ..Self::at(operation) }
        } else {
            Self::undoing(operation, rules, step)
        };
        Self { event: Some(format!("{step}.failed")), failure: Some(reason), ..undoing }
    }

    /// Somebody wants the operation to end.
    pub(super) fn cancelled(operation: &OperationRow, step: Step) -> Self {
        let undoing = Self::undoing(operation, operation.rules(), step);
        Self { event: Some(format!("{step}.cancelled")), failure: Some(CANCELLED.to_owned()), ..undoing }
    }

    /// The beginning of the undo path. A CVM that was up, and whose VM nothing was done to, is as it was.
    fn undoing(operation: &OperationRow, rules: &Rules, failed: Step) -> Self {
        let arguments = Arguments::of(operation);
        let was_up = arguments.was() == Some(CvmStatus::Running);
        // A guest that may not be forced goes on with its shutdown, or with its work: its node says which.
        let is_unforced =
            arguments.never_force && matches!(failed, Step::RequestShutdown | Step::AwaitPowerOff);
        let as_it_was = was_up.then_some(CvmStatus::Running);
        let (step, recovered) = match rules.reach(operation.step) {
            _ if is_unforced => (rules.undo_nothing(), as_it_was),
            Reach::Drained if was_up && rules.undo_drain() < rules.undo_nothing() => {
                (rules.undo_drain(), None)
            }
            Reach::Drained | Reach::Untouched => (rules.undo_nothing(), as_it_was),
            Reach::Changed => (0, None),
        };
        Self { step, recovered, ..Self::at(operation) }
    }
}

/// What a transition changes beside the operation itself.
pub(super) async fn settle(
    change: &mut Change,
    operation: &OperationRow,
    cvm: &CvmRow,
    next: &Transition,
    now_ms: i64,
) -> Result<(), StoreError> {
    let found = &next.found;
    if let Some(report) = &found.report {
        change.observe_cvm(cvm.id, &observed(report), now_ms).await?;
    }
    if let Some(env_pubkey) = &found.env_pubkey {
        change.set_env_pubkey(cvm.id, env_pubkey).await?;
    }
    if let Some(hash) = found.allowed {
        change.note_keys_allowed(cvm.app_id, hash).await?;
    }
    if let Some(ports) = &found.ports {
        change.set_ports(cvm.id, ports, now_ms).await?;
    }
    if let Some(status) = next.recovered {
        change.set_recovered(operation.correlation_id, status).await?;
    }
    let Some(id) = found.revision else { return Ok(()) };
    if let Some(revision) = change.revision(id).await? {
        change.apply_revision(&revision, now_ms).await?;
    }
    let (subject, state) = match &next.failure {
        None => (Some(id), RevisionState::Applied),
        Some(_) => (operation.to_revision, RevisionState::RolledBack),
    };
    match subject {
        Some(subject) => change.set_revision_state(subject, state, now_ms).await,
        None => Ok(()),
    }
}

/// How an operation ends that has no step left.
pub(super) struct Ending {
    pub(super) status: OperationStatus,
    /// Name of the last event, without the operation's kind.
    pub(super) event: &'static str,
    /// Status of its CVM; `None` when that is gone.
    pub(super) cvm_status: Option<CvmStatus>,
}

impl Ending {
    pub(super) fn of(operation: &OperationRow) -> Self {
        let rules = operation.rules();
        let recovered = operation.recovered_to.as_deref().and_then(|name| name.parse().ok());
        let (status, event, cvm_status) = match operation.failure.as_deref() {
            None => (OperationStatus::Completed, "complete", rules.target),
            Some(CANCELLED) => {
                (OperationStatus::Failed, "cancelled", Some(recovered.unwrap_or(rules.after_cancel)))
            }
            Some(_) => (OperationStatus::Failed, "failed", Some(recovered.unwrap_or(CvmStatus::Error))),
        };
        Self { status, event, cvm_status }
    }
}

/// Notes that a CVM's revision works: its operation ended with it up. Only a boot shows that; a VM that went on
/// undisturbed may have an older one.
pub(super) async fn prove(
    change: &mut Change,
    operation: &OperationRow,
    cvm: &CvmRow,
    status: Option<CvmStatus>,
    now_ms: i64,
) -> Result<(), StoreError> {
    let Some(revision) = cvm.revision_id else { return Ok(()) };
    let booted = operation.rules().steps.contains(&Step::AwaitBoot)
        && (operation.failure.is_none() || operation.from_revision == Some(revision));
    if status == Some(CvmStatus::Running) && booted {
        change.set_revision_state(revision, RevisionState::Good, now_ms).await?;
    }
    Ok(())
}

/// Puts a CVM to rest: its operation has ended.
pub(super) async fn rest(
    change: &mut Change,
    operation: &OperationRow,
    cvm: &CvmRow,
    status: CvmStatus,
    now_ms: i64,
) -> Result<(), StoreError> {
    change.set_cvm_status(cvm.id, status, now_ms).await?;
    match (status, operation.failure.as_deref(), &cvm.boot_error) {
        // Who cancels an attempt to repair a CVM still wants to know what is wrong with it.
        (CvmStatus::Error, Some(CANCELLED), Some(_)) => {}
        (CvmStatus::Error, Some(reason), _) => change.set_boot_error(cvm.id, reason).await?,
        _ => {}
    }
    change.reserve(cvm.id, None).await?;
    change.release_cvm(cvm.id, operation.correlation_id).await
}
