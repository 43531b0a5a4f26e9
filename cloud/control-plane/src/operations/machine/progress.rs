//! What the table says about an operation that is under way: how far it got, and what of it is undone.

use super::Step::{ApplyRevision, Drain, StartVm};
use super::{Rules, Step};

/// How far an operation got with its VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::operations) enum Reach {
    /// Nothing concerned the VM.
    Untouched,
    /// It was taken from the ingress and runs on.
    Drained,
    /// Its power or its files may be different.
    Changed,
}

impl Rules {
    /// How far an operation got that tried the step with this number. What a KMS that is away cannot allow
    /// must not end a VM that runs.
    pub(in crate::operations) fn reach(&self, tried: i64) -> Reach {
        let tried =
            usize::try_from(tried).ok().and_then(|tried| self.steps.get(..=tried)).unwrap_or(self.steps);
        match tried {
            tried if !tried.iter().all(|step| step.leaves_vm_alone()) => Reach::Changed,
            tried if tried.contains(&Drain) => Reach::Drained,
            _ => Reach::Untouched,
        }
    }

    /// Whether the new revision became the CVM's before the step with this number.
    pub(in crate::operations) fn has_applied(&self, before: i64) -> bool {
        let applies = self.steps.iter().position(|step| *step == ApplyRevision);
        applies.and_then(|index| i64::try_from(index).ok()).is_some_and(|index| index < before)
    }

    /// Whether only steps are left, from this number on, that do not decide the outcome: it is too late to
    /// end the operation.
    pub(in crate::operations) fn is_decided(&self, step: i64) -> bool {
        let rest = usize::try_from(step).ok().and_then(|step| self.steps.get(step..)).unwrap_or_default();
        rest.iter().all(|step| step.is_optional())
    }

    /// Whether the CVM is as it was once the undo step with this number succeeded.
    pub(in crate::operations) fn is_recovered_by(&self, undo: i64) -> bool {
        let last = self.undo.iter().rposition(|step| !step.is_optional());
        self.recovered.is_some() && last.and_then(|last| i64::try_from(last).ok()) == Some(undo)
    }

    /// Number of the undo step that follows a failed one.
    pub(in crate::operations) fn undo_beyond(&self, failed: Step, number: i64) -> i64 {
        if failed.undo_goes_on() { number + 1 } else { self.undo_nothing() }
    }

    /// Number of the undo step that gives a VM, which was only taken from the ingress, back to it.
    pub(in crate::operations) fn undo_drain(&self) -> i64 {
        let start = self.undo.iter().position(|step| *step == StartVm);
        start.and_then(|start| i64::try_from(start).ok()).unwrap_or_else(|| self.undo_nothing())
    }

    /// Number of the undo step behind the last one: nothing is undone.
    pub(in crate::operations) fn undo_nothing(&self) -> i64 {
        i64::try_from(self.undo.len()).unwrap_or(i64::MAX)
    }
}
