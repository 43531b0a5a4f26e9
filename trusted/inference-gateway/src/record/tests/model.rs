//! The store against a model of it: any order of requests, time and restarts.

use std::collections::HashMap;

use proptest::prelude::*;
use rust_decimal::Decimal;

use super::bad::{Bad, Disk};
use super::lab::{Lab, START, finished, row};
use crate::admission::KeyHash;
use crate::record::{Lookup, Store};

#[derive(Debug, Clone)]
enum Step {
    /// Requests of keys that end at the same time, with names and costs in billionths.
    Finish(Vec<(u8, u8, u64)>),
    First(u8, u64),
    Pass(u64),
    /// Tells the control plane at most so many rows.
    Post(usize),
    /// Ends, in order or as if killed, and begins with a control plane or without.
    Restart {
        is_killed: bool,
        is_posting: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop::collection::vec((0_u8..3, 0_u8..30, 0_u64..1 << 40), 1..6).prop_map(Step::Finish),
        2 => (0_u8..5, 1_u64..400).prop_map(|(fingerprint, lasts)| Step::First(fingerprint, lasts)),
        3 => (0_u64..150).prop_map(Step::Pass),
        2 => (1_usize..8).prop_map(Step::Post),
        2 => any::<(bool, bool)>()
            .prop_map(|(is_killed, is_posting)| Step::Restart { is_killed, is_posting }),
    ]
}

#[derive(Default)]
struct Model {
    /// Owner and name to the time when it was issued.
    receipts: HashMap<(u8, u8), u64>,
    spent: HashMap<u8, Decimal>,
    rows: u64,
    /// Numbers of rows that a control plane is to be told.
    owed: Vec<u64>,
    fingerprints: HashMap<u8, u64>,
}

impl Model {
    /// The first of them in a row.
    fn owed_in_a_row(&self) -> Vec<u64> {
        let first = self.owed.first().copied().unwrap_or_default();
        (first..).zip(&self.owed).map_while(|(next, owed)| (next == *owed).then_some(next)).collect()
    }
}

fn open(lab: &Lab) -> (Store, Bad) {
    let bad = Bad::default();
    (Store::open_with(&lab.path(), lab.settings, lab.times(), bad.backing()).unwrap(), bad)
}

fn key(owner: u8) -> KeyHash {
    KeyHash::of(&owner.to_string())
}

/// Every other one is not called like its request.
fn chat(name: u8) -> String {
    format!("{}{name}", if name.is_multiple_of(2) { "req_" } else { "chatcmpl-" })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn it_does_what_the_model_does(steps in prop::collection::vec(step(), 1..25)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut lab = Lab::new();
        let (mut store, mut bad) = open(&lab);
        let (mut model, mut is_exact) = (Model::default(), true);
        for step in steps {
            match step {
                Step::Finish(requests) => {
                    let all = requests.iter().map(|(owner, name, cost)| {
                        let cost = Decimal::from_i128_with_scale(i128::from(*cost), 9).to_string();
                        let mut request = finished(key(*owner), &name.to_string(), &cost, lab.now());
                        request.receipt.as_mut().unwrap().chat_id = Some(chat(*name));
                        request.rows.push(row("again", &cost, lab.now()));
                        store.finish(request)
                    });
                    for outcome in runtime.block_on(futures_util::future::join_all(all)) {
                        outcome.unwrap();
                    }
                    for (owner, name, cost) in requests {
                        model.receipts.insert((owner, name), lab.now());
                        *model.spent.entry(owner).or_default() +=
                            Decimal::from_i128_with_scale(2 * i128::from(cost), 9);
                        if lab.settings.is_posting {
                            model.owed.extend([model.rows, model.rows + 1]);
                        }
                        model.rows += 2;
                    }
                }
                Step::First(fingerprint, lasts) => {
                    let is_first =
                        runtime.block_on(store.first_time([fingerprint; 32], lab.now() + lasts)).unwrap();
                    let known = model.fingerprints.get(&fingerprint).is_some_and(|until| *until > lab.now());
                    // What passed before a start is believed when as much has passed again.
                    prop_assert!(is_first != known || (!is_exact && !is_first));
                    if is_first {
                        model.fingerprints.insert(fingerprint, lab.now() + lasts);
                    }
                }
                Step::Pass(seconds) => lab.pass(seconds),
                Step::Post(count) => {
                    let rows = store.unposted(0, count).unwrap();
                    let numbers: Vec<_> = rows.iter().map(|row| row.number).collect();
                    let mut owed = model.owed_in_a_row();
                    owed.truncate(count);
                    prop_assert_eq!(&numbers, &owed);
                    if let Some(last) = numbers.last() {
                        runtime.block_on(store.posted(last + 1)).unwrap();
                        model.owed.drain(..numbers.len());
                    }
                }
                Step::Restart { is_killed, is_posting } => {
                    if is_killed {
                        bad.becomes(Disk::Dead);
                    }
                    drop(store);
                    is_exact = false;
                    lab.settings.is_posting = is_posting;
                    (store, bad) = open(&lab);
                }
            }
            for owner in 0..3 {
                prop_assert_eq!(store.spent(key(owner)).unwrap(), model.spent.get(&owner).copied().unwrap_or_default());
                for name in 0..30 {
                    let is_there =
                        model.receipts.get(&(owner, name)).is_some_and(|at| at + 1000 > lab.now());
                    for id in [format!("rcpt-{name}"), chat(name)] {
                        let found = store.receipt(&id, key(owner)).unwrap();
                        prop_assert_eq!(found != Lookup::Absent, is_there, "{} of {} at {}", id, owner, lab.now() - START);
                    }
                }
            }
            prop_assert_eq!(store.counts().unwrap().1, model.rows);
            let rows = store.unposted(0, 1000).unwrap();
            prop_assert_eq!(rows.iter().map(|row| row.number).collect::<Vec<_>>(), model.owed_in_a_row());
        }
    }
}
