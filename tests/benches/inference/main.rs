//! What the inference gateway costs: the load generator (`wrk`) and a bare upstream on one processor, the gateway alone
//! on the other, all in one run. Prints the tables of docs/performance.md.
//!
//! `cargo bench -p cloister-tests --bench inference` measures the gateway; with `-- --peers` also those of the npm and
//! `PyPI` packages that `tests/inference-sdks/install-peers.sh` installs. Processors are kept awake, which takes root,
//! unless it is told `--drowsy`. `-- --soak 60` tells instead what memory the gateway has for so many minutes, with a thousand open streams
//! and a fraction of the load that it could take.

mod awake;
mod load;
mod mock;
mod process;
mod relay;
mod soak;
mod streams;
mod targets;
mod training;

use std::error::Error;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use load::{Load, Seen};
use process::{Process, Without};
use targets::{Goal, Mean};

/// How long each measurement takes.
const DURATION: Duration = Duration::from_secs(10);
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
/// How often, and how long, each is measured in turns. Many short ones: the machine's speed changes by a tenth from one to
/// the next, and what is compared should stand close together.
const TURNS: usize = 24;
const TURN: Duration = Duration::from_secs(2);

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

/// What was seen with so many connections.
#[derive(Clone, Copy)]
struct Measured {
    connections: u32,
    seen: Seen,
    /// Time of processors for a request, in microseconds.
    cpu_us: f64,
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
    let mut out = io::stdout();
    writeln!(out, "Processors {}.\n\n{HEAD}", if is_awake { "are asked not to sleep" } else { "may sleep" })?;
    let mut bare = Vec::new();
    for connections in CONNECTIONS {
        let seen = load(path, &upstream, connections, DURATION).await?;
        writeln!(out, "| bare upstream | {connections} | {:.0} | | {} | | |", seen.rate(), seen.latencies())?;
        bare.push((connections, seen));
    }
    let relay = process::relay(path, upstream.address).await?;
    rows("relay of bytes", &mut out, path, &relay, &bare).await?;
    let gateway = process::gateway(path, upstream.address, Without::Nothing).await?;
    let fresh = streams::resident_mb_with_many(&gateway).await?;
    let ours = rows("gateway", &mut out, path, &gateway, &bare).await?;
    let mut peers = Vec::new();
    if with_peers {
        for (what, start) in process::PEERS {
            let peer = start(path, upstream.address).await?;
            peers.push(rows(what, &mut out, path, &peer, &bare).await?);
        }
    }
    let first = streams::first_bytes(upstream.address, gateway.address).await?;
    let loaded = streams::resident_mb_with_many(&gateway).await?;
    writeln!(out, "\n| Streams | bare upstream | gateway |\n|---|---|---|\n{first}")?;
    drop(gateway);
    let shares = shares(path, &upstream).await?;

    let ([one, usual, many], [(_, bare_one), (_, bare_usual), _]) = (ours.as_slice(), bare.as_slice()) else {
        return Err("not everything was measured".into());
    };
    let mut goals = vec![
        Goal::at_most("CPU per request, 16 connections", usual.cpu_us, 80.0, " µs"),
        Goal::at_least(
            "rate, of the bare upstream's, 16 connections",
            usual.seen.rate() / bare_usual.rate(),
            0.25,
            "",
        ),
        Goal::at_most("added p50, 1 connection", one.seen.p50_ms() - bare_one.p50_ms(), 0.15, " ms"),
        Goal::at_most("added p99, 1 connection", one.seen.p99_ms() - bare_one.p99_ms(), 0.5, " ms"),
        Goal::at_most("p99, 16 connections", usual.seen.p99_ms(), 2.0, " ms"),
        Goal::told("rate at 64 connections, of that at 16", many.seen.rate() / usual.seen.rate(), ""),
        Goal::at_most("added to the first byte of a stream, p50", first.added_ms(), 0.3, " ms"),
        Goal::at_most("resident, 1,000 streams, after the start", fresh, 60.0, " MB"),
        Goal::at_most("resident, 1,000 streams, after the loads", loaded, 60.0, " MB"),
    ];
    goals.extend(shares);
    for ((what, times), peer) in
        [("rate, of Portkey's", 10.0), ("rate, of LiteLLM's", 50.0)].into_iter().zip(&peers)
    {
        if let Some(peer) = peer.iter().find(|peer| peer.connections == USUAL) {
            goals.push(Goal::at_least(what, usual.seen.rate() / peer.seen.rate(), times, " times"));
        }
    }
    writeln!(out, "{}", targets::HEAD)?;
    for goal in goals {
        writeln!(out, "{goal}")?;
    }
    Ok(())
}

