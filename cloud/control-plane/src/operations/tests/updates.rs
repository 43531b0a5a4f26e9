//! Changes of configuration: what becomes of the CVM, its revision and its VM, whatever fails.

use super::*;
use crate::store::NewCvm;
use crate::store::tests::set_policy;

/// What tells the new configuration from the old one here.
const NEW: &str = "new";

fn to_new(configuration: &mut Configuration) {
    configuration.app_compose = NEW.to_owned();
    configuration.compose_hash = ComposeHash::from_bytes([6; 32]);
    configuration.vcpu = 4;
}

/// What is left of a change.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    status: CvmStatus,
    /// Whether the row has the new configuration.
    has_new: bool,
    /// Whether the VM runs the new one; `None` when it is off.
    runs_new: Option<bool>,
    revision: RevisionState,
    boot_error: Option<String>,
    failure: Option<String>,
}

impl Bench {
    async fn outcome(&self, cvm: &CvmRow, revision: i64) -> Outcome {
        let row = self.at_rest(cvm).await;
        let operations = self.operations(cvm).await;
        let change = operations.iter().find(|operation| operation.to_revision == Some(revision)).unwrap();
        Outcome {
            status: row.status,
            has_new: row.revision_id == Some(revision) && row.app_compose == NEW,
            runs_new: self.nodes.runs(cvm.vm_uuid).map(|spec| spec.app_compose == NEW),
            revision: self.revision(revision).await.state,
            boot_error: row.boot_error,
            failure: change.failure.clone(),
        }
    }

    async fn used_vcpu(&self) -> i64 {
        self.store.node(self.ground.node).await.unwrap().unwrap().usage.vcpu
    }

