//! The lifecycle and its workers against a node in memory, on both engines.

mod contention;
mod crashes;
mod failures;
pub(crate) mod fake_nodes;
mod key_services;
mod metering;
mod ports;
mod random;
pub(crate) mod states_page;
mod told;
mod updates;

use std::sync::Arc;
use std::time::Duration;

use cloister_app_compose::{AppId, ComposeHash};
use cloister_node_api::VmState;
use tokio::sync::Notify;

use super::*;
use crate::clock::{Clock, Random};
use crate::governance::testing::FakeContracts;
use crate::kms::Kmses;
use crate::store::tests::{Ground, ground, on_both, provision};
use crate::store::{Caller, Configuration, CvmRow, OperationFilter, OperationRow, RevisionRow, Store};
use fake_nodes::{FakeNodes, Fault};

/// A lifecycle with workers over a store with one node that has reported.
struct Bench {
    clock: Clock,
    store: Store,
    ground: Ground,
    nodes: Arc<FakeNodes>,
    wake: Arc<Notify>,
    lifecycle: Lifecycle,
    kmses: Arc<Kmses>,
    contracts: Arc<FakeContracts>,
    engine: Option<Engine<FakeNodes>>,
}

const HASH: ComposeHash = ComposeHash::from_bytes([5; 32]);
const APP: AppId = AppId::from_bytes([5; 20]);

impl Bench {
    async fn new(store: Store) -> Self {
        let mut bench = Self::without_workers(store).await;
        bench.start_workers(None).await;
        bench
    }

    async fn without_workers(store: Store) -> Self {
        Self::at(Clock::system(), store).await
    }

    async fn at(clock: Clock, store: Store) -> Self {
        let ground = ground(&store).await;
        let now_ms = clock.now_ms();
        let report = serde_json::json!({
            "version": "0.1.0", "region": "local", "endpoint": "localhost:1",
            "ingress_url_template": "http://{host}.localhost", "ingress_domain": "localhost",
            "platform": "emulation", "maintenance": false,
            "capacity": {"cvm_slots": 8, "vcpu": 16, "memory_mb": 16384, "disk_gb": 200},
            "images": [{"name": "cloister-0.1.0", "version": "0.1.0", "is_dev": false,
                        "os_image_hash": "01".repeat(32)}],
            "vms": []
        });
        let mut row = provision(&ground, 5, "web-1");
        row.expires_at_ms = now_ms + 600_000;
        let mut change = store.change().await.unwrap();
        // It reports no more, and is there for as long as a test takes on a slow machine.
        change.put_node_report(ground.node, &report.to_string(), now_ms + 600_000).await.unwrap();
        change.put_provision(&row).await.unwrap();
        change.commit().await.unwrap();
        let wake = Arc::new(Notify::new());
        let lifecycle = Lifecycle::new(store.clone(), clock.clone(), Random, Arc::clone(&wake));
        Self {
            clock,
            store,
            ground,
            nodes: Arc::default(),
            wake,
            lifecycle,
            kmses: Arc::default(),
            contracts: Arc::default(),
            engine: None,
        }
    }

    async fn start_workers(&mut self, observer: Option<Observer>) {
        let patience = Patience { healthy: Duration::ZERO, unhealthy: Duration::ZERO };
        let contracts = Arc::<FakeContracts>::clone(&self.contracts);
        let options = EngineOptions { patience, observer, contracts, ..EngineOptions::default() };
        let engine = Engine::start(
            self.store.clone(),
            Arc::clone(&self.nodes),
            Arc::clone(&self.kmses),
            self.clock.clone(),
            Random,
            Arc::clone(&self.wake),
            options,
        );
        self.engine = Some(engine.await.unwrap());
    }

    async fn stop_workers(&mut self) {
        if let Some(engine) = self.engine.take() {
            engine.stop().await;
        }
    }

