//! What was added up once for all, and the rest, are what was used.

use cloister_metering::{PriceList, Window};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const PRICES: &[u8] = include_bytes!("../../../../../examples/prices.json");

#[derive(Debug, Clone, Copy)]
enum Act {
    Toggle(usize),
    /// The node tells now that the VM ended so many hours ago.
    EndedBefore(usize, i64),
    Settle,
    Delete(usize),
}

fn act() -> impl Strategy<Value = (Act, i64)> {
    let act = prop_oneof![
        4 => (0..3_usize).prop_map(Act::Toggle),
        2 => (0..3_usize, 0..200_i64).prop_map(|(cvm, hours)| Act::EndedBefore(cvm, hours)),
        4 => Just(Act::Settle),
        1 => (0..3_usize).prop_map(Act::Delete),
    ];
    // Clocks are set back, too.
    let pause = prop_oneof![6 => 0..120 * 60_i64, 1 => -300 * 60..0_i64];
    (act, pause.prop_map(|minutes| minutes * MINUTE + 17))
}

async fn live(store: Store, acts: &[(Act, i64)]) {
    let store = store.with_prices(PriceList::parse(PRICES).unwrap());
    let ground = ground(&store).await;
    let mut cvms = Vec::new();
    for (seed, name) in [(1, "web-1"), (2, "web-2"), (3, "web-3")] {
        let row = cvm(&store, &ground, seed, name).await;
        let mut change = store.change().await.unwrap();
        change.set_cvm_status(row.id, CvmStatus::Running, NOW).await.unwrap();
        change.commit().await.unwrap();
        cvms.push((row, true, false));
    }
    let mut now = NOW;
    for (act, pause) in acts {
        now += pause;
        let mut change = store.change().await.unwrap();
        match *act {
            Act::Settle => change.settle(ground.workspace, now).await.unwrap(),
            Act::Toggle(index) | Act::EndedBefore(index, _) | Act::Delete(index) => {
                let (row, is_up, is_deleted) = &mut cvms[index];
                match *act {
                    _ if *is_deleted => {}
                    Act::EndedBefore(_, hours) => {
                        let seen = ObservedVm {
                            started_at_ms: Some(NOW),
                            exited_at_ms: Some(now - hours * HOUR),
                            ..ObservedVm::default()
                        };
                        change.observe_cvm(row.id, &seen, now).await.unwrap();
                    }
                    Act::Delete(_) => {
                        change.delete_cvm(row, now).await.unwrap();
                        *is_deleted = true;
                    }
                    _ => {
                        *is_up = !*is_up;
                        let status = if *is_up { CvmStatus::Running } else { CvmStatus::Stopped };
                        if *is_up {
                            let seen = ObservedVm { started_at_ms: Some(now), ..ObservedVm::default() };
                            change.observe_cvm(row.id, &seen, now).await.unwrap();
                        }
                        change.set_cvm_status(row.id, status, now).await.unwrap();
                    }
                }
            }
        }
        change.commit().await.unwrap();
        let scope = UsageScope { workspace_id: ground.workspace, app_id: None };
        let used = store.usage_cost(scope, Window::EVER, now).await.unwrap();
        let funds = store.funds(ground.workspace, now).await.unwrap();
        assert_eq!(funds.used, used, "after {act:?}");
        assert_eq!(funds.balance(), -used);
    }
}

#[test]
fn what_is_settled_and_the_rest_are_what_was_used() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let lives = prop::collection::vec(act(), 1..30);
    let mut runner = TestRunner::new(Config { cases: 24, failure_persistence: None, ..Config::default() });
    runner
        .run(&lives, |acts| {
            let dir = tempfile::tempdir().unwrap();
            runtime.block_on(async {
                let store = embedded(dir.path()).await;
                live(store, &acts).await;
            });
            Ok(())
        })
        .unwrap();
    let mut runner = TestRunner::new(Config { cases: 4, failure_persistence: None, ..Config::default() });
    let lives = prop::collection::vec(act(), 1..30);
    runner
        .run(&lives, |acts| {
            runtime.block_on(async {
                let store = postgres().await;
                live(store.clone(), &acts).await;
                store.close().await;
            });
            Ok(())
        })
        .unwrap();
}

#[tokio::test]
async fn everybody_gets_an_account_and_is_settled_daily() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        assert_eq!(store.unsettled(NOW, 10).await.unwrap(), [ground.workspace]);
        let mut change = store.change().await.unwrap();
        change.settle(ground.workspace, NOW).await.unwrap();
        change.commit().await.unwrap();
        assert!(store.unsettled(NOW, 10).await.unwrap().is_empty());
        assert_eq!(store.unsettled(NOW + 26 * HOUR, 10).await.unwrap(), [ground.workspace]);
    })
    .await;
}

#[tokio::test]
async fn what_a_clock_that_was_ahead_settled_does_not_count() {
    on_both(|store| async move {
        let store = store.with_prices(PriceList::parse(PRICES).unwrap());
        let ground = ground(&store).await;
        let row = cvm(&store, &ground, 1, "web-1").await;
        let mut change = store.change().await.unwrap();
        change.set_cvm_status(row.id, CvmStatus::Running, NOW).await.unwrap();
        change.settle(ground.workspace, NOW + 1000 * HOUR).await.unwrap();
        change.commit().await.unwrap();
        let used = async |now| store.funds(ground.workspace, now).await.unwrap().used;
        let scope = UsageScope { workspace_id: ground.workspace, app_id: None };
        assert_eq!(used(NOW + HOUR).await, store.usage_cost(scope, Window::EVER, NOW + HOUR).await.unwrap());
        assert_eq!(store.unsettled(NOW + HOUR, 10).await.unwrap(), [ground.workspace]);
        let mut change = store.change().await.unwrap();
        change.settle(ground.workspace, NOW + HOUR).await.unwrap();
        change.set_cvm_status(row.id, CvmStatus::Stopped, NOW + HOUR).await.unwrap();
        change.commit().await.unwrap();
        assert!(store.unsettled(NOW + HOUR, 10).await.unwrap().is_empty());
        let later = NOW + 2000 * HOUR;
        assert_eq!(used(later).await, store.usage_cost(scope, Window::EVER, later).await.unwrap());
    })
    .await;
}
