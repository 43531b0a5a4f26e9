//! Random requests and faults once more: what is metered is what the node really ran.

use cloister_metering::{UsageType, Window};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::random::{Act, act, runtime};
use super::*;
use crate::store::UsageScope;
use crate::store::tests::embedded;

const MINUTE_MS: i64 = 60_000;

/// What was used of a CVM, in minutes.
struct Life {
    cvm: CvmRow,
    is_established: bool,
    compute: i64,
    storage: i64,
}

/// One or two things at once, the first of which the workers may die in; then time passes.
type Turn = (Act, Option<Act>, bool, i64);

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    prop::collection::vec(
        (act(), prop::option::weighted(0.3, act()), prop::bool::weighted(0.2), 0..200_i64),
        4..14,
    )
}

impl Bench {
    async fn turn(
        &mut self,
        lives: &mut Vec<Life>,
        cvm: &mut Option<CvmRow>,
        (first, second, dies, minutes): Turn,
    ) {
        self.act(cvm, first).await;
        if dies {
            self.act(cvm, Act::Crash).await;
        }
        if let Some(second) = second {
            self.act(cvm, second).await;
        }
        if let Some(new) = cvm.iter().find(|cvm| lives.iter().all(|life| life.cvm.id != cvm.id)) {
            lives.push(Life { cvm: new.clone(), is_established: false, compute: 0, storage: 0 });
        }
        for life in lives {
            let row = self.at_rest(&life.cvm).await;
            life.is_established |= row.status == CvmStatus::Running;
            if life.is_established && row.deleted_at_ms.is_none() {
                life.storage += minutes;
                // What is told to be off is a leftover that the next report has ended.
                let is_served = self.nodes.is_up(row.vm_uuid) && row.status != CvmStatus::Stopped;
                life.compute += if is_served { minutes } else { 0 };
            }
        }
        self.clock.advance_ms(minutes * MINUTE_MS);
    }

    async fn live_by_the_clock(store: Store, turns: Vec<Turn>) {
        let clock = Clock::manual(jiff::Timestamp::from_second(1_795_323_600).unwrap());
        let mut bench = Self::at(clock.clone(), store).await;
        bench.nodes.set_clock(clock);
        let mut row = crate::store::tests::provision(&bench.ground, 5, "web-1");
        row.expires_at_ms = i64::MAX;
        let mut change = bench.store.change().await.unwrap();
        change.put_provision(&row).await.unwrap();
        change.commit().await.unwrap();
        bench.start_workers(None).await;
        let (mut cvm, mut lives) = (None, Vec::new());
        for turn in turns {
            bench.turn(&mut lives, &mut cvm, turn).await;
        }
        let scope = UsageScope { workspace_id: bench.ground.workspace, app_id: None };
        let now_ms = bench.clock.now_ms();
        let statement =
            bench.store.usage_statement(scope, Window::EVER, now_ms, usize::MAX, 0).await.unwrap();
        for life in &lives {
            let minutes = |usage_type| {
                let records = statement.records.iter();
                let own =
                    records.filter(|record| (record.cvm_id, record.usage_type) == (life.cvm.id, usage_type));
                own.map(|record| record.minutes).sum::<i64>()
            };
            let found = (minutes(UsageType::Compute), minutes(UsageType::Storage));
            assert_eq!(found, (life.compute, life.storage), "{:?}", life.cvm);
        }
        bench.stop_workers().await;
    }
}

#[test]
fn whatever_happens_what_the_node_ran_is_what_is_metered() {
    let mut runner = TestRunner::new(Config { cases: 24, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&turns(), |turns| {
        let dir = tempfile::tempdir().unwrap();
        runtime().block_on(async {
            let store = embedded(dir.path()).await;
            Bench::live_by_the_clock(store, turns).await;
        });
        Ok(())
    });
    outcome.unwrap();
}
