//! A process that is killed while requests end: at any moment, and at each step of its work with the disk.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cloister_aci::log::Record;
use cloister_verifier::Clock;
use rust_decimal::Decimal;

use super::lab::{Lab, document, finished};
use super::layouts;
use crate::admission::KeyHash;
use crate::record::disk::{Backing, Medium};
use crate::record::{Lookup, Settings, Store};
use crate::upstream::fake::until;

const STEPS: &str = "CLOISTER_TEST_RECORD_STEPS";
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

/// A disk at which the process dies, before or in the middle of something.
#[derive(Debug)]
struct Deadly {
    file: File,
    is_journal: bool,
    steps: Arc<AtomicU64>,
    /// Syncs of the journal.
    syncs: Arc<AtomicU64>,
    /// After how many steps.
    last: u64,
    how: How,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Whole,
    /// In the middle of a step.
    Torn,
    /// Some syncs of the journal have failed before.
    Unsure,
}

impl Deadly {
    fn backing(last: u64, how: How) -> Backing {
        let (steps, syncs) = (Arc::default(), Arc::default());
        Backing::from_fn(move |name, file| {
            let (steps, syncs, is_journal) = (Arc::clone(&steps), Arc::clone(&syncs), name == "journal");
            Box::new(Self { file, is_journal, steps, syncs, last, how })
        })
    }

    fn step(&self, half: impl FnOnce()) {
        if self.steps.fetch_add(1, Ordering::SeqCst) == self.last {
            if self.how == How::Torn {
                half();
            }
            std::process::abort();
        }
    }
}

impl Medium for Deadly {
    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        Medium::read_at(&self.file, offset, out)
    }

    fn resize(&self, length: u64) -> io::Result<()> {
        self.step(|| self.file.resize(length).unwrap());
        self.file.resize(length)
    }

    fn sync(&self) -> io::Result<()> {
        // A process that dies does not lose what the system has.
        self.step(|| ());
        // That of the start is well.
        let fails = self.is_journal
            && self.how == How::Unsure
            && [1, 2].contains(&self.syncs.fetch_add(1, Ordering::SeqCst));
        if fails { Err(io::Error::other("unsure")) } else { Ok(()) }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.step(|| Medium::write_at(&self.file, offset, &bytes[..bytes.len() / 2]).unwrap());
        Medium::write_at(&self.file, offset, bytes)
    }
}

/// Where a process dies, after how many steps, and how.
fn told() -> Option<(String, u64, How)> {
    let (dir, steps) = (std::env::var(DIR).ok()?, std::env::var(STEPS).ok()?);
    let (last, how) = steps.split_once(' ').unwrap();
    let how = match how {
        "whole" => How::Whole,
        "torn" => How::Torn,
        _ => How::Unsure,
    };
    Some((dir, last.parse().unwrap(), how))
}

/// The process that dies while it takes over what an earlier version has left.
#[test]
#[ignore = "runs as a process of its own, below"]
fn takes_over_until_it_dies() {
    let Some((dir, last, how)) = told() else { return };
    let lab = Lab::new();
    let backing = Deadly::backing(last, how);
    drop(Store::open_with(Path::new(&dir), lab.settings, lab.times(), backing).unwrap());
    println!("all");
}

/// The process that dies at a step: ends some requests, lets them get into the database, and ends some more.
#[test]
#[ignore = "runs as a process of its own, below"]
fn ends_requests_until_it_dies() {
    let Some((dir, last, how)) = told() else { return };
    let backing = Deadly::backing(last, how);
    let store = Store::open_with(Path::new(&dir), Settings::default(), Clock::system(), backing).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        // A journal that is not well takes its time.
        for turn in 0..if how == How::Unsure { 1 } else { 3 } {
            // Another segment follows each turn.
            store.shared().journal.set_most(1);
            for caller in 0..3 {
                for attempt in 0.. {
                    let name = format!("{caller}.{turn}.{attempt}");
                    if store.finish(finished(key(caller), &name, "0.000001", now())).await.is_ok() {
                        println!("acknowledged {caller} {name} {END}");
                        break;
                    }
                    println!("refused {name} {END}");
                    until(|| store.trouble().is_none()).await;
                }
            }
            until(|| store.shared().pending.read().is_empty()).await;
        }
    });
    drop(store);
    println!("all");
}

