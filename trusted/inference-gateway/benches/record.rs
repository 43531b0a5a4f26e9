//! What it costs to record requests: how long one that ends waits, how many end in a second with 64 callers, what a
//! receipt takes on the disk, and what a store of many takes in memory and to open.
//!
//! `cargo bench -p cloister-inference-gateway --bench record -- COUNT` prints the table; COUNT is 1,000,000 if absent.
#![expect(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a bench prints; its sizes are small and known"
)]

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use cloister_inference_gateway::admission::KeyHash;
use cloister_inference_gateway::record::{Finished, KeptReceipt, Row, Settings, Store};
use cloister_verifier::Clock;

/// As long as a receipt of a verified upstream.
const RECEIPT_BYTES: usize = 1680;
const CALLERS: u64 = 64;
const MANY: u64 = 1_000_000;
/// Requests that end one after the other, with a pause between.
const ALONE: u64 = 2000;
const PAUSE: Duration = Duration::from_millis(2);
const ROW: &str = r#"{"requestId":"","endpoint":"/v1/chat/completions","status":200,"durationMs":812,"ttftMs":120,
    "isStreaming":true,"attemptIndex":0,"selectedRouteId":"one:vendor/model","requestModel":"vendor/model",
    "usage":{"prompt_tokens":812,"completion_tokens":230,"total_tokens":1042},"promptTokens":812,
    "completionTokens":230,"cost":"0.00127","pricing":null,"endedAt":0}"#;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let count = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(MANY);
    // Not /tmp, which may be memory.
    let parent = option_env!("CARGO_TARGET_TMPDIR").map_or_else(std::env::temp_dir, Into::into);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
    alone(&parent, &runtime)?;
    for is_logging in [false, true] {
        let dir = tempfile::tempdir_in(&parent)?;
        measure(dir.path(), count, is_logging, &runtime)?;
    }
    Ok(())
}

/// How long the end of one request waits while no other ends.
fn alone(parent: &Path, runtime: &tokio::runtime::Runtime) -> Outcome<()> {
    let dir = tempfile::tempdir_in(parent)?;
    let store = Store::open(dir.path(), Settings::default(), Clock::system())?;
    let mut times = runtime.block_on(async {
        tokio::spawn(async move {
            let mut times = Vec::new();
            for turn in 0..ALONE {
                let finished = finished(turn)?;
                let began = Instant::now();
                store.finish(finished).await?;
                times.push(began.elapsed());
                tokio::time::sleep(PAUSE).await;
            }
            Outcome::Ok(times)
        })
        .await?
    })?;
    times.sort();
    println!("{ALONE} requests, one after the other");
    for (name, share) in [("p50", 2), ("p90", 10), ("p99", 100), ("p99.9", 1000)] {
        let at = times.len() - 1 - times.len() / share;
        let time = times.get(at).copied().unwrap_or_default();
        println!("  {name:<21} {:>10.3} ms", time.as_secs_f64() * 1000.0);
    }
    Ok(())
}

fn measure(dir: &Path, count: u64, is_logging: bool, runtime: &tokio::runtime::Runtime) -> Outcome<()> {
    let settings = Settings { is_logging, ..Settings::default() };
    let open = || Store::open(dir, settings, Clock::system());
    let store = open()?;
    let began = Instant::now();
    runtime.block_on(async {
        let callers = (0..CALLERS).map(|caller| {
            let store = store.clone();
            tokio::spawn(async move {
                for turn in (caller..count).step_by(usize::try_from(CALLERS)?) {
                    store.finish(finished(turn)?).await?;
                }
                Outcome::Ok(())
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await??;
        }
        Outcome::Ok(())
    })?;
    let elapsed = began.elapsed().as_secs_f64();
    drop(store);
    println!("receipts logged: {is_logging}; {count} requests, {CALLERS} callers");
    println!("  ended in a second     {:>10.0}", count as f64 / elapsed);
    println!("  bytes on the disk     {:>10.0} for each", bytes(dir)? as f64 / count as f64);
    let began = Instant::now();
    let store = open()?;
    println!("  opened in             {:>10.2} s", began.elapsed().as_secs_f64());
    println!("  memory of the process {:>10.0} MiB", resident_kib()? as f64 / 1024.0);
    drop(store);
    Ok(())
}

fn finished(turn: u64) -> Outcome<Finished> {
    let now = u64::try_from(Clock::system().now().as_second())?;
    let mut row: Row = serde_json::from_str(ROW)?;
    row.request_id = format!("req_{turn:024x}{:08x}", 0);
    row.ended_at = now;
    let receipt = KeptReceipt {
        id: format!("rcpt-{turn:024x}"),
        chat_id: Some(row.request_id.clone()),
        session_id: Some(format!("{:064x}", turn % 8)),
        document: vec![b'x'; RECEIPT_BYTES],
        served_at: now,
    };
    Ok(Finished { key: KeyHash::of(&(turn % 16).to_string()), rows: vec![row], receipt: Some(receipt) })
}

/// Bytes that the files below a directory take on the disk.
fn bytes(dir: &Path) -> Outcome<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let mut sum = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        sum += if metadata.is_dir() { bytes(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(sum)
}

/// Memory of this process that is not swapped out, in KiB.
fn resident_kib() -> Outcome<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