    fn caller(&self) -> Caller {
        Caller {
            api_key_id: 1,
            user_id: self.ground.user,
            username: "ada".to_owned(),
            email: String::new(),
            user_role: "user".to_owned(),
            workspace_id: self.ground.workspace,
            workspace_slug: "main".to_owned(),
            key_prefix: "phak_0".into(),
            oauth_client: None,
            stepped_up_at_ms: None,
            scope: cloister_management_api::KeyScope::Admin,
            default_version: "2026-01-21".to_owned(),
        }
    }

    async fn create(&self) -> Result<CvmRow, CreateError> {
        let request = CreateRequest {
            compose_hash: HASH,
            app_id: APP,
            is_allowed_by_contract: false,
            encrypted_env: None,
            scheduled_delete_at_ms: None,
        };
        self.lifecycle.create(&self.caller(), request).await
    }

    async fn request(&self, cvm: &CvmRow, kind: OperationKind) -> Result<CvmRow, RequestError> {
        let request = LifecycleRequest { kind, force: false };
        self.lifecycle.request(cvm.id, request, self.ground.user).await
    }

    /// Asks for another configuration.
    async fn update(
        &self,
        cvm: &CvmRow,
        alter: impl FnOnce(&mut Configuration),
    ) -> Result<AcceptedUpdate, RequestError> {
        let cvm = self.store.cvm(cvm.id).await.unwrap().unwrap();
        let mut configuration = cvm.configuration();
        alter(&mut configuration);
        let request = UpdateRequest {
            kind: OperationKind::ComposeUpdate,
            configuration,
            base_revision: cvm.revision_id,
            shutdown_timeout_s: None,
            allow_force_stop: true,
        };
        self.lifecycle.update(cvm.id, &request, self.ground.user).await
    }

    async fn revision(&self, id: i64) -> RevisionRow {
        self.store.revision(id).await.unwrap().unwrap()
    }

    async fn running_cvm(&self) -> CvmRow {
        let cvm = self.create().await.unwrap();
        self.at_rest(&cvm).await
    }

