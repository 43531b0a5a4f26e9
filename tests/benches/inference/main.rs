//! What the inference gateway costs: the load generator (`wrk`) and a bare upstream on one processor, the gateway on the other
//! while all others there wait, all in one run. Prints the tables of docs/performance.md: means of turns.
//!
//! `cargo bench -p cloister-tests --bench inference` measures the gateway; with `-- --peers` also those of the npm and
//! `PyPI` packages that `tests/inference-sdks/install-peers.sh` installs. Processors are kept awake, which takes root,
//! unless it is told `--drowsy`. `-- --soak 60` tells instead what memory the gateway has for so many minutes, with a thousand open streams
//! and a fraction of the load that it could take.

mod awake;
mod figures;
mod load;
mod mock;
mod process;
mod relay;
mod soak;
mod streams;
mod targets;
mod training;
mod turns;

use std::error::Error;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use figures::Mean;
use load::{Load, Seen};
use process::{Peer, Process, Without};
use targets::Goal;
use targets::Target::{AtLeast, AtMost};
use turns::Turns;

/// Connections of the load generator.
const CONNECTIONS: [u32; 3] = [1, 16, 64];
const USUAL: u32 = 16;
/// Above the table.
const HEAD: &str = "\
| 100-byte chat, keep-alive | connections | req/s | of the bare upstream | p50, p99 | added p50, p99 | CPU per request |
|---|---|---|---|---|---|---|";
/// What the gateway is measured without, too, at [`USUAL`] connections, and the most that it may cost, in percent of
/// the processor's time.
const PARTS: [(&str, Without, Option<f64>); 3] = [
    ("share of the access log", Without::AccessLog, Some(5.0)),
    ("share of the disk below the records", Without::Disk, Some(15.0)),
    ("share of the public log of receipts", Without::ReceiptLog, None),
];
/// How often each server has its turn, and how often each of those without a part, which differ less.
const ROUNDS: usize = 8;
const ROUNDS_OF_PARTS: usize = 24;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [_, "mock", address] => single()?.block_on(mock::serve(address.parse()?)),
        [_, "relay", address, upstream] => {
            single()?.block_on(relay::serve(address.parse()?, upstream.parse()?))
        }
        given if given.contains(&"--bench") => {
            let after = |option| given.iter().skip_while(|given| **given != option).nth(1);
            if let Some(server) = after("--train") {
                return single()?.block_on(training::run(server));
            }
            if let Some(minutes) = after("--soak") {
                return single()?.block_on(soak::run(minutes.parse()?));
            }
            let awake = if given.contains(&"--drowsy") { None } else { awake() };
            single()?.block_on(measure(given.contains(&"--peers"), awake.is_some()))
        }
        // `cargo test --benches` runs this, too, with nothing to measure.
        _ => Ok(()),
    }
}

fn single() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Keeps the processors awake, or says why they may sleep.
fn awake() -> Option<std::fs::File> {
    awake::keep().inspect_err(|error| eprintln!("processors may sleep, which costs time: {error}")).ok()
}

