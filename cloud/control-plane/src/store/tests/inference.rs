//! What inference cost is the sum of the attempts, each once.

use std::collections::HashMap;

use cloister_metering::Window;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rust_decimal::Decimal;

use super::*;

const HOUR: i64 = 60 * 60 * 1000;

async fn key(store: &Store, ground: &Ground, name: &str) -> i64 {
    let mut change = store.change().await.unwrap();
    let new = NewApiKey {
        user_id: ground.user,
        workspace_id: ground.workspace,
        name: name.to_owned(),
        key_hash: name.to_owned(),
        key_prefix: String::new(),
        scope: KeyScope::Inference,
        default_version: String::new(),
        expires_at_ms: None,
    };
    let id = change.insert_api_key(&new, NOW).await.unwrap();
    change.commit().await.unwrap();
    id
}

async fn pay(store: &Store, ground: &Ground, amount: i64) {
    let credit = NewCredit {
        workspace_id: ground.workspace,
        idempotency_key: "paid",
        kind: cloister_management_api::CreditKind::Payment,
        amount: Decimal::from(amount),
        reason: "paid",
        created_by: ground.user,
    };
    let mut change = store.change().await.unwrap();
    change.credit(&credit, NOW).await.unwrap();
    change.commit().await.unwrap();
}

/// A telling: request, attempt, whether it was answered, key, cost in millionths, and hours since the one before.
type Telling = (u8, i64, bool, usize, u32, i64);

fn telling() -> impl Strategy<Value = Telling> {
    (0..12_u8, 0..2_i64, any::<bool>(), 0..2_usize, 0..2_000_000_u32, 0..3_i64)
}

async fn live(store: Store, tellings: &[Telling]) {
    let ground = ground(&store).await;
    let keys = [key(&store, &ground, "one").await, key(&store, &ground, "two").await];
    let (mut now, mut known) = (NOW, HashMap::new());
    for (request, attempt_index, answered, which, millionths, hours) in tellings {
        now += hours * HOUR;
        let (request_id, status) = (format!("req_{request}"), if *answered { 200 } else { 502 });
        let cost = Decimal::new(i64::from(*millionths), 6);
        let new = NewAttempt {
            request_id: &request_id,
            attempt_index: *attempt_index,
            status,
            workspace_id: ground.workspace,
            api_key_id: keys[*which],
            endpoint: "/v1/embeddings",
            model: "demo/model",
            route: "a:demo/model",
            prompt_tokens: 3,
            completion_tokens: 4,
            cost,
            is_last: true,
        };
        let mut change = store.upkeep().await.unwrap();
        let recorded = change.record_attempt(&new, now).await.unwrap();
        change.commit().await.unwrap();
        let name = (*request, *attempt_index, *answered);
        assert_eq!(recorded, !known.contains_key(&name), "{name:?}");
        known.entry(name).or_insert(cost);

        let sum: Decimal = known.values().sum();
        let funds = store.funds(ground.workspace, now).await.unwrap();
        assert_eq!(funds.used, sum);
        assert_eq!(store.inference_cost(ground.workspace, Window::EVER).await.unwrap(), sum);
        let read = async |page| store.inference_hours(ground.workspace, Window::EVER, page).await.unwrap();
        let all = read(0..1000).await;
        assert_eq!((all.cost, all.total), (sum, u64::try_from(all.page.len()).unwrap()));
        let rest = read(1..1000).await;
        assert_eq!((&rest.page[..], rest.cost, rest.total), (&all.page[1..], all.cost, all.total));
        let hours = all.page;
        let attempts: i64 = hours.iter().map(|hour| hour.answered + hour.failed).sum();
        assert_eq!(attempts, i64::try_from(known.len()).unwrap());
        assert!(hours.iter().all(|hour| hour.prompt_tokens == 3 * (hour.answered + hour.failed)));
    }
}

fn run<F: Fn(Vec<Telling>)>(cases: u32, test: F) {
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    runner
        .run(&prop::collection::vec(telling(), 1..40), |tellings| {
            test(tellings);
            Ok(())
        })
        .unwrap();
}

#[test]
fn every_attempt_counts_once() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    run(16, |tellings| {
        let dir = tempfile::tempdir().unwrap();
        runtime.block_on(async {
            let store = embedded(dir.path()).await;
            live(store, &tellings).await;
        });
    });
    run(4, |tellings| {
        runtime.block_on(async {
            let store = postgres().await;
            live(store.clone(), &tellings).await;
            store.close().await;
        });
    });
}

#[tokio::test]
async fn old_attempts_are_forgotten_and_their_cost_stays() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let key = key(&store, &ground, "one").await;
        let names: Vec<String> = (0..5).map(|number| format!("req_{number}")).collect();
        let attempt = |name| NewAttempt {
            request_id: name,
            attempt_index: 0,
            status: 200,
            workspace_id: ground.workspace,
            api_key_id: key,
            endpoint: "/v1/embeddings",
            model: "demo/model",
            route: "a:demo/model",
            prompt_tokens: 1,
            completion_tokens: 0,
            cost: Decimal::ONE,
            is_last: true,
        };
        let mut change = store.upkeep().await.unwrap();
        for (name, at_ms) in names.iter().zip(NOW..) {
            assert!(change.record_attempt(&attempt(name), at_ms).await.unwrap());
        }
        assert_eq!(change.delete_old_attempts(NOW + 4, 3).await.unwrap(), 3);
        assert_eq!(change.delete_old_attempts(NOW + 4, 3).await.unwrap(), 1);
        assert_eq!(change.delete_old_attempts(NOW + 4, 3).await.unwrap(), 0);
        assert!(!change.record_attempt(&attempt(&names[4]), NOW).await.unwrap(), "the newest is known");
        change.commit().await.unwrap();
        assert_eq!(store.funds(ground.workspace, NOW).await.unwrap().used, Decimal::from(5));
    })
    .await;
}

