//! A process that is killed in the middle of appending.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use cloister_transparency_log::verify::root_of;

use crate::support::{open, runtime};

const DIR: &str = "CLOISTER_TEST_LOG_DIR";
const CALLERS: u64 = 8;

/// The process that is killed: appends from several tasks and prints what was acknowledged.
#[test]
#[ignore = "runs as a process of its own, below"]
fn appends_until_it_is_killed() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let log = open(Path::new(&dir));
    let first = log.size();
    runtime().block_on(async {
        let tasks: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let log = log.clone();
                tokio::spawn(async move {
                    for turn in 0_u64.. {
                        let text = format!("{first}/{caller}/{turn}/{}", "x".repeat(200));
                        let index = log.append(text.clone().into_bytes()).await.unwrap();
                        println!("acknowledged {index} {text}");
                        if turn % 16 == 0 {
                            log.checkpoint().unwrap();
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

/// Index and text of a record. A line that the kill has cut off is not known to have been acknowledged.
fn acknowledgement(line: &str) -> Option<(u64, String)> {
    // The test harness may write before it.
    let (_, rest) = line.split_once("acknowledged ")?;
    let (index, text) = rest.split_once(' ')?;
    text.ends_with(&"x".repeat(200)).then(|| (index.parse().unwrap(), text.to_owned()))
}

/// Runs the process until it has acknowledged `count` records and kills it; all that it acknowledged.
fn run_and_kill(dir: &Path, count: usize) -> Vec<(u64, String)> {
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::appends_until_it_is_killed", "--ignored", "--nocapture"])
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
fn everything_that_was_acknowledged_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = Vec::new();
    for round in 0..12 {
        let acknowledged = run_and_kill(dir.path(), 1 + round * 29);
        all.extend(acknowledged);
        let log = open(dir.path());
        let records: Vec<_> = (0..log.size()).map(|index| log.records(index, 1).unwrap().remove(0)).collect();
        for (index, text) in &all {
            let index = usize::try_from(*index).unwrap();
            assert_eq!(records.get(index).map(Vec::as_slice), Some(text.as_bytes()), "round {round}");
        }
        assert_eq!(log.root(), root_of(&records));
    }
}