    async fn until(&self, what: impl AsyncFn() -> bool) {
        while !what().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

fn changed() -> Outcome {
    Outcome {
        status: CvmStatus::Running,
        has_new: true,
        runs_new: Some(true),
        revision: RevisionState::Good,
        boot_error: None,
        failure: None,
    }
}

fn taken_back(reason: &str) -> Outcome {
    Outcome {
        has_new: false,
        runs_new: Some(false),
        revision: RevisionState::RolledBack,
        failure: Some(reason.to_owned()),
        ..changed()
    }
}

#[tokio::test]
async fn a_change_gives_the_cvm_its_new_revision() {
    on_both(|store| async move {
        let bench = Bench::new(store).await;
        let cvm = bench.running_cvm().await;
        let accepted = bench.update(&cvm, to_new).await.unwrap();
        assert_eq!(bench.outcome(&cvm, accepted.revision_id).await, changed());
        assert_eq!((bench.used_vcpu().await, bench.nodes.power_ons()), (4, 2));
        assert_eq!(bench.revision(cvm.revision_id.unwrap()).await.state, RevisionState::Good);
        let operations = bench.operations(&cvm).await;
        let steps = OperationKind::ComposeUpdate.rules().steps.iter().map(|step| step.as_str());
        let expected: Vec<_> = std::iter::once("start").chain(steps).chain(["complete"]).collect();
        let events = bench.events(&operations[1]).await;
        let names: Vec<_> = events.iter().map(|event| event.rsplit('.').next().unwrap()).collect();
        assert_eq!(names, expected);
    })
    .await;
}

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

#[tokio::test]
async fn a_cvm_that_is_off_changes_without_a_boot() {
    on_both(|store| async move {
        let bench = Bench::new(store).await;
        let cvm = bench.running_cvm().await;
        bench.request(&cvm, OperationKind::Shutdown).await.unwrap();
        bench.at_rest(&cvm).await;
        set_policy(&bench.store, cvm.id, false).await;
        bench.nodes.set_fault(Step::PrepareDisk, Fault::RefuseOnce("no"));
        let refused = bench.update(&cvm, to_new).await.unwrap();
        let off = |outcome| Outcome { status: CvmStatus::Stopped, runs_new: None, ..outcome };
        assert_eq!(bench.outcome(&cvm, refused.revision_id).await, off(taken_back("no")));

        let accepted = bench.update(&cvm, to_new).await.unwrap();
        let expected = Outcome { revision: RevisionState::Applied, ..off(changed()) };
        assert_eq!(bench.outcome(&cvm, accepted.revision_id).await, expected);
        assert_eq!((bench.nodes.power_ons(), bench.used_vcpu().await), (1, 4));
        bench.request(&cvm, OperationKind::PowerOn).await.unwrap();
        assert_eq!(bench.outcome(&cvm, accepted.revision_id).await, changed());
    })
    .await;
}

#[tokio::test]
async fn a_cvm_in_error_is_repaired_by_a_change() {
    on_both(|store| async move {
        let bench = Bench::new(store).await;
        bench.nodes.set_fault(Step::AwaitBoot, Fault::BootErrorOnce("bad image"));
        let cvm = bench.create().await.unwrap();
        let row = bench.at_rest(&cvm).await;
        assert_eq!(row.status, CvmStatus::Error);
        assert_eq!(bench.revision(row.revision_id.unwrap()).await.state, RevisionState::Applied);
        let accepted = bench.update(&cvm, to_new).await.unwrap();
        assert_eq!(bench.outcome(&cvm, accepted.revision_id).await, changed());
    })
    .await;
}

#[tokio::test]
async fn a_guest_that_may_not_be_forced_keeps_its_power() {
    on_both(|store| async move {
        let bench = Bench::new(store).await;
        let cvm = bench.running_cvm().await;
        bench.nodes.set_fault(Step::AwaitPowerOff, Fault::Hang);
        let mut configuration = cvm.configuration();
        to_new(&mut configuration);
        let request = UpdateRequest {
            kind: OperationKind::Update,
            configuration,
            base_revision: cvm.revision_id,
            shutdown_timeout_s: Some(10),
            allow_force_stop: false,
        };
        let accepted = bench.lifecycle.update(cvm.id, &request, bench.ground.user).await.unwrap();
        bench.until(async || bench.nodes.state_of(cvm.vm_uuid) == Some(VmState::Stopping)).await;
        bench.nodes.lapse(cvm.vm_uuid);
        let outcome = bench.outcome(&cvm, accepted.revision_id).await;
        let reason = outcome.failure.clone().unwrap();
        assert!(reason.contains("allow_force_stop"), "{reason}");
        assert_eq!(outcome, taken_back(&reason));
        assert_eq!(bench.nodes.power_ons(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_changes_at_the_same_moment_one_wins() {
    on_both(|store| async move {
        let bench = Arc::new(Bench::new(store).await);
        let cvm = bench.running_cvm().await;
        bench.nodes.set_fault(Step::AwaitBoot, Fault::Hang);
        let calls: Vec<_> = (0..6)
            .map(|_| {
                let (bench, cvm) = (Arc::clone(&bench), cvm.clone());
                tokio::spawn(async move { bench.update(&cvm, to_new).await })
            })
            .collect();
        let mut won = 0;
        for call in calls {
            match call.await.unwrap() {
                Ok(_) => won += 1,
                Err(error) => {
                    assert!(matches!(error, RequestError::Busy(OperationKind::ComposeUpdate)), "{error}");
                }
            }
        }
        assert_eq!((won, bench.operations(&cvm).await.len()), (1, 2));
        // What was decided on an older state is refused when the CVM is idle again.
        bench.nodes.clear_faults();
        bench.nodes.boot(cvm.vm_uuid);
        bench.at_rest(&cvm).await;
        let stale = UpdateRequest {
            kind: OperationKind::Update,
            configuration: cvm.configuration(),
            base_revision: cvm.revision_id,
            shutdown_timeout_s: None,
            allow_force_stop: true,
        };
        let refused = bench.lifecycle.update(cvm.id, &stale, bench.ground.user).await;
        assert!(matches!(refused, Err(RequestError::ChangedMeanwhile)));
    })
    .await;
}

#[tokio::test]
async fn a_disk_that_grew_stays_large_and_what_does_not_fit_is_refused() {
    on_both(|store| async move {
        let bench = Bench::new(store).await;
        let cvm = bench.running_cvm().await;
        bench.nodes.set_fault(Step::AwaitBoot, Fault::BootErrorOnce("bad image"));
        bench.update(&cvm, |wanted| wanted.disk_gb = 40).await.unwrap();
        let row = bench.at_rest(&cvm).await;
        assert_eq!((row.status, row.disk_gb, row.revision_id), (CvmStatus::Running, 40, cvm.revision_id));
        assert_eq!(bench.nodes.runs(cvm.vm_uuid).unwrap().disk_gb, 40, "its node never shrinks it");
        let usage = bench.store.node(bench.ground.node).await.unwrap().unwrap().usage;
        assert_eq!(usage.disk_gb, 40);
        let smaller = bench.update(&cvm, |wanted| wanted.disk_gb = 30).await;
        assert!(matches!(smaller, Err(RequestError::DiskShrinks { from: 40, to: 30 })));
        let larger = bench.update(&cvm, |wanted| wanted.vcpu = 17).await.unwrap_err();
        assert_eq!(larger.to_string(), "node alpha has not enough free virtual CPUs");
        assert_eq!(bench.store.node(bench.ground.node).await.unwrap().unwrap().usage, usage);
    })
    .await;
}
