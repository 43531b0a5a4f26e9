//! Nodes that refuse, hang, lose answers and vanish.

use super::*;

#[tokio::test]
async fn a_failed_boot_says_why_and_leaves_no_vm_running() {
    on_both(|store| async move {
        let bench = Bench::new(store).await;
        bench.nodes.set_fault(Step::AwaitBoot, Fault::BootError("image hello:1 was not found"));
        let cvm = bench.create().await.unwrap();
        let row = bench.at_rest(&cvm).await;
        assert_eq!(row.status, CvmStatus::Error);
        let reason = "the application did not start: image hello:1 was not found";
        assert_eq!(row.boot_error.as_deref(), Some(reason));
        assert_eq!(bench.nodes.state_of(cvm.vm_uuid), Some(VmState::Stopped));
        bench.nodes.clear_faults();
        bench.request(&cvm, OperationKind::PowerOn).await.unwrap();
        let row = bench.at_rest(&cvm).await;
        assert_eq!((row.status, row.boot_error), (CvmStatus::Running, None));
    })
    .await;
}

#[tokio::test]
async fn every_step_of_every_operation_may_lose_its_answer() {
    on_both(|store| async move {
        let bench = Bench::new(store).await;
        for step in Step::ALL {
            bench.nodes.set_fault(*step, Fault::LoseAnswer(2));
        }
        let cvm = bench.running_cvm().await;
        assert_eq!(cvm.status, CvmStatus::Running);
        for kind in [OperationKind::Restart, OperationKind::PowerOff, OperationKind::Delete] {
            for step in Step::ALL {
                bench.nodes.set_fault(*step, Fault::LoseAnswer(1));
            }
            bench.request(&cvm, kind).await.unwrap();
            bench.at_rest(&cvm).await;
        }
        assert_eq!((bench.nodes.vm_count(), bench.nodes.power_ons()), (0, 2));
    })
    .await;
}

#[tokio::test]
async fn every_step_of_every_operation_may_fail() {
    on_both(|store| async move {
        let bench = Bench::new(store).await;
        let cvm = bench.running_cvm().await;
        for kind in [OperationKind::Restart, OperationKind::PowerOff, OperationKind::Delete] {
            let has_call = |step: &Step| {
                !matches!(step, Step::AllowKeys | Step::RetireKeys | Step::AwaitBoot | Step::AwaitPowerOff)
            };
            for step in kind.rules().steps.iter().filter(|step| has_call(step) && !step.is_optional()) {
                bench.nodes.set_fault(*step, Fault::Refuse("no"));
                bench.request(&cvm, kind).await.unwrap();
                let row = bench.at_rest(&cvm).await;
                assert_eq!((row.status, row.deleted_at_ms), (CvmStatus::Error, None), "{kind} {step}");
                assert_eq!(row.boot_error.as_deref(), Some("no"));
                bench.nodes.clear_faults();
                bench.request(&cvm, OperationKind::PowerOn).await.unwrap();
                assert_eq!(bench.at_rest(&cvm).await.status, CvmStatus::Running, "{kind} {step}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_node_that_vanishes_fails_the_operation_with_its_name() {
    on_both(|store| async move {
        let clock = Clock::manual(jiff::Timestamp::from_second(1_790_000_000).unwrap());
        let mut bench = Bench::at(clock, store).await;
        bench.nodes.set_fault(Step::StartVm, Fault::LoseAnswer(u32::MAX));
        bench.nodes.set_fault(Step::StopVm, Fault::LoseAnswer(u32::MAX));
        bench.start_workers(None).await;
        let cvm = bench.create().await.unwrap();
        bench.outlast(&cvm).await;
        let row = bench.at_rest(&cvm).await;
        assert_eq!(row.status, CvmStatus::Error);
        let reason = "node alpha does not answer; check that its service runs and reaches the control plane \
                      (gave up after 60 s)";
        assert_eq!(row.boot_error.as_deref(), Some(reason));
        let events = bench.events(&bench.operations(&cvm).await[0]).await;
        assert_eq!(
            events[3..],
            ["instance.create.start_vm.failed", "instance.create.stop_vm.skipped", "instance.create.failed"]
        );
    })
    .await;
}
