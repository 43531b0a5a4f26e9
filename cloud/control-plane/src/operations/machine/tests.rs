use super::*;
use crate::operations::tests::states_page::all_rules;

#[test]
fn every_operation_begins_somewhere_and_ends_at_rest() {
    for (kind, _, rules) in all_rules() {
        assert!(!rules.from.is_empty() && !rules.steps.is_empty(), "{kind}");
        assert!(!rules.during.is_stable(), "{kind} must be visible while it runs");
        assert!(rules.target.is_none_or(CvmStatus::is_stable), "{kind}");
        assert!(rules.after_cancel.is_stable(), "{kind}");
        assert!(rules.recovered.is_none_or(CvmStatus::is_stable), "{kind}");
    }
}

#[test]
fn what_is_applied_can_be_restored_and_the_vm_is_off_meanwhile() {
    for (kind, power, rules) in all_rules().filter(|(kind, ..)| kind.changes_revision()) {
        let forward = |step| rules.steps.iter().position(|other| *other == step);
        let back = |step| rules.undo.iter().position(|other| *other == step);
        assert!(forward(ApplyRevision).is_some() && back(RestoreRevision).is_some(), "{kind}");
        if power == Power::On {
            assert!(forward(AwaitPowerOff) < forward(ApplyRevision), "{kind}");
            assert!(back(StopVm) < back(RestoreRevision), "{kind}");
            assert!(back(RestoreRevision) < back(PrepareDisk), "{kind}");
        }
    }
}

#[test]
fn how_far_an_operation_got_says_what_is_undone() {
    let change = OperationKind::ComposeUpdate.rules();
    let reached: Vec<_> = (0..3).map(|step| change.reach(step)).collect();
    assert_eq!(reached, [Reach::Untouched, Reach::Drained, Reach::Changed]);
    assert_eq!(change.undo[usize::try_from(change.undo_drain()).unwrap()], StartVm);
    let restart = OperationKind::Restart.rules();
    assert_eq!(restart.undo_drain(), restart.undo_nothing(), "its undo starts nothing");
    for (kind, _, rules) in all_rules() {
        let last = i64::try_from(rules.steps.len()).unwrap();
        assert!(rules.is_decided(last) && !rules.is_decided(0), "{kind}");
        assert_eq!(rules.has_applied(last), kind.changes_revision(), "{kind}");
    }
}

#[test]
fn from_every_resting_status_a_cvm_can_be_started_and_deleted() {
    for status in CvmStatus::ALL.iter().filter(|status| status.is_stable()) {
        assert!(OperationKind::Delete.rules().from.contains(status));
        let start = OperationKind::PowerOn.rules();
        assert!(start.from.contains(status) || start.already == Some(*status), "{status}");
    }
}

#[test]
fn names_parse_back_and_no_resting_name_looks_busy() {
    for status in CvmStatus::ALL {
        assert_eq!(status.as_str().parse::<CvmStatus>().unwrap(), *status);
        let looks_busy = status.as_str().ends_with("ing") && *status != CvmStatus::Running;
        assert!(!(status.is_stable() && looks_busy), "clients read …ing as busy: {status}");
    }
    assert!("exploded".parse::<CvmStatus>().is_err());
}