async fn measure(with_peers: bool, is_awake: bool) -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let path = directory.path();
    process::pin_this(process::cpus().load)?;
    let upstream = process::mock(path).await?;
    let relay = process::relay(path, upstream.address).await?;
    let gateway = process::gateway(path, upstream.address, Without::Nothing).await?;
    let fresh = streams::resident_mb_with_many(&gateway).await?;
    let mut peers = Vec::new();
    if with_peers {
        for Peer { name, start, .. } in process::PEERS {
            peers.push((name, start(path, upstream.address).await?));
        }
    }
    let mut servers = vec![("bare upstream", &upstream), ("relay of bytes", &relay), ("gateway", &gateway)];
    servers.extend(peers.iter().map(|(name, peer)| (*name, peer)));

    let mut out = io::stdout();
    writeln!(out, "Processors {}.\n\n{HEAD}", if is_awake { "are asked not to sleep" } else { "may sleep" })?;
    let mut compared = Vec::new();
    for connections in CONNECTIONS {
        compared.push(compare(&mut out, path, &servers, connections).await?);
    }
    drop((relay, peers));
    let first = streams::first_bytes(upstream.address, gateway.address).await?;
    let loaded = streams::resident_mb_with_many(&gateway).await?;
    writeln!(out, "\n| Streams | bare upstream | gateway |\n|---|---|---|\n{first}")?;
    drop(gateway);
    let shares = shares(path, &upstream).await?;

    let turns: Vec<&[Turns]> = compared.iter().map(Vec::as_slice).collect();
    let [[bare_one, _, one, ..], [bare, _, usual, peers @ ..], [_, _, many, ..]] = turns.as_slice() else {
        return Err("not everything was measured".into());
    };
    let mut goals = vec![
        Goal::new("CPU per request, 16 connections", usual.cpu_us(), AtMost(80.0), " µs"),
        Goal::new(
            "rate, of the bare upstream's, 16 connections",
            usual.times_the_rate_of(bare),
            AtLeast(0.25),
            "",
        ),
        Goal::new("added p50, 1 connection", one.p50_ms_added_to(bare_one), AtMost(0.15), " ms"),
        Goal::new("added p99, 1 connection", one.p99_ms_added_to(bare_one), AtMost(0.5), " ms"),
        Goal::new("p99, 16 connections", usual.p99_ms(), AtMost(2.0), " ms"),
        Goal::new("rate at 64 connections, of that at 16", many.times_the_rate_of(usual), None, ""),
        Goal::new("added to the first byte of a stream, p50", first.added_ms(), AtMost(0.3), " ms"),
        Goal::new("resident, 1,000 streams, after the start", fresh, AtMost(60.0), " MB"),
        Goal::new("resident, 1,000 streams, after the loads", loaded, AtMost(60.0), " MB"),
    ];
    goals.extend(shares);
    goals.extend(process::PEERS.iter().zip(peers).map(|(Peer { goal, times, .. }, peer)| {
        Goal::new(goal, usual.times_the_rate_of(peer), AtLeast(*times), " times")
    }));
    writeln!(out, "{}", targets::HEAD)?;
    for goal in goals {
        writeln!(out, "{goal}")?;
    }
    Ok(())
}

/// Measures servers side by side, of which the first is the bare upstream, and prints a row for each.
async fn compare(
    out: &mut impl io::Write,
    directory: &Path,
    servers: &[(&str, &Process)],
    connections: u32,
) -> Result<Vec<Turns>, Failure> {
    let processes: Vec<&Process> = servers.iter().map(|(_, process)| *process).collect();
    let all = turns::take(directory, &processes, connections, ROUNDS).await?;
    let Some(bare) = all.first() else { return Ok(all) };
    for ((name, _), turns) in servers.iter().zip(&all) {
        let figures = [
            turns.rate(),
            turns.times_the_rate_of(bare),
            turns.p50_ms(),
            turns.p99_ms(),
            turns.p50_ms_added_to(bare),
            turns.p99_ms_added_to(bare),
            turns.cpu_us(),
        ];
        let [rate, share, p50, p99, more_p50, more_p99, cpu_us] = figures.map(|Mean { mean, .. }| mean);
        writeln!(
            out,
            "| {name} | {connections} | {rate:.0} | {share:.3} | {p50:.3} ms, {p99:.3} ms | \
             {more_p50:.3} ms, {more_p99:.3} ms | {cpu_us:.0} µs |"
        )?;
    }
    Ok(all)
}

/// What parts of the gateway cost, by gateways without them: all new, and in turns.
async fn shares(directory: &Path, upstream: &Process) -> Result<Vec<Goal>, Failure> {
    let mut gateways = Vec::new();
    for without in [Without::Nothing].into_iter().chain(PARTS.map(|(_, without, _)| without)) {
        let directory = tempfile::tempdir_in(directory)?;
        gateways.push((process::gateway(directory.path(), upstream.address, without).await?, directory));
    }
    let processes: Vec<&Process> = gateways.iter().map(|(gateway, _)| gateway).collect();
    let turns = turns::take(directory, &processes, USUAL, ROUNDS_OF_PARTS).await?;
    let Some((whole, parts)) = turns.split_first() else { return Err("nothing was measured".into()) };
    let goal = |((what, _, most), part): ((&'static str, Without, Option<f64>), &Turns)| {
        Goal::new(what, whole.saved_by(part), most.map(AtMost), " %")
    };
    Ok(PARTS.into_iter().zip(parts).map(goal).collect())
}

async fn load(directory: &Path, to: &Process, connections: u32, duration: Duration) -> Result<Seen, Failure> {
    Load { directory, to, connections, duration, pause: Duration::ZERO }.run().await
}