/// What a key may spend is what the workspace has: whoever asks, at the same time or one after the other.
#[tokio::test]
async fn requests_at_once_do_not_spend_more_than_there_is() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let key = key(&store, &ground, "one").await;
        pay(&store, &ground, 7).await;
        let ask = async |name: String, now_ms: i64| {
            let new =
                NewReservation { workspace_id: ground.workspace, request_id: &name, amount: Decimal::TWO };
            let mut change = store.upkeep().await.unwrap();
            let reserved = change.set_aside(&new, now_ms).await.unwrap();
            change.commit().await.unwrap();
            (name, reserved)
        };
        let at_once = |begin: i64, now_ms: i64| {
            futures_util::future::join_all(
                (begin..begin + 12).map(|number| ask(format!("req_{number}"), now_ms)),
            )
        };
        let admitted = |asked: Vec<(String, Reserved)>| -> Vec<String> {
            asked.into_iter().filter(|(_, is)| *is == Reserved::SetAside).map(|(name, _)| name).collect()
        };
        let first = admitted(at_once(0, NOW).await);
        assert_eq!(first.len(), 3, "two each of seven");
        assert_eq!(ask(first[0].clone(), NOW).await.1, Reserved::SetAside, "asked again, it is the same");
        assert_eq!(ask("req_more".to_owned(), NOW).await.1, Reserved::UnderWay);

        // One costs less than it was expected to, and what it did not use is free.
        let attempt = NewAttempt {
            request_id: &first[0],
            attempt_index: 0,
            status: 200,
            workspace_id: ground.workspace,
            api_key_id: key,
            endpoint: "/v1/chat/completions",
            model: "demo/model",
            route: "a:demo/model",
            prompt_tokens: 1,
            completion_tokens: 1,
            cost: Decimal::ONE,
            is_last: true,
        };
        for (is_last, free) in [(false, 0), (true, 1)] {
            let mut change = store.upkeep().await.unwrap();
            let attempt =
                NewAttempt { is_last, cost: if is_last { Decimal::ONE } else { Decimal::ZERO }, ..attempt };
            let attempt = NewAttempt { attempt_index: i64::from(is_last), ..attempt };
            assert!(change.record_attempt(&attempt, NOW).await.unwrap());
            change.commit().await.unwrap();
            assert_eq!(admitted(at_once(100, NOW).await).len(), free, "after the last attempt");
        }
        // Nobody tells how the others ended: in time they lapse, and six are left for three.
        let later = NOW + HOUR;
        assert_eq!(admitted(at_once(200, later - 1).await).len(), 0);
        assert_eq!(admitted(at_once(300, later).await).len(), 3);
        let mut change = store.upkeep().await.unwrap();
        assert_eq!(change.delete_lapsed_reservations(later, 100).await.unwrap(), 3);
        assert_eq!(change.delete_lapsed_reservations(later, 100).await.unwrap(), 0);
        change.commit().await.unwrap();
        // Whoever has anything left may have one request under way, of whatever size; whoever has nothing, none.
        let alone =
            |amount| NewReservation { workspace_id: ground.workspace, request_id: "req_alone", amount };
        let mut change = store.upkeep().await.unwrap();
        assert_eq!(
            change.set_aside(&alone(Decimal::from(99)), later + HOUR).await.unwrap(),
            Reserved::SetAside
        );
        let spent = NewAttempt { request_id: "req_alone", cost: Decimal::from(6), ..attempt };
        assert!(change.record_attempt(&spent, later + HOUR).await.unwrap());
        assert_eq!(change.set_aside(&alone(Decimal::ZERO), later + HOUR).await.unwrap(), Reserved::NoCredit);
        change.commit().await.unwrap();
    })
    .await;
}

/// What is told to be under way does not lapse; what lapsed is not brought back.
#[tokio::test]
async fn what_is_under_way_does_not_lapse() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        pay(&store, &ground, 6).await;
        let set_aside = async |request_id: &str, amount: i64, now_ms: i64| {
            let amount = Decimal::from(amount);
            let new = NewReservation { workspace_id: ground.workspace, request_id, amount };
            let mut change = store.upkeep().await.unwrap();
            let reserved = change.set_aside(&new, now_ms).await.unwrap();
            change.commit().await.unwrap();
            reserved
        };
        let renew = async |workspace_id: i64, request_id: &str, now_ms: i64| {
            let mut change = store.upkeep().await.unwrap();
            let is_kept = change.renew(workspace_id, request_id, now_ms).await.unwrap();
            change.commit().await.unwrap();
            is_kept
        };
        for name in ["req_long", "req_lost"] {
            assert_eq!(set_aside(name, 1, NOW).await, Reserved::SetAside);
        }
        let mut now_ms = NOW;
        for _ in 0..6 {
            now_ms += HOUR / 3;
            assert!(renew(ground.workspace, "req_long", now_ms).await);
        }
        assert!(!renew(ground.workspace, "req_lost", now_ms).await, "nobody told of it for an hour");
        assert!(!renew(ground.workspace, "req_nobody", now_ms).await);
        assert!(!renew(ground.workspace + 1, "req_long", now_ms).await, "it is another's");
        let late = now_ms + HOUR - 1;
        assert_eq!(set_aside("req_large", 6, late).await, Reserved::UnderWay);
        assert_eq!(set_aside("req_large", 6, late + 1).await, Reserved::SetAside);
        let mut change = store.upkeep().await.unwrap();
        change.release(ground.workspace, "req_large").await.unwrap();
        change.commit().await.unwrap();
        assert!(!renew(ground.workspace, "req_large", late).await, "it is over");
    })
    .await;
}