fn run(test: &str, dir: &Path, steps: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("record::tests::kill::{test}"), "--ignored", "--nocapture"])
        .env(DIR, dir)
        .env(STEPS, steps)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn run_and_kill(dir: &Path, count: usize) -> Vec<(u64, String)> {
    let mut process = run("ends_requests_until_it_is_killed", dir, "");
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

/// Everything that was acknowledged is there, once, and the sums fit.
fn check(store: &Store, acknowledged: &[(u64, String)], when: &str) {
    let mut rows: HashMap<String, u32> = HashMap::new();
    let mut spent: HashMap<String, Decimal> = HashMap::new();
    let mut next = 0;
    loop {
        let some = store.usage(next, 1000).unwrap();
        if some.is_empty() {
            break;
        }
        for row in some {
            assert_eq!(row.number, next, "{when}: numbers have no gaps");
            next += 1;
            *rows.entry(row.row.request_id).or_default() += 1;
            *spent.entry(row.api_key_hash).or_default() += row.row.cost;
        }
    }
    assert_eq!(store.counts().unwrap(), (next, next), "{when}");
    check_log(store, next, when);
    for (caller, name) in acknowledged {
        assert_eq!(rows.get(&format!("req_{name}")), Some(&1), "{when}");
        let id = format!("rcpt-{name}");
        let found = store.receipt(&id, key(*caller)).unwrap();
        assert_eq!(found, Lookup::Found(document(&id)), "{when}");
    }
    assert!(rows.values().all(|count| *count == 1), "{when}");
    for caller in 0..3 {
        let sum = spent.get(&key(caller).to_string()).copied().unwrap_or_default();
        assert_eq!(store.spent(key(caller)).unwrap(), sum, "{when}");
    }
}

/// Each receipt is in the log once, in their order.
fn check_log(store: &Store, count: u64, when: &str) {
    let log = store.log().unwrap();
    let until = Instant::now() + Duration::from_mins(2);
    while log.size() < count && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(log.size(), count, "{when}");
    for row in store.usage(0, 10_000).unwrap() {
        let id = row.row.request_id.replace("req_", "rcpt-");
        let record = Record::new(id.as_bytes(), &document(&id), row.row.ended_at).text();
        assert_eq!(log.records(row.number, 1).unwrap(), [record.into_bytes()], "{when}: {id}");
    }
}

#[test]
fn everything_acknowledged_is_there_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = Vec::new();
    for round in 0..8 {
        all.extend(run_and_kill(dir.path(), 1 + round * 53));
        check(&open(dir.path()), &all, &format!("round {round}"));
    }
}

/// Dies at one step after the other until it gets through.
fn die_at_each_step(how: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for last in 0.. {
        let dir = tempfile::tempdir().unwrap();
        let when = format!("step {last}, {how}");
        let output = run("ends_requests_until_it_dies", dir.path(), &format!("{last} {how}"))
            .wait_with_output()
            .unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        let mut all: Vec<_> = lines.lines().filter_map(acknowledgement).collect();
        for name in ["more", "most"] {
            let store = open(dir.path());
            check(&store, &all, &when);
            let rows = store.usage(0, 1000).unwrap();
            for refused in lines.lines().filter_map(|line| line.strip_prefix("refused ")?.strip_suffix(END)) {
                let id = format!("req_{}", refused.trim_end());
                assert!(rows.iter().all(|row| row.row.request_id != id), "{when}: {id}");
            }
            runtime.block_on(store.finish(finished(key(0), name, "0.000001", now()))).unwrap();
            all.push((0, name.to_owned()));
        }
        if lines.lines().any(|line| line == "all") {
            assert!(last > 10, "{lines}");
            return;
        }
        assert!(!output.status.success(), "{when}");
    }
}

#[test]
fn a_death_before_any_step_loses_nothing() {
    die_at_each_step("whole");
}

#[test]
fn a_death_while_the_journal_goes_somewhere_else_loses_nothing() {
    die_at_each_step("unsure");
}

#[test]
fn a_death_in_the_middle_of_any_step_loses_nothing() {
    die_at_each_step("torn");
}

#[test]
fn a_death_during_an_upgrade_loses_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let key = key(0);
    for how in ["whole", "torn"] {
        for last in 0.. {
            let lab = runtime.block_on(layouts::of_the_third(key));
            let upgrade = run("takes_over_until_it_dies", &lab.path(), &format!("{last} {how}"));
            let output = upgrade.wait_with_output().unwrap();
            // The first goes on with what is there, and the second with what that has made of it.
            for _ in 0..2 {
                layouts::check(&lab.open(), key, &format!("step {last}, {how}"));
            }
            if output.status.success() {
                assert!(last > 10 && String::from_utf8(output.stdout).unwrap().contains("all"));
                break;
            }
        }
    }
}
