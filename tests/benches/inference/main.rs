//! What the inference gateway costs: the load generator (`wrk`) and a bare upstream on one processor, the gateway alone
//! on the other, all in one run. Prints the table of docs/performance.md.
//!
//! `cargo bench -p cloister-tests --bench inference` measures the gateway; with `-- --peers` also those of the npm and
//! `PyPI` packages that `tests/inference-sdks/install-peers.sh` installs.

mod load;
mod mock;
mod process;
mod streams;

use std::error::Error;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use load::{Load, Seen};
use process::{LOAD_CPU, Process};

/// How long each measurement takes.
const DURATION: Duration = Duration::from_secs(10);
/// Connections of the load generator.
const CONNECTIONS: [u32; 3] = [1, 16, 64];

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [_, "mock", address] => single()?.block_on(mock::serve(address.parse()?)),
        given if given.contains(&"--bench") => single()?.block_on(measure(given.contains(&"--peers"))),
        // `cargo test --benches` runs this, too, with nothing to measure.
        _ => Ok(()),
    }
}

fn single() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

async fn measure(with_peers: bool) -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    process::pin_this(LOAD_CPU)?;
    let upstream = process::mock(directory.path()).await?;
    let mut out = io::stdout();
    writeln!(
        out,
        "| 100-byte chat, keep-alive | connections | req/s | of the bare upstream | p50 | p99 | CPU per request |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|")?;
    let mut bare = Vec::new();
    for connections in CONNECTIONS {
        let seen = load(directory.path(), upstream.address, None, connections).await?;
        writeln!(out, "| bare upstream | {connections} | {:.0} | | {} | |", seen.rate(), seen.latencies())?;
        bare.push(seen);
    }
    let gateway = process::gateway(directory.path(), upstream.address).await?;
    row("gateway, receipts and accounting on", &mut out, directory.path(), &gateway, &bare).await?;
    let first = streams::first_bytes(upstream.address, gateway.address).await?;
    writeln!(out, "\n| streams | bare upstream | gateway |\n|---|---|---|\n{first}")?;
    let memory = streams::open(&gateway).await?;
    writeln!(out, "{memory}")?;
    drop(gateway);
    if with_peers {
        writeln!(
            out,
            "\n| peers, 16 connections | connections | req/s | of the bare upstream | p50 | p99 | CPU per request |"
        )?;
        writeln!(out, "|---|---|---|---|---|---|---|")?;
        for (what, start) in process::PEERS {
            let peer = start(directory.path(), upstream.address).await?;
            row(what, &mut out, directory.path(), &peer, &bare).await?;
        }
    }
    Ok(())
}

async fn row(
    what: &str,
    out: &mut impl io::Write,
    directory: &Path,
    through: &Process,
    bare: &[Seen],
) -> Result<(), Failure> {
    for (connections, bare) in CONNECTIONS.into_iter().zip(bare) {
        // What is built up at first, such as connections, does not count.
        Load {
            directory,
            connections,
            duration: Duration::from_secs(1),
            path: through.path,
            headers: &through.headers,
        }
        .run(through.address)
        .await?;
        let before = through.cpu()?;
        let seen = load(directory, through.address, Some(through), connections).await?;
        let cpu = through.cpu()?.saturating_sub(before).as_secs_f64() * 1e6 / seen.requests.max(1.0);
        let share = seen.rate() / bare.rate();
        writeln!(
            out,
            "| {what} | {connections} | {:.0} | {share:.3} | {} | {cpu:.0} µs |{}",
            seen.rate(),
            seen.latencies(),
            if seen.failed > 0.0 { format!(" {} FAILED", seen.failed) } else { String::new() }
        )?;
    }
    Ok(())
}

async fn load(
    directory: &Path,
    address: SocketAddr,
    through: Option<&Process>,
    connections: u32,
) -> Result<Seen, Failure> {
    let path = through.map_or("/v1/chat/completions", |process| process.path);
    let none = Vec::new();
    let headers = through.map_or(&none, |process| &process.headers);
    Load { directory, connections, duration: DURATION, path, headers }.run(address).await
}
