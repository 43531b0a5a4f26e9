//! Random lives, transaction by transaction: the clock steps on and back between any two of them, and control
//! planes die in the middle of any.

mod acts;
mod check;
mod plans;

use std::sync::Arc;

use cloister_metering::{Billed, UsageType};
use proptest::test_runner::{Config, TestRunner};
use rust_decimal::Decimal;
use uuid::Uuid;

use plans::{Gap, Plan, plans};

use super::model::{Taps, Tariff};
use super::*;
use crate::store::tests::{embedded, postgres, provision};
use crate::store::{GpuSlots, NewCvm, NewRevision};

const SLOT: &str = "0000:41:00.0";
const PRODUCT: &str = "10de:2335";
const SERVED: [UsageType; 2] = [UsageType::Compute, UsageType::Gpu];

/// A CVM as it really is.
#[expect(clippy::struct_excessive_bools, reason = "they are independent of each other")]
struct Life {
    id: i64,
    vm_uuid: Uuid,
    status: CvmStatus,
    resources: Billed,
    is_created: bool,
    is_up: bool,
    /// Whether its node knows it, and speaks.
    is_known: bool,
    is_deleted: bool,
    taps: Taps,
}

struct World {
    store: Store,
    ground: Ground,
    clock: Clock,
    latest_ms: i64,
    gaps: Vec<Gap>,
    next_gap: usize,
    lives: Vec<Life>,
}

/// One transaction on a CVM.
#[derive(Debug)]
enum Do {
    Status(CvmStatus),
    Observe(ObservedVm),
    Apply(Billed),
    Lose(i64),
    Delete,
}

