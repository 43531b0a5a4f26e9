//! Rollouts and drains with a real lifecycle and engine over nodes in memory, on both database engines.

mod crashes;
mod drains;
mod plans;
mod updates;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cloister_app_compose::{AppId, ComposeHash};
use jiff::Timestamp;
use serde_json::json;
use tokio::sync::Notify;

use super::*;
use crate::clock::{Clock, Random};
use crate::kms::Kmses;
use crate::operations::tests::fake_nodes::FakeNodes;
use crate::operations::{
    CvmStatus, Engine, EngineOptions, Lifecycle, LifecycleRequest, OperationKind, UpdateRequest,
};
use crate::store::tests::{Ground, ground, provision};
use crate::store::{
    Configuration, CvmRow, MemberRow, NewCvm, OperationFilter, OperationRow, RolloutRow, Store,
};

const APP: AppId = AppId::from_bytes([5; 20]);
/// Longer than the pause between two looks at a rollout.
const TICK_MS: i64 = 1_001;
/// More rounds than any of these rollouts needs.
const MAX_TICKS: usize = 400;

/// An installation whose time stands still between ticks.
struct Scene {
    clock: Clock,
    store: Store,
    ground: Ground,
    /// Nodes that report with every tick.
    reporting: BTreeSet<i64>,
    nodes: Arc<FakeNodes>,
    lifecycle: Lifecycle,
    rollouts: Rollouts,
    driver: Arc<Driver>,
    engine: Option<Engine<FakeNodes>>,
}

impl Scene {
    async fn new(store: Store) -> Self {
        Self::watched(store, None).await
    }

    async fn watched(store: Store, observer: Option<Observer>) -> Self {
        let clock = Clock::manual(Timestamp::from_second(1_790_000_000).unwrap());
        let ground = ground(&store).await;
        let (wake, nodes) = (Arc::new(Notify::new()), Arc::<FakeNodes>::default());
        let lifecycle = Lifecycle::new(store.clone(), clock.clone(), Random, Arc::clone(&wake));
        let engine = Engine::start(
            store.clone(),
            Arc::clone(&nodes),
            Arc::<Kmses>::default(),
            clock.clone(),
            Random,
            wake,
            EngineOptions::default(),
        );
        let engine = Some(engine.await.unwrap());
        let driver = Driver::new(store.clone(), lifecycle.clone(), clock.clone(), observer);
        let scene = Self {
            rollouts: Rollouts::new(store.clone(), clock.clone()),
            driver: Arc::new(driver),
            reporting: BTreeSet::from([ground.node]),
            clock,
            store,
            ground,
            nodes,
            lifecycle,
            engine,
        };
        scene.report().await;
        scene
    }

    async fn end(mut self) {
        if let Some(engine) = self.engine.take() {
            engine.stop().await;
        }
    }

    async fn add_node(&mut self, name: &str) -> i64 {
        let mut change = self.store.change().await.unwrap();
        let id = change.insert_node(name, self.clock.now_ms()).await.unwrap();
        change.commit().await.unwrap();
        self.reporting.insert(id);
        self.report().await;
        id
    }

    async fn report(&self) {
        let report = json!({
            "version": "0.1.0", "region": "local", "endpoint": "localhost:1",
            "ingress_url_template": "http://{host}.localhost", "ingress_domain": "localhost",
            "platform": "emulation", "maintenance": false,
            "capacity": {"cvm_slots": 8, "vcpu": 32, "memory_mb": 32768, "disk_gb": 400},
            "images": [{"name": "cloister-0.1.0", "version": "0.1.0", "is_dev": false,
                        "os_image_hash": "01".repeat(32)}],
            "vms": []
        });
        let mut change = self.store.change().await.unwrap();
        for node in &self.reporting {
            change.put_node_report(*node, &report.to_string(), self.clock.now_ms()).await.unwrap();
        }
        change.commit().await.unwrap();
    }

    /// A running CVM of an application.
    async fn cvm(&self, app: u8, name: &str, node: i64) -> CvmRow {
        let mut row = provision(&self.ground, app, name);
        row.node_id = node;
        let new = NewCvm::of_provision(&row, self.ground.user, Random.uuid().unwrap(), None);
        let mut change = self.store.change().await.unwrap();
        let cvm = self.lifecycle.insert(&mut change, &new, OperationKind::Create).await.unwrap();
        change.commit().await.unwrap();
        self.lifecycle.wake();
        let cvm = self.at_rest(cvm.id).await;
        assert_eq!(cvm.status, CvmStatus::Running, "{:?}", cvm.boot_error);
        cvm
    }