/// Measures a gateway with as many connections as the bare upstream was, and prints a row for each.
async fn rows(
    what: &str,
    out: &mut impl io::Write,
    directory: &Path,
    through: &Process,
    bare: &[(u32, Seen)],
) -> Result<Vec<Measured>, Failure> {
    let mut rows = Vec::new();
    for (connections, bare) in bare {
        let measured = usage(directory, through, *connections, DURATION).await?;
        let Measured { seen, cpu_us, .. } = measured;
        rows.push(measured);
        writeln!(
            out,
            "| {what} | {connections} | {:.0} | {:.3} | {} | {} | {cpu_us:.0} µs |",
            seen.rate(),
            seen.rate() / bare.rate(),
            seen.latencies(),
            seen.added_to(bare),
        )?;
    }
    Ok(rows)
}

async fn usage(
    directory: &Path,
    through: &Process,
    connections: u32,
    duration: Duration,
) -> Result<Measured, Failure> {
    // What is built up at first, such as connections, does not count.
    load(directory, through, connections, Duration::from_secs(1)).await?;
    warm_usage(directory, through, connections, duration).await
}

async fn warm_usage(
    directory: &Path,
    through: &Process,
    connections: u32,
    duration: Duration,
) -> Result<Measured, Failure> {
    let before = through.cpu()?;
    let seen = load(directory, through, connections, duration).await?.all_answered()?;
    let cpu_us = through.cpu()?.saturating_sub(before).as_secs_f64() * 1e6 / seen.requests.max(1.0);
    Ok(Measured { connections, seen, cpu_us })
}

/// What parts of the gateway cost, by gateways without them: all new, and in turns.
async fn shares(directory: &Path, upstream: &Process) -> Result<Vec<Goal>, Failure> {
    let whole = Without::Nothing;
    let mut gateways = Vec::new();
    for without in [whole].into_iter().chain(PARTS.map(|(_, without, _)| without)) {
        let directory = tempfile::tempdir_in(directory)?;
        let gateway = process::gateway(directory.path(), upstream.address, without).await?;
        load(directory.path(), &gateway, USUAL, Duration::from_secs(1)).await?;
        gateways.push((without, gateway, directory));
    }
    let mut turns = Vec::with_capacity(TURNS);
    for _ in 0..TURNS {
        let mut turn = Vec::with_capacity(gateways.len());
        for (without, gateway, _) in &gateways {
            turn.push((*without, warm_usage(directory, gateway, USUAL, TURN).await?.cpu_us));
        }
        turns.push(turn);
        // Nobody is always the first.
        gateways.rotate_left(1);
    }
    let cpu_us = |turn: &[(Without, f64)], of: Without| {
        turn.iter().find(|(without, _)| *without == of).map_or(f64::NAN, |(_, cpu_us)| *cpu_us)
    };
    let goals = PARTS.map(|(what, without, most)| {
        let shares: Vec<f64> =
            turns.iter().map(|turn| 100.0 * (1.0 - cpu_us(turn, without) / cpu_us(turn, whole))).collect();
        let share = Mean::of(&shares);
        let goal = match most {
            Some(most) => Goal::at_most(what, share.mean, most, " %"),
            None => Goal::told(what, share.mean, " %"),
        };
        goal.give_or_take(share.error)
    });
    Ok(goals.into())
}

async fn load(directory: &Path, to: &Process, connections: u32, duration: Duration) -> Result<Seen, Failure> {
    Load { directory, to, connections, duration, pause: Duration::ZERO }.run().await
}
