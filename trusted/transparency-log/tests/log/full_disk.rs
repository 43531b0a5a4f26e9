//! A disk without space: a process whose files may not grow beyond a limit.

use std::path::Path;
use std::process::Command;

use cloister_transparency_log::LogError;

use crate::support::{open, runtime};

const DIR: &str = "CLOISTER_TEST_FULL_DISK_DIR";

/// The process with the limit.
#[test]
#[ignore = "runs as a process of its own, below"]
fn appends_until_there_is_no_space() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let log = open(Path::new(&dir));
    let mut written = 0;
    let error = loop {
        match log.append_blocking(vec![b'x'; 1000]) {
            Ok(index) => assert_eq!(index, written),
            Err(error) => break error,
        }
        written += 1;
    };
    assert!(matches!(error, LogError::NotWritten(_)), "{error}");
    assert!(written > 10, "{written}");
    // Everybody who waits is told, nothing of it counts, and what fits is still taken.
    let outcomes = runtime().block_on(async {
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let log = log.clone();
                tokio::spawn(async move { log.append(vec![b'y'; 1000]).await })
            })
            .collect();
        let mut outcomes = Vec::new();
        for task in tasks {
            outcomes.push(task.await.unwrap());
        }
        outcomes
    });
    assert!(outcomes.iter().all(Result::is_err), "{outcomes:?}");
    assert_eq!(log.size(), written);
    assert_eq!(log.append_blocking(vec![b'z']).unwrap(), written);
    println!("written {written}");
}

#[test]
fn without_space_every_caller_is_told_and_the_log_stays_whole() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new("sh")
        // Blocks of 512 or 1024 bytes, as the shell likes. Without the signal, writing fails.
        .args(["-c", "trap '' XFSZ; ulimit -f 64 && exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "full_disk::appends_until_there_is_no_space", "--ignored", "--nocapture"])
        .env(DIR, dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let (_, written) = said.split_once("written ").unwrap();
    let written: u64 = written.lines().next().unwrap().parse().unwrap();

    let log = open(dir.path());
    assert_eq!(log.size(), written + 1);
    let records = log.records(0, usize::MAX).unwrap();
    assert_eq!(records.last().unwrap(), b"z");
    assert!(records.iter().rev().skip(1).all(|record| record == &[b'x'; 1000]));
    assert_eq!(log.append_blocking(vec![b'y'; 1000]).unwrap(), written + 1);
}
