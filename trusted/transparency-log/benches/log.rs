//! Appends per second with one caller and with many, time until a record is durable, and what a log of a
//! million records costs: proofs, opening, memory.
//!
//! `cargo bench -p cloister-transparency-log --bench log` prints the tables; docs/performance.md quotes them.
#![expect(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a bench prints; its sizes are small and known"
)]

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use cloister_transparency_log::{Log, SigningKey};

/// As long as the record of a release.
const RECORD_BYTES: usize = 420;
const CALLERS: [u64; 4] = [1, 16, 64, 256];
const ROUND: Duration = Duration::from_secs(4);
const MANY: u64 = 1_000_000;
const PROOFS: u64 = 20_000;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn open(dir: &Path) -> Outcome<Log> {
    Ok(Log::open(dir, SigningKey::from_seed(&[7; 32]), "kms.example")?)
}

fn record(index: u64) -> Vec<u8> {
    let mut record = index.to_string().into_bytes();
    record.resize(RECORD_BYTES, b'x');
    record
}

fn main() -> Outcome<()> {
    // Not /tmp, which may be memory.
    let parent = option_env!("CARGO_TARGET_TMPDIR").map_or_else(std::env::temp_dir, Into::into);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
    println!("callers  appends/s     p50       p99");
    for callers in CALLERS {
        let dir = tempfile::tempdir_in(&parent)?;
        runtime.block_on(appends(open(dir.path())?, callers))?;
    }
    let dir = tempfile::tempdir_in(&parent)?;
    million(&runtime, dir.path())
}

async fn appends(log: Log, callers: u64) -> Outcome<()> {
    let begin = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|caller| {
            let log = log.clone();
            tokio::spawn(async move {
                let mut times = Vec::new();
                while begin.elapsed() < ROUND {
                    let record = record(caller);
                    let asked = Instant::now();
                    log.append(record).await?;
                    times.push(asked.elapsed());
                }
                Outcome::Ok(times)
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await??);
    }
    let per_second = times.len() as f64 / begin.elapsed().as_secs_f64();
    times.sort_unstable();
    let quantile = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or_default();
    println!(
        "{callers:7}  {per_second:9.0}  {:6.2} ms {:6.2} ms",
        millis(quantile(50)),
        millis(quantile(99))
    );
    Ok(())
}

fn million(runtime: &tokio::runtime::Runtime, dir: &Path) -> Outcome<()> {
    let log = open(dir)?;
    let before = resident_kib();
    let begin = Instant::now();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..512)
            .map(|first| {
                let log = log.clone();
                tokio::spawn(async move {
                    for index in (first..MANY).step_by(512) {
                        log.append(record(index)).await?;
                    }
                    Outcome::Ok(())
                })
            })
            .collect();
        for task in tasks {
            task.await??;
        }
        Outcome::Ok(())
    })?;
    println!("\n{MANY} records");
    println!("appending         {:9.2} s", begin.elapsed().as_secs_f64());
    println!("memory before     {before:9} KiB\nmemory after      {:9} KiB", resident_kib());
    let size = log.size();
    let places = || (0..PROOFS).map(|turn| turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) % size);
    per_call("inclusion proof", || {
        for index in places() {
            black_box(log.inclusion(index, size)?);
        }
        Ok(())
    })?;
    per_call("consistency proof", || {
        for from in places() {
            black_box(log.consistency(from, size)?);
        }
        Ok(())
    })?;
    let begin = Instant::now();
    let mut read = 0;
    while read < size {
        read += log.records(read, 1000)?.len() as u64;
    }
    println!("reading all       {:9.2} s", begin.elapsed().as_secs_f64());
    drop(log);
    let begin = Instant::now();
    black_box(open(dir)?);
    println!("opening           {:9.2} s", begin.elapsed().as_secs_f64());
    Ok(())
}

fn per_call(name: &str, calls: impl FnOnce() -> Outcome<()>) -> Outcome<()> {
    let begin = Instant::now();
    calls()?;
    println!("{name:17} {:9.2} µs", begin.elapsed().as_secs_f64() * 1e6 / PROOFS as f64);
    Ok(())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Memory of this process, in KiB; 0 where the kernel does not tell.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}
