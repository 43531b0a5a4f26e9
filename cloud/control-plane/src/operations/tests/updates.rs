//! Changes of configuration: what becomes of the CVM, its revision and its VM, whatever fails.

mod rollbacks;

use super::*;
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

    pub(super) async fn until(&self, what: impl AsyncFn() -> bool) {
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
