//! Random requests and faults: whatever happens, every CVM comes to rest with a configuration that is in its
//! history, its VM runs just that, and nobody holds more or less of the node than there is.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::store::NodeRow;
use crate::store::tests::embedded;

/// What somebody does, or what happens.
#[derive(Debug, Clone)]
pub(super) enum Act {
    Create,
    Request(OperationKind),
    /// Another size, in virtual CPUs and GiB of disk more.
    Update(i64, i64),
    Cancel,
    Fault(Step, Fault),
    /// The workers die, and others take over.
    Crash,
    /// Until nothing moves.
    Rest,
}

pub(super) fn act() -> impl Strategy<Value = Act> {
    use OperationKind::{Delete, PowerOff, PowerOn, Restart, Shutdown};
    let calls = [Step::PrepareDisk, Step::StartVm, Step::RequestShutdown, Step::StopVm, Step::Drain];
    prop_oneof![
        2 => Just(Act::Create),
        3 => prop::sample::select(vec![PowerOn, PowerOff, Restart, Shutdown, Delete]).prop_map(Act::Request),
        6 => (1..6_i64, 0..3_i64).prop_map(|(vcpu, disk)| Act::Update(vcpu, disk)),
        2 => Just(Act::Cancel),
        3 => prop::sample::select(calls.to_vec()).prop_map(|step| Act::Fault(step, Fault::RefuseOnce("no"))),
        1 => prop::sample::select(calls.to_vec()).prop_map(|step| Act::Fault(step, Fault::LoseAnswer(1))),
        2 => Just(Act::Fault(Step::AwaitBoot, Fault::BootErrorOnce("bad image"))),
        2 => Just(Act::Fault(Step::AwaitBoot, Fault::UnhealthyOnce("web fails"))),
        1 => Just(Act::Crash),
        5 => Just(Act::Rest),
    ]
}

impl Bench {
    pub(super) async fn act(&mut self, cvm: &mut Option<CvmRow>, act: Act) {
        // A refusal is fine: what counts is the state that is left.
        match (act, cvm.clone()) {
            (Act::Create, _) => *cvm = self.create().await.ok().or(cvm.take()),
            (Act::Request(kind), Some(cvm)) => drop(self.request(&cvm, kind).await),
            (Act::Update(vcpu, disk_gb), Some(cvm)) if self.is_alive(&cvm).await => {
                let alter = |wanted: &mut Configuration| {
                    (wanted.vcpu, wanted.disk_gb) = (vcpu, wanted.disk_gb + disk_gb);
                    wanted.app_compose = format!("{vcpu} {disk_gb}");
                };
                drop(self.update(&cvm, alter).await);
            }
            (Act::Cancel, Some(cvm)) => drop(self.lifecycle.cancel(cvm.id).await),
            (Act::Fault(step, fault), _) => self.nodes.set_fault(step, fault),
            (Act::Crash, _) => {
                self.stop_workers().await;
                self.store.expire_all_leases().await.unwrap();
                self.start_workers(None).await;
            }
            (Act::Rest, Some(cvm)) => drop(self.at_rest(&cvm).await),
            (Act::Request(_) | Act::Update(..) | Act::Cancel | Act::Rest, _) => {}
        }
    }

    async fn is_alive(&self, cvm: &CvmRow) -> bool {
        self.store.cvm(cvm.id).await.unwrap().is_some()
    }

    /// Everything that must hold of a CVM at rest.
    async fn check(&self, cvm: &CvmRow) {
        let row = self.at_rest(cvm).await;
        self.check_told(cvm).await;
        let operations = self.operations(cvm).await;
        assert_eq!(usize::try_from(row.operation_count).unwrap(), operations.len());
        for operation in &operations {
            assert_ne!(operation.status, OperationStatus::InProgress, "{}", operation.kind);
            if let Some(id) = operation.to_revision {
                assert_ne!(self.revision(id).await.state, RevisionState::Pending);
            }
        }
        if row.deleted_at_ms.is_some() {
            assert_eq!(self.nodes.state_of(row.vm_uuid), None, "its VM is gone");
            return;
        }
        let revision = self.revision(row.revision_id.unwrap()).await;
        assert!(matches!(revision.state, RevisionState::Applied | RevisionState::Good), "{revision:?}");
        assert_eq!(row.app_compose, revision.configuration.app_compose);
        assert_eq!(row.vcpu, revision.configuration.vcpu);
        assert!(row.disk_gb >= revision.configuration.disk_gb);
        let runs = self.nodes.runs(row.vm_uuid);
        match row.status {
            CvmStatus::Running => assert!(runs.is_some() && !self.nodes.is_draining(row.vm_uuid)),
            CvmStatus::Stopped => assert!(runs.is_none()),
            other => assert_eq!(other, CvmStatus::Error),
        }
        if let Some(runs) = runs {
            assert_eq!((runs.app_compose, i64::from(runs.vcpu)), (row.app_compose, row.vcpu));
        }
    }

    async fn check_usage(&self) {
        let NodeRow { usage, .. } = self.store.node(self.ground.node).await.unwrap().unwrap();
        let living = self.store.cvms_on_node(self.ground.node).await.unwrap();
        let sum = |of: fn(&CvmRow) -> i64| living.iter().map(of).sum::<i64>();
        let held = (usage.cvms, usage.vcpu, usage.memory_mb, usage.disk_gb);
        let count = i64::try_from(living.len()).unwrap();
        assert_eq!(held, (count, sum(|cvm| cvm.vcpu), sum(|cvm| cvm.memory_mb), sum(|cvm| cvm.disk_gb)));
    }

    async fn live_through(store: Store, acts: Vec<Act>) {
        let mut bench = Self::new(store).await;
        let (mut cvm, mut seen) = (None, Vec::<CvmRow>::new());
        for act in acts {
            bench.act(&mut cvm, act).await;
            if let Some(new) = cvm.iter().find(|cvm| seen.iter().all(|seen| seen.id != cvm.id)) {
                seen.push(new.clone());
            }
        }
        for cvm in &seen {
            bench.check(cvm).await;
        }
        bench.check_usage().await;
        bench.stop_workers().await;
    }
}

pub(super) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn whatever_happens_a_cvm_comes_to_rest_as_its_history_says() {
    let mut runner = TestRunner::new(Config { cases: 24, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&prop::collection::vec(act(), 4..14), |acts| {
        let dir = tempfile::tempdir().unwrap();
        runtime().block_on(async {
            let store = embedded(dir.path()).await;
            Bench::live_through(store, acts).await;
        });
        Ok(())
    });
    outcome.unwrap();
}
