//! Changes that fail or are cancelled: the way back, and what it leaves.

use cloister_node_api::ExitReason;

use super::*;
use crate::store::NewCvm;

#[tokio::test]
async fn whatever_fails_the_cvm_has_its_last_good_revision_back() {
    on_both(|store| async move {
        let bench = Bench::new(store).await;
        let cvm = bench.running_cvm().await;
        let no = || Fault::RefuseOnce("no");
        for (step, fault, reason) in [
            (Step::RequestShutdown, no(), "no"),
            (Step::PrepareDisk, no(), "no"),
            (Step::StartVm, no(), "no"),
            (Step::AwaitBoot, Fault::BootErrorOnce("bad image"), "the application did not start: bad image"),
            (
                Step::AwaitBoot,
                Fault::ExitOnce(None),
                "the VM ended during boot; its serial log says more",
            ),
            (
                Step::AwaitBoot,
                Fault::ExitOnce(Some(ExitReason::Restarted)),
                "the VM ended during boot (the guest's kernel panicked or restarted); its serial log says more",
            ),
            (
                Step::AwaitBoot,
                Fault::ExitOnce(Some(ExitReason::HostError)),
                "the VM ended during boot (the node's hypervisor could not go on); logs of the node and of its kernel \
                 say more",
            ),
            (Step::AwaitBoot, Fault::UnhealthyOnce("web fails"), "the application is not healthy: web fails"),
        ] {
            bench.nodes.set_fault(step, fault);
            let accepted = bench.update(&cvm, to_new).await.unwrap();
            assert_eq!(bench.outcome(&cvm, accepted.revision_id).await, taken_back(reason), "{step}");
            assert_eq!(bench.used_vcpu().await, 2, "{step}");
            assert!(!bench.nodes.is_draining(cvm.vm_uuid), "{step}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_rollback_that_fails_leaves_an_error_and_a_row_that_is_true() {
    on_both(|store| async move {
        let bench = Bench::new(store).await;
        let cvm = bench.running_cvm().await;
        for (step, has_new, runs_new) in [
            // The node does not let go of the VM that runs the new revision.
            (Step::StopVm, true, Some(true)),
            (Step::PrepareDisk, false, None),
        ] {
            bench.nodes.set_fault(Step::AwaitBoot, Fault::BootErrorOnce("bad image"));
            bench.nodes.set_fault(step, Fault::Refuse("no"));
            let accepted = bench.update(&cvm, to_new).await.unwrap();
            let outcome = bench.outcome(&cvm, accepted.revision_id).await;
            assert_eq!((outcome.status, outcome.has_new), (CvmStatus::Error, has_new), "{step}");
            assert_eq!(outcome.runs_new, runs_new, "{step}");
            let expected = if has_new { RevisionState::Applied } else { RevisionState::RolledBack };
            assert_eq!(outcome.revision, expected, "{step}");
            assert_eq!(outcome.boot_error, outcome.failure);
            // Another attempt is possible.
            bench.nodes.clear_faults();
            let again = bench.update(&cvm, to_new).await.unwrap();
            assert_eq!(bench.outcome(&cvm, again.revision_id).await, changed());
        }
    })
    .await;
}

#[tokio::test]
async fn a_cvm_whose_policy_is_to_keep_keeps_what_was_applied() {
    on_both(|store| async move {
        let bench = Bench::new(store).await;
        let cvm = bench.running_cvm().await;
        set_policy(&bench.store, cvm.id, false).await;
        bench.nodes.set_fault(Step::RequestShutdown, Fault::RefuseOnce("no"));
        let early = bench.update(&cvm, to_new).await.unwrap();
        assert_eq!(bench.outcome(&cvm, early.revision_id).await, taken_back("no"), "nothing was applied");

        bench.nodes.set_fault(Step::AwaitBoot, Fault::UnhealthyOnce("web fails"));
        let kept = bench.update(&cvm, to_new).await.unwrap();
        let outcome = bench.outcome(&cvm, kept.revision_id).await;
        let reason = Some("the application is not healthy: web fails".to_owned());
        let expected = Outcome {
            status: CvmStatus::Error,
            revision: RevisionState::Applied,
            boot_error: reason.clone(),
            failure: reason,
            ..changed()
        };
        assert_eq!(outcome, expected);
        assert_eq!(bench.used_vcpu().await, 4);

        // The one after it goes back to what was good, not to what was kept.
        set_policy(&bench.store, cvm.id, true).await;
        bench.nodes.set_fault(Step::AwaitBoot, Fault::BootErrorOnce("bad image"));
        bench.update(&cvm, |wanted| wanted.memory_mb = 2048).await.unwrap();
        let row = bench.at_rest(&cvm).await;
        assert_eq!((row.status, row.revision_id), (CvmStatus::Running, cvm.revision_id));
    })
    .await;
}

#[tokio::test]
async fn what_was_set_for_the_next_start_survives_a_change_that_fails() {
    on_both(|store| async move {
        let bench = Bench::new(store).await;
        let cvm = bench.running_cvm().await;
        let (config, user) = (Some("{}".to_owned()), bench.ground.user);
        bench.lifecycle.configure(cvm.id, cvm.revision_id, config, user).await.unwrap();
        for step in [Step::RequestShutdown, Step::PrepareDisk] {
            bench.nodes.set_fault(step, Fault::RefuseOnce("no"));
            let accepted = bench.update(&cvm, to_new).await.unwrap();
            assert_eq!(bench.outcome(&cvm, accepted.revision_id).await, taken_back("no"), "{step}");
            let runs = bench.nodes.runs(cvm.vm_uuid).unwrap();
            assert_eq!(runs.user_config.as_deref(), Some("{}"), "{step}");
        }
    })
    .await;
}

#[tokio::test]
async fn room_for_the_way_back_is_held_or_the_way_is_another() {
    on_both(|store| async move {
        let bench = Bench::new(store).await;
        let cvm = bench.running_cvm().await;
        let large = bench.update(&cvm, |wanted| wanted.vcpu = 8).await.unwrap();
        bench.at_rest(&cvm).await;
        set_policy(&bench.store, cvm.id, false).await;
        bench.nodes.set_fault(Step::AwaitBoot, Fault::BootErrorOnce("bad image"));
        let small = bench.update(&cvm, |wanted| wanted.vcpu = 2).await.unwrap();
        bench.at_rest(&cvm).await;
        set_policy(&bench.store, cvm.id, true).await;
        assert_eq!(bench.used_vcpu().await, 2, "the small one is kept");

        bench.nodes.set_fault(Step::AwaitBoot, Fault::BootErrorThenHang("bad image"));
        let boots = bench.nodes.power_ons();
        bench.update(&cvm, |wanted| wanted.memory_mb = 2048).await.unwrap();
        assert_eq!(bench.used_vcpu().await, 8, "the good one may come back");
        bench.until(async || bench.nodes.power_ons() == boots + 2).await;
        bench.request(&cvm, OperationKind::PowerOff).await.unwrap();
        assert_eq!(bench.at_rest(&cvm).await.revision_id, Some(large.revision_id));

        // Kept again, and then others fill the node up.
        bench.nodes.clear_faults();
        bench.request(&cvm, OperationKind::PowerOn).await.unwrap();
        bench.at_rest(&cvm).await;
        set_policy(&bench.store, cvm.id, false).await;
        bench.nodes.set_fault(Step::AwaitBoot, Fault::BootErrorOnce("bad image"));
        let small_again = bench.update(&cvm, |wanted| wanted.vcpu = 2).await.unwrap();
        bench.at_rest(&cvm).await;
        assert_ne!(small.revision_id, small_again.revision_id);
        set_policy(&bench.store, cvm.id, true).await;
        let mut row = provision(&bench.ground, 6, "web-2");
        (row.vcpu, row.expires_at_ms) = (12, bench.clock.now_ms() + 600_000);
        let new = NewCvm::of_provision(&row, bench.ground.user, Random.uuid().unwrap(), None);
        let mut change = bench.store.change().await.unwrap();
        let other = bench.lifecycle.insert(&mut change, &new, OperationKind::Create).await.unwrap();
        change.commit().await.unwrap();
        bench.lifecycle.wake();
        bench.at_rest(&other).await;
        bench.nodes.set_fault(Step::AwaitBoot, Fault::BootErrorOnce("bad image"));
        bench.update(&cvm, |wanted| wanted.memory_mb = 2048).await.unwrap();
        let row = bench.at_rest(&cvm).await;
        assert_eq!((row.revision_id, row.vcpu), (Some(small_again.revision_id), 2));
        assert_eq!(bench.used_vcpu().await, 14);
    })
    .await;
}

#[tokio::test]
async fn stop_and_delete_do_not_wait_for_a_rollback_to_boot() {
    on_both(|store| async move {
        let bench = Bench::new(store).await;
        let cvm = bench.running_cvm().await;
        bench.nodes.set_fault(Step::AwaitBoot, Fault::Hang);
        let boots = async |count| bench.nodes.power_ons() == count;
        let accepted = bench.update(&cvm, to_new).await.unwrap();
        bench.until(async || boots(2).await).await;
        bench.request(&cvm, OperationKind::PowerOff).await.unwrap();
        let stopped =
            Outcome { status: CvmStatus::Stopped, runs_new: None, ..taken_back("cancelled on request") };
        assert_eq!(bench.outcome(&cvm, accepted.revision_id).await, stopped);
        assert_eq!((bench.nodes.power_ons(), bench.used_vcpu().await), (2, 2), "nothing was booted");

        // While it boots what it goes back to.
        bench.nodes.clear_faults();
        bench.request(&cvm, OperationKind::PowerOn).await.unwrap();
        bench.at_rest(&cvm).await;
        bench.nodes.set_fault(Step::AwaitBoot, Fault::Hang);
        let accepted = bench.update(&cvm, to_new).await.unwrap();
        bench.until(async || boots(4).await).await;
        bench.lifecycle.cancel(cvm.id).await.unwrap();
        bench.until(async || boots(5).await).await;
        bench.request(&cvm, OperationKind::Delete).await.unwrap();
        assert!(bench.at_rest(&cvm).await.deleted_at_ms.is_some());
        assert_eq!(bench.revision(accepted.revision_id).await.state, RevisionState::RolledBack);
        assert_eq!((bench.nodes.vm_count(), bench.nodes.power_ons(), bench.used_vcpu().await), (0, 5, 0));
    })
    .await;
}

#[tokio::test]
async fn cancelling_takes_a_change_back_once_and_a_rollback_never() {
    on_both(|store| async move {
        let bench = Bench::new(store).await;
        let cvm = bench.running_cvm().await;
        // While the ingress drains it: the VM goes on.
        bench.nodes.set_fault(Step::Drain, Fault::Hang);
        let accepted = bench.update(&cvm, to_new).await.unwrap();
        bench.until(async || bench.nodes.is_draining(cvm.vm_uuid)).await;
        let cancelled = bench.lifecycle.cancel(cvm.id).await.unwrap();
        assert_eq!(cancelled.correlation_id, Some(accepted.correlation_id));
        assert_eq!(bench.lifecycle.cancel(cvm.id).await.unwrap(), cancelled, "repeating it changes nothing");
        let outcome = bench.outcome(&cvm, accepted.revision_id).await;
        assert_eq!(outcome, taken_back("cancelled on request"));
        assert_eq!((bench.nodes.power_ons(), bench.nodes.is_draining(cvm.vm_uuid)), (1, false));

        // While it rolls back by itself.
        bench.nodes.clear_faults();
        bench.nodes.set_fault(Step::AwaitBoot, Fault::BootErrorThenHang("bad image"));
        bench.update(&cvm, to_new).await.unwrap();
        bench.until(async || bench.nodes.power_ons() == 3).await;
        let refused = bench.lifecycle.cancel(cvm.id).await;
        assert!(matches!(refused, Err(CancelError::RollingBack(_))), "{refused:?}");
        bench.nodes.boot(cvm.vm_uuid);
        assert_eq!(bench.at_rest(&cvm).await.status, CvmStatus::Running);
    })
    .await;
}
