//! A process that is killed while requests end.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use cloister_verifier::Clock;
use rust_decimal::Decimal;

use super::lab::{document, finished};
use crate::admission::KeyHash;
use crate::record::{Lookup, Settings, Store};

const DIR: &str = "CLOISTER_TEST_RECORD_DIR";
const CALLERS: u64 = 16;
const END: &str = "kept";

fn open(dir: &Path) -> Store {
    Store::open(dir, Settings::default(), Clock::system()).unwrap()
}

fn now() -> u64 {
    Clock::system().now().as_second().cast_unsigned()
}

fn key(caller: u64) -> KeyHash {
    KeyHash::of(&(caller % 3).to_string())
}

/// The process that is killed: ends requests from several tasks and prints what was acknowledged.
#[test]
#[ignore = "runs as a process of its own, below"]
fn ends_requests_until_it_is_killed() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let store = open(Path::new(&dir));
    let first = store.counts().unwrap().1;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let store = store.clone();
                tokio::spawn(async move {
                    for turn in 0_u64.. {
                        let name = format!("{first}.{caller}.{turn}");
                        store.finish(finished(key(caller), &name, "0.000001", now())).await.unwrap();
                        let mut out = std::io::stdout().lock();
                        writeln!(out, "acknowledged {caller} {name} {END}").unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

/// Caller and name of an acknowledgement. A line that the kill has cut off is none.
fn acknowledgement(line: &str) -> Option<(u64, String)> {
    let (_, rest) = line.split_once("acknowledged ")?;
    let rest = rest.strip_suffix(END)?.trim_end();
    let (caller, name) = rest.split_once(' ')?;
    Some((caller.parse().unwrap(), name.to_owned()))
}

fn run_and_kill(dir: &Path, count: usize) -> Vec<(u64, String)> {
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "record::tests::kill::ends_requests_until_it_is_killed",
            "--ignored",
            "--nocapture",
        ])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut acknowledged = Vec::new();
    while acknowledged.len() < count {
        acknowledged.extend(acknowledgement(&lines.next().expect("the process ended").unwrap()));
    }
    process.kill().unwrap();
    acknowledged.extend(lines.map_while(Result::ok).filter_map(|line| acknowledgement(&line)));
    process.wait().unwrap();
    acknowledged
}

#[test]
fn everything_acknowledged_is_there_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = Vec::new();
    for round in 0..8 {
        all.extend(run_and_kill(dir.path(), 1 + round * 53));
        let store = open(dir.path());
        let mut rows: HashMap<String, u32> = HashMap::new();
        let mut spent: HashMap<String, Decimal> = HashMap::new();
        let mut next = 0;
        loop {
            let some = store.usage(next, 1000).unwrap();
            if some.is_empty() {
                break;
            }
            for row in some {
                assert_eq!(row.number, next, "numbers have no gaps");
                next += 1;
                *rows.entry(row.row.request_id).or_default() += 1;
                *spent.entry(row.api_key_hash).or_default() += row.row.cost;
            }
        }
        assert_eq!(store.counts().unwrap(), (next, next));
        for (caller, name) in &all {
            assert_eq!(rows.get(&format!("req_{name}")), Some(&1), "round {round}");
            let id = format!("rcpt-{name}");
            let found = store.receipt(&id, key(*caller)).unwrap();
            assert_eq!(found, Lookup::Found(document(&id)), "round {round}");
        }
        assert!(rows.values().all(|count| *count == 1));
        for caller in 0..3 {
            let sum = spent.get(&key(caller).to_string()).copied().unwrap_or_default();
            assert_eq!(store.spent(key(caller)).unwrap(), sum, "round {round}");
        }
    }
}
