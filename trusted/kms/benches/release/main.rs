//! What releasing a key costs: `getKey` on established connections against a bare handler on the same
//! transport, its latency at the target rate, a fresh RA-TLS connection, and memory over many releases.
//!
//! `cargo bench -p cloister-kms --bench release [-- RELEASES]` prints the table. The KMS is a process of its
//! own on the first core, callers and the platform's services are on the second; figures "per core" are
//! requests per second of the KMS's CPU time, all its threads and the kernel's work for them included. Each
//! release is in the log before it is answered. RELEASES is how many there are when memory is read the
//! second time.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a bench prints, and takes the time; its counts are small"
)]

mod caller;
mod machine;
mod process;
mod server;
mod vendor;

use std::time::{Duration, Instant};

use caller::{Caller, Holder};
use process::Server;

/// Anything that goes wrong ends the bench.
pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const CONNECTIONS: usize = 64;
const ROUND: Duration = Duration::from_secs(5);
/// Requests per second of the rounds that measure CPU time: fewer than the KMS takes from one address.
const RATE: f64 = 10_000.0;
/// Requests per second of the latency round, and what one core must reach.
const TARGET: f64 = 5_000.0;
const ALLOWED_P99_MS: f64 = 5.0;
const FRESH: usize = 200;
const ALLOWED_FRESH_MS: f64 = 10.0;
/// Slower than the KMS lets one address shake hands.
const FRESH_PACE: Duration = Duration::from_millis(12);
const EARLY: usize = 10_000;
const DEFAULT_LATE: usize = 100_000;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|one| one != "--bench").collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    match arguments.as_slice() {
        [mode, dir, pccs] if mode == "serve" => runtime.block_on(server::kms(dir.as_ref(), pccs)),
        [mode] if mode == "bare" => runtime.block_on(server::bare()),
        [] => runtime.block_on(measure(DEFAULT_LATE)),
        [count] => runtime.block_on(measure(count.parse()?)),
        _ => Err("at most one argument: the number of releases".into()),
    }
}

async fn measure(late: usize) -> Outcome<()> {
    process::pin_myself();
    let bare = Server::bare()?;
    let holder = Holder::plain()?;
    let plain = round(&bare, &callers(&bare, &holder).await?).await?;
    drop(bare);

    let kms = Server::kms().await?;
    let holder = kms.machine.holder()?;
    let established = callers(&kms.server, &holder).await?;
    round(&kms.server, &established).await?;
    let keys = round(&kms.server, &established).await?;
    let times = caller::at_rate(&established, TARGET, ROUND).await?;
    let (p50, p99) = (caller::percentile(&times, 50), caller::percentile(&times, 99));

    let holders: Vec<_> = (0..FRESH).map(|_| kms.machine.holder()).collect::<Outcome<_>>()?;
    let before = kms.server.cpu()?;
    for holder in &holders {
        let begin = Instant::now();
        Caller::connect(kms.server.address, holder).await?.ask().await?;
        tokio::time::sleep(FRESH_PACE.saturating_sub(begin.elapsed())).await;
    }
    let fresh = kms.server.cpu()?.saturating_sub(before).as_secs_f64() * 1e3 / FRESH as f64;

    let mut memory = Vec::new();
    let mut done = 0;
    for count in [EARLY, late.max(EARLY)] {
        let time = Duration::from_secs_f64(count.saturating_sub(done) as f64 / RATE);
        caller::at_rate(&established, RATE, time).await?;
        done = count;
        memory.push((count, kms.server.memory()?));
    }

    println!("| Release of a named key, {CONNECTIONS} connections | |");
    println!("|---|---|");
    println!(
        "| bare handler, same TLS and HTTP | {:.0}/s per core, {:.0} µs of CPU each |",
        plain.rate(),
        plain.each()
    );
    println!(
        "| getKey, recorded in the log | {:.0}/s per core, {:.0} µs of CPU each |",
        keys.rate(),
        keys.each()
    );
    println!("| latency at {TARGET:.0}/s | p50 {p50:.2} ms, p99 {p99:.2} ms |");
    println!("| fresh RA-TLS connection of a new machine, and one key | {fresh:.2} ms of CPU |");
    for (count, kibibytes) in memory {
        println!("| memory after {count} further releases | {:.1} MiB |", kibibytes as f64 / 1024.0);
    }
    let missed = keys.rate() < TARGET || p99 > ALLOWED_P99_MS || fresh > ALLOWED_FRESH_MS;
    if missed { Err("a figure is worse than demanded".into()) } else { Ok(()) }
}

/// Requests of one round, and the server's CPU time for them.
struct Round {
    done: usize,
    cpu: Duration,
}

impl Round {
    fn rate(&self) -> f64 {
        self.done as f64 / self.cpu.as_secs_f64()
    }

    fn each(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.done as f64
    }
}

async fn callers(server: &Server, holder: &Holder) -> Outcome<Vec<Caller>> {
    let mut callers = Vec::new();
    for _ in 0..CONNECTIONS {
        callers.push(Caller::connect(server.address, holder).await?);
    }
    Ok(callers)
}

async fn round(server: &Server, callers: &[Caller]) -> Outcome<Round> {
    let before = server.cpu()?;
    let done = caller::at_rate(callers, RATE, ROUND).await?.len();
    Ok(Round { done, cpu: server.cpu()?.saturating_sub(before) })
}