impl World {
    async fn new(store: Store, gaps: Vec<Gap>) -> Self {
        let ground = ground(&store).await;
        let text = format!(r#"{{"gpus":[{{"slot":"{SLOT}","product_id":"{PRODUCT}"}}]}}"#);
        let mut change = store.change().await.unwrap();
        change.put_node_report(ground.node, &text, START).await.unwrap();
        change.commit().await.unwrap();
        let clock = Clock::manual(jiff::Timestamp::from_millisecond(START).unwrap());
        let store = store.with_prices(prices(3));
        Self { store, ground, clock, latest_ms: START, gaps, next_gap: 0, lives: Vec::new() }
    }

    /// Time passes; whether the next transaction fails at first.
    fn pass(&mut self) -> bool {
        let gap = self.gaps[self.next_gap % self.gaps.len()];
        self.next_gap += 1;
        self.clock.advance_ms(gap.advance_ms);
        self.latest_ms = self.latest_ms.max(self.clock.now_ms());
        gap.dies
    }

    /// Carries a transaction out; returns its time.
    async fn transact(&mut self, index: usize, act: Do) -> i64 {
        while self.pass() {
            let lost = self.carry_out(index, &act).await;
            drop(lost);
            if self.gaps.iter().all(|gap| gap.dies) {
                break;
            }
        }
        let done = self.carry_out(index, &act).await;
        done.commit().await.unwrap();
        self.clock.now_ms()
    }

    async fn carry_out(&self, index: usize, act: &Do) -> crate::store::Change {
        let (life, now_ms) = (&self.lives[index], self.clock.now_ms());
        let mut change = self.store.change().await.unwrap();
        let cvm = change.lock_cvm(life.id).await.unwrap().unwrap();
        match act {
            Do::Status(status) => change.set_cvm_status(life.id, *status, now_ms).await.unwrap(),
            Do::Observe(seen) => change.observe_cvm(life.id, seen, now_ms).await.unwrap(),
            Do::Lose(since_ms) => change.lose_cvm(life.id, *since_ms, now_ms).await.unwrap(),
            Do::Delete => change.delete_cvm(&cvm, now_ms).await.unwrap(),
            Do::Apply(resources) => {
                let mut configuration = cvm.configuration();
                configuration.vcpu = resources.vcpu.into();
                configuration.disk_gb = resources.disk_gb.into();
                let new = NewRevision {
                    cvm_id: cvm.id,
                    workspace_id: cvm.workspace_id,
                    app_id: cvm.app_id,
                    operation_type: "update",
                    configuration: &configuration,
                    correlation_id: Uuid::nil(),
                    triggered_by: self.ground.user,
                };
                let id = change.insert_revision(&new, now_ms).await.unwrap();
                let revision = change.revision(id).await.unwrap().unwrap();
                change.apply_revision(&revision, now_ms).await.unwrap();
            }
        }
        change
    }

    fn life(&mut self, index: usize) -> &mut Life {
        &mut self.lives[index]
    }

    fn tariffs(&self, index: usize) -> [(UsageType, Tariff); 3] {
        let resources = &self.lives[index].resources;
        let rates = self.store.prices().rates(resources);
        let of = |rate: Decimal, what: &dyn std::fmt::Debug| (rate, format!("{what:?}"));
        [
            (UsageType::Compute, of(rates.compute, &(resources.vcpu, resources.memory_mb))),
            (UsageType::Gpu, of(rates.gpu, &resources.gpus)),
            (UsageType::Storage, of(rates.storage, &resources.disk_gb)),
        ]
    }

    /// It serves since now, and has a disk.
    fn serves(&mut self, index: usize, now_ms: i64) {
        let tariffs = self.tariffs(index);
        let life = self.life(index);
        for (usage_type, tariff) in tariffs {
            if usage_type != UsageType::Gpu || !life.resources.gpus.is_empty() {
                life.taps.of(usage_type).switch_on(now_ms, tariff);
            }
        }
    }

    /// It has a disk since now.
    fn stores(&mut self, index: usize, now_ms: i64) {
        let [.., (usage_type, tariff)] = self.tariffs(index);
        self.life(index).taps.of(usage_type).switch_on(now_ms, tariff);
    }

    async fn status(&mut self, index: usize, status: CvmStatus) -> i64 {
        self.life(index).status = status;
        self.transact(index, Do::Status(status)).await
    }

    async fn boots(&mut self, index: usize) {
        let seen = ObservedVm { boot_progress: None, ..up(self.clock.now_ms()) };
        let now_ms = self.transact(index, Do::Observe(seen)).await;
        self.heard_of(index, now_ms);
    }

    /// The node says something: there is a disk.
    fn heard_of(&mut self, index: usize, now_ms: i64) {
        self.life(index).is_known = true;
        if self.life(index).is_created {
            self.stores(index, now_ms);
        }
    }

    async fn comes_up(&mut self, index: usize) {
        let now_ms = self.transact(index, Do::Observe(up(self.clock.now_ms()))).await;
        self.life(index).is_up = true;
        self.heard_of(index, now_ms);
        if self.life(index).is_created {
            self.serves(index, now_ms);
        }
    }

    async fn runs(&mut self, index: usize) {
        let now_ms = self.status(index, CvmStatus::Running).await;
        self.life(index).is_created = true;
        self.serves(index, now_ms);
    }

    /// The VM ended a while ago by the node's clock, which is another one.
    async fn ends(&mut self, index: usize) {
        let ago = self.gaps[self.next_gap % self.gaps.len()].advance_ms / 7;
        let ended_ms = self.clock.now_ms() - ago;
        let now_ms = self.transact(index, Do::Observe(ended(0, ended_ms))).await;
        let life = self.life(index);
        life.is_up = false;
        life.taps.off(&SERVED, ended_ms, now_ms);
        self.heard_of(index, now_ms);
    }

    async fn create(&mut self, number: usize, has_gpu: bool, succeeds: bool) {
        let seed = u8::try_from(number).unwrap() + 1;
        let mut what = provision(&self.ground, seed, &format!("web-{seed}"));
        what.app_id = APP;
        what.gpus = GpuSlots(if has_gpu { vec![SLOT.to_owned()] } else { Vec::new() });
        let vm_uuid = Uuid::from_bytes([seed; 16]);
        let new = NewCvm::of_provision(&what, self.ground.user, vm_uuid, None);
        self.pass();
        let mut change = self.store.change().await.unwrap();
        let id = change.insert_cvm(&new, self.clock.now_ms()).await.unwrap();
        change.commit().await.unwrap();
        let gpus = if has_gpu { [(PRODUCT.to_owned(), 1)].into() } else { std::collections::BTreeMap::new() };
        let resources = Billed { instance_type: None, vcpu: 2, memory_mb: 1024, disk_gb: 20, gpus };
        let (status, taps) = (CvmStatus::Creating, Taps::default());
        let (is_created, is_up, is_known, is_deleted) = (false, false, true, false);
        self.lives.push(Life {
            id,
            vm_uuid,
            status,
            resources,
            is_created,
            is_up,
            is_known,
            is_deleted,
            taps,
        });
        let index = self.lives.len() - 1;
        self.boots(index).await;
        if succeeds {
            self.comes_up(index).await;
            self.runs(index).await;
        } else {
            self.ends(index).await;
            self.status(index, CvmStatus::Error).await;
        }
    }

    async fn live_through(store: Store, plan: Plan) {
        let mut world = Self::new(store, plan.gaps).await;
        for (number, (has_gpu, succeeds)) in plan.cvms.iter().enumerate() {
            // There is one GPU.
            world.create(number, *has_gpu && number == 0, *succeeds).await;
        }
        for (index, act) in plan.acts {
            let index = index % world.lives.len();
            if !world.lives[index].is_deleted {
                world.act(index, act).await;
            }
        }
        world.check().await;
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn check_lives(cases: u32, live: impl Fn(Plan)) {
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let live = Arc::new(live);
    let outcome = runner.run(&plans(), |plan| {
        live(plan);
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn whatever_happens_the_minutes_are_those_that_were_served() {
    check_lives(64, |plan| {
        let dir = tempfile::tempdir().unwrap();
        runtime().block_on(async {
            let store = embedded(dir.path()).await;
            World::live_through(store, plan).await;
        });
    });
}

#[test]
fn the_same_holds_in_postgresql() {
    check_lives(12, |plan| {
        runtime().block_on(async {
            let store = postgres().await;
            World::live_through(store.clone(), plan).await;
            store.close().await;
        });
    });
}
