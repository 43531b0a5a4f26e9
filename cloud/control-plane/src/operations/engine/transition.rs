//! Where an operation goes after a step, and what else changes with that.

use super::super::arguments::Arguments;
use super::super::machine::{CvmStatus, RevisionState, Step};
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
    /// Status that the CVM has again.
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
        let undone = operation.failure.as_ref().and_then(|_| usize::try_from(operation.step).ok());
        Self {
            step: operation.step + 1,
            event: Some(step.as_str().to_owned()),
            found,
            recovered: undone.filter(|undo| rules.is_recovered_by(*undo)).and(rules.recovered),
            ..Self::at(operation)
        }
    }

    /// The step did not succeed, and the operation goes on.
    pub(super) fn skipped(operation: &OperationRow, step: Step) -> Self {
        let event = Some(format!("{step}.skipped"));
        Self { step: operation.step + 1, event, ..Self::at(operation) }
    }

    /// The step failed: what was done is undone as far as the CVM's policy wants it.
    pub(super) fn failed(operation: &OperationRow, step: Step, cvm: &CvmRow, reason: String) -> Self {
        let rules = operation.rules();
        let keeps = rules.recovered.is_some() && cvm.rollback_on_failure == 0;
        // A guest that may not be forced is left to go on with its shutdown.
        let unforced = matches!(step, Step::RequestShutdown | Step::AwaitPowerOff)
            && Arguments::of(operation).never_force;
        let undo = match operation.rules().undo_after(operation.step) {
            _ if keeps || unforced => rules.undo_nothing(),
            undo => undo,
        };
        Self {
            event: Some(format!("{step}.failed")),
            failure: Some(reason),
            ..Self::undoing(operation, undo, step)
        }
    }

    /// Somebody wants the operation to end.
    pub(super) fn cancelled(operation: &OperationRow, step: Step) -> Self {
        let rules = operation.rules();
        let undo = if rules.recovered.is_some() { rules.undo_after(operation.step) } else { 0 };
        Self {
            event: Some(format!("{step}.cancelled")),
            failure: Some(CANCELLED.to_owned()),
            ..Self::undoing(operation, undo, step)
        }
    }

    /// The beginning of the undo path. Where nothing has to be undone because nothing was done, the CVM is as
    /// it was.
    fn undoing(operation: &OperationRow, undo: i64, failed: Step) -> Self {
        let rules = operation.rules();
        let is_untouched = failed == Step::AllowKeys && undo == rules.undo_nothing();
        let was = Arguments::of(operation).was();
        let recovered = rules.recovered.and(was).filter(|_| is_untouched);
        Self { step: undo, recovered, ..Self::at(operation) }
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