    async fn replicas(&self, count: usize) -> Vec<CvmRow> {
        let mut all = Vec::new();
        for index in 0..count {
            all.push(self.cvm(5, &format!("web-{index}"), self.ground.node).await);
        }
        all
    }

    async fn row(&self, id: i64) -> CvmRow {
        self.store.cvm_even_deleted(id).await.unwrap().unwrap()
    }

    /// Waits until no operation holds a CVM.
    async fn at_rest(&self, id: i64) -> CvmRow {
        for _ in 0..4000 {
            let row = self.row(id).await;
            if row.operation_id.is_none() {
                return row;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("the CVM never came to rest");
    }

    async fn power(&self, id: i64, kind: OperationKind) -> CvmRow {
        let request = LifecycleRequest { kind, force: false };
        self.lifecycle.request(id, request, self.ground.user).await.unwrap();
        self.at_rest(id).await
    }

    /// The configuration that rollouts of these tests bring.
    fn wanted(cvm: &CvmRow) -> Configuration {
        Configuration {
            compose_hash: ComposeHash::from_bytes([9; 32]),
            app_compose: "{\"name\":\"next\"}".to_owned(),
            ..cvm.configuration()
        }
    }

    fn update(&self, cvms: &[CvmRow], on_failure: OnFailure) -> NewUpdate {
        let member = |cvm: &CvmRow| UpdateMember {
            cvm_id: cvm.id,
            base_revision: cvm.revision_id,
            configuration: Self::wanted(cvm),
        };
        NewUpdate {
            app_id: APP,
            workspace_id: self.ground.workspace,
            members: cvms.iter().map(member).collect(),
            on_failure,
            max_unavailable: 1,
            arguments: Arguments::default(),
            user_id: self.ground.user,
        }
    }

    async fn begin(&self, cvms: &[CvmRow], on_failure: OnFailure) -> i64 {
        self.rollouts.update(&self.update(cvms, on_failure)).await.unwrap()
    }

    async fn steer(&self, id: i64, event: RolloutEvent) -> RolloutState {
        self.rollouts.steer(id, event, None).await.unwrap().state
    }

    async fn rollout(&self, id: i64) -> RolloutRow {
        self.store.rollout(id).await.unwrap().unwrap()
    }

    async fn members(&self, id: i64) -> Vec<MemberRow> {
        self.store.rollout_members(id).await.unwrap()
    }

    async fn states(&self, id: i64) -> Vec<MemberState> {
        self.members(id).await.into_iter().map(|member| member.state).collect()
    }

    /// Lets time pass, and makes every round that is due then.
    async fn tick(&self) {
        self.clock.advance_ms(TICK_MS);
        self.report().await;
        for _ in 0..MAX_TICKS {
            // A round that dies is made again, as another process would.
            let driver = Arc::clone(&self.driver);
            let made = tokio::spawn(async move { driver.round().await }).await;
            if made.is_ok_and(|made| !made.unwrap()) {
                return;
            }
            self.settle().await;
        }
        panic!("rounds without end");
    }

    /// Waits until no operation is at work anywhere.
    async fn settle(&self) {
        for node in &self.reporting {
            for cvm in self.store.cvms_on_node(*node).await.unwrap() {
                self.at_rest(cvm.id).await;
            }
        }
    }

    /// Ticks until a rollout is in a state.
    async fn until(&self, id: i64, state: RolloutState) -> RolloutRow {
        for _ in 0..MAX_TICKS {
            let row = self.rollout(id).await;
            if row.state == state {
                return row;
            }
            self.tick().await;
        }
        let (row, members) = (self.rollout(id).await, self.members(id).await);
        panic!("the rollout never became {state}: {row:?} {members:?}");
    }

    async fn updates_of(&self, id: i64) -> Vec<OperationRow> {
        let all = self.store.list_operations(id, &OperationFilter::default(), 100).await.unwrap();
        all.into_iter().filter(|operation| operation.kind.changes_revision()).collect()
    }

    async fn single_update(&self, cvm: &CvmRow) -> Result<(), crate::operations::RequestError> {
        let request = UpdateRequest {
            kind: OperationKind::Update,
            configuration: Self::wanted(cvm),
            base_revision: None,
            shutdown_timeout_s: None,
            allow_force_stop: true,
        };
        self.lifecycle.update(cvm.id, &request, self.ground.user).await.map(|_| ())
    }
}
