//! Random receivers, clocks and crashes: every event arrives or is given up after four attempts, in its order, and
//! what was sent is what is recorded.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::store::tests::embedded;

/// What somebody does, or what happens.
#[derive(Debug, Clone)]
enum Act {
    /// Something happens to a CVM.
    Happens(usize),
    /// What a receiver answers next.
    Answers(usize, Reply),
    AdvanceMs(i64),
    /// What hangs ends.
    Release,
    /// The process dies, and another one begins.
    Crash,
    Restart,
    Settle,
}

const HOSTS: [&str; 2] = ["north", "south"];

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let replies = vec![
        Reply::Status(200),
        Reply::Status(204),
        Reply::Status(500),
        Reply::Status(404),
        Reply::Later(429, 100),
        Reply::Refused,
        Reply::Hangs,
    ];
    let act = prop_oneof![
        6 => (0..3_usize).prop_map(Act::Happens),
        6 => (0..2_usize, prop::sample::select(replies)).prop_map(|(host, reply)| Act::Answers(host, reply)),
        3 => prop::sample::select(vec![1, 30_000, 60_000, 600_000, 3_600_000]).prop_map(Act::AdvanceMs),
        1 => Just(Act::Release),
        2 => Just(Act::Crash),
        1 => Just(Act::Restart),
        2 => Just(Act::Settle),
    ];
    prop::collection::vec(act, 4..32)
}

impl Bench {
    async fn act(&mut self, act: Act, number: usize) {
        match act {
            Act::Happens(cvm) => self.happens(cvm, &format!("{cvm}:{number:03}")).await,
            Act::Answers(host, reply) => self.receivers.script(HOSTS[host], &[reply]),
            Act::AdvanceMs(by_ms) => {
                self.clock.advance_ms(by_ms);
                self.store.wake_dispatcher();
            }
            Act::Release => self.receivers.release(),
            Act::Crash => {
                self.die().await;
                self.start();
            }
            Act::Restart => {
                self.stop_while_releasing().await;
                self.start();
            }
            Act::Settle => self.settle_while_releasing().await,
        }
    }

    async fn stop_while_releasing(&mut self) {
        let Some(dispatcher) = self.dispatcher.take() else { return };
        let stopping = tokio::spawn(dispatcher.stop());
        while !stopping.is_finished() {
            self.receivers.release();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn settle_while_releasing(&self) {
        while self.store.deliveries_to_make(self.clock.now_ms()).await > 0 {
            self.receivers.release();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn check(&self, webhook_id: i64, host: &str, happened: usize) {
        let rows = self.deliveries(webhook_id).await;
        assert_eq!(rows.len(), happened, "one delivery for each event");
        let mut requests = BTreeMap::<String, usize>::new();
        let mut order = BTreeMap::<char, Vec<String>>::new();
        for request in self.receivers.requests_to(host) {
            *requests.entry(request.json()["id"].as_str().unwrap().to_owned()).or_default() += 1;
            let marker = request.marker();
            order.entry(marker.chars().next().unwrap()).or_default().push(marker);
        }
        for markers in order.values() {
            assert!(markers.is_sorted(), "events of a CVM come in their order: {markers:?}");
        }
        for row in &rows {
            let attempts = self.store.webhook_attempts(row.id).await.unwrap();
            let count = |outcome: &str| {
                attempts.iter().filter(|attempt| attempt.outcome.as_deref() == Some(outcome)).count()
            };
            let (succeeded, failed, interrupted) = (count("success"), count("failed"), count("interrupted"));
            assert_eq!(
                succeeded + failed + interrupted,
                attempts.len(),
                "none is left under way: {attempts:?}"
            );
            assert!(
                attempts.iter().map(|attempt| attempt.number).eq(1..=i64::try_from(attempts.len()).unwrap())
            );
            assert_eq!(usize::try_from(row.attempts).unwrap(), succeeded + failed);
            let sent = requests.get(&row.event_id).copied().unwrap_or_default();
            assert!((succeeded + failed..=attempts.len()).contains(&sent), "{sent} sent, {attempts:?}");
            match row.status.as_str() {
                "success" => assert!(succeeded == 1 && failed <= 3),
                "failed" => assert_eq!((succeeded, failed), (0, 4)),
                other => panic!("{other}"),
            }
        }
    }

    async fn live_through(store: Store, acts: Vec<Act>) {
        let mut bench = Self::new(store).await;
        let mut webhooks = Vec::new();
        for host in HOSTS {
            webhooks.push((bench.webhook(host).await, host));
        }
        let happened = acts.iter().filter(|act| matches!(act, Act::Happens(_))).count();
        for (number, act) in acts.into_iter().enumerate() {
            bench.act(act, number).await;
        }
        bench.settle_while_releasing().await;
        while let Some(next_ms) = bench.store.next_delivery_ms().await {
            bench.clock.advance_ms((next_ms - bench.clock.now_ms()).max(0));
            bench.store.wake_dispatcher();
            bench.settle_while_releasing().await;
        }
        bench.stop().await;
        for (id, host) in webhooks {
            bench.check(id, host, happened).await;
        }
    }
}

#[test]
fn whatever_happens_each_event_arrives_or_is_given_up_and_each_attempt_is_recorded_once() {
    let mut runner = TestRunner::new(Config { cases: 48, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&acts(), |acts| {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = embedded(dir.path()).await;
            Bench::live_through(store, acts).await;
        });
        Ok(())
    });
    outcome.unwrap();
}