    /// Waits until no operation holds the CVM.
    async fn at_rest(&self, cvm: &CvmRow) -> CvmRow {
        for _ in 0..4000 {
            let row = self.store.cvm_even_deleted(cvm.id).await.unwrap().unwrap();
            if row.operation_id.is_none() {
                return row;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("the CVM never came to rest");
    }

    /// Lets time pass on the test's clock until no operation holds the CVM; ever more slowly, so that workers on a busy machine
    /// come to something before their leases end.
    async fn outlast(&self, cvm: &CvmRow) {
        let mut rest = Duration::from_millis(20);
        for _ in 0..300 {
            if self.store.cvm(cvm.id).await.unwrap().unwrap().operation_id.is_none() {
                return;
            }
            self.clock.advance_ms(5_000);
            tokio::time::sleep(rest).await;
            rest = rest.mul_f64(1.02).min(Duration::from_secs(1));
        }
        panic!("the operation outlasts any patience");
    }

    /// Operations of a CVM, oldest first.
    async fn operations(&self, cvm: &CvmRow) -> Vec<OperationRow> {
        let mut all = self.store.list_operations(cvm.id, &OperationFilter::default(), 100).await.unwrap();
        all.reverse();
        all
    }

    async fn events(&self, operation: &OperationRow) -> Vec<String> {
        let events = self.store.events(operation.correlation_id).await.unwrap();
        events.into_iter().map(|event| event.event_type).collect()
    }
}

#[tokio::test]
async fn a_cvm_lives_through_its_whole_life() {
    on_both(|store| async move {
        let bench = Bench::new(store).await;
        let cvm = bench.running_cvm().await;
        assert_eq!((cvm.status, cvm.boot_progress.as_deref()), (CvmStatus::Running, Some("done")));
        for (kind, status) in [
            (OperationKind::Restart, CvmStatus::Running),
            (OperationKind::Shutdown, CvmStatus::Stopped),
            (OperationKind::PowerOn, CvmStatus::Running),
            (OperationKind::PowerOff, CvmStatus::Stopped),
        ] {
            let accepted = bench.request(&cvm, kind).await.unwrap();
            assert_eq!(accepted.status, kind.rules().during);
            assert_eq!(bench.at_rest(&cvm).await.status, status, "{kind}");
        }
        bench.request(&cvm, OperationKind::Delete).await.unwrap();
        assert!(bench.at_rest(&cvm).await.deleted_at_ms.is_some());
        assert_eq!((bench.nodes.vm_count(), bench.nodes.power_ons()), (0, 3));
        bench.check_told(&cvm).await;
        let create = &bench.operations(&cvm).await[0];
        assert_eq!(
            bench.events(create).await,
            [
                "instance.create.start",
                "instance.create.allow_keys",
                "instance.create.prepare_disk",
                "instance.create.start_vm",
                "instance.create.await_boot",
                "instance.create.complete"
            ]
        );
    })
    .await;
}

#[tokio::test]
async fn creating_twice_gives_one_cvm() {
    on_both(|store| async move {
        let bench = Bench::new(store).await;
        let first = bench.create().await.unwrap();
        let again = bench.create().await.unwrap();
        assert_eq!(first.id, again.id);
        bench.at_rest(&first).await;
        assert_eq!(bench.nodes.power_ons(), 1);
    })
    .await;
}

#[tokio::test]
async fn creation_is_refused_with_a_reason() {
    on_both(|store| async move {
        let bench = Bench::new(store).await;
        let with = |compose_hash, app_id| CreateRequest {
            compose_hash,
            app_id,
            is_allowed_by_contract: false,
            encrypted_env: None,
            scheduled_delete_at_ms: None,
        };
        let unknown = with(ComposeHash::from_bytes([6; 32]), APP);
        let refused = bench.lifecycle.create(&bench.caller(), unknown).await;
        assert!(matches!(refused, Err(CreateError::ProvisionNotFound)));
        let other_app = with(HASH, AppId::from_bytes([6; 20]));
        let refused = bench.lifecycle.create(&bench.caller(), other_app).await;
        assert!(matches!(refused, Err(CreateError::AppIdMismatch { .. })));
        let mut stranger = bench.caller();
        stranger.workspace_id += 1;
        let refused = bench.lifecycle.create(&stranger, with(HASH, APP)).await;
        assert!(matches!(refused, Err(CreateError::ProvisionNotFound)));
    })
    .await;
}

#[tokio::test]
async fn a_full_node_refuses_before_anything_is_written() {
    on_both(|store| async move {
        let bench = Bench::new(store).await;
        let mut large = provision(&bench.ground, 5, "large");
        (large.memory_mb, large.expires_at_ms) = (17_000, i64::MAX);
        let mut change = bench.store.change().await.unwrap();
        change.put_provision(&large).await.unwrap();
        change.commit().await.unwrap();
        let error = bench.create().await.unwrap_err();
        assert_eq!(error.to_string(), "node alpha has not enough free memory");
        assert!(bench.store.cvms_of_app(APP).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn one_operation_at_a_time() {
    on_both(|store| async move {
        let bench = Bench::new(store).await;
        bench.nodes.set_fault(Step::AwaitBoot, Fault::Hang);
        let cvm = bench.create().await.unwrap();
        let refused = bench.request(&cvm, OperationKind::Restart).await;
        assert!(matches!(refused, Err(RequestError::Busy(OperationKind::Create))));
    })
    .await;
}

#[tokio::test]
async fn stop_and_delete_make_room_for_themselves() {
    on_both(|store| async move {
        let bench = Bench::new(store).await;
        bench.nodes.set_fault(Step::AwaitBoot, Fault::Hang);
        let cvm = bench.create().await.unwrap();
        bench.request(&cvm, OperationKind::PowerOff).await.unwrap();
        assert_eq!(bench.at_rest(&cvm).await.status, CvmStatus::Stopped);
        assert_ne!(bench.nodes.state_of(cvm.vm_uuid), Some(VmState::Running));

        bench.request(&cvm, OperationKind::PowerOn).await.unwrap();
        bench.request(&cvm, OperationKind::Delete).await.unwrap();
        bench.request(&cvm, OperationKind::Delete).await.unwrap();
        assert!(bench.at_rest(&cvm).await.deleted_at_ms.is_some());
        let kinds: Vec<_> = bench.operations(&cvm).await.iter().map(|o| (o.kind, o.status)).collect();
        assert_eq!(
            kinds,
            [
                (OperationKind::Create, OperationStatus::Failed),
                (OperationKind::PowerOff, OperationStatus::Completed),
                (OperationKind::PowerOn, OperationStatus::Failed),
                (OperationKind::Delete, OperationStatus::Completed)
            ]
        );
        assert_eq!(bench.nodes.vm_count(), 0);
        bench.check_told(&cvm).await;
    })
    .await;
}

#[tokio::test]
async fn a_hanging_shutdown_can_be_stopped() {
    on_both(|store| async move {
        let bench = Bench::new(store).await;
        let cvm = bench.running_cvm().await;
        bench.nodes.set_fault(Step::AwaitPowerOff, Fault::Hang);
        bench.request(&cvm, OperationKind::Shutdown).await.unwrap();
        let refused = bench.lifecycle.cancel(cvm.id).await;
        assert!(matches!(refused, Err(CancelError::NotCancellable(OperationKind::Shutdown))));
        bench.request(&cvm, OperationKind::PowerOff).await.unwrap();
        assert_eq!(bench.at_rest(&cvm).await.status, CvmStatus::Stopped);
    })
    .await;
}

#[tokio::test]
async fn cancelling_undoes_what_was_done() {
    on_both(|store| async move {
        let bench = Bench::new(store).await;
        bench.nodes.set_fault(Step::AwaitBoot, Fault::Hang);
        let cvm = bench.create().await.unwrap();
        let cancelled = bench.lifecycle.cancel(cvm.id).await.unwrap();
        assert!(cancelled.correlation_id.is_some());
        let row = bench.at_rest(&cvm).await;
        assert_eq!(row.status, CvmStatus::Stopped);
        assert_ne!(bench.nodes.state_of(cvm.vm_uuid), Some(VmState::Running));
        let operation = &bench.operations(&cvm).await[0];
        assert_eq!(operation.failure.as_deref(), Some("cancelled on request"));
        assert_eq!(bench.events(operation).await.last().unwrap(), "instance.create.cancelled");
        assert_eq!(bench.lifecycle.cancel(cvm.id).await.unwrap().correlation_id, None);
    })
    .await;
}

/// A VM that its node does not stop may run on: its CVM is not shown as one that is off.
#[tokio::test]
async fn what_cannot_be_undone_after_a_cancellation_is_an_error() {
    on_both(|store| async move {
        let bench = Bench::new(store).await;
        bench.nodes.set_fault(Step::AwaitBoot, Fault::Hang);
        bench.nodes.set_fault(Step::StopVm, Fault::RefuseOnce("no"));
        let cvm = bench.create().await.unwrap();
        bench.until(async || bench.nodes.power_ons() == 1).await;
        bench.lifecycle.cancel(cvm.id).await.unwrap();
        let row = bench.at_rest(&cvm).await;
        assert_eq!((row.status, row.boot_error.as_deref()), (CvmStatus::Error, Some("cancelled on request")));
        assert_eq!(bench.nodes.state_of(cvm.vm_uuid), Some(VmState::Running));
        let operation = &bench.operations(&cvm).await[0];
        assert_eq!(bench.events(operation).await.last().unwrap(), "instance.create.cancelled");
        bench.request(&cvm, OperationKind::PowerOff).await.unwrap();
        assert_eq!(bench.at_rest(&cvm).await.status, CvmStatus::Stopped);
    })
    .await;
}
